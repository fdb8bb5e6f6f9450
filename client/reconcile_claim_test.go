package client_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// These tests are about the claim under which it is asked: who holds it, how it is
// lost, and what is reported under it.

func TestReconcilePanicIsReportedAndGoesOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		func() {
			defer func() {
				if p := recover(); p != "while it asks" {
					t.Errorf("the panic was %v", p)
				}
				if op := r.operation("k"); op.GetReason() != oncedv1.Reason_REASON_DECLARED || op.GetAttempt() != 2 {
					t.Errorf("it goes on before it was reported: %v", op)
				}
			}()
			_, _ = r.reconciled("k", r.once("mine"), &asker{answer: func(context.Context, *client.Claim) client.Verdict { panic("while it asks") }})
			t.Error("it was swallowed")
		}()
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.ran(0)
	})
}

func TestReconcileGoexitIsReported(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = r.reconciled("k", r.once("mine"), &asker{answer: func(context.Context, *client.Claim) client.Verdict {
				runtime.Goexit()
				return client.DidNotHappen()
			}})
		}()
		<-done
		if op := r.operation("k"); op.GetReason() != oncedv1.Reason_REASON_DECLARED || op.GetAttempt() != 2 {
			t.Errorf("got %v", op)
		}
		r.ran(0)
	})
}

// The claim is renewed while it is asked, however long that takes.
func TestReconcileIsRenewed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := &asker{answer: func(ctx context.Context, _ *client.Claim) client.Verdict {
			pass(10 * time.Minute)
			r.rival("k", takingOver(2)).got(oncedv1.Outcome_OUTCOME_IN_PROGRESS)
			if ctx.Err() != nil {
				t.Errorf("its context has ended: %v", context.Cause(ctx))
			}
			return client.Happened("found")
		}}
		if out, err := r.reconciled("k", r.once("mine"), a); err != nil || out.Value != "found" || !out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

// While it is asked, somebody else is given the claim: renewals did not get through.
// Its verdict settles nothing, whatever it is, and the caller is told.
func TestReconcileClaimLostWhileItAsks(t *testing.T) {
	for name, leg := range map[string]struct {
		verdict client.Verdict
		check   func(t *testing.T, out client.Outcome[string], err error)
	}{
		"happened": {client.Happened("theirs"), func(t *testing.T, out client.Outcome[string], err error) {
			as[*client.ClaimLost](t, err)
			if out.Value != "theirs" || out.Settled {
				t.Errorf("got %+v", out)
			}
		}},
		"did not happen": {client.DidNotHappen(), func(t *testing.T, out client.Outcome[string], err error) {
			if err != nil || out.Value != "from the rival" || !out.Replayed { // asked anew, it is settled
				t.Errorf("got %+v, %v", out, err)
			}
		}},
		"still unknown": {client.StillUnknown(errNoAnswer), func(t *testing.T, out client.Outcome[string], err error) {
			if err != nil || out.Value != "from the rival" || !out.Replayed { // somebody else knew
				t.Errorf("got %+v, %v", out, err)
			}
		}},
		"compensated": {client.Compensated("refunded"), func(t *testing.T, _ client.Outcome[string], err error) {
			as[*client.ClaimLost](t, err)
			if errors.As(err, new(*client.Failed)) { // it has not failed: it is the rival's
				t.Errorf("got %v", err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				a := &asker{answer: func(ctx context.Context, cl *client.Claim) client.Verdict {
					r.faults.always(hole, "Renew")
					start := time.Now()
					<-ctx.Done()
					if lost := as[*client.ClaimLost](t, context.Cause(ctx)); lost.Attempt != 2 {
						t.Errorf("got %+v", lost)
					}
					if took := time.Since(start); took != 30*time.Second {
						t.Errorf("it was told after %v", took)
					}
					pass(time.Minute)
					rival := r.rival("k", takingOver(2)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
					time.AfterFunc(20*time.Second, func() {
						if err := rival.complete("from the rival"); err != nil {
							t.Error(err)
						}
					})
					return leg.verdict
				}}
				out, err := r.reconciled("k", r.once("mine"), a)
				leg.check(t, out, err)
				a.was(t, 1)
				pass(time.Minute)
				if out := r.run("k", "mine"); out.Value != "from the rival" {
					t.Errorf("a later caller got %+v", out)
				}
				r.ran(0)
			})
		})
	}
}

// A claim that has lapsed while it was asked, and that nobody took over, still counts.
func TestReconcileLapsesWhileItAsks(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := &asker{answer: func(context.Context, *client.Claim) client.Verdict {
			r.faults.always(hole, "Renew")
			pass(time.Hour)
			r.faults.set(nil)
			return client.DidNotHappen()
		}}
		if out, err := r.reconciled("k", r.once("mine"), a); err != nil || out.Attempt != 3 {
			t.Errorf("got %+v, %v", out, err)
		}
		a.was(t, 1)
		r.ran(1)
	})
}

