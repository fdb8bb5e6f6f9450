package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Several callers meet the same unresolved operation: one asks, the others get what
// comes of it.
func TestReconcileOfManyCallers(t *testing.T) {
	for name, leg := range map[string]struct {
		callers int
		verdict client.Verdict
		runs    int32
	}{
		"two, happened":          {2, client.Happened("ticket 7"), 0},
		"two, did not happen":    {2, client.DidNotHappen(), 1},
		"twenty, happened":       {20, client.Happened("ticket 7"), 0},
		"twenty, did not happen": {20, client.DidNotHappen(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				a := &asker{answer: func(context.Context, *client.Claim) client.Verdict {
					pass(45 * time.Second)
					return leg.verdict
				}}
				var all sync.WaitGroup
				for n := range leg.callers {
					c := r.newClient(client.WithHolder(fmt.Sprintf("holder-%d", n)))
					all.Go(func() {
						out, err := client.Do(r.Context(), c, call("k"), r.slow(45*time.Second, "ticket 7"), client.WithReconcile(a.ask))
						if err != nil || out.Value != "ticket 7" {
							t.Errorf("got %+v, %v", out, err)
						}
					})
				}
				all.Wait()
				a.was(t, 1)
				r.ran(leg.runs)
			})
		})
	}
}

// One of several callers asks. Those that waited for it meanwhile do not ask after it:
// that would use up the attempts. Nobody executes.
func TestReconcileOfManyCallersWhoDoNotFindOut(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := answering(client.StillUnknown(errNoAnswer))
		var all sync.WaitGroup
		for range 20 {
			c := r.newClient()
			all.Go(func() {
				_, err := client.Do(r.Context(), c, call("k"), r.once("mine"), client.WithReconcile(a.ask))
				var unresolved *client.Unresolved
				if !errors.As(err, &unresolved) || unresolved.Attempt != 2 || unresolved.Reason != oncedv1.Reason_REASON_DECLARED {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		a.was(t, 1)
		r.ran(0)
	})
}

// The way to onced is bad. At whatever step a call is lost, it is asked once and
// executed once.
func TestReconcileOverABadWay(t *testing.T) {
	steps := []string{"the plain claim", "the takeover", "DID_NOT_HAPPEN", "the claim after it", "the result"}
	for name, happen := range map[string]fault{
		"the answer is lost": lost, "the answer never comes": swallowed, "the call never arrives": hole,
		"it arrives late": late(time.Minute), "it is refused on the way": refusedWith(codes.Unavailable),
	} {
		for step, where := range steps {
			t.Run(name+", "+where, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					crm := &crmAPI{}
					r.dies("k", nil)
					pass(30 * time.Second)
					n := -1
					r.faults.set(func(s sent) fault {
						if n++; s.rpc == "Renew" || n != step {
							return nil
						}
						return happen
					})
					a := &asker{answer: func(ctx context.Context, cl *client.Claim) client.Verdict {
						return hits(crm.find(ctx, child(t, cl.Key)))
					}}
					out, err := r.reconciled("k", func(ctx context.Context, cl *client.Claim) (string, error) {
						r.runs.Add(1)
						return crm.create(ctx, child(t, cl.Key))
					}, a)
					if err != nil || out.Value != "ticket 1" || out.Replayed {
						t.Errorf("got %+v, %v", out, err)
					}
					pass(2 * time.Minute) // what is late arrives
					if out := r.run("k", "again"); out.Value != "ticket 1" || out.Attempt != 3 {
						t.Errorf("a later caller got %+v", out)
					}
					a.was(t, 1)
					r.ran(1)
					if crm.effects() != 1 {
						t.Errorf("%d tickets", crm.effects())
					}
				}, atOnce)
			})
		}
	}
}

// The answer to the takeover comes when its lease is over: nothing was asked under it,
// and the operation is taken over anew.
func TestReconcileTakeoverAnsweredTooLate(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(30 * time.Second)
		claims := 0
		r.faults.set(func(s sent) fault {
			if s.rpc == "Claim" {
				if claims++; claims == 2 {
					return swallowed // for the 5 s of a try
				}
			}
			return nil
		})
		short := call("k")
		short.Lease = 2 * time.Second
		a := answering(client.DidNotHappen())
		out, err := client.Do(r.Context(), r.Client, short, r.once("mine"), client.WithReconcile(a.ask))
		if err != nil || out.Attempt != 4 {
			t.Errorf("got %+v, %v", out, err)
		}
		a.was(t, 1)
		r.ran(1)
	}, atOnce)
}

// A process dies while it asks; the next one takes over from it.
func TestReconcileAfterOneThatDied(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(90 * time.Second)
		r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
		a := answering(client.DidNotHappen())
		start := time.Now()
		out, err := r.reconciled("k", r.once("mine"), a)
		if err != nil || out.Attempt != 4 {
			t.Errorf("got %+v, %v", out, err)
		}
		if waited := time.Since(start); waited < 90*time.Second {
			t.Errorf("it was asked after %v", waited)
		}
		if cl := a.last.Load(); cl.Attempt != 3 {
			t.Errorf("it was asked under attempt %d", cl.Attempt)
		}
		a.was(t, 1)
		r.ran(1)
	})
}

// Whoever dies after every release: the call asks again until the attempts are used up,
// and says so.
func TestReconcileUntilTheLastAttempt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := &asker{answer: func(context.Context, *client.Claim) client.Verdict {
			n := 0
			r.faults.set(func(s sent) fault {
				if s.rpc != "Claim" {
					return nil
				}
				if n++; n > 1 {
					return nil
				}
				return func(ctx context.Context, send func(context.Context) error) error {
					// somebody else was quicker, and dies
					req := &oncedv1.ClaimRequest{Ref: r.Ref("k", "m"), ClaimToken: client.NewToken(), Holder: "quicker"}
					_, _ = oncedv1.NewIdempotencyServiceClient(r.conn).Claim(ctx, req) // refused after the sixteenth attempt
					return send(ctx)
				}
			})
			return client.DidNotHappen()
		}}
		_, err := r.reconciled("k", r.once("mine"), a)
		if err == nil {
			t.Fatal("no error")
		}
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		if strings.Contains(err.Error(), "may have had its effect") {
			t.Errorf("the operation is released, and the error says: %v", err)
		}
		a.was(t, 8)
		r.ran(0)
	})
}
