package oncegrpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The claim is lost while the handler runs: its context ends, and says why. What it had
// begun is unresolved.
func TestR04_TheClaimIsLostWhileTheHandlerRuns(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		var ended time.Duration
		var cause error
		r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
			start := time.Now()
			<-ctx.Done()
			ended, cause = time.Since(start), context.Cause(ctx)
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		gone := r.calling(ctx, "Pay", "k", request())
		passing(5 * time.Second)
		s.Lapse()
		if a := <-gone; status.Code(a.err) != codes.DeadlineExceeded {
			t.Errorf("got %v", a.err)
		}
		passing(time.Minute)
		lost := new(client.ClaimLost)
		if !errors.As(cause, &lost) || lost.Key != "k" || lost.Attempt != 1 || ended != 30*time.Second {
			t.Errorf("its context ended after %v because of %v", ended, cause)
		}
		r.wantUnresolved("Pay", "k", 1)
		r.wantRuns(1)
	})
}

// wantUnresolved calls again, and fails the test unless the answer is that the operation
// is unresolved, names it, and tells the client's retry policy to leave it.
func (r *rig) wantUnresolved(method, key string, attempt int) {
	r.t.Helper()
	ran := r.ran.Load()
	a := r.call(r.t.Context(), method, key, request())
	facts := a.wantRefused(r.t, codes.FailedPrecondition, reasonUnresolved)
	if facts["key"] != key || facts["method"] != toolsService+"/"+method || facts["attempt"] != string(rune('0'+attempt)) {
		r.t.Errorf("the facts are %v", facts)
	}
	for _, word := range []string{`"` + key + `"`, `"` + toolsService + "/" + method + `"`, "attempt " + string(rune('0'+attempt)), "nothing was executed"} {
		if !strings.Contains(a.err.Error(), word) {
			r.t.Errorf("it does not say %q: %v", word, a.err)
		}
	}
	r.wantRuns(ran)
}

// The tool is killed: nobody knows what it has done, and no other process of it executes.
// Its report, should it be alive after all, is taken.
func TestR04_TheToolIsKilled(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		book, release := &ledger{}, make(chan struct{})
		killed, other := newRigOn(t, s, nil), newRigOn(t, s, nil)
		killed.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			book.commit("a")
			<-release
			return response("id", "paid"), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		gone := killed.calling(ctx, "Pay", "k", request())
		passing(50 * time.Millisecond)
		if err := killed.conn.Close(); err != nil {
			t.Error(err)
		}
		if a := <-gone; a.err == nil {
			t.Error("the killed tool has answered")
		}
		s.Lapse()
		for range 3 {
			other.wantUnresolved("Pay", "k", 1)
			passing(time.Hour)
		}
		other.wantRuns(0)
		book.want(t, 1)
		close(release)
		passing(time.Second)
		wantReplay(t, other.call(t.Context(), "Pay", "k", request()))
		other.wantRuns(0)
	})
}

// A value comes late, when somebody else was given the claim: its caller is told that it
// is not the answer that counts.
func TestR04_ALateValueWhoseClaimWasTakenOver(t *testing.T) {
	for name, settled := range map[string]bool{"and settled": true, "and runs": false} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				zombie, other := newRigOn(t, s, nil), newRigOn(t, s, nil)
				release := make(chan struct{})
				zombie.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
					<-release
					return response("id", "late"), nil
				})
				hold := make(chan struct{})
				other.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
					if cl := client.ClaimFromContext(ctx); cl == nil || !cl.TakenOver || cl.Attempt != 2 {
						t.Errorf("it runs under %+v", cl)
					}
					if !settled {
						<-hold
					}
					return response("id", "paid"), nil
				})
				late := zombie.calling(t.Context(), "Rerun", "k", request())
				passing(50 * time.Millisecond)
				s.Lapse()
				early := other.call(t.Context(), "Rerun", "k", request())
				wantInfo(t, early.err, codes.FailedPrecondition, reasonUnresolved)
				if info, ok := detailOf(early.err, func(*errdetails.RetryInfo) bool { return true }); !ok || info.GetRetryDelay().AsDuration() <= 0 {
					t.Errorf("it does not say when to ask again: %v", early.err)
				}
				s.Advance(2 * time.Minute)
				taken := other.calling(t.Context(), "Rerun", "k", request())
				passing(time.Second)
				close(release)
				a := <-late
				facts := wantInfo(t, a.err, codes.FailedPrecondition, reasonClaimLost)
				if facts["key"] != "k" || text(a.resp, "id") != "" || len(a.trailer.Get("grpc-retry-pushback-ms")) != 1 {
					t.Errorf("got %v with %v, %v", facts, a.resp, a.trailer)
				}
				close(hold)
				if a := <-taken; a.err != nil || a.outcome() != OutcomeExecuted {
					t.Errorf("who took over got %q, %v", a.outcome(), a.err)
				}
				wantReplay(t, zombie.call(t.Context(), "Rerun", "k", request()))
				zombie.wantRuns(1)
				other.wantRuns(1)
			})
		})
	}
}

