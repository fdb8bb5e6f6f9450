package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// What an operator decides while it is asked is not put in doubt again by a call that
// has found out nothing, whether it has heard of the decision or not.
func TestReconcileDecidedMeanwhile(t *testing.T) {
	released := onced.ResolveRequest{Resolution: onced.ResolveReleased}
	completed := onced.ResolveRequest{Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("by hand"))}
	for name, leg := range map[string]struct {
		decision onced.ResolveRequest
		heard    bool
		value    string
		runs     int32
	}{
		"released, heard":      {released, true, "mine", 1},
		"released, not heard":  {released, false, "mine", 1},
		"completed, heard":     {completed, true, "by hand", 0},
		"completed, not heard": {completed, false, "by hand", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				out, err := r.reconciled("k", r.once("mine"), &asker{answer: func(ctx context.Context, _ *client.Claim) client.Verdict {
					r.resolve("k", leg.decision)
					if leg.heard {
						<-ctx.Done()
					}
					return client.StillUnknown(errNoAnswer)
				}})
				if err != nil || out.Value != leg.value {
					t.Errorf("got %+v, %v", out, err)
				}
				r.ran(leg.runs)
			})
		})
	}
}

// The same holds where the function that asks panics, and where the call has ended before
// anything was asked.
func TestReconcileDecidedMeanwhileAndNothingAsked(t *testing.T) {
	released := onced.ResolveRequest{Resolution: onced.ResolveReleased}
	t.Run("panic", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.dies("k", nil)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic does not go on")
					}
				}()
				_, _ = r.reconciled("k", r.once("mine"), &asker{answer: func(context.Context, *client.Claim) client.Verdict {
					r.resolve("k", released)
					panic("a bug")
				}})
			}()
			r.isIn("k", oncedv1.State_STATE_RELEASED)
		})
	})
	t.Run("given back", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.dies("k", nil)
			ctx, cancel := context.WithCancel(r.Context())
			r.faults.set(func(s sent) fault {
				if c, ok := s.req.(*oncedv1.ClaimRequest); !ok || c.GetTakeOverAttempt() == 0 {
					return nil
				}
				return func(ctx context.Context, send func(context.Context) error) error {
					err := send(ctx)
					if r.operation("k").GetAttempt() == 2 { // taken over; the operator and the caller are quicker than the answer
						r.resolve("k", released)
						cancel()
					}
					return err
				}
			})
			_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(answering(client.StillUnknown(nil)).ask))
			if err == nil {
				t.Error("no error")
			}
			r.Close(r.Context())
			r.faults.set(nil)
			r.isIn("k", oncedv1.State_STATE_RELEASED)
			r.ran(0)
		})
	})
}

// The refusal of a wrong verdict is followed by no report that could overrule an
// operator: not when the call ends before it knows how things stand, and not when the
// operator decides right after it has looked.
func TestReconcileRefusedVerdictReportsNothing(t *testing.T) {
	release := onced.ResolveRequest{Resolution: onced.ResolveReleased}
	t.Run("the call ends", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.dies("k", nil)
			ctx, cancel := context.WithCancel(r.Context())
			r.faults.set(func(s sent) fault {
				if s.rpc != "Lookup" {
					return nil
				}
				return func(context.Context, func(context.Context) error) error { cancel(); return ctx.Err() }
			})
			_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(func(context.Context, *client.Claim) client.Verdict {
				r.resolve("k", release)
				return client.DidNotHappen()
			}))
			if err == nil {
				t.Error("no error")
			}
			r.Close(r.Context())
			r.faults.set(nil)
			r.isIn("k", oncedv1.State_STATE_RELEASED)
		})
	})
	t.Run("decided after the look", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.contradicted("k")
			r.faults.set(func(s sent) fault {
				if s.rpc != "Lookup" {
					return nil
				}
				return func(ctx context.Context, send func(context.Context) error) error {
					err := send(ctx)
					r.resolve("k", release)
					return err
				}
			})
			_, err := r.reconciled("k", r.once("mine"), answering(client.DidNotHappen()))
			as[*client.Unresolved](t, err)
			r.Close(r.Context())
			r.faults.set(nil)
			r.isIn("k", oncedv1.State_STATE_RELEASED)
		}, atOnce)
	})
}

