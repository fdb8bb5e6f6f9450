package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// untilCancelled is a function that runs until its context ends and tells how.
func (r *rig) untilCancelled(cause *error, after *time.Duration) func(context.Context, *client.Claim) (string, error) {
	return func(ctx context.Context, cl *client.Claim) (string, error) {
		r.runs.Add(1)
		start := time.Now()
		<-cl.Done()
		<-ctx.Done()
		*cause, *after = context.Cause(ctx), time.Since(start)
		return "", ctx.Err()
	}
}

func TestLeaseIsRenewedAtAThird(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		if _, err := client.Do(r.Context(), r.Client, call("k"), r.slow(65*time.Second, "mine")); err != nil {
			t.Fatal(err)
		}
		for i, s := range r.saw("Renew", 6) {
			if at := s.at.Sub(start); at != time.Duration(i+1)*10*time.Second {
				t.Errorf("renewal %d was sent after %v", i, at)
			}
		}
		pass(time.Minute)
		r.saw("Renew", 6) // none after the settlement
	})
}

func TestLeaseThatIsAskedForIsAskedForAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := call("k")
		c.Lease = 90 * time.Second
		if _, err := client.Do(r.Context(), r.Client, c, r.slow(40*time.Second, "mine")); err != nil {
			t.Fatal(err)
		}
		if got := r.saw("Renew", 1)[0].req.(*oncedv1.RenewRequest).GetLease().AsDuration(); got != 90*time.Second {
			t.Errorf("asked for %v", got)
		}
	})
}

// The lease is counted from the moment at which the claim was sent, however long its
// answer took.
func TestLeaseIsCountedFromTheSending(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.set(func(s sent) fault {
			switch s.rpc {
			case "Claim":
				return func(ctx context.Context, send func(context.Context) error) error {
					err := send(ctx)
					pass(4 * time.Second)
					return err
				}
			case "Renew":
				return hole
			}
			return nil
		})
		var cause error
		var after time.Duration
		start := time.Now()
		_, err := client.Do(r.Context(), r.Client, call("k"), r.untilCancelled(&cause, &after))
		if lost := as[*client.ClaimLost](t, cause); lost.Key != "k" || lost.Attempt != 1 || lost.Err != nil {
			t.Errorf("got %+v", lost)
		}
		if after != 26*time.Second || time.Since(start) != 30*time.Second {
			t.Errorf("the function was told after %v, %v after the claim was sent", after, time.Since(start))
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the function's own error is lost: %v", err)
		}
		says(t, as[*client.ClaimLost](t, err), "lease could not be renewed", "look the operation up")
		if !strings.Contains(r.log.String(), "claim was lost while its function runs") {
			t.Errorf("the log does not say so: %s", r.log)
		}
		r.ran(1)
	})
}

// A renewal counts from its sending, and only once it is answered.
func TestLeaseCountsOnlyAnsweredRenewals(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		r.faults.set(func(s sent) fault {
			switch {
			case s.rpc != "Renew":
				return nil
			case s.at.Sub(start) > 10*time.Second:
				return swallowed // carried out, and the holder cannot know
			}
			return func(ctx context.Context, send func(context.Context) error) error {
				err := send(ctx)
				pass(2 * time.Second)
				return err
			}
		})
		var cause error
		var after time.Duration
		_, _ = client.Do(r.Context(), r.Client, call("k"), r.untilCancelled(&cause, &after))
		as[*client.ClaimLost](t, cause)
		if after != 40*time.Second {
			t.Errorf("the function was told after %v; the renewal sent at 10s was the last one answered", after)
		}
	})
}

func TestLeaseSurvivesFailingRenewals(t *testing.T) {
	for name, happen := range map[string]fault{
		"unavailable": refusedWith(codes.Unavailable), "holes": hole, "internal": refusedWith(codes.Internal),
		"denied": refusedWith(codes.PermissionDenied),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.faults.always(happen, "Renew")
				time.AfterFunc(15*time.Second, func() { r.faults.set(nil) })
				out, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
					pass(2 * time.Minute)
					return "mine", context.Cause(ctx)
				})
				if err != nil || !out.Settled {
					t.Errorf("got %+v, %v", out, err)
				}
			})
		})
	}
}

