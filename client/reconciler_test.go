package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A thousand operations whose callers are dead, while the server goes down twice.
func TestReconcilerBacklog(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		o.takes = time.Second
		keys := r.backlog(1000, o)
		stop := r.inBackground(reconciler(r.newClient(), o))
		for _, n := range []int{300, 600} {
			o.until(t, n)
			r.down()
			pass(40 * time.Second)
			r.up()
		}
		o.until(t, 1000)
		pass(time.Minute)
		stop()
		o.eachOnce(t, 1000)
		if o.most != client.DefaultWorkers {
			t.Errorf("%d asked at once, want %d", o.most, client.DefaultWorkers)
		}
		r.isReconciled(keys, o)
	})
}

// Two processes share the work.
func TestReconcilerInTwoProcesses(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		o.takes = 3 * time.Second
		var by sync.Map
		asking := func(who string) *client.Reconciler {
			rec := reconciler(r.newClient(client.WithHolder(who)), o)
			rec.Workers = 3
			rec.Methods["m"] = client.Reconciliation{Ask: func(ctx context.Context, cl *client.Claim) client.Verdict {
				by.Store(who, true)
				return o.ask(ctx, cl)
			}}
			return rec
		}
		keys := r.backlog(300, o)
		stop, stopOther := r.inBackground(asking("one")), r.inBackground(asking("other"))
		o.until(t, 300)
		pass(time.Minute)
		stop()
		stopOther()
		o.eachOnce(t, 300)
		_, one := by.Load("one")
		_, other := by.Load("other")
		if !one || !other || o.most != 6 {
			t.Errorf("one asked: %v, the other: %v, %d at once", one, other, o.most)
		}
		r.isReconciled(keys, o)
	})
}

// What one process has just asked about in vain rests for the other one too, though
// that has listed it before.
func TestReconcilerRestsInAllProcesses(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		o.takes = time.Second
		o.answer = func(context.Context, *client.Claim) *client.Verdict { return new(client.Verdict) }
		r.backlog(100, o)
		pass(time.Minute)
		var stops []func()
		for range 2 {
			rec := reconciler(r.newClient(), o)
			rec.Workers, rec.Interval = 2, time.Hour
			stops = append(stops, r.inBackground(rec))
		}
		pass(10 * time.Minute)
		for _, stop := range stops {
			stop()
		}
		o.eachOnce(t, 100)
	}, atOnce)
}

// What is still unknown is asked about again after ever longer rests, by the record:
// also when the process was started anew. After 16 attempts it is left to people; when
// an operator has allowed more, all begins anew.
func TestReconcilerRests(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		o.answer = func(context.Context, *client.Claim) *client.Verdict { return new(client.Verdict) }
		another := func() (stop func()) {
			rec := reconciler(r.newClient(), o)
			rec.Interval = time.Minute
			return r.inBackground(rec)
		}
		r.dies("k", nil)
		for n := 1; n <= 15; n++ { // the first attempt has died, 15 ask
			stop := another()
			o.until(t, n)
			pass(time.Duration(n) * 7 * time.Second)
			stop()
		}
		r.rested(o.times("k"))
		said := func() int { return len(r.warnings("level=WARN", "left to people", "operations=1")) }
		claims, warned, stop := len(r.claims()), said(), another()
		pass(2 * longestRest)
		if len(o.times("k")) != 15 || r.operation("k").GetAttempt() != 16 {
			t.Errorf("it was asked %d times and is %v", len(o.times("k")), r.operation("k"))
		}
		if n := len(r.claims()) - claims; n != 0 {
			t.Errorf("%d claims were sent for what only an operator can end", n)
		}
		if n := said() - warned; n != 1 {
			t.Errorf("%d warnings of this process say that it is left to people", n)
		}
		r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
		r.dies("k", nil)
		o.until(t, 18)
		stop()
		r.rested(o.times("k")[15:])
	}, atOnce)
}

// longestRest is how long an operation rests at most.
const longestRest = 6 * time.Hour

// rested fails the test unless the pauses between asks, where an interval is a minute,
// are as long as they should.
func (r *rig) rested(at []time.Time) {
	r.Helper()
	for n, rest := 1, time.Minute; n < len(at); n, rest = n+1, min(2*rest, longestRest) {
		if gap := at[n].Sub(at[n-1]); gap < rest || gap > rest+4*time.Minute {
			r.Errorf("asked for time %d after %v, want %v", n+1, gap, rest)
		}
	}
}

