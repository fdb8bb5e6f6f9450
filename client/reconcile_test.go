package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// asker counts how often it is asked, under which claims, and answers alike.
type asker struct {
	asked  atomic.Int32
	last   atomic.Pointer[client.Claim]
	answer func(ctx context.Context, cl *client.Claim) client.Verdict
}

func (a *asker) ask(ctx context.Context, cl *client.Claim) client.Verdict {
	a.asked.Add(1)
	a.last.Store(cl)
	return a.answer(ctx, cl)
}

// answering always finds the same.
func answering(v client.Verdict) *asker {
	return &asker{answer: func(context.Context, *client.Claim) client.Verdict { return v }}
}

// was fails the test unless it was asked n times.
func (a *asker) was(t testing.TB, n int32) {
	t.Helper()
	if got := a.asked.Load(); got != n {
		t.Errorf("it was asked %d times, want %d", got, n)
	}
}

// dies is a process that claims the operation, does something under the claim, and is
// never heard of again.
func (r *rig) dies(key string, doing func()) *rival {
	r.Helper()
	holder := r.rival(key, nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
	if doing != nil {
		doing()
	}
	return holder
}

// reconciled is Do with a reconcile function, and without a time limit.
func (r *rig) reconciled(key string, fn func(context.Context, *client.Claim) (string, error), a *asker, opts ...client.DoOption) (client.Outcome[string], error) {
	return client.Do(r.Context(), r.Client, call(key), fn, append(opts, client.WithReconcile(a.ask))...)
}

// atOnce is a policy by which an unresolved operation is taken over without waiting.
func atOnce(p *onced.Policy) { p.ReconcileAfter = new(time.Duration) }

// child is the key that is sent to a provider.
func child(t testing.TB, key string) string {
	t.Helper()
	k, err := client.Child(key, "effect")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// hits is the verdict of most look-ups: none, one, or too many.
func hits(ids []string, err error) client.Verdict {
	switch {
	case err != nil:
		return client.StillUnknown(err)
	case len(ids) == 0:
		return client.DidNotHappen()
	case len(ids) == 1:
		return client.Happened(ids[0])
	}
	return client.StillUnknown(fmt.Errorf("%w: %v", errAmbiguous, ids))
}

var errAmbiguous = errors.New("more than one effect")

// lookup is a system that can be looked up: what makes an effect, and what finds it.
type lookup struct {
	*provider
	do   func(context.Context, string) (string, error)
	find func(context.Context, string) ([]string, error)
}

func lookups() map[string]lookup {
	mail, crm := &mailAPI{}, &crmAPI{}
	return map[string]lookup{
		"mail": {&mail.provider, mail.send, mail.sent},
		"CRM":  {&crm.provider, crm.create, crm.find},
	}
}

func TestReconcileByHits(t *testing.T) {
	for n := range 3 {
		for name, system := range lookups() {
			t.Run(fmt.Sprintf("%s, %d hits", name, n), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					reference, first := child(t, "k"), time.Now()
					r.dies("k", func() {
						for range n {
							if _, err := system.do(r.Context(), reference); err != nil {
								t.Fatal(err)
							}
						}
					})
					a := &asker{answer: func(ctx context.Context, cl *client.Claim) client.Verdict {
						return hits(system.find(ctx, reference))
					}}
					out, err := r.reconciled("k", func(ctx context.Context, cl *client.Claim) (string, error) {
						r.runs.Add(1)
						if cl.Attempt != 3 || cl.TakenOver {
							t.Errorf("it runs under attempt %d, taken over %v", cl.Attempt, cl.TakenOver)
						}
						return system.do(ctx, reference)
					}, a)
					a.was(t, 1)
					if cl := a.last.Load(); cl.Key != "k" || cl.Attempt != 2 || !cl.TakenOver || !cl.FirstClaimedAt.Equal(first) {
						t.Errorf("it was asked under %+v", cl)
					}
					[]func(client.Outcome[string], error){r.ranAfterAsking, r.replaysWhatHappened, r.staysUnresolved}[n](out, err)
					if want := max(n, 1); system.effects() != want {
						t.Errorf("%d effects, want %d", system.effects(), want)
					}
				})
			})
		}
	}
}

