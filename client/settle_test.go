package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The way back is broken for five minutes, far beyond the lease. The first caller has
// its value after the grace, and the completion arrives in the end.
func TestSettleGoesOnInTheBackground(t *testing.T) {
	for name, happen := range map[string]fault{
		"holes": hole, "unavailable": refusedWith(codes.Unavailable), "internal": refusedWith(codes.Internal),
		"unimplemented": refusedWith(codes.Unimplemented), "unauthenticated": refusedWith(codes.Unauthenticated),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.faults.always(happen, "Complete", "Renew")
				start := time.Now()
				out := r.run("k", "mine")
				if out.Value != "mine" || out.Settled || out.Replayed {
					t.Errorf("the first caller got %+v", out)
				}
				if took := time.Since(start); took != 5*time.Second {
					t.Errorf("the first caller waited %v", took)
				}
				pass(5 * time.Minute)
				r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
				r.faults.set(nil)
				if left := r.Close(r.Context()); left != nil {
					t.Errorf("left: %v", left)
				}
				r.isIn("k", oncedv1.State_STATE_COMPLETED)
				r.saw("Fail", 0)
				r.ran(1)
			})
		})
	}
}

// While a settlement is on its way the claim is renewed, so that it does not lapse.
func TestSettleKeepsTheClaimMeanwhile(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Complete")
		r.run("k", "mine")
		for range 10 {
			pass(29 * time.Second)
			r.isIn("k", oncedv1.State_STATE_PENDING)
		}
		pass(11 * time.Minute) // the budget is over
		r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
		log := r.log.String()
		if !strings.Contains(log, "gave_up=true") || !strings.Contains(log, "report=Complete") || !strings.Contains(log, "level=ERROR") {
			t.Errorf("the log does not say so: %s", log)
		}
		r.saw("Fail", 0)
		renewals := 0
		for _, s := range r.faults.all() {
			if s.rpc == "Renew" {
				renewals++
			}
		}
		pass(time.Hour)
		r.saw("Renew", renewals)
	})
}

func TestSettleBudget(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.newClient(client.WithSettleBudget(time.Minute))
		r.faults.always(hole, "Complete")
		start := time.Now()
		if out, err := client.Do(r.Context(), c, call("k"), r.once("mine")); err != nil || out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}
		if left := c.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("given up after %v", took)
		}
	})
}

// A budget of nothing is not nothing: what was executed is reported once at least.
func TestSettleWithoutABudget(t *testing.T) {
	for _, budget := range []time.Duration{0, -time.Second} {
		inBubble(t, func(r *rig) {
			c := r.newClient(client.WithSettleBudget(budget))
			if out, err := client.Do(r.Context(), c, call("k"), r.once("mine")); err != nil || !out.Settled {
				t.Errorf("got %+v, %v", out, err)
			}
			r.isIn("k", oncedv1.State_STATE_COMPLETED)
			r.saw("Complete", 1)
		})
	}
}

// Tries that are too short for a large result over a slow line grow longer.
func TestSettleTriesGrowLonger(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(func(ctx context.Context, send func(context.Context) error) error {
			if deadline, _ := ctx.Deadline(); time.Until(deadline) < 30*time.Second {
				return hole(ctx, send)
			}
			pass(30 * time.Second)
			return send(ctx)
		}, "Complete")
		r.run("k", "mine")
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_COMPLETED)
	})
}

// Somebody took over while the holder was cut off. Its completion settles nothing,
// and its caller is told that the effect may have happened twice.
func TestSettleTellsOfALostClaim(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Renew")
		rivals := make(chan *rival, 1)
		time.AfterFunc(95*time.Second, func() { rivals <- r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER) })
		out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(100*time.Second, "mine"))
		lost := as[*client.ClaimLost](t, err)
		if out.Value != "mine" || out.Settled || lost.Attempt != 1 || status.Code(lost.Err) != codes.FailedPrecondition {
			t.Errorf("got %+v, %+v", out, lost)
		}
		if err := (<-rivals).complete("theirs"); err != nil {
			t.Error(err)
		}
		if out := r.run("k", "again"); out.Value != "theirs" || !out.Replayed {
			t.Errorf("a later call got %+v", out)
		}
	})
}