// Asking ends with the window. That it did not happen is no proof after it.
func TestReconcileWindowEndsWhileItAsks(t *testing.T) {
	for name, verdict := range map[string]client.Verdict{"did not happen": client.DidNotHappen(), "happened": client.Happened("found")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				first := time.Now()
				r.dies("k", nil)
				out, err := r.reconciled("k", r.once("mine"), &asker{answer: func(ctx context.Context, _ *client.Claim) client.Verdict {
					<-ctx.Done()
					if took := time.Since(first); took < 59*time.Minute || took > time.Hour {
						t.Errorf("its context ended %v after the first claim", took)
					}
					pass(time.Hour)
					return verdict
				}}, client.WithDownstreamWindow(time.Hour))
				if name == "happened" {
					if err != nil || out.Value != "found" {
						t.Errorf("got %+v, %v", out, err)
					}
				} else if u := as[*client.Unresolved](t, err); u.Err == nil || !strings.Contains(u.Err.Error(), "window") {
					t.Errorf("got %+v", u)
				}
				r.ran(0)
			})
		})
	}
}

// The same holds of a function that the policy lets run again.
func TestReconcileWindowEndsWhileItRunsAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(50 * time.Minute)
		start := time.Now()
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, _ *client.Claim) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, client.WithDownstreamWindow(time.Hour))
		if took := time.Since(start); err == nil || took != 10*time.Minute {
			t.Errorf("got %v after %v", err, took)
		}
	}, func(p *onced.Policy) { p.SafeToRerun = true })
}

// A takeover that never arrived, and that is not waited for any more, is not asked for
// again: the last holder can still settle.
func TestReconcileGivesUpATakeover(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.dies("k", nil)
		pass(2 * time.Minute)
		r.faults.set(func(s sent) fault {
			if c, ok := s.req.(*oncedv1.ClaimRequest); ok && c.GetTakeOverAttempt() == 1 {
				return hole
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(answering(client.DidNotHappen()).ask))
		says(t, err, "outcome unknown")
		r.Close(r.Context())
		if op := r.operation("k"); op.GetAttempt() != 1 || op.GetReason() != oncedv1.Reason_REASON_LAPSED {
			t.Errorf("the operation is %v", op)
		}
		if err := first.complete("late"); err != nil {
			t.Error(err)
		}
	}, atOnce)
}

// A function that calls Do for its own operation would wait for itself.
func TestDoInsideOfItself(t *testing.T) {
	inBubble(t, func(r *rig) {
		inner := func(ctx context.Context) error {
			_, err := client.Do(ctx, r.Client, call("k"), r.once("inner"))
			return err
		}
		at := time.Now()
		r.dies("k", nil)
		_, err := r.reconciled("k", r.once("mine"), &asker{answer: func(ctx context.Context, _ *client.Claim) client.Verdict {
			return client.StillUnknown(inner(ctx))
		}})
		says(t, err, "would wait for itself")
		_, err = client.Do(r.Context(), r.Client, call("other"), func(ctx context.Context, _ *client.Claim) (string, error) {
			_, err := client.Do(ctx, r.Client, call("nested"), func(ctx context.Context, _ *client.Claim) (string, error) {
				return "", errors.Join(inner(ctx)) // another operation, unresolved
			}, client.NoWait())
			says(t, err, "unresolved")
			_, err = client.Do(ctx, r.Client, call("other"), r.once("inner"))
			return "", err
		})
		says(t, err, "would wait for itself")
		if took := time.Since(at); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
		r.ran(0)
	})
}

// A window and fingerprints that no server may be asked about are refused before
// anything is sent.
func TestDoRefusesBadOptions(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"), client.WithDownstreamWindow(-1))
		says(t, err, "must not be negative", "nothing was sent")
		c := call("k")
		c.Fingerprints = []onced.Fingerprint{{}} // of an error that was not looked at
		_, err = client.Do(r.Context(), r.Client, c, r.once("mine"))
		says(t, err, "fingerprint", "nothing was sent")
		if n := len(r.faults.all()); n != 0 {
			t.Errorf("%d calls were sent", n)
		}
		r.ran(0)
	})
}
