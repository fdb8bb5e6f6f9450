package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// On a full disk nothing is claimed and nothing is lost.
func TestSmallDisk(t *testing.T) {
	mount := t.TempDir()
	if err := unix.Mount("onced-e2e", mount, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("NOT TESTED: a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(mount, "data")
	if out, exit := runOnced(t, "init", "--data", dir); exit != 0 {
		t.Fatalf("onced init ended with status %d:\n%s", exit, out)
	}
	s := serve(t, dir)
	fullDisk(t, s, func() {
		if err := unix.Mount("onced-e2e", mount, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
			t.Fatal(err)
		}
	})
	s.stop()
	isSound(t, dir)
}

// fullDisk fills the store of a server until it takes no claims, and demands that
// it goes on as far as that is possible, and wholly when there is room again.
func fullDisk(t *testing.T, s *process, makeRoom func()) {
	c := s.caller()
	held := leased("held", time.Hour)
	granted := c.granted(held)
	settled, last, full := fill(c)
	refused(t, full, codes.ResourceExhausted, "STORAGE_FULL")
	c.absent(last.GetRef().GetKey())
	s.reports(grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	for _, key := range settled {
		if got := c.answered(claimOf(key), replayedOutcome).GetOperation().GetResult().GetSize(); got != 256<<10 {
			t.Errorf("on the full disk the replay of %s has %d bytes", key, got)
		}
	}
	report := completion(held, granted, "small")
	_, err := c.stub.Complete(c.ctx(), report)
	t.Logf("operations until the disk was full: %d; then the report of a holder was answered %v", len(settled), status.Code(err))
	if err != nil {
		refused(t, err, codes.ResourceExhausted, "STORAGE_FULL")
		c.answered(claimOf("held"), inProgressOutcome)
	}

	makeRoom()
	c.complete(report)
	c.replayed("held", "small", granted)
	c.granted(last)
	eventually(t, "the health to recover", func() bool {
		return s.health(oncedv1.IdempotencyService_ServiceDesc.ServiceName) == grpc_health_v1.HealthCheckResponse_SERVING
	})
}

// fill completes operations with large results until there is no room for one,
// and then claims others until there is no room for that either. It returns what
// was settled, and the last claim and its refusal.
func fill(c caller) (settled []string, last *oncedv1.ClaimRequest, full error) {
	c.t.Helper()
	claim := func(i int) *oncedv1.ClaimRequest {
		req := leased(fmt.Sprintf("filling-%d", i), time.Hour)
		req.Labels = map[string]string{}
		for label := range 16 {
			req.Labels[fmt.Sprint(label)] = strings.Repeat("x", 256)
		}
		return req
	}
	result := &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{Body: &oncedv1.Payload_Data{Data: make([]byte, 256<<10)}}}
	large := true
	for i := range 2000 {
		last = claim(i)
		answer, err := c.stub.Claim(c.ctx(), last)
		if err != nil {
			return settled, last, err
		}
		if !large {
			continue
		}
		report := completion(last, answer, "")
		report.Result = result
		if _, err := c.stub.Complete(c.ctx(), report); err == nil {
			settled = append(settled, last.GetRef().GetKey())
		} else {
			refused(c.t, err, codes.ResourceExhausted, "STORAGE_FULL")
			large = false
		}
	}
	c.t.Fatal("the disk does not get full")
	return nil, nil, nil
}

// A server that may open no more files serves those who are connected, and
// everybody again when connections are closed.
func TestNoFilesLeft(t *testing.T) {
	const files, more = 64, 100
	s := serve(t, newStore(t))
	c := s.caller()
	c.granted(claimOf("before"))
	var limit unix.Rlimit
	if err := unix.Prlimit(s.PID, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(s.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: limit.Max}, nil); err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	for range more {
		conn, err := net.Dial("tcp", s.GRPC) // the kernel takes more connections than the server
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	eventually(t, "the server to have no file left", func() bool {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID))
		return err == nil && len(entries) >= files
	})
	for i := range 10 {
		req := claimOf(fmt.Sprintf("connected-%d", i))
		c.complete(completion(req, c.granted(req), "done"))
	}
	for _, conn := range open {
		conn.Close()
	}
	s.goesOn()
	s.stop()
}