// An operator settled the operation while it ran.
func TestSettleTellsOfAnotherSettlement(t *testing.T) {
	inBubble(t, func(r *rig) {
		theirs := onced.ResolveRequest{Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("theirs"))}
		time.AfterFunc(time.Second, func() { r.resolve("k", theirs) })
		out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(2*time.Second, "mine"))
		as[*client.ClaimLost](t, err)
		if out.Value != "mine" || out.Settled {
			t.Errorf("got %+v", out)
		}
	})
}

func TestSettleAfterTheCallersContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), key{}, "credential"), time.Second)
		defer cancel()
		r.faults.set(func(s sent) fault {
			return func(ctx context.Context, send func(context.Context) error) error {
				if s.rpc == "Complete" && ctx.Value(key{}) != "credential" {
					t.Error("the settlement has lost the caller's values")
				}
				return send(ctx)
			}
		})
		_, err := client.Do(ctx, r.Client, call("k"), func(ctx context.Context, _ *client.Claim) (string, error) {
			<-ctx.Done() // the caller's end reaches the function
			if context.Cause(ctx) != context.DeadlineExceeded {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return "mine", nil
		})
		if err != nil {
			t.Errorf("a result is a result: %v", err)
		}
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_COMPLETED)
	})
}

// A result that the server stores no bytes of: the first caller has it in full, later
// ones are told.
func TestSettleOmitsWhatIsTooLarge(t *testing.T) {
	for name, size := range map[string]int{"over the namespace's limit": 2 << 20, "over every limit": 16<<20 + 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				large := strings.Repeat("x", size)
				out := r.run("k", large)
				if out.Value != large || !out.Settled {
					t.Errorf("the first caller got %d bytes, settled %v", len(out.Value), out.Settled)
				}
				replay, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"))
				u := as[*client.ResultUnavailable](t, err)
				if u.Size != uint64(size) || len(u.SHA256) != 32 || u.ContentType != "text/plain" || u.Payload != nil || u.Err != nil || !replay.Replayed {
					t.Errorf("got %+v, %+v", u, replay)
				}
				says(t, err, `"k"`, "was executed", "was not stored", "nothing was executed now")
				r.ran(1)
			})
		})
	}
}

func TestReplayOfALargeResult(t *testing.T) {
	inBubble(t, func(r *rig) {
		large := strings.Repeat("x", 16<<20)
		r.run("k", large)
		if out := r.run("k", "again"); out.Value != large || !out.Replayed {
			t.Errorf("got %d bytes, replayed %v", len(out.Value), out.Replayed)
		}
		r.ran(1)
	}, func(p *onced.Policy) { p.MaxResultBytes = 16 << 20 })
}

// Something on the way takes no message of this size. That is no reason not to
// complete.
func TestSettleOmitsWhatTheWayDoesNotTake(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.set(func(s sent) fault {
			if req, ok := s.req.(*oncedv1.CompleteRequest); ok && req.GetStored() != nil {
				return refusedWith(codes.ResourceExhausted)
			}
			return nil
		})
		if out := r.run("k", "mine"); out.Value != "mine" || !out.Settled {
			t.Errorf("got %+v", out)
		}
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"))
		if u := as[*client.ResultUnavailable](t, err); u.Size != 4 {
			t.Errorf("got %+v", u)
		}
		r.ran(1)
	})
}

type unencodable struct{ how string }

func (u unencodable) MarshalJSON() ([]byte, error) {
	if u.how == "panic" {
		panic("in MarshalJSON")
	}
	return nil, errors.New("in MarshalJSON")
}

func TestSettleOmitsWhatCannotBeEncoded(t *testing.T) {
	for _, how := range []string{"panic", "error"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				run := func() (client.Outcome[unencodable], error) {
					return client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (unencodable, error) {
						r.runs.Add(1)
						return unencodable{how}, nil
					})
				}
				if out, err := run(); err != nil || out.Value.how != how || !out.Settled {
					t.Errorf("the first caller got %+v, %v", out, err)
				}
				_, err := run()
				as[*client.ResultUnavailable](t, err)
				r.ran(1)
			})
		})
	}
}