func (r *rig) ranAfterAsking(out client.Outcome[string], err error) {
	r.Helper()
	if err != nil || out.Replayed || !out.Settled || out.Attempt != 3 || out.Value == "" {
		r.Errorf("got %+v, %v", out, err)
	}
	if again := r.run("k", "again"); !again.Replayed || again.Value != out.Value {
		r.Errorf("a later caller got %+v", again)
	}
	r.ran(1)
}

func (r *rig) replaysWhatHappened(out client.Outcome[string], err error) {
	r.Helper()
	if err != nil || !out.Replayed || !out.Settled || out.Attempt != 2 || out.Value == "" {
		r.Errorf("got %+v, %v", out, err)
	}
	if again := r.run("k", "again"); again != out {
		r.Errorf("a later caller got %+v, want the same %+v", again, out)
	}
	r.ran(0)
}

func (r *rig) staysUnresolved(_ client.Outcome[string], err error) {
	r.Helper()
	u := as[*client.Unresolved](r.T, err)
	if !errors.Is(err, errAmbiguous) || !errors.Is(u.Err, errAmbiguous) || u.Key != "k" || u.Attempt != 2 || u.Holder != "holder-1" {
		r.Errorf("got %+v", u)
	}
	says(r.T, err, `"k"`, "DECLARED", "why it was not found out: more than one effect", "nothing was executed now", "do not use another key")
	_, err = client.Do(r.Context(), r.Client, call("k"), r.once("again"))
	if u := as[*client.Unresolved](r.T, err); u.Reason != oncedv1.Reason_REASON_DECLARED || u.Attempt != 2 {
		r.Errorf("a later caller got %+v", u)
	}
	r.ran(0)
}

func TestReconcileOfNoVerdict(t *testing.T) {
	for name, v := range map[string]client.Verdict{"the zero verdict": {}, "no reason": client.StillUnknown(nil)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				a := answering(v)
				_, err := r.reconciled("k", r.once("mine"), a)
				if u := as[*client.Unresolved](t, err); u.Err != nil || u.Reason != oncedv1.Reason_REASON_DECLARED {
					t.Errorf("got %+v", u)
				}
				a.was(t, 1)
				r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
				r.ran(0)
			})
		})
	}
}

func TestReconcileIsAskedOnlyAboutWhatIsUnresolved(t *testing.T) {
	inBubble(t, func(r *rig) {
		a := answering(client.DidNotHappen())
		for range 2 { // granted, then replayed
			if out, err := r.reconciled("k", r.once("mine"), a); err != nil || out.Value != "mine" || out.Attempt != 1 {
				t.Errorf("got %+v, %v", out, err)
			}
		}
		if _, err := r.reconciled("released", r.failing(client.NotExecuted(nil)), a); err == nil {
			t.Error("no error")
		}
		if out, err := r.reconciled("released", r.once("mine"), a); err != nil || out.Attempt != 2 {
			t.Errorf("got %+v, %v", out, err)
		}
		a.was(t, 0)
		r.ran(3)
	})
}

func TestReconcileWhereThePolicyForbidsIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(time.Hour)
		a := answering(client.DidNotHappen())
		_, err := r.reconciled("k", r.once("mine"), a)
		u := as[*client.Unresolved](t, err)
		if u.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_POLICY || u.Reason != oncedv1.Reason_REASON_LAPSED || u.Attempt != 1 {
			t.Errorf("got %+v", u)
		}
		says(t, err, "POLICY")
		a.was(t, 0)
		r.ran(0)
		r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased}) // a person has decided
		if out := r.run("k", "mine"); out.Attempt != 2 {
			t.Errorf("got %+v", out)
		}
	}, func(p *onced.Policy) { p.Takeover = onced.TakeoverByNobody })
}

