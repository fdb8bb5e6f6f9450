package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

type valueKey struct{}

// leaving are the ways in which a caller leaves after a while.
func leaving(ctx context.Context, after time.Duration) map[string]func() (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, valueKey{}, "kept")
	return map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, after) },
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(after, cancel)
			return ctx, cancel
		},
	}
}

// The caller leaves while the function runs, which neither notices nor has to: its
// value is kept for the next try.
func TestDetachedGoesOnWhenTheCallerLeaves(t *testing.T) {
	for name := range leaving(t.Context(), 0) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				ctx, cancel := leaving(r.Context(), 100*time.Millisecond)[name]()
				defer cancel()
				out, err := client.Do(ctx, r.Client, call("k"), func(fctx context.Context, cl *client.Claim) (string, error) {
					r.runs.Add(1)
					_, ends := fctx.Deadline()
					if ends || fctx.Value(valueKey{}) != "kept" || client.ClaimFromContext(fctx) != cl {
						t.Errorf("its context has a deadline: %v, the value %v and the claim %p", ends, fctx.Value(valueKey{}), client.ClaimFromContext(fctx))
					}
					pass(75 * time.Second) // renewed meanwhile
					select {
					case <-cl.Done():
						t.Errorf("the claim is done: %v", context.Cause(fctx))
					case <-fctx.Done():
						t.Errorf("the context has ended: %v", context.Cause(fctx))
					default:
					}
					if ctx.Err() == nil {
						t.Error("the caller is still there")
					}
					return "mine", nil
				}, client.Detached())
				if err != nil || out.Value != "mine" || out.Replayed {
					t.Errorf("got %+v, %v", out, err)
				}
				if left := r.Close(r.Context()); left != nil {
					t.Errorf("left: %v", left)
				}
				r.isIn("k", oncedv1.State_STATE_COMPLETED)
				again, err := client.Do(r.Context(), r.newClient(), call("k"), r.once("again"))
				if err != nil || !again.Replayed || again.Value != "mine" || again.Attempt != 1 {
					t.Errorf("the next try got %+v, %v", again, err)
				}
				r.ran(1)
			})
		})
	}
}

// Without Detached the function is told.
func TestAttachedIsToldThatTheCallerLeaves(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		var cause error
		var after time.Duration
		_, err := client.Do(ctx, r.Client, call("k"), r.untilCancelled(&cause, &after))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(cause, context.DeadlineExceeded) || after != 100*time.Millisecond {
			t.Errorf("got %v, caused by %v after %v", err, cause, after)
		}
		r.Close(r.Context())
		r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
	})
}

// The claim is what a detached function depends on, by its own clock and by what onced
// says.
func TestDetachedEndsWithTheClaim(t *testing.T) {
	t.Run("by the clock", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.faults.always(hole, "Renew")
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			var cause error
			var after time.Duration
			_, err := client.Do(ctx, r.Client, call("k"), r.untilCancelled(&cause, &after), client.Detached())
			if lost := as[*client.ClaimLost](t, cause); lost.Err != nil || lost.Key != "k" || lost.Attempt != 1 || after != 30*time.Second {
				t.Errorf("lost after %v: %+v", after, lost)
			}
			as[*client.ClaimLost](t, err)
		})
	})
	t.Run("by onced", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			time.AfterFunc(5*time.Second, func() {
				r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
				r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
			})
			var cause error
			var after time.Duration
			_, err := client.Do(ctx, r.Client, call("k"), r.untilCancelled(&cause, &after), client.Detached())
			if lost := as[*client.ClaimLost](t, cause); lost.Err == nil || after != 10*time.Second {
				t.Errorf("lost after %v: %+v", after, lost)
			}
			as[*client.ClaimLost](t, err)
		})
	})
}

