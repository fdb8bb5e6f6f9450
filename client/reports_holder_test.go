package client_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// These reports are about holders that take long, stall or die.

// R16: the tool was killed. Its key is not blocked for the whole retention, and it is
// not executed silently either.
func TestR16_KilledHolder(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED) // and never heard of again
		start := time.Now()
		for _, at := range []time.Duration{5 * time.Second, 29 * time.Second} {
			pass(time.Until(start.Add(at)))
			_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"), client.NoWait())
			if busy := as[*client.InProgress](t, err); busy.RetryAfter > 30*time.Second-at {
				t.Errorf("at %v: retry after %v, beyond the lease", at, busy.RetryAfter)
			}
		}
		for _, at := range []time.Duration{31 * time.Second, 23 * time.Hour} {
			pass(time.Until(start.Add(at)))
			_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"))
			u := as[*client.Unresolved](t, err)
			if u.Holder != "rival" || !u.ClaimedAt.Equal(start) {
				t.Errorf("at %v: got %+v", at, u)
			}
			says(t, err, "rival", "have it resolved")
		}
		r.ran(0)
	})
}

// R17: a stalled worker comes back after its operation was taken over under the same
// worker name. Its reports change nothing, and it is told.
func TestR17_StalledWorkerIsFenced(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Renew")
		worker := call("k")
		worker.Lease = 2 * time.Second
		out, err := client.Do(r.Context(), r.Client, worker, func(ctx context.Context, cl *client.Claim) (string, error) {
			r.runs.Add(1)
			pass(70 * time.Second)
			second := r.rival("k", func(req *oncedv1.ClaimRequest) { req.TakeOverAttempt, req.Holder = 1, "holder-1" })
			second.got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
			if second.answer.GetOperation().GetFence() <= cl.Fence {
				t.Error("the fence has not grown")
			}
			r.faults.set(nil) // it goes on
			as[*client.ClaimLost](t, cl.Checkpoint(context.WithoutCancel(ctx), "old"))
			time.AfterFunc(time.Second, func() {
				if err := second.complete("new"); err != nil {
					t.Error(err)
				}
			})
			return "old", nil
		})
		says(t, as[*client.ClaimLost](t, err), "look the operation up")
		if out.Value != "old" || out.Settled {
			t.Errorf("got %+v", out)
		}
		pass(2 * time.Second)
		if out := r.run("k", "again"); out.Value != "new" || out.Attempt != 2 {
			t.Errorf("a later call got %+v", out)
		}
		r.ran(1)
	})
}

// R21: a lease that is not set is the default, never none, and one that makes no sense
// is refused.
func TestR21_MissingLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := client.Do(r.Context(), r.Client, call("k"), r.slow(10*time.Second, "mine")); err != nil {
				t.Error(err)
			}
		}()
		pass(time.Second)
		if op := r.operation("k"); op.GetLease().AsDuration() != 30*time.Second {
			t.Errorf("the lease in force is %v", op.GetLease().AsDuration())
		}
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"), client.NoWait())
		as[*client.InProgress](t, err)
		<-done
		for _, lease := range []time.Duration{-time.Second, 999 * time.Millisecond, 1<<63 - 1} {
			bad := call("j")
			bad.Lease = lease
			if _, err := client.Do(r.Context(), r.Client, bad, r.once("again")); status.Code(err) != codes.InvalidArgument {
				t.Errorf("lease %v: got %v", lease, err)
			}
		}
		_, err = r.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: r.Ref("j", "m")})
		if status.Code(err) != codes.NotFound {
			t.Errorf("something was stored: %v", err)
		}
		r.ran(1)
	})
}

// R36: a run of 200 s under a lease of 30 s.
func TestR36_LongRunRenewed(t *testing.T) {
	// The way is a hole from the renewal at 100 s on, for a while.
	gap := func(r *rig, length time.Duration) {
		start := time.Now()
		r.faults.set(func(s sent) fault {
			if at := s.at.Sub(start); s.rpc == "Renew" && at > 100*time.Second && at <= 100*time.Second+length {
				return hole
			}
			return nil
		})
	}
	t.Run("renewed", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			time.AfterFunc(181*time.Second, func() {
				_, err := client.Do(r.Context(), r.newClient(), call("k"), r.once("again"), client.NoWait())
				as[*client.InProgress](t, err)
			})
			out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(200*time.Second, "mine"))
			if err != nil || !out.Settled || out.Attempt != 1 {
				t.Errorf("got %+v, %v", out, err)
			}
			r.ran(1)
		})
	})
	t.Run("gap of 25 s", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			gap(r, 25*time.Second)
			out, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, _ *client.Claim) (string, error) {
				r.runs.Add(1)
				pass(200 * time.Second)
				return "mine", context.Cause(ctx)
			})
			if err != nil || !out.Settled {
				t.Errorf("the claim was lost: %+v, %v", out, err)
			}
			r.ran(1)
		})
	})
	t.Run("gap of 45 s", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			gap(r, 45*time.Second)
			start := time.Now()
			out, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, _ *client.Claim) (string, error) {
				r.runs.Add(1)
				<-ctx.Done()
				as[*client.ClaimLost](t, context.Cause(ctx))
				if at := time.Since(start); at != 130*time.Second {
					t.Errorf("the handler was told at %v", at)
				}
				pass(200*time.Second - time.Since(start)) // it cannot stop
				return "mine", nil
			})
			if err != nil || !out.Settled { // nobody took over
				t.Errorf("the late result was not accepted: %+v, %v", out, err)
			}
			r.ran(1)
		})
	})
	t.Run("gap of 45 s, taken over", func(t *testing.T) {
		atOnce := time.Duration(0)
		inBubble(t, func(r *rig) {
			gap(r, 45*time.Second)
			time.AfterFunc(131*time.Second, func() {
				r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
			})
			out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(200*time.Second, "mine"))
			if as[*client.ClaimLost](t, err); out.Settled {
				t.Errorf("the late result was accepted: %+v", out)
			}
			r.ran(1)
		}, func(p *onced.Policy) { p.ReconcileAfter = &atOnce })
	})
}
