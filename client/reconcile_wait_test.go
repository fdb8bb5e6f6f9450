package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The CRM's look-up shows a ticket 2 s after it was created. A call that asked at once
// would find nothing; the wait of the namespace's policy is what stands against that.
func TestReconcileAsksNotBeforeItIsDue(t *testing.T) {
	crm := &crmAPI{lag: 2 * time.Second}
	inBubble(t, func(r *rig) {
		var created time.Time
		var asked []time.Duration
		a := &asker{answer: func(ctx context.Context, cl *client.Claim) client.Verdict {
			asked = append(asked, time.Since(created))
			return hits(crm.find(ctx, child(t, cl.Key)))
		}}
		r.dies("k", func() {
			created = time.Now()
			_, _ = crm.create(r.Context(), child(t, "k"))
		})
		out, err := r.reconciled("k", r.once("mine"), a)
		if err != nil || out.Value != "ticket 1" || !out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
		// 30 s of lease and 60 s of reconcile_after, and up to a tenth of them later.
		if len(asked) != 1 || asked[0] < 90*time.Second || asked[0] > 96*time.Second {
			t.Errorf("it was asked %v after the create", asked)
		}
		if crm.effects() != 1 {
			t.Errorf("%d tickets", crm.effects())
		}
		r.ran(0)
	})
}

// The same with a wait that is just longer than the look-up's delay.
func TestReconcileAfterIsHonoured(t *testing.T) {
	crm := &crmAPI{lag: 2 * time.Second}
	after := 3 * time.Second
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			r.runs.Add(1)
			crm.lose(1)
			return crm.create(ctx, child(t, cl.Key))
		})
		if !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		declared := time.Now()
		a := &asker{answer: func(ctx context.Context, cl *client.Claim) client.Verdict {
			if waited := time.Since(declared); waited < after {
				t.Errorf("it was asked after %v", waited)
			}
			return hits(crm.find(ctx, child(t, cl.Key)))
		}}
		out, err := r.reconciled("k", r.once("mine"), a)
		if err != nil || out.Value != "ticket 1" {
			t.Errorf("got %+v, %v", out, err)
		}
		if waited := time.Since(declared); waited > after+after/10 {
			t.Errorf("it waited %v", waited)
		}
		a.was(t, 1)
		r.ran(1)
	}, func(p *onced.Policy) { p.ReconcileAfter = &after })
}

// With NoWait the caller is told when asking makes sense, and the function is not
// asked before.
func TestReconcileNoWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := answering(client.DidNotHappen())
		_, err := r.reconciled("k", r.once("mine"), a, client.NoWait())
		as[*client.InProgress](t, err)
		for _, at := range []time.Duration{30 * time.Second, 89 * time.Second} {
			pass(at - time.Since(r.operation("k").GetClaimTime().AsTime()))
			before := time.Now()
			_, err = r.reconciled("k", r.once("mine"), a, client.NoWait())
			u := as[*client.Unresolved](t, err)
			if u.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET || u.RetryAfter != 90*time.Second-at ||
				u.Attempt != 1 || u.Reason != oncedv1.Reason_REASON_LAPSED {
				t.Errorf("at %v: got %+v", at, u)
			}
			if !time.Now().Equal(before) {
				t.Error("it has waited")
			}
			says(t, err, "NOT_YET", u.RetryAfter.String())
		}
		a.was(t, 0)
		r.ran(0)
		pass(time.Second)
		if out, err := r.reconciled("k", r.once("mine"), a, client.NoWait()); err != nil || out.Attempt != 3 {
			t.Errorf("got %+v, %v", out, err)
		}
		a.was(t, 1)
		r.ran(1)
	})
}

// A call that will end before the takeover may be asked for is told so at once.
func TestReconcileDeadlineBeforeTheTakeover(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(40 * time.Second)
		a := answering(client.DidNotHappen())
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(a.ask))
		if u := as[*client.Unresolved](t, err); u.RetryAfter != 50*time.Second || time.Since(start) > time.Second {
			t.Errorf("got %+v after %v", u, time.Since(start))
		}
		a.was(t, 0)
		r.ran(0)
	})
}

