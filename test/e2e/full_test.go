package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A store without room takes no claims and says so; what is known is still
// answered, the health tells callers to claim elsewhere, and room is enough to go
// on.
func TestFullStore(t *testing.T) {
	f := newSwitches(t)
	s := f.serve(newStore(t))
	c := s.caller()
	settled := claimOf("settled")
	granted := c.granted(settled)
	c.complete(completion(settled, granted, "kept"))
	s.reports(healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_SERVING)

	f.on("disk-full")
	req := claimOf("refused")
	_, err := c.stub.Claim(c.ctx(), req)
	refused(t, err, codes.ResourceExhausted, "STORAGE_FULL")
	c.absent("refused")
	c.replayed("settled", "kept", granted)
	s.reports(healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING)
	executions, done := 0, make(chan error)
	go func() {
		_, err := client.Do(c.ctx(), client.New(s.conn()), client.Call{Key: "patient", Method: "act"},
			func(context.Context, *client.Claim) (string, error) { executions++; return "", nil })
		done <- err
	}()
	refusals := `onced_refusals_total{namespace="other",reason="STORAGE_FULL",rpc="Claim"}`
	eventually(t, "the client to be refused, too", func() bool { return s.metric(refusals) >= 2 })

	f.off("disk-full")
	if err := <-done; err != nil || executions != 1 {
		t.Errorf("the call that began while the store was full ended with %v after %d executions, want one", err, executions)
	}
	c.granted(req)
	eventually(t, "the health to recover", func() bool {
		return s.health(oncedv1.IdempotencyService_ServiceDesc.ServiceName) == healthpb.HealthCheckResponse_SERVING
	})
	s.reports(healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_SERVING)
	s.stop()
}

// health asks for the health of a service; "" is the server.
func (s *process) health(service string) healthpb.HealthCheckResponse_ServingStatus {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := healthpb.NewHealthClient(s.conn()).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetStatus()
}

// reports demands what the health says of the server and of new claims.
func (s *process) reports(server, claims healthpb.HealthCheckResponse_ServingStatus) {
	s.t.Helper()
	if got := s.health(""); got != server {
		s.t.Errorf("the health of the server is %v, want %v", got, server)
	}
	if got := s.health(oncedv1.IdempotencyService_ServiceDesc.ServiceName); got != claims {
		s.t.Errorf("the health of the service is %v, want %v", got, claims)
	}
}

// Callers share commits: as many claims as come in while one is synced are synced
// together by the next.
func TestCallersShareCommits(t *testing.T) {
	const callers = 256
	f := newSwitches(t)
	dir := newStore(t)
	s := f.serve(dir)
	c := s.caller()
	before := commits(t, dir)
	f.on("slow-commit")
	f.hold("the first of them")
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			resp, err := c.stub.Claim(c.ctx(), claimOf(fmt.Sprintf("shared-%d", i)))
			if err != nil || resp.GetOutcome() != grantedOutcome {
				t.Errorf("claim %d was answered %v, %v; want GRANTED", i, resp, err)
			}
		})
	}
	eventually(t, "the server to work on all the claims", func() bool { return s.metric("onced_calls_running") == callers })
	f.release()
	all.Wait()
	s.stop()
	if made := commits(t, dir) - before; made > callers/8 {
		t.Errorf("%d claims took %d commits, want them to be shared by 8 and more", callers, made)
	} else {
		t.Logf("claims=%d commits=%d", callers, made)
	}
}

// commits returns how many commits a store has seen, as its marker has it.
func commits(t testing.TB, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "STORE"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^sequence (\d+)$`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("the marker has no sequence:\n%s", b)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
