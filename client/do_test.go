package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func TestDoRunsOnceAndReplays(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.run("k", "ticket 7")
		if first.Value != "ticket 7" || first.Replayed || !first.Settled || first.Attempt != 1 || first.FirstClaimedAt.IsZero() {
			t.Errorf("the first call got %+v", first)
		}
		pass(time.Hour)
		want := client.Outcome[string]{Value: "ticket 7", Replayed: true, Settled: true, Attempt: 1, FirstClaimedAt: first.FirstClaimedAt}
		if again := r.run("k", "ticket 8"); again != want {
			t.Errorf("the second call got %+v, want %+v", again, want)
		}
		r.ran(1)
	})
}

func TestDoOfManyCallersRunsOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		clients := []*client.Client{r.Client, r.newClient(client.WithHolder("holder-2"))}
		var wg sync.WaitGroup
		var mu sync.Mutex
		replays := 0
		for i := range 10 {
			wg.Go(func() {
				out, err := client.Do(r.Context(), clients[i%2], call("k"), r.slow(time.Minute, "ticket 7"))
				if err != nil || out.Value != "ticket 7" {
					t.Errorf("got %+v, %v", out, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if out.Replayed {
					replays++
				}
			})
		}
		wg.Wait()
		if replays != 9 {
			t.Errorf("%d replays, want 9", replays)
		}
		r.ran(1)
	})
}

func TestDoWaitsForTheHoldersResult(t *testing.T) {
	inBubble(t, func(r *rig) {
		rival := r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
		time.AfterFunc(3*time.Second, func() { _ = rival.complete("from the rival") })
		start := time.Now()
		out := r.run("k", "mine")
		if out.Value != "from the rival" || !out.Replayed {
			t.Errorf("got %+v", out)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("the result came after %v; the server holds the call and answers at 3s", took)
		}
		r.ran(0)
	})
}

func TestDoRunsWhatTheHolderReleases(t *testing.T) {
	inBubble(t, func(r *rig) {
		rival := r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
		time.AfterFunc(3*time.Second, func() { _ = rival.fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED) })
		if out := r.run("k", "mine"); out.Value != "mine" || out.Replayed || out.Attempt != 2 {
			t.Errorf("got %+v", out)
		}
		r.ran(1)
	})
}

// Where the server holds the call, the next one follows at once: almost all of the
// time a call is held, and the result is seen when it comes.
func TestDoIsHeldAgainAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		rival := r.rival("k", withLease(time.Hour)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		time.AfterFunc(10*time.Minute, func() { _ = rival.complete("from the rival") })
		start := time.Now()
		if out := r.run("k", "mine"); out.Value != "from the rival" {
			t.Errorf("got %+v", out)
		}
		pauses := 10*time.Minute - time.Duration(len(r.faults.all())-3)*20*time.Second
		if took := time.Since(start); took > 10*time.Minute+100*time.Millisecond || pauses > 20*time.Second+4*time.Second {
			t.Errorf("the result came after %v, with %d calls", took, len(r.faults.all()))
		}
	})
}

func TestDoPollsWhereTheServerHoldsNoCalls(t *testing.T) {
	inBubble(t, func(r *rig) {
		rival := r.rival("k", withLease(time.Hour)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		time.AfterFunc(10*time.Minute, func() { _ = rival.complete("from the rival") })
		start := time.Now()
		if out := r.run("k", "mine"); out.Value != "from the rival" {
			t.Errorf("got %+v", out)
		}
		if took := time.Since(start); took > 10*time.Minute+5*time.Second {
			t.Errorf("the result came after %v, at most 5s late was wanted", took)
		}
		claims := 0
		for _, s := range r.faults.all() {
			if s.rpc == "Claim" {
				claims++
			}
		}
		if claims > 1000 {
			t.Errorf("%d claims in 10 minutes: the pauses do not grow", claims)
		}
	}, func(p *onced.Policy) { p.MaxWaiters = 0 })
}

func TestDoNoWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
		pass(10 * time.Second)
		start := time.Now()
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"), client.NoWait())
		busy := as[*client.InProgress](t, err)
		if busy.Key != "k" || busy.Method != "m" || busy.Holder != "rival" || busy.RetryAfter != 20*time.Second ||
			!busy.Since.Equal(start.Add(-10*time.Second)) || !busy.LeaseEnd.Equal(start.Add(20*time.Second)) {
			t.Errorf("got %+v", busy)
		}
		says(t, err, `"k"`, `"rival"`, "ask again under the same key")
		if !time.Now().Equal(start) {
			t.Error("it has waited")
		}
		r.ran(0)
	})
}

