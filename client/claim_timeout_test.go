package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// timed is Do, which must take exactly so long.
func (r *rig) timed(want time.Duration, ctx context.Context, fn func(context.Context, *client.Claim) (string, error), opts ...client.DoOption) (client.Outcome[string], error) {
	r.Helper()
	start := time.Now()
	out, err := client.Do(ctx, r.Client, call("k"), fn, opts...)
	if took := time.Since(start); took != want {
		r.Errorf("it took %v, want %v", took, want)
	}
	return out, err
}

// Where onced gives no answer the call ends in time, and leaves no claim granted.
func TestClaimTimeoutWithoutAnAnswer(t *testing.T) {
	for name, happen := range map[string]fault{"down": nil, "lost": lost, "swallowed": swallowed, "never arrived": hole, "late": late(time.Second)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				start := time.Now()
				if happen == nil {
					r.down()
				}
				r.faults.set(func(s sent) fault {
					if happen != nil && s.rpc == "Claim" && s.at.Sub(start) < 3*time.Second {
						return happen
					}
					return nil
				})
				_, err := r.timed(3*time.Second, r.Context(), r.once("no"), client.ClaimTimeout(3*time.Second))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				says(t, err, `outcome unknown, key "k"`, "nothing was executed by it")
				if happen == nil {
					r.up()
				}
				if left := r.Close(r.Context()); left != nil {
					t.Errorf("left: %v", left)
				}
				c := r.newClient()
				pass(10 * time.Second)
				out, err := client.Do(r.Context(), c, call("k"), r.once("mine"), client.NoWait())
				if err != nil || out.Replayed {
					t.Errorf("the next call got %+v, %v", out, err)
				}
				r.ran(1)
			})
		})
	}
}

// It bounds neither the function nor the wait for the answer to its report.
func TestClaimTimeoutDoesNotCutTheFunction(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		r.faults.always(func(ctx context.Context, send func(context.Context) error) error {
			pass(3 * time.Second)
			return send(ctx)
		}, "Complete")
		out, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			r.runs.Add(1)
			if _, ends := ctx.Deadline(); ends {
				t.Error("its context has a deadline")
			}
			pass(time.Minute)
			if err := errors.Join(ctx.Err(), cl.Checkpoint(ctx, "half")); err != nil {
				t.Error(err)
			}
			return "mine", nil
		}, client.ClaimTimeout(time.Second))
		if took := time.Since(start); err != nil || !out.Settled || took != 63*time.Second {
			t.Errorf("got %+v, %v after %v", out, err, took)
		}
		r.ran(1)
	})
}

// Waiting for somebody else counts.
func TestClaimTimeoutCountsTheWaiting(t *testing.T) {
	inBubble(t, func(r *rig) {
		holder := r.rival("k", withLease(time.Hour)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		_, err := r.timed(25*time.Second, r.Context(), r.once("no"), client.ClaimTimeout(25*time.Second))
		if p := as[*client.InProgress](t, err); p.Holder != "rival" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %+v, %v", p, err)
		}
		reported := make(chan error, 1)
		time.AfterFunc(20*time.Second, func() { reported <- holder.complete("theirs") })
		out, err := r.timed(20*time.Second, r.Context(), r.once("no"), client.ClaimTimeout(25*time.Second))
		if err := errors.Join(err, <-reported); err != nil || out.Value != "theirs" || !out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
		r.ran(0)
	})
}

// The caller's own deadline, and its cancellation, come first when they are earlier.
func TestClaimTimeoutIsNotLongerThanTheCallersTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.down()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		_, err := r.timed(time.Second, ctx, r.once("no"), client.ClaimTimeout(time.Minute))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		ctx, cancel = context.WithCancel(r.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = r.timed(time.Second, ctx, r.once("no"), client.ClaimTimeout(time.Minute))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		r.ran(0)
		r.up()
	})
}

func TestClaimTimeoutThatIsNegative(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("no"), client.ClaimTimeout(-time.Nanosecond))
		if err == nil {
			t.Fatal("no error")
		}
		says(t, err, "claim timeout -1ns must not be negative", "zero")
		r.saw("Claim", 0)
		r.ran(0)
		// Zero leaves it to the context.
		r.down()
		time.AfterFunc(10*time.Minute, r.up)
		if _, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"), client.ClaimTimeout(0)); err != nil {
			t.Error(err)
		}
		r.ran(1)
	})
}

// It bounds the wait for a takeover, and not what is asked under it. After an answer
// DidNotHappen a claim is sought anew, and has as long.
func TestClaimTimeoutWithReconcile(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(40 * time.Second)
		a := &asker{answer: func(ctx context.Context, _ *client.Claim) client.Verdict {
			pass(2 * time.Minute)
			if ctx.Err() != nil {
				t.Errorf("it was cut: %v", context.Cause(ctx))
			}
			return client.DidNotHappen()
		}}
		// Too early, and it will not be time before the timeout: told at once.
		_, err := r.timed(0, r.Context(), r.once("no"), client.ClaimTimeout(10*time.Second), client.WithReconcile(a.ask))
		if u := as[*client.Unresolved](t, err); u.RetryAfter != 50*time.Second {
			t.Errorf("got %+v", u)
		}
		a.was(t, 0)
		pass(50 * time.Second)
		out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(time.Minute, "mine"), client.ClaimTimeout(10*time.Second), client.WithReconcile(a.ask))
		if err != nil || out.Attempt != 3 || !out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}
		a.was(t, 1)
		r.ran(1)
	})
}

// A grant that arrives as the timeout ends is given back.
func TestClaimTimeoutAsTheGrantArrives(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.times(1, func(ctx context.Context, send func(context.Context) error) error {
			err := send(ctx)
			<-ctx.Done()
			return err
		}, "Claim")
		_, err := r.timed(2*time.Second, r.Context(), r.once("no"), client.ClaimTimeout(2*time.Second), client.Detached())
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		says(t, err, "nothing was executed", "given back")
		r.Close(r.Context())
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.ran(0)
	})
}