func TestReplayThatDoesNotDecode(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.run("k", "not a number")
		_, err := client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (int, error) {
			r.runs.Add(1)
			return 0, nil
		})
		u := as[*client.ResultUnavailable](t, err)
		if u.Payload.GetText() != "not a number" || u.Err == nil || u.Attempt != 1 {
			t.Errorf("got %+v", u)
		}
		says(t, err, "was executed", "cannot be decoded", "text/plain")

		if _, err := client.Do(r.Context(), r.Client, call("j"), func(context.Context, *client.Claim) (any, error) { return "s", nil }); err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(r.Context(), r.Client, call("j"), func(context.Context, *client.Claim) (int, error) { return 0, nil })
		var mistyped *json.UnmarshalTypeError
		if !errors.As(as[*client.ResultUnavailable](t, err), &mistyped) {
			t.Errorf("got %v", err)
		}
		r.ran(1)
	})
}

func TestReplayWhoseBytesWereDropped(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.run("k", "mine")
		r.down()
		pass(8 * 24 * time.Hour)
		r.up()
		pass(2 * time.Second) // the connection comes back
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"))
		if u := as[*client.ResultUnavailable](t, err); u.Size != 4 || u.Payload != nil || u.ContentType != "text/plain" {
			t.Errorf("got %+v", u)
		}
		says(t, err, "no longer stored")
		r.ran(1)
	})
}

func TestReplayOfAKindOfResultThatIsNotKnown(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.run("k", "mine")
		r.faults.editReplies(func(rpc string, reply any) {
			if rpc == "Claim" {
				reply.(*oncedv1.ClaimResponse).Operation.Result.Kind = nil
			}
		})
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"))
		says(t, as[*client.ResultUnavailable](t, err), "newer client")
		r.ran(1)
	})
}

func TestCloseWaitsAndRefuses(t *testing.T) {
	inBubble(t, func(r *rig) {
		settled := make(chan bool, 1)
		go func() {
			out, err := client.Do(r.Context(), r.Client, call("k"), r.slow(40*time.Second, "mine"))
			settled <- err == nil && out.Settled
		}()
		pass(time.Second)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		start := time.Now()
		left := r.Close(ctx)
		want := []client.Pending{{Namespace: client.DefaultNamespace, Key: "k", Method: "m", Stage: client.StageExecuting, Since: start.Add(-time.Second)}}
		if !slices.Equal(left, want) {
			t.Errorf("left %+v, want %+v", left, want)
		}
		if !strings.Contains(r.log.String(), "closed over a pending operation") {
			t.Error("what is left is not logged")
		}
		if _, err := client.Do(r.Context(), r.Client, call("j"), r.once("mine")); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call after Close got %v", err)
		}
		if left := r.Close(r.Context()); left != nil || !<-settled {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_COMPLETED)
		r.ran(1)
	})
}

func TestCloseListsASettlement(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Complete")
		r.run("k", "mine")
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if left := r.Close(ctx); len(left) != 1 || left[0].Stage != client.StageSettling {
			t.Errorf("left: %+v", left)
		}
		r.faults.set(nil)
		if left := r.Close(r.Context()); left != nil { // what was left goes on
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_COMPLETED)
	})
}

// Claim tokens are secrets.
func TestTokensAreNotLogged(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Renew", "Complete")
		_, _ = client.Do(r.Context(), r.Client, call("k"), r.slow(40*time.Second, "the result"))
		pass(16 * time.Minute)
		r.faults.always(hole, "Claim")
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		_, err := client.Do(ctx, r.Client, call("j"), r.once("the result"))
		pass(10 * time.Second)
		log := r.log.String() + err.Error()
		if len(log) < 500 {
			t.Fatalf("too little was logged to tell: %s", log)
		}
		for _, s := range r.faults.all() {
			if c, ok := s.req.(*oncedv1.ClaimRequest); ok {
				token, _ := json.Marshal(c.GetClaimToken())
				if strings.Contains(log, string(c.GetClaimToken())) || strings.Contains(log, strings.Trim(string(token), `"`)) {
					t.Error("a claim token is logged")
				}
			}
		}
		if strings.Contains(log, "the result") {
			t.Error("a result is logged")
		}
	})
}