// The last holder may settle the operation while a call waits to take it over: then
// the call has the outcome, and asks nothing.
func TestReconcileLastHolderSettlesMeanwhile(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.dies("k", nil)
		pass(40 * time.Second)
		time.AfterFunc(10*time.Second, func() {
			if err := first.complete("late"); err != nil {
				t.Error(err)
			}
		})
		a := answering(client.DidNotHappen())
		start := time.Now()
		out, err := r.reconciled("k", r.once("mine"), a)
		if took := time.Since(start); err != nil || out.Value != "late" || took > 20*time.Second {
			t.Errorf("got %+v, %v after %v", out, err, took)
		}
		a.was(t, 0)
		r.ran(0)
	})
}

func TestReconcileContextEndsWhileItWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(40 * time.Second)
		a := answering(client.DidNotHappen())
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(10*time.Second, cancel)
		start := time.Now()
		_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(a.ask))
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it returned after %v", took)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if u := as[*client.Unresolved](t, err); u.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET {
			t.Errorf("got %+v", u)
		}
		says(t, err, `outcome unknown, key "k"`, "nothing was executed by it", "same key")
		if op := r.operation("k"); op.GetAttempt() != 1 {
			t.Errorf("it was taken over: %v", op)
		}
		a.was(t, 0)
		r.ran(0)
	})
}

// What is settled, released or taken over while a call waits for its turn is seen.
func TestReconcileSeesWhatHappensWhileItWaits(t *testing.T) {
	for name, leg := range map[string]struct {
		meanwhile func(r *rig, first *rival)
		want      string
		runs      int32
		asked     int32
	}{
		"the holder reports late": {func(_ *rig, first *rival) { _ = first.complete("late") }, "late", 0, 0},
		"the holder did nothing": {func(_ *rig, first *rival) {
			_ = first.fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED)
		}, "mine", 1, 0},
		"the holder comes back to life": {func(r *rig, first *rival) {
			_, err := r.Renew(r.Context(), &oncedv1.RenewRequest{
				Ref: first.req.GetRef(), ClaimToken: first.req.GetClaimToken(), Fence: first.answer.GetOperation().GetFence(),
			})
			if err != nil {
				r.Error(err)
			}
			time.AfterFunc(20*time.Second, func() { _ = first.complete("after all") })
		}, "after all", 0, 0},
		"an operator resolves it": {func(r *rig, _ *rival) {
			r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
		}, "mine", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				first := r.dies("k", nil)
				time.AfterFunc(50*time.Second, func() { leg.meanwhile(r, first) })
				a := answering(client.DidNotHappen())
				out, err := r.reconciled("k", r.once("mine"), a)
				if err != nil || out.Value != leg.want || out.Replayed == (leg.runs > 0) {
					t.Errorf("got %+v, %v", out, err)
				}
				a.was(t, leg.asked)
				r.ran(leg.runs)
			})
		})
	}
}

// A takeover that was asked for is neither given nor refused: an answer that no onced
// gives. The call ends, and does not ask for ever.
func TestReconcileOfATakeoverThatIsNotAnswered(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(40 * time.Second)
		r.faults.editReplies(func(_ string, reply any) {
			if claim, ok := reply.(*oncedv1.ClaimResponse); ok {
				claim.TakeoverRefused, claim.RetryAfter = oncedv1.TakeoverRefused_TAKEOVER_REFUSED_UNSPECIFIED, nil
			}
		})
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		a := answering(client.DidNotHappen())
		_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"), client.WithReconcile(a.ask))
		as[*client.Unresolved](t, err)
		r.saw("Claim", 3)
		a.was(t, 0)
		r.ran(0)
	})
}

// safe_to_rerun lets the function run at once. With a way to find out, that comes first.
func TestReconcileComesBeforeARerun(t *testing.T) {
	for name, leg := range map[string]struct {
		verdict client.Verdict
		runs    int32
	}{
		"did not happen": {client.DidNotHappen(), 1},
		"happened":       {client.Happened("mine"), 0},
		"still unknown":  {client.StillUnknown(errNoAnswer), 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				pass(30 * time.Second)
				start := time.Now()
				a := answering(leg.verdict)
				out, err := r.reconciled("k", r.once("mine"), a)
				if name == "still unknown" {
					as[*client.Unresolved](t, err)
				} else if err != nil || out.Value != "mine" || out.Replayed != (leg.runs == 0) {
					t.Errorf("got %+v, %v", out, err)
				}
				if !time.Now().Equal(start) {
					t.Error("it has waited")
				}
				a.was(t, 1)
				r.ran(leg.runs)
			}, func(p *onced.Policy) { p.SafeToRerun = true })
		})
	}
}