// The policy lets nobody but operators take over, and this caller is told that it is
// none.
func TestReconcileByOthersThanOperators(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(time.Hour)
		r.faults.editReplies(func(rpc string, reply any) {
			if claim, ok := reply.(*oncedv1.ClaimResponse); ok {
				claim.TakeoverRefused = oncedv1.TakeoverRefused_TAKEOVER_REFUSED_POLICY
			}
		})
		a := answering(client.DidNotHappen())
		_, err := r.reconciled("k", r.once("mine"), a)
		as[*client.Unresolved](t, err)
		says(t, err, "POLICY")
		a.was(t, 0)
		r.ran(0)
	})
}

// contradicted is an operation of which a former holder has reported an effect.
func (r *rig) contradicted(key string) {
	r.Helper()
	first := r.dies(key, nil)
	pass(90 * time.Second)
	second := r.rival(key, takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
	if err := first.complete("it happened"); status.Code(err) != codes.FailedPrecondition {
		r.Fatalf("got %v", err)
	}
	if err := second.fail(oncedv1.Disposition_DISPOSITION_UNKNOWN); err != nil {
		r.Fatal(err)
	}
	if op := r.operation(key); op.GetReason() != oncedv1.Reason_REASON_CONTRADICTED {
		r.Fatalf("got %v", op)
	}
}

func TestReconcileContradicted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.contradicted("k")
		_, err := r.reconciled("k", r.once("mine"), answering(client.DidNotHappen()))
		u := as[*client.Unresolved](t, err)
		if u.Reason != oncedv1.Reason_REASON_CONTRADICTED || u.Err == nil || u.Attempt != 3 {
			t.Errorf("got %+v", u)
		}
		says(t, err, "CONTRADICTED", "a former holder has reported that the effect happened")
		r.isIn("k", oncedv1.State_STATE_PENDING) // nothing is reported over it: it lapses
		pass(30 * time.Second)
		if op := r.operation("k"); op.GetState() != oncedv1.State_STATE_UNRESOLVED || op.GetReason() != oncedv1.Reason_REASON_CONTRADICTED {
			t.Errorf("the refused verdict leaves %v", op)
		}
		out, err := r.reconciled("k", r.once("mine"), answering(client.Happened("it happened")))
		if err != nil || out.Value != "it happened" || !out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
		if out := r.run("k", "mine"); out.Value != "it happened" {
			t.Errorf("got %+v", out)
		}
		r.ran(0)
	})
}

// The former holder's report arrives while the outside system is asked.
func TestReconcileContradictedMeanwhile(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.dies("k", nil)
		a := &asker{answer: func(context.Context, *client.Claim) client.Verdict {
			if err := first.complete("it happened"); err == nil {
				t.Error("a former holder has settled the operation")
			}
			return client.DidNotHappen()
		}}
		_, err := r.reconciled("k", r.once("mine"), a)
		if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_CONTRADICTED {
			t.Errorf("got %+v", u)
		}
		a.was(t, 1)
		r.ran(0)
	})
}

// Who has asked and does not know is told what a later caller is told.
func TestReconcileStillUnknownOfAContradiction(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.contradicted("k")
		_, err := r.reconciled("k", r.once("mine"), answering(client.StillUnknown(nil)))
		if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_CONTRADICTED {
			t.Errorf("got %+v", u)
		}
		if op := r.operation("k"); op.GetReason() != oncedv1.Reason_REASON_CONTRADICTED {
			t.Errorf("got %v", op)
		}
		r.ran(0)
	})
}

func TestReconcileStillUnknownSaysWhenItWasClaimed(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := time.Now()
		r.dies("k", nil)
		_, err := r.reconciled("k", r.once("mine"), answering(client.StillUnknown(nil)))
		u := as[*client.Unresolved](t, err)
		if !u.FirstClaimedAt.Equal(first) || !u.ClaimedAt.Equal(time.Now()) {
			t.Errorf("got %+v", u)
		}
		if strings.Contains(err.Error(), "not remembered") {
			t.Errorf("it is remembered: %v", err)
		}
	})
}

// forgotten is a call whose key is older than what the store remembers.
func forgotten(key string) client.Call {
	c := call(key)
	c.KeyTime = time.Now().Add(-60 * 24 * time.Hour)
	return c
}

func TestReconcileHistoryLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		a := answering(client.DidNotHappen())
		fn := func(_ context.Context, cl *client.Claim) (string, error) {
			r.runs.Add(1)
			if cl.Attempt != 3 || cl.TakenOver {
				t.Errorf("it runs under attempt %d, taken over %v", cl.Attempt, cl.TakenOver)
			}
			return "mine", nil
		}
		out, err := client.Do(r.Context(), r.Client, forgotten("k"), fn, client.WithReconcile(a.ask))
		if err != nil || out.Value != "mine" || out.Replayed || out.Attempt != 3 {
			t.Errorf("got %+v, %v", out, err)
		}
		if waited := time.Since(start); waited < time.Minute {
			t.Errorf("it was asked after %v", waited)
		}
		if cl := a.last.Load(); cl.Attempt != 2 || !cl.FirstClaimedAt.IsZero() {
			t.Errorf("it was asked under %+v", cl)
		}
		a.was(t, 1)
		r.ran(1)
	})
}

func TestReconcileDeclared(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), r.failing(errNoAnswer))
		if !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		start := time.Now()
		a := answering(client.DidNotHappen())
		out, err := r.reconciled("k", r.once("mine"), a)
		if err != nil || out.Attempt != 3 || out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
		if waited := time.Since(start); waited < time.Minute || waited > 67*time.Second {
			t.Errorf("it was asked after %v", waited)
		}
		a.was(t, 1)
		r.ran(2)
	})
}

func TestReconcileUntilItsAttemptsAreUsedUp(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(time.Minute)
		a := answering(client.StillUnknown(errors.New("maintenance")))
		var err error
		for n := range 20 {
			_, err = r.reconciled("k", r.once("mine"), a)
			u := as[*client.Unresolved](t, err)
			if want := min(n+2, 16); int(u.Attempt) != want {
				t.Errorf("call %d got attempt %d", n, u.Attempt)
			}
		}
		says(t, err, "attempts are used up", "operator", "DECLARED", "do not use another key")
		a.was(t, 15)
		r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
		if out, err := r.reconciled("k", r.once("mine"), a); err != nil || out.Attempt != 17 {
			t.Errorf("got %+v, %v", out, err)
		}
		r.ran(1)
	}, atOnce)
}

// The last attempt was used to find out that nothing happened: nothing is executed,
// and the caller is told what there is to do.
func TestReconcileWithTheLastAttempt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(time.Minute)
		for range 14 {
			_, err := r.reconciled("k", r.once("mine"), answering(client.StillUnknown(nil)))
			as[*client.Unresolved](t, err)
		}
		_, err := r.reconciled("k", r.once("mine"), answering(client.DidNotHappen()))
		if err == nil {
			t.Fatal("no error")
		}
		says(t, err, "16 attempts", "operator")
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		if strings.Contains(err.Error(), "may have had its effect") {
			t.Errorf("the operation is released, and the error says: %v", err)
		}
		r.ran(0)
	}, atOnce)
}

// A claim names what it is about, also for a call with arguments, a subject and a time.
func TestReconcileSendsAllOfTheCall(t *testing.T) {
	inBubble(t, func(r *rig) {
		f, err := onced.ParseFingerprint("raw1:" + strings.Repeat("a", 64))
		if err != nil {
			t.Fatal(err)
		}
		c := client.Call{Key: "k", Method: "m", Subject: "u1", Fingerprints: []onced.Fingerprint{f}, KeyTime: time.Now()}
		r.rival("k", func(req *oncedv1.ClaimRequest) {
			req.Subject, req.Fingerprints, req.KeyTime = "u1", []string{f.String()}, timestamppb.New(c.KeyTime)
		})
		out, err := client.Do(r.Context(), r.Client, c, r.once("mine"), client.WithReconcile(answering(client.DidNotHappen()).ask))
		if err != nil || out.Attempt != 3 {
			t.Errorf("got %+v, %v", out, err)
		}
		c.Subject = "u2"
		_, err = client.Do(r.Context(), r.Client, c, r.once("mine"), client.WithReconcile(answering(client.DidNotHappen()).ask))
		as[*client.Mismatch](t, err)
		r.ran(1)
	})
}
