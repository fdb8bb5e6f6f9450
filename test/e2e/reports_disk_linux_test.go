package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// smallDisk mounts a disk of some size in memory, until the test ends, and returns
// where, and what makes it another size.
func smallDisk(t *testing.T, size string) (mount string, resize func(size string)) {
	t.Helper()
	mount, err := os.MkdirTemp("", "onced-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(mount) })
	if err := unix.Mount("onced-e2e", mount, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("ONCED_REQUIRE_ALL") != "" {
			t.Fatalf("a small disk cannot be mounted here: %v", err)
		}
		t.Skipf("NOT TESTED: a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return mount, func(size string) {
		t.Helper()
		if err := unix.Mount("onced-e2e", mount, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// grants claims keys that begin with a prefix until there is no room for a claim: a
// page or two may be free again after one was refused, so until many are, one after
// the other. It returns what was granted, and the last claim, which was not.
func (c caller) grants(prefix string) (held []holding, last *oncedv1.ClaimRequest) {
	c.t.Helper()
	for i, refusals := 0, 0; refusals < 50; i++ {
		if i > 20_000 {
			c.t.Fatal("the disk does not get full")
		}
		last = leased(fmt.Sprint(prefix, i), time.Hour)
		granted, err := c.stub.Claim(c.ctx(), last)
		if err == nil {
			held, refusals = append(held, holding{last, granted}), 0
			continue
		}
		refused(c.t, err, codes.ResourceExhausted, "STORAGE_FULL")
		refusals++
	}
	return held, last
}

// completion returns the report of a result of some bytes.
func (h holding) completion(size int) *oncedv1.CompleteRequest {
	report := completion(h.req, h.granted, "")
	report.Result = &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{Body: &oncedv1.Payload_Data{Data: make([]byte, size)}}}
	return report
}

// On a full disk claims are refused, and nothing runs for them; what was claimed
// before is settled in the room that was kept for it. When that is used up too, a
// report is not acknowledged and changes nothing: its token stays good, and the key is
// not granted again. With room there is nothing to restart.
func TestR45_FullDisk(t *testing.T) {
	mount, resize := smallDisk(t, "2m")
	dir := filepath.Join(mount, "data")
	if out, exit := runOnced(t, "init", "--data", dir); exit != 0 {
		t.Fatalf("onced init ended with status %d:\n%s", exit, out)
	}
	s := serve(t, dir)
	c, r := s.caller(), &runs{}
	held, last := c.grants("held-")
	t.Logf("claims=%d", len(held))
	s.reports(healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.Do(short, s.client(), client.Call{Key: "refused", Method: "act"}, r.returning("")); err == nil {
		t.Error("a call was carried out although nothing can be claimed")
	}
	c.absent("refused")
	c.absent(last.GetRef().GetKey())
	r.are(t, 0)

	newest := held[len(held)-1]
	c.complete(newest.completion(4 << 10)) // there is room for it
	c.answered(claimOf(newest.key()), replayedOutcome)
	settled, full := useUp(c, held[:len(held)-1])
	t.Logf("settlements in the reserve=%d", settled+1)
	if op := c.lookup(full.key()); op.GetState() != oncedv1.State_STATE_PENDING || op.GetAttempt() != 1 {
		t.Errorf("after a report that was refused the operation is %v, want it held", op)
	}
	c.answered(claimOf(full.key()), inProgressOutcome)

	resize("64m")
	c.complete(full.completion(512 << 10))
	c.answered(claimOf(full.key()), replayedOutcome)
	c.granted(last)
	eventually(t, "the health to recover", func() bool {
		return s.health(oncedv1.IdempotencyService_ServiceDesc.ServiceName) == healthpb.HealthCheckResponse_SERVING
	})
	s.stop()
	isSound(t, dir)
}

// useUp settles claims with large results, and with smaller ones, until there is no
// room for a small one either. It returns how many were settled, and a claim whose
// report was refused.
func useUp(c caller, held []holding) (settled int, full holding) {
	c.t.Helper()
	size := 64 << 10
	for _, h := range held {
		for {
			_, err := c.stub.Complete(c.ctx(), h.completion(size))
			if err == nil {
				settled++
				break
			}
			refused(c.t, err, codes.ResourceExhausted, "STORAGE_FULL")
			if size /= 2; size == 0 {
				return settled, h
			}
		}
	}
	c.t.Fatal("the room that is kept for settlements has no end")
	return 0, holding{}
}

// A server that is killed on the full disk starts there again: what is settled is
// replayed, what was claimed is settled in the room that was kept, and nothing is
// claimed anew. So, too, when that room was used up to the last.
func TestR45_RestartOnTheFullDisk(t *testing.T) {
	mount, _ := smallDisk(t, "2m")
	dir := filepath.Join(mount, "data")
	if out, exit := runOnced(t, "init", "--data", dir); exit != 0 {
		t.Fatalf("onced init ended with status %d:\n%s", exit, out)
	}
	s := serve(t, dir)
	held, last := s.caller().grants("held-")
	restart := func(settled, unsettled holding) caller {
		t.Helper()
		s.kill()
		s = serve(t, dir)
		c := s.caller()
		_, err := c.stub.Claim(c.ctx(), last)
		refused(t, err, codes.ResourceExhausted, "STORAGE_FULL")
		c.answered(claimOf(settled.key()), replayedOutcome)
		c.answered(claimOf(unsettled.key()), inProgressOutcome)
		return c
	}
	s.caller().complete(held[0].completion(1 << 10))
	c := restart(held[0], held[1])
	c.complete(held[1].completion(4 << 10))
	settled, full := useUp(c, held[2:])
	t.Logf("settlements=%d after the restart", 1+settled)
	restart(held[1], full)
	s.stop()
	isSound(t, dir)
}

// The client of a holder whose report finds no room goes on sending it. Within the
// lease everybody else waits; when that ends, because renewals find no room either,
// the outcome is unknown. Nobody runs it again, and the report is taken when there is
// room.
func TestR45_ReportFindsNoRoom(t *testing.T) {
	for lease, lapses := range map[time.Duration]bool{time.Hour: false, 30 * time.Second: true} {
		t.Run(lease.String(), func(t *testing.T) {
			mount, resize := smallDisk(t, "2m")
			t.Setenv("TMPDIR", mount) // where the lab makes its store
			inLab(t, func(l *lab) {
				finish, done := make(chan struct{}), make(chan client.Outcome[[]byte], 1)
				go func() {
					call := client.Call{Key: "k", Method: "act", Lease: lease}
					out, err := client.Do(l.Context(), l.client(), call, func(context.Context, *client.Claim) ([]byte, error) {
						l.runs.Add(1)
						<-finish
						return make([]byte, 512<<10), nil
					})
					if err != nil {
						t.Error(err)
					}
					done <- out
				}()
				pass(time.Second)
				held, _ := l.grants("held-")
				useUp(l.caller, held)
				want := inProgressOutcome
				if lapses {
					want = unresolvedOutcome
					l.network.lose("Renew", codes.Unavailable)
				}
				close(finish)
				pass(2 * time.Minute)
				if op := l.answered(claimOf("k"), want).GetOperation(); op.GetAttempt() != 1 || lapses && op.GetReason() != oncedv1.Reason_REASON_LAPSED {
					t.Errorf("while its holder finds no room the operation is %v", op)
				}
				another := client.Call{Key: "k", Method: "act"}
				if _, err := client.Do(l.Context(), l.client(), another, l.returning("again"), client.NoWait()); err == nil {
					t.Error("another call was carried out")
				}
				if out := <-done; out.Settled || len(out.Value) != 512<<10 {
					t.Errorf("the holder's own call ended with %d bytes, settled %v; want its value, not settled", len(out.Value), out.Settled)
				}
				resize("64m")
				l.network.lose("", codes.OK)
				pass(time.Minute)
				l.answered(claimOf("k"), replayedOutcome)
				l.ran(1)
			})
		})
	}
}

// On the full disk the sweep goes on, in the same process, and what it frees lets
// claims in, also when the room for settlements was used up.
func TestR45_SweepOnTheFullDisk(t *testing.T) {
	const retention = 2 * time.Hour
	mount, _ := smallDisk(t, "2m")
	t.Setenv("TMPDIR", mount)
	inLab(t, func(l *lab) {
		service := oncedv1.IdempotencyService_ServiceDesc.ServiceName
		healthy := func(want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			resp, err := healthpb.NewHealthClient(l.conn).Check(l.ctx(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || resp.GetStatus() != want {
				t.Errorf("the health is %v, %v; want %v", resp.GetStatus(), err, want)
			}
		}
		held, last := l.grants("held-")
		settled, _ := useUp(l.caller, held)
		for _, h := range held[settled:] { // what is not settled is given back, as far as there is room
			_, _ = l.stub.Fail(l.ctx(), failing(h.req, h.granted, notExecuted))
		}
		pass(time.Minute)
		healthy(healthpb.HealthCheckResponse_NOT_SERVING)
		_, err := l.stub.Claim(l.ctx(), last)
		refused(t, err, codes.ResourceExhausted, "STORAGE_FULL")

		pass(retention + 10*time.Minute)
		for _, h := range held[:settled] {
			l.absent(h.key())
		}
		healthy(healthpb.HealthCheckResponse_SERVING)
		l.granted(last)
		again, _ := l.grants("again-")
		t.Logf("claims=%d settlements=%d, and %d claims after the sweep", len(held), settled, len(again))
		if len(again) == 0 {
			t.Error("what the sweep freed lets no claims in")
		}
	}, retained(retention), func(p *onced.Policy) { p.MaxUnsettled = 1 << 20 })
}