func TestLeaseLostByRefusalIsToldAtOnce(t *testing.T) {
	for name, resolution := range map[string]onced.ResolveRequest{
		"CLAIM_LOST":      {Resolution: onced.ResolveReleased},
		"ALREADY_SETTLED": {Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("theirs"))},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				time.AfterFunc(15*time.Second, func() { r.resolve("k", resolution) })
				var cause error
				var after time.Duration
				_, err := client.Do(r.Context(), r.Client, call("k"), r.untilCancelled(&cause, &after))
				if lost := as[*client.ClaimLost](t, cause); status.Code(lost.Err) != codes.FailedPrecondition {
					t.Errorf("got %+v", lost)
				}
				if after != 20*time.Second {
					t.Errorf("the function was told after %v; the renewal at 20s was refused", after)
				}
				as[*client.ClaimLost](t, err)
				r.ran(1)
			})
		})
	}
}

// The function does not heed its context: renewals go on after the holder's own
// clock has run out, and revive the claim, so that nobody takes over what still runs.
func TestLeaseIsRevivedUnderARunningFunction(t *testing.T) {
	atOnce := time.Duration(0)
	inBubble(t, func(r *rig) {
		start := time.Now()
		r.faults.set(func(s sent) fault {
			if at := s.at.Sub(start); s.rpc == "Renew" && at < 40*time.Second {
				return hole
			}
			return nil
		})
		time.AfterFunc(50*time.Second, func() {
			r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_IN_PROGRESS)
		})
		out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(time.Minute, "mine"))
		if err != nil || out.Value != "mine" || !out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}
		r.ran(1)
	}, func(p *onced.Policy) { p.ReconcileAfter = &atOnce })
}

func TestCheckpoint(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			for _, id := range []string{"crm-1", "crm-2"} {
				if err := cl.Checkpoint(ctx, map[string]string{"id": id}); err != nil {
					t.Error(err)
				}
			}
			if found, err := cl.LastCheckpoint(new(any)); found || err != nil {
				t.Errorf("a first attempt has an earlier checkpoint: %v, %v", found, err)
			}
			return "", errors.New("who knows")
		})
		if err == nil {
			t.Fatal("no error")
		}
		for i, s := range r.saw("Renew", 2) {
			if seq := s.req.(*oncedv1.RenewRequest).GetCheckpoint().GetSeq(); seq != uint64(i+1) {
				t.Errorf("checkpoint %d has seq %d", i, seq)
			}
		}
		_, err = client.Do(r.Context(), r.Client, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
			var last map[string]string
			if found, err := cl.LastCheckpoint(&last); !found || err != nil || last["id"] != "crm-2" {
				t.Errorf("got %v, %v, %v", last, found, err)
			}
			var text string
			if found, err := cl.LastCheckpoint(&text); !found || err == nil {
				t.Errorf("JSON was read as text: %q, %v, %v", text, found, err)
			}
			if !cl.TakenOver || cl.Attempt != 2 {
				t.Errorf("got attempt %d, taken over %v", cl.Attempt, cl.TakenOver)
			}
			return "done", nil
		})
		if err != nil {
			t.Error(err)
		}
	}, func(p *onced.Policy) { p.SafeToRerun = true })
}

func TestCheckpointRenewsAndIsResent(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			pass(5 * time.Second)
			r.faults.times(2, lost, "Renew")
			if err := cl.Checkpoint(ctx, "half way"); err != nil {
				t.Error(err)
			}
			r.faults.always(hole, "Renew")
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		as[*client.ClaimLost](t, err)
		first := r.faults.all()[0].at
		for _, s := range r.saw("Renew", len(r.faults.all())-2)[:3] {
			if c := s.req.(*oncedv1.RenewRequest).GetCheckpoint(); c.GetSeq() != 1 || c.GetPayload().GetText() != "half way" {
				t.Errorf("sent %v at %v", c, s.at.Sub(first))
			}
		}
		if lived := time.Since(first); lived < 35*time.Second || lived > 36*time.Second {
			t.Errorf("the claim was lost after %v; the checkpoint at 5s renewed it", lived)
		}
	})
}

func TestCheckpointErrors(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			if err := cl.Checkpoint(ctx, func() {}); err == nil || strings.Contains(err.Error(), "lost") {
				t.Errorf("what cannot be encoded: %v", err)
			}
			if err := cl.Checkpoint(ctx, strings.Repeat("x", 65<<10)); status.Code(err) != codes.InvalidArgument {
				t.Errorf("too large: %v", err)
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			r.faults.always(hole, "Renew")
			if err := cl.Checkpoint(short, "x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("unanswered: %v", err)
			}
			r.faults.set(nil)
			if ctx.Err() != nil {
				t.Error("none of that loses the claim")
			}
			r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
			as[*client.ClaimLost](t, cl.Checkpoint(ctx, "x"))
			as[*client.ClaimLost](t, context.Cause(ctx))
			return "", ctx.Err()
		})
		as[*client.ClaimLost](t, err)
	})
}