// Nothing is asked before reconcile_after, and nobody is warned meanwhile.
func TestReconcilerComesNotTooEarly(t *testing.T) {
	inBubble(t, func(r *rig) {
		o, start := newOutside(), time.Now()
		r.dies("lapsed", nil)
		_, err := client.Do(r.Context(), r.Client, call("declared"), r.failing(errNoAnswer))
		if err == nil {
			t.Fatal("no error")
		}
		stop := r.inBackground(reconciler(r.newClient(), o))
		o.until(t, 2)
		stop()
		for key, due := range map[string]time.Duration{"lapsed": 30*time.Second + 2*time.Minute, "declared": 2 * time.Minute} {
			if at := o.times(key)[0].Sub(start); at < due || at > due+20*time.Second {
				t.Errorf("it was asked about the %s one after %v, want %v", key, at, due)
			}
		}
		r.isQuiet()
	}, func(p *onced.Policy) { p.ReconcileAfter = new(2 * time.Minute) })
}

// What is left to people is neither taken over nor asked about, and a warning a round
// says how many there are.
func TestReconcilerLeavesToPeople(t *testing.T) {
	nobody := func(p *onced.Policy) { p.Takeover = onced.TakeoverByNobody }
	for name, c := range map[string]struct {
		window time.Duration
		policy func(*onced.Policy)
		claim  func(*oncedv1.ClaimRequest)
	}{
		"the window is over": {window: time.Minute, policy: atOnce},
		"the policy says so": {policy: nobody},
		"when it began is not remembered": {window: 1000 * time.Hour, policy: atOnce, claim: func(req *oncedv1.ClaimRequest) {
			req.KeyTime = timestamppb.New(forgotten("").KeyTime)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				o := newOutside()
				for i := range 250 {
					r.rival(fmt.Sprint(i), c.claim)
				}
				pass(time.Minute)
				rec, before := reconciler(r.newClient(), o), len(r.claims())
				rec.Interval = time.Minute
				rec.Methods["m"] = client.Reconciliation{Ask: o.ask, DownstreamWindow: c.window}
				stop := r.inBackground(rec)
				pass(10 * time.Minute)
				stop()
				o.eachOnce(t, 0)
				if n := len(r.claims()) - before; n != 0 {
					t.Errorf("%d claims were sent", n)
				}
				if n := len(r.warnings("level=WARN")); n != 1 || n != len(r.warnings("left to people", "operations=250", "method=m")) {
					t.Errorf("%d warnings in 10 rounds, want one as long as they are as many:\n%s", n, r.log)
				}
			}, c.policy)
		})
	}
}

// Operations of methods that nobody named are left alone, and settled ones, and those
// that somebody executes.
func TestReconcilerLeavesOthersAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		r.rival("k", func(req *oncedv1.ClaimRequest) { req.Ref = r.Ref("k", "other") })
		r.run("settled", "mine")
		if _, err := client.Do(r.Context(), r.Client, call("released"), r.failing(client.NotExecuted(nil))); err == nil {
			t.Error("no error")
		}
		r.rival("held", withLease(time.Hour))
		r.dies("mine", nil)
		before := len(r.claims())
		stop := r.inBackground(reconciler(r.newClient(), o))
		pass(30 * time.Minute)
		stop()
		o.eachOnce(t, 1)
		if len(o.times("mine")) != 1 || len(r.claims()) != before+1 {
			t.Errorf("it asked about %v and sent %d claims", o.asked, len(r.claims())-before)
		}
	}, atOnce)
}

// Why an operation is unresolved makes no difference to how it is asked about.
func TestReconcilerOfEveryReason(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		r.dies("lapsed", nil)
		if _, err := client.Do(r.Context(), r.Client, call("declared"), r.failing(errNoAnswer)); err == nil {
			t.Error("no error")
		}
		r.rival("forgotten", func(req *oncedv1.ClaimRequest) { req.KeyTime = timestamppb.New(forgotten("").KeyTime) }).
			got(oncedv1.Outcome_OUTCOME_UNRESOLVED)
		r.contradicted("contradicted")
		keys := []string{"lapsed", "declared", "forgotten", "contradicted"}
		for _, key := range keys {
			o.act(key)
		}
		stop := r.inBackground(reconciler(r.newClient(), o))
		pass(time.Hour)
		stop()
		o.eachOnce(t, len(keys))
		for _, key := range keys {
			if out := r.run(key, "mine"); !out.Replayed || out.Value != "found "+key {
				t.Errorf("%s: got %+v", key, out)
			}
		}
	}, atOnce)
}