func TestDoSaysOutcomeUnknownWhenTheContextEndsFirst(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.rival("k", withLease(time.Hour)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		for name, end := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(r.Context(), 50*time.Second) },
			"cancel": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(r.Context())
				time.AfterFunc(50*time.Second, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := end()
			defer cancel()
			start := time.Now()
			_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"))
			if took := time.Since(start); took != 50*time.Second {
				t.Errorf("%s: it returned after %v", name, took)
			}
			if busy := as[*client.InProgress](t, err); busy.Holder != "rival" {
				t.Errorf("%s: got %+v", name, busy)
			}
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: the error does not match %v: %v", name, ctx.Err(), err)
			}
			says(t, err, `outcome unknown, key "k"`, "same key")
		}
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		if op := r.operation("k"); op.GetHolder() != "rival" || op.GetAttempt() != 1 {
			t.Errorf("giving up has touched the holder's claim: %v", op)
		}
		r.ran(0)
	})
}

func TestDoUnresolved(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
		pass(30 * time.Second)
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		u := as[*client.Unresolved](t, err)
		if u.Reason != oncedv1.Reason_REASON_LAPSED || u.Attempt != 1 || u.Holder != "rival" || !u.ClaimedAt.Equal(start) || !u.FirstClaimedAt.Equal(start) {
			t.Errorf("got %+v", u)
		}
		says(t, err, `"k"`, `"rival"`, "LAPSED", "may have had its effect", "do not use another key")
		r.ran(0)
	})
}

func TestDoFinal(t *testing.T) {
	inBubble(t, func(r *rig) {
		declined := status.Error(codes.FailedPrecondition, "card declined")
		out, err := client.Do(r.Context(), r.Client, call("k"), r.failing(client.Final(declined)))
		if !errors.Is(err, declined) || !out.Settled || out.Attempt != 1 {
			t.Errorf("the first caller got %+v, %v", out, err)
		}
		var replayed *client.Failed
		if errors.As(err, &replayed) {
			t.Error("the first caller's own error is not a replay")
		}
		_, err = client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		f := as[*client.Failed](t, err)
		if f.Code != "FAILED_PRECONDITION" || !strings.Contains(f.Message, "card declined") || f.Details != nil || f.Attempt != 1 || !f.FirstClaimedAt.Equal(out.FirstClaimedAt) {
			t.Errorf("got %+v", f)
		}
		says(t, err, "card declined", `"k"`, "new key for a new intent")
		r.ran(1)
	})
}

func TestDoFinalWithDetails(t *testing.T) {
	inBubble(t, func(r *rig) {
		failing := r.failing(fmt.Errorf("charge: %w", client.FinalWith(io.ErrUnexpectedEOF, "LIMIT", map[string]int{"limit": 5})))
		if _, err := client.Do(r.Context(), r.Client, call("k"), failing); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first caller got %v", err)
		}
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		f := as[*client.Failed](t, err)
		if f.Code != "LIMIT" || f.Message != io.ErrUnexpectedEOF.Error() || f.Details.GetText() != `{"limit":5}` || f.DetailsDropped {
			t.Errorf("got %+v", f)
		}
		r.ran(1)
	})
}