// With WithCallerCancellation the handler ends with its caller, and what it had begun is
// unresolved unless it says otherwise.
func TestR04_WithCallerCancellation(t *testing.T) {
	for name, leave := range leavers() {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r := newRigOn(t, s, nil, WithCallerCancellation())
				ended := make(chan error, 1)
				r.handle(func(ctx context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					passing(time.Millisecond) // the caller is told by its own end
					switch text(req, "account") {
					case "unsent":
						return nil, client.NotExecuted(ctx.Err())
					case "sent":
						return response("id", "paid"), nil
					}
					return nil, ctx.Err()
				})
				calls := func(key string, req *dynamicpb.Message) {
					start := time.Now()
					ctx, cancel, code := leave(t.Context())
					defer cancel()
					if a := r.call(ctx, "Pay", key, req); status.Code(a.err) != code {
						t.Errorf("got %v", a.err)
					}
					if cause := <-ended; cause == nil || errors.As(cause, new(*client.ClaimLost)) || time.Since(start) > 100*time.Millisecond {
						t.Errorf("the handler's context ended after %v by %v", time.Since(start), cause)
					}
					passing(time.Second)
				}
				calls("k", request())
				wantState(t, s, "Pay", "k", oncedv1.State_STATE_UNRESOLVED, 1)
				r.wantUnresolved("Pay", "k", 1)
				calls("unsent", request("account", "unsent"))
				wantState(t, s, "Pay", "unsent", oncedv1.State_STATE_RELEASED, 1)
				calls("sent", request("account", "sent"))
				wantReplay(t, r.call(t.Context(), "Pay", "sent", request("account", "sent")))
				r.wantRuns(3)
			})
		})
	}
}

// The server is stopped while a handler runs: the caller is cut off, and the handler's
// report arrives.
func TestR04_TheServerStopsWhileTheHandlerRuns(t *testing.T) {
	for name, stop := range map[string]func(*rig){
		"Stop":         func(r *rig) { r.server.Stop() },
		"GracefulStop": func(r *rig) { r.server.GracefulStop() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				book := &ledger{}
				stopped, other := newRigOn(t, s, nil), newRigOn(t, s, nil)
				stopped.handle(book.committing(t, 300*time.Millisecond))
				first := stopped.calling(t.Context(), "Pay", "k", request())
				passing(100 * time.Millisecond)
				start := time.Now()
				stop(stopped)
				if took := time.Since(start); took != 200*time.Millisecond {
					t.Errorf("it stopped after %v; the handler takes 200ms more", took)
				}
				a := <-first
				if name == "Stop" && status.Code(a.err) != codes.Unavailable || name != "Stop" && (a.err != nil || a.outcome() != OutcomeExecuted) {
					t.Errorf("the caller got %q, %v", a.outcome(), a.err)
				}
				if left := stopped.client.Close(t.Context()); left != nil {
					t.Errorf("left: %v", left)
				}
				wantReplay(t, other.call(t.Context(), "Pay", "k", request()))
				book.want(t, 1)
				other.wantRuns(0)
			})
		})
	}
}

// A hundred calls at once of one key: one executes.
func TestR04_AHundredCallsAtOnce(t *testing.T) {
	for name, opts := range map[string][]Option{"told to come again": nil, "who wait": {WithWait(10 * time.Second)}} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				book := &ledger{}
				rigs := []*rig{newRigOn(t, s, nil, opts...), newRigOn(t, s, nil, opts...)}
				for _, r := range rigs {
					r.handle(book.committing(t, 300*time.Millisecond))
				}
				var mu sync.Mutex
				got := map[string]int{}
				var all sync.WaitGroup
				for n := range 100 {
					all.Go(func() {
						a := rigs[n%2].call(t.Context(), "Pay", "k", request("account", "a"))
						what := a.outcome()
						if a.err != nil {
							what = status.Code(a.err).String()
							wantInfo(t, a.err, codes.Aborted, reasonInProgress)
							if info, ok := detailOf(a.err, func(*errdetails.RetryInfo) bool { return true }); !ok || info.GetRetryDelay().AsDuration() <= 0 {
								t.Errorf("it does not say when to ask again: %v", a.err)
							}
						}
						mu.Lock()
						got[what]++
						mu.Unlock()
					})
				}
				all.Wait()
				want := map[string]int{OutcomeExecuted: 1, codes.Aborted.String(): 99}
				if opts != nil {
					want = map[string]int{OutcomeExecuted: 1, OutcomeReplayed: 99}
				}
				for what, n := range want {
					if got[what] != n || len(got) != 2 {
						t.Errorf("got %v, want %v", got, want)
					}
				}
				wantReplay(t, rigs[0].call(t.Context(), "Pay", "k", request("account", "a")))
				book.want(t, 1)
				if n := rigs[0].ran.Load() + rigs[1].ran.Load(); n != 1 {
					t.Errorf("handlers ran %d times", n)
				}
			})
		})
	}
}