// An operator decides while it is asked. What the operator has decided stands.
func TestReconcileOperatorDecidesWhileItAsks(t *testing.T) {
	completed := onced.ResolveRequest{Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("by hand"))}
	released := onced.ResolveRequest{Resolution: onced.ResolveReleased}
	for name, leg := range map[string]struct {
		decision onced.ResolveRequest
		verdict  client.Verdict
		value    string
		lost     bool
		runs     int32
	}{
		"completed, did not happen": {completed, client.DidNotHappen(), "by hand", false, 0},
		"completed, happened":       {completed, client.Happened("found"), "found", true, 0},
		"released, did not happen":  {released, client.DidNotHappen(), "mine", false, 1},
		"released, happened":        {released, client.Happened("found"), "found", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				a := &asker{answer: func(context.Context, *client.Claim) client.Verdict {
					r.resolve("k", leg.decision)
					return leg.verdict
				}}
				out, err := r.reconciled("k", r.once("mine"), a)
				var lost *client.ClaimLost
				if out.Value != leg.value || errors.As(err, &lost) != leg.lost || err != nil && !leg.lost {
					t.Errorf("got %+v, %v", out, err)
				}
				r.isIn("k", oncedv1.State_STATE_COMPLETED)
				a.was(t, 1)
				r.ran(leg.runs)
			})
		})
	}
}

// The caller's context ends while it is asked. Its verdict is reported all the same,
// and nothing is executed.
func TestReconcileContextEndsWhileItAsks(t *testing.T) {
	for name, leg := range map[string]struct {
		verdict client.Verdict
		state   oncedv1.State
		check   func(t *testing.T, out client.Outcome[string], err error)
	}{
		"happened": {client.Happened("found"), oncedv1.State_STATE_COMPLETED, func(t *testing.T, out client.Outcome[string], err error) {
			if err != nil || out.Value != "found" {
				t.Errorf("got %+v, %v", out, err)
			}
		}},
		"did not happen": {client.DidNotHappen(), oncedv1.State_STATE_RELEASED, func(t *testing.T, _ client.Outcome[string], err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}},
		"still unknown": {client.StillUnknown(errNoAnswer), oncedv1.State_STATE_UNRESOLVED, func(t *testing.T, _ client.Outcome[string], err error) {
			as[*client.Unresolved](t, err)
		}},
		"compensated": {client.Compensated("refunded"), oncedv1.State_STATE_FAILED, func(t *testing.T, _ client.Outcome[string], err error) {
			as[*client.Failed](t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				pass(90 * time.Second)
				ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
				defer cancel()
				a := &asker{answer: func(ctx context.Context, _ *client.Claim) client.Verdict {
					<-ctx.Done()
					r.faults.always(func(ctx context.Context, send func(context.Context) error) error {
						pass(3 * time.Second)
						return send(ctx)
					}, "Fail", "Complete")
					return leg.verdict
				}}
				start := time.Now()
				out, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(a.ask))
				if took := time.Since(start); took != 10*time.Second {
					t.Errorf("it returned after %v", took)
				}
				leg.check(t, out, err)
				if out.Settled {
					t.Error("it says that the report was answered")
				}
				if left := r.Close(r.Context()); left != nil {
					t.Errorf("left: %v", left)
				}
				r.isIn("k", leg.state)
				a.was(t, 1)
				r.ran(0)
			})
		})
	}
}

// onced never hears that nothing happened. The operation stays unresolved, and nothing
// is executed.
func TestReconcileVerdictThatDoesNotArrive(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		r.faults.always(hole, "Fail")
		var asked time.Time
		a := &asker{answer: func(context.Context, *client.Claim) client.Verdict {
			asked = time.Now()
			return client.DidNotHappen()
		}}
		_, err := r.reconciled("k", r.once("mine"), a)
		if u := as[*client.Unresolved](t, err); u.Attempt != 2 || u.Err == nil {
			t.Errorf("got %+v", u)
		}
		if took := time.Since(asked); took != client.DefaultSettleBudget {
			t.Errorf("it was given up after %v", took)
		}
		a.was(t, 1)
		pass(time.Minute)
		r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
		r.ran(0)
	})
}

func TestReconcileIsSeenByClose(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		asking, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_, err := r.reconciled("k", r.once("mine"), &asker{answer: func(context.Context, *client.Claim) client.Verdict {
				close(asking)
				pass(time.Minute)
				return client.DidNotHappen()
			}})
			if err != nil {
				t.Error(err)
			}
		}()
		<-asking
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if left := r.Close(ctx); len(left) != 1 || left[0].Stage != client.StageReconciling {
			t.Errorf("left: %+v", left)
		}
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %+v", left)
		}
		<-done
		r.ran(1)
	})
}