// Something on the way takes no message of this size. The failure is the outcome all
// the same.
func TestDoFinalWhoseDetailsTheWayDoesNotTake(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.set(func(s sent) fault {
			if req, ok := s.req.(*oncedv1.FailRequest); ok && req.GetFailure().GetDetails() != nil {
				return refusedWith(codes.ResourceExhausted)
			}
			return nil
		})
		out, err := client.Do(r.Context(), r.Client, call("k"), r.failing(client.FinalWith(io.ErrUnexpectedEOF, "LIMIT", "many")))
		if !errors.Is(err, io.ErrUnexpectedEOF) || !out.Settled {
			t.Errorf("the first caller got %+v, %v", out, err)
		}
		_, err = client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		if f := as[*client.Failed](t, err); f.Code != "LIMIT" || f.Message != io.ErrUnexpectedEOF.Error() || f.Details != nil {
			t.Errorf("a later caller got %+v", f)
		}
		r.ran(1)
	})
}

func TestDoNotExecuted(t *testing.T) {
	inBubble(t, func(r *rig) {
		out, err := client.Do(r.Context(), r.Client, call("k"), r.failing(client.NotExecuted(io.ErrClosedPipe)))
		if !errors.Is(err, io.ErrClosedPipe) || out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		if out := r.run("k", "mine"); out.Attempt != 2 || out.Replayed {
			t.Errorf("the next call got %+v", out)
		}
		r.ran(2)
	})
}

func TestDoPanicIsReportedAndGoesOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		func() {
			defer func() {
				if p := recover(); p != "after the effect" {
					t.Errorf("the panic was %v", p)
				}
				r.isIn("k", oncedv1.State_STATE_UNRESOLVED) // reported before it goes on
			}()
			_, _ = client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (string, error) {
				r.runs.Add(1)
				panic("after the effect")
			})
		}()
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_DECLARED {
			t.Errorf("got %+v", u)
		}
		r.ran(1)
	})
}

func TestDoPanicWaitsNotForeverForItsReport(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Fail")
		start := time.Now()
		func() {
			defer func() { _ = recover() }()
			_, _ = client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (string, error) { panic("now") })
		}()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("the panic went on after %v", took)
		}
		r.faults.set(nil)
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_UNRESOLVED)
	})
}

func TestDoPanicIsReportedAfterTheCallersContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(func(ctx context.Context, send func(context.Context) error) error {
			pass(time.Second)
			return send(ctx)
		}, "Fail")
		start := time.Now()
		ctx, cancel := context.WithCancel(r.Context())
		func() {
			defer func() { _ = recover() }()
			_, _ = client.Do(ctx, r.Client, call("k"), func(context.Context, *client.Claim) (string, error) {
				cancel()
				panic("now")
			})
		}()
		if op := r.operation("k"); time.Since(start) != time.Second || op.GetReason() != oncedv1.Reason_REASON_DECLARED {
			t.Errorf("the panic went on after %v, before its report: %v", time.Since(start), op)
		}
	})
}

func TestDoGoexitIsUnknown(t *testing.T) {
	inBubble(t, func(r *rig) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (string, error) {
				runtime.Goexit()
				return "", nil
			})
		}()
		<-done
		if op := r.operation("k"); op.GetReason() != oncedv1.Reason_REASON_DECLARED {
			t.Errorf("got %v", op)
		}
	})
}

// What is declared of an inner operation must not be taken for a word on the operation around it.
func TestDoInnerVerdictStaysInside(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, declare := range []func(error) error{client.NotExecuted, client.Final} {
			key := fmt.Sprintf("outer %p", declare)
			_, err := client.Do(r.Context(), r.Client, call(key), func(ctx context.Context, cl *client.Claim) (string, error) {
				r.runs.Add(1)
				inner, err := client.Child(cl.Key, "mail")
				if err != nil {
					return "", err
				}
				_, err = client.Do(ctx, r.Client, call(inner), r.failing(fmt.Errorf("mail: %w", declare(io.ErrClosedPipe))))
				return "", fmt.Errorf("after an effect: %w", err)
			})
			if !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("got %v", err)
			}
			r.isIn(key, oncedv1.State_STATE_UNRESOLVED)
		}
		r.ran(4)
	})
}