// What a former holder has told of an effect is not released by a look-up that does
// not find it, and is asked about again.
func TestReconcilerOfAContradiction(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		r.contradicted("k")
		stop := r.inBackground(reconciler(r.newClient(), o))
		o.until(t, 2)
		pass(30 * time.Second)
		r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
		o.act("k") // now the look-up finds it
		pass(time.Hour)
		stop()
		if out := r.run("k", "mine"); !out.Replayed || out.Value != "found k" {
			t.Errorf("got %+v", out)
		}
	}, atOnce)
}

// An operation is taken over as what its record says that it is, where callers must
// say that too.
func TestReconcilerSpeaksAsTheRecord(t *testing.T) {
	f := []string{"raw1:" + strings.Repeat("a", 64), "cj1:" + strings.Repeat("b", 64)}
	for name, policy := range map[string]func(*onced.Policy){
		"nothing is required":      func(*onced.Policy) {},
		"fingerprint is required":  func(p *onced.Policy) { p.FingerprintRequired = true },
		"a key's time is required": func(p *onced.Policy) { p.KeyTimeRequired = true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				o := newOutside()
				r.rival("k", func(req *oncedv1.ClaimRequest) {
					req.Subject, req.Fingerprints, req.KeyTime = "u1", f, timestamppb.Now()
				}).got(oncedv1.Outcome_OUTCOME_GRANTED)
				o.act("k")
				stop := r.inBackground(reconciler(r.newClient(), o))
				pass(time.Hour)
				stop()
				resp, err := r.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: r.Ref("k", "m"), Subject: "u1"})
				if err != nil || resp.GetOperation().GetState() != oncedv1.State_STATE_COMPLETED {
					t.Errorf("got %v, %v", resp, err)
				}
				o.eachOnce(t, 1)
				r.isQuiet()
			}, policy)
		})
	}
}

// An operation may become something else after it was listed. Nothing is asked then,
// and nothing executed.
func TestReconcilerComesTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*rig, *rival)
		then      oncedv1.State
		reports   int // of the reconciler
	}{
		"released": {func(r *rig, _ *rival) { r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased}) }, oncedv1.State_STATE_RELEASED, 1},
		"settled":  {func(_ *rig, v *rival) { _ = v.complete("it happened") }, oncedv1.State_STATE_COMPLETED, 0},
		"failed":   {func(_ *rig, v *rival) { _ = v.fail(oncedv1.Disposition_DISPOSITION_FINAL) }, oncedv1.State_STATE_FAILED, 0},
		"revived": {func(r *rig, v *rival) {
			if _, err := r.Renew(r.Context(), &oncedv1.RenewRequest{Ref: v.req.GetRef(), ClaimToken: v.req.GetClaimToken(), Fence: v.answer.GetOperation().GetFence()}); err != nil {
				r.Error(err)
			}
		}, oncedv1.State_STATE_PENDING, 0},
		"taken over": {func(r *rig, _ *rival) {
			r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
		}, oncedv1.State_STATE_PENDING, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				o, first := newOutside(), r.dies("k", nil)
				pass(time.Minute)
				var once sync.Once
				reports := 0
				r.faults.set(func(s sent) fault {
					if claim, ok := s.req.(*oncedv1.ClaimRequest); ok && claim.GetHolder() == "reconciler" {
						return func(ctx context.Context, send func(context.Context) error) error {
							once.Do(func() { c.meanwhile(r, first); reports = r.reports() })
							return send(ctx)
						}
					}
					return nil
				})
				stop := r.inBackground(reconciler(r.newClient(client.WithHolder("reconciler")), o))
				pass(20 * time.Second)
				stop()
				o.eachOnce(t, 0)
				r.isIn("k", c.then)
				if n := r.reports() - reports; n != c.reports {
					t.Errorf("%d reports were sent, want %d", n, c.reports)
				}
				r.isQuiet()
			}, atOnce)
		})
	}
}

// A page token that the server refuses, as it may when it was started again, means
// that the next round begins anew.
func TestReconcilerBeginsAnew(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		keys := r.backlog(450, o)
		refused := 0
		r.faults.set(func(s sent) fault {
			if list, ok := s.req.(*oncedv1.ListOperationsRequest); ok && list.GetPageToken() != "" && refused == 0 {
				refused++
				return refusedWith(codes.InvalidArgument)
			}
			return nil
		})
		pass(time.Minute)
		stop := r.inBackground(reconciler(r.newClient(), o))
		o.until(t, 450)
		pass(time.Minute)
		stop()
		o.eachOnce(t, 450)
		if refused != 1 {
			t.Errorf("%d tokens were refused", refused)
		}
		r.isReconciled(keys, o)
	}, atOnce)
}