// A caller that has left is not kept waiting for the answer to the report.
func TestDetachedReportsInTheBackground(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		r.faults.set(func(s sent) fault {
			if s.rpc == "Complete" && s.at.Sub(start) < 2*time.Minute {
				return refusedWith(14) // UNAVAILABLE
			}
			return nil
		})
		out, err := client.Do(ctx, r.Client, call("k"), r.slow(300*time.Millisecond, "mine"), client.Detached())
		if took := time.Since(start); err != nil || out.Value != "mine" || out.Settled || took != 300*time.Millisecond {
			t.Errorf("got %+v, %v after %v", out, err, took)
		}
		_, err = client.Do(r.Context(), r.newClient(), call("k"), r.once("again"), client.NoWait())
		as[*client.InProgress](t, err)
		pass(3 * time.Minute)
		r.isIn("k", oncedv1.State_STATE_COMPLETED)
		r.saw("Fail", 0)
		r.ran(1)
	})
}

// What has not begun when the caller leaves does not begin.
func TestDetachedCallerThatLeavesBeforeTheClaim(t *testing.T) {
	t.Run("before the call", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			for name, leave := range leaving(r.Context(), -time.Second) {
				ctx, cancel := leave()
				cancel()
				_, err := client.Do(ctx, r.Client, call("k"), r.once("no"), client.Detached())
				if !errors.Is(err, ctx.Err()) {
					t.Errorf("%s: got %v", name, err)
				}
				says(t, err, "nothing was sent", "nothing was executed")
			}
			r.saw("Claim", 0)
			r.ran(0)
		})
	})
	t.Run("while somebody else executes", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
			ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			_, err := client.Do(ctx, r.Client, call("k"), r.once("no"), client.Detached())
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second {
				t.Errorf("got %v after %v", err, took)
			}
			as[*client.InProgress](t, err)
			r.ran(0)
		})
	})
}

// The grant and the end of the caller's context come at once: the claim is given back,
// detached or not.
func TestDetachedGrantThatComesAsTheCallerLeaves(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		r.faults.times(1, func(ctx context.Context, send func(context.Context) error) error {
			err := send(ctx)
			cancel()
			return err
		}, "Claim")
		_, err := client.Do(ctx, r.Client, call("k"), r.once("no"), client.Detached())
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		says(t, err, "nothing was executed", "given back")
		r.Close(r.Context())
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.saw("Claim", 1)
		r.ran(0)
	})
}

// A panic, and a failure, of a function whose caller has left are reported all the same.
func TestDetachedFailuresAreReported(t *testing.T) {
	for name, leg := range map[string]struct {
		err  error
		want oncedv1.State
	}{
		"final":        {client.Final(errors.New("declined")), oncedv1.State_STATE_FAILED},
		"not executed": {client.NotExecuted(errors.New("busy")), oncedv1.State_STATE_RELEASED},
		"unknown":      {errors.New("time-out"), oncedv1.State_STATE_UNRESOLVED},
		"panic":        {nil, oncedv1.State_STATE_UNRESOLVED},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				func() {
					defer func() {
						if p := recover(); (p != nil) != (leg.err == nil) {
							t.Errorf("panic: %v", p)
						}
					}()
					_, err := client.Do(ctx, r.Client, call("k"), func(context.Context, *client.Claim) (string, error) {
						r.runs.Add(1)
						pass(2 * time.Second)
						if leg.err == nil {
							panic("boom")
						}
						return "", leg.err
					}, client.Detached())
					if !errors.Is(err, leg.err) {
						t.Errorf("got %v", err)
					}
				}()
				r.Close(r.Context())
				r.isIn("k", leg.want)
				r.ran(1)
			})
		})
	}
}

// A detached function lives within the downstream window, as every other.
func TestDetachedKeepsTheDownstreamWindow(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.rival("k", func(req *oncedv1.ClaimRequest) { req.Lease = durationpb.New(time.Second) })
		pass(2 * time.Second)
		var cause error
		var after time.Duration
		_, err := client.Do(r.Context(), r.Client, call("k"), r.untilCancelled(&cause, &after),
			client.Detached(), client.SafeToRerun(), client.WithDownstreamWindow(time.Minute))
		if err == nil || after != 58*time.Second || cause == nil {
			t.Errorf("got %v, ended after %v by %v", err, after, cause)
		}
		says(t, cause, "window is over")
	}, atOnce)
}
