package server

import (
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	claimMethod    = oncedv1.IdempotencyService_Claim_FullMethodName
	lookupMethod   = oncedv1.IdempotencyService_Lookup_FullMethodName
	completeMethod = oncedv1.IdempotencyService_Complete_FullMethodName
	failMethod     = oncedv1.IdempotencyService_Fail_FullMethodName
	renewMethod    = oncedv1.IdempotencyService_Renew_FullMethodName
)

func TestAdmission(t *testing.T) {
	a := newAdmission(4, 2)
	enter := func(want bool, method string) {
		t.Helper()
		if got := a.enter(method); got != want {
			t.Fatalf("with %d running, %s: %v", a.running(), method, got)
		}
	}
	enter(true, claimMethod)
	enter(true, lookupMethod)
	enter(false, claimMethod)
	enter(false, lookupMethod)
	enter(true, completeMethod)
	enter(true, failMethod)
	enter(false, renewMethod)

	a.hold(3) // calls that wait make room
	enter(true, claimMethod)
	enter(false, claimMethod)
	a.hold(-3)
	enter(false, completeMethod) // those that wait no longer take it
	for range 5 {
		a.leave()
	}
	if a.running() != 0 {
		t.Fatalf("%d running", a.running())
	}
	enter(true, claimMethod)
}

// TestListingsAtOnce: listings leave processors to claims, and there is always one.
func TestListingsAtOnce(t *testing.T) {
	for processors, want := range map[int]int64{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 8: 4, 64: 4} {
		if got := listingsAtOnce(processors); got != want {
			t.Errorf("%d on %d processors, want %d", got, processors, want)
		}
	}
}

// TestReportBytes: reports whose results together are more than the server can hold
// are shed, and find room when those before are answered.
func TestReportBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		r.server.admission.limit = 3 * int64(len(largeText)) / 2
		first, second := r.grant("first"), r.grant("second")
		release := r.store.gate.HoldSync()
		answered := make(chan error, 1)
		go func() {
			_, err := r.client.Complete(t.Context(), completeRequest("first", first, largeText))
			answered <- err
		}()
		synctest.Wait()
		_, err := r.client.Complete(t.Context(), completeRequest("second", second, largeText))
		r.wantReason(err, codes.Unavailable, "OVERLOADED", "no")
		release()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if _, err := r.client.Complete(t.Context(), completeRequest("second", second, largeText)); err != nil {
			t.Errorf("with room again: %v", err)
		}
		if n := r.server.admission.carried.Load(); n != 0 {
			t.Errorf("%d bytes are counted when nothing runs", n)
		}
	})
}

// TestOverload fills the server while its store cannot sync: new claims are shed
// with a time to come back, holders still have room to report, health is still
// answered, and nothing that was let in is lost.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		fence := r.grant("held")
		release := r.store.gate.HoldSync()
		defer release()

		var group sync.WaitGroup
		for i := range greatestCalls - reservedForReports {
			group.Go(func() {
				if _, err := r.client.Claim(r.Context(), claimRequest("k"+strconv.Itoa(i))); err != nil {
					t.Errorf("a claim that was let in: %v", err)
				}
			})
		}
		synctest.Wait()

		_, err := r.client.Claim(r.Context(), claimRequest("one too many"))
		st := r.wantReason(err, codes.Unavailable, "OVERLOADED", "no")
		if !hasRetryDelay(st) {
			t.Errorf("no RetryInfo: %v", st.Details())
		}
		group.Go(func() {
			if _, err := r.client.Complete(r.Context(), completeRequest("held", fence, "x")); err != nil {
				t.Errorf("a report of a holder: %v", err)
			}
		})
		synctest.Wait()
		if got := r.count("onced_calls_running"); got != greatestCalls-reservedForReports+1 {
			t.Errorf("%v calls running", got)
		}
		if got := r.check(""); got != serving {
			t.Errorf("health under load: %v", got)
		}
		if r.count("onced_refusals_total", "n", "Claim", "OVERLOADED") != 1 {
			t.Error("the call that was shed was not counted")
		}

		release()
		group.Wait()
		r.grant("one too many")
	})
}

func hasRetryDelay(st *status.Status) bool {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration() > 0
		}
	}
	return false
}

// TestHeldCallsAreNotWorkedOn: calls that wait do not count as running.
func TestHeldCallsAreNotWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		fence := r.grant("k")
		var group sync.WaitGroup
		group.Go(func() {
			resp, err := r.waitFor(t.Context(), "k")
			if err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED {
				t.Errorf("%v, %v", resp, err)
			}
		})
		synctest.Wait()
		if running, held := r.count("onced_calls_running"), r.count("onced_waiters"); running != 0 || held != 1 {
			t.Errorf("%v running, %v held", running, held)
		}
		if _, err := r.client.Complete(t.Context(), completeRequest("k", fence, "x")); err != nil {
			t.Error(err)
		}
		group.Wait()
		if running, held := r.count("onced_calls_running"), r.count("onced_waiters"); running != 0 || held != 0 {
			t.Errorf("%v running, %v held", running, held)
		}
	})
}
