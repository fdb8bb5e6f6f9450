package oncegrpc

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// ledger is the outside system of a tool: what has taken effect there.
type ledger struct {
	mu      sync.Mutex
	entries []string
}

func (l *ledger) commit(entry string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entry)
}

// want fails the test unless there are n entries.
func (l *ledger) want(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("effects=%d", len(l.entries))
	if len(l.entries) != n {
		t.Errorf("%d effects, want %d: %v", len(l.entries), n, l.entries)
	}
}

// committing is a handler that commits at 80 ms and returns at a time. Its context must
// not end meanwhile.
func (l *ledger) committing(t *testing.T, returns time.Duration) toolFunc {
	return func(ctx context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
		passing(80 * time.Millisecond)
		l.commit(text(req, "account"))
		passing(returns - 80*time.Millisecond)
		if ctx.Err() != nil {
			t.Errorf("the handler was cancelled: %v", context.Cause(ctx))
		}
		return response("id", "paid"), nil
	}
}

// operationOf is what onced has of an operation of the test service.
func operationOf(t *testing.T, s *oncetest.Server, method, key string) (*oncedv1.Operation, error) {
	t.Helper()
	resp, err := oncedv1.NewIdempotencyServiceClient(s.Conn()).Lookup(context.Background(), &oncedv1.LookupRequest{
		Ref: &oncedv1.OperationRef{Namespace: "default", Key: key, Method: toolsService + "/" + method},
	})
	return resp.GetOperation(), err
}

// wantState fails the test unless the operation is in a state after n attempts.
func wantState(t *testing.T, s *oncetest.Server, method, key string, want oncedv1.State, attempt uint32) *oncedv1.Operation {
	t.Helper()
	op, err := operationOf(t, s, method, key)
	if err != nil || op.GetState() != want || op.GetAttempt() != attempt {
		t.Errorf("the operation is %v at attempt %d, want %v at %d; %v", op.GetState(), op.GetAttempt(), want, attempt, err)
	}
	return op
}

// wantReplay fails the test unless an answer is the replay of the ledger's handler.
func wantReplay(t *testing.T, a answer) {
	t.Helper()
	if a.err != nil || a.outcome() != OutcomeReplayed || text(a.resp, "id") != "paid" {
		t.Errorf("got %q with %v, %v, want a replay", a.outcome(), a.resp, a.err)
	}
}

// leavers are callers that leave before the handler returns.
func leavers() map[string]func(context.Context) (context.Context, context.CancelFunc, codes.Code) {
	return map[string]func(context.Context) (context.Context, context.CancelFunc, codes.Code){
		"a deadline of 100 ms": func(ctx context.Context) (context.Context, context.CancelFunc, codes.Code) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			return ctx, cancel, codes.DeadlineExceeded
		},
		"cancelled at 90 ms": func(ctx context.Context) (context.Context, context.CancelFunc, codes.Code) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(90*time.Millisecond, cancel)
			return ctx, cancel, codes.Canceled
		},
		"cancelled before the commit": func(ctx context.Context) (context.Context, context.CancelFunc, codes.Code) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Millisecond, cancel)
			return ctx, cancel, codes.Canceled
		},
	}
}

// The handler commits at 80 ms and returns at 300 ms, when its caller has gone. The next
// try is a replay, and there is one effect.
func TestR04_TheCallerLeavesBeforeTheHandlerReturns(t *testing.T) {
	for name, leave := range leavers() {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				book := &ledger{}
				r, w := newRigOver(t, s)
				r.handle(book.committing(t, 300*time.Millisecond))
				ctx, cancel, code := leave(t.Context())
				defer cancel()
				start := time.Now()
				first := r.call(ctx, "Pay", "k", request("account", "a"))
				if status.Code(first.err) != code || time.Since(start) > 100*time.Millisecond {
					t.Errorf("the caller got %v after %v", first.err, time.Since(start))
				}
				passing(200*time.Millisecond - time.Since(start))
				during := r.call(t.Context(), "Pay", "k", request("account", "a"))
				wantInfo(t, during.err, codes.Aborted, reasonInProgress)

				passing(400*time.Millisecond - time.Since(start))
				again, done := context.WithTimeout(t.Context(), 5*time.Second)
				defer done()
				for range 2 {
					wantReplay(t, r.call(again, "Pay", "k", request("account", "a")))
				}
				wantState(t, s, "Pay", "k", oncedv1.State_STATE_COMPLETED, 1)
				if fails := sentOf[*oncedv1.FailRequest](w); len(fails) != 0 {
					t.Errorf("sent %v", fails)
				}
				book.want(t, 1)
				r.wantRuns(1)
			})
		})
	}
}

// The coordinator is down when the handler returns. The report goes on in the background
// and is never turned into another one; a try meanwhile is told to come again.
func TestR04_TheCoordinatorIsDownWhenTheHandlerReturns(t *testing.T) {
	for name, outage := range map[string]time.Duration{"a moment": 2 * time.Second, "longer than the claim timeout": 20 * time.Second, "longer than the lease": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				book := &ledger{}
				r, w := newRigOver(t, s)
				r.handle(book.committing(t, 300*time.Millisecond))
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				time.AfterFunc(250*time.Millisecond, s.Down)
				time.AfterFunc(250*time.Millisecond+outage, s.Up)
				if first := r.call(ctx, "Pay", "k", request("account", "a")); status.Code(first.err) != codes.DeadlineExceeded {
					t.Errorf("got %v", first.err)
				}
				passing(300 * time.Millisecond)
				start := time.Now()
				for ended := false; !ended; {
					again := r.call(t.Context(), "Pay", "k", request("account", "a"))
					switch code := status.Code(again.err); {
					case again.err == nil:
						wantReplay(t, again)
						ended = true
					case code == codes.Unavailable:
						wantInfo(t, again.err, codes.Unavailable, reasonUnavailable)
					default:
						wantInfo(t, again.err, codes.Aborted, reasonInProgress)
					}
					if since := time.Since(start); since > outage+15*time.Second {
						t.Fatalf("no replay after %v: %v", since, again.err)
					}
					passing(50 * time.Millisecond)
				}
				if n := len(sentOf[*oncedv1.FailRequest](w)); n != 0 {
					t.Errorf("%d reports of a failure were sent", n)
				}
				wantState(t, s, "Pay", "k", oncedv1.State_STATE_COMPLETED, 1)
				book.want(t, 1)
				r.wantRuns(1)
			})
		})
	}
}

// A caller that waits has its answer although the coordinator is down when the handler
// returns: it was executed.
func TestR04_TheCallerWaitsWhileTheCoordinatorIsDown(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		book := &ledger{}
		r, _ := newRigOver(t, s)
		r.handle(book.committing(t, 300*time.Millisecond))
		time.AfterFunc(250*time.Millisecond, s.Down)
		time.AfterFunc(time.Minute, s.Up)
		first := r.call(t.Context(), "Pay", "k", request("account", "a"))
		if first.err != nil || first.outcome() != OutcomeExecuted || text(first.resp, "id") != "paid" {
			t.Errorf("got %q, %v, %v", first.outcome(), first.resp, first.err)
		}
		passing(2 * time.Minute)
		wantReplay(t, r.call(t.Context(), "Pay", "k", request("account", "a")))
		book.want(t, 1)
	})
}

// A deadline that has passed when the guard is reached is refused before anything is
// claimed, and nothing is stored.
func TestR04_ADeadlineThatHasPassed(t *testing.T) {
	for name, leave := range leavers() {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				answered := make(chan error, 1)
				slow := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					<-ctx.Done()
					passing(time.Millisecond) // the caller is told by its own end
					resp, err := handler(ctx, req)
					answered <- err
					return resp, err
				}
				r := newRigOn(t, s, []grpc.UnaryServerInterceptor{slow})
				ctx, cancel, code := leave(t.Context())
				defer cancel()
				if a := r.call(ctx, "Pay", "k", request("account", "a")); status.Code(a.err) != code {
					t.Errorf("got %v", a.err)
				}
				if err := <-answered; err == nil {
					t.Error("the guard has answered without an error")
				}
				passing(time.Minute)
				if op, err := operationOf(t, s, "Pay", "k"); status.Code(err) != codes.NotFound {
					t.Errorf("stored: %v, %v", op, err)
				}
				r.wantRuns(0)
			})
		})
	}
}

// However short the caller's time is, the lease is that of the method or the namespace.
func TestR04_ADeadlineDoesNotShortenTheLease(t *testing.T) {
	for method, lease := range map[string]time.Duration{"Pay": 30 * time.Second, "Leased": 90 * time.Second} {
		t.Run(method, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r, w := newRigOver(t, s)
				r.handle((&ledger{}).committing(t, 300*time.Millisecond))
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if a := r.call(ctx, method, "k", request()); status.Code(a.err) != codes.DeadlineExceeded {
					t.Errorf("got %v", a.err)
				}
				op := wantState(t, s, method, "k", oncedv1.State_STATE_PENDING, 1)
				held := op.GetLeaseEnd().AsTime().Sub(op.GetClaimTime().AsTime())
				if op.GetLease().AsDuration() != lease || held != lease || op.GetLeaseRemaining().AsDuration() != lease-100*time.Millisecond {
					t.Errorf("the lease is %v, held for %v, of which %v are left", op.GetLease().AsDuration(), held, op.GetLeaseRemaining().AsDuration())
				}
				for _, claim := range sentOf[*oncedv1.ClaimRequest](w) {
					if asked := claim.GetLease(); asked != nil && asked.AsDuration() != lease {
						t.Errorf("asked for %v", asked.AsDuration())
					}
				}
			})
		})
	}
}

// A handler that takes longer than its lease keeps its claim, with or without a caller.
func TestR04_AHandlerThatTakesLongerThanItsLease(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		book := &ledger{}
		r := newRigOn(t, s, nil)
		r.handle(book.committing(t, 5*time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if a := r.call(ctx, "Pay", "k", request()); status.Code(a.err) != codes.DeadlineExceeded {
			t.Errorf("got %v", a.err)
		}
		for range 29 {
			passing(10 * time.Second)
			wantState(t, s, "Pay", "k", oncedv1.State_STATE_PENDING, 1)
		}
		wantInfo(t, r.call(t.Context(), "Pay", "k", request()).err, codes.Aborted, reasonInProgress)
		passing(10 * time.Second)
		wantReplay(t, r.call(t.Context(), "Pay", "k", request()))
		book.want(t, 1)
	})
}

// The caller leaves while its claim is on the way, or its answer: what may have been
// granted is given back, and the next try is executed.
func TestR04_TheCallerLeavesWhileItsClaimIsOnTheWay(t *testing.T) {
	for name, happen := range map[string]happens{"the answer is lost": swallowed, "it never arrives": silence, "it comes as the caller leaves": func(ctx context.Context, send func(context.Context) error) error {
		err := send(ctx)
		<-ctx.Done()
		return err
	}} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				book := &ledger{}
				r, w := newRigOver(t, s)
				r.handle(book.committing(t, 300*time.Millisecond))
				w.always(happen, "Claim")
				time.AfterFunc(90*time.Millisecond, func() { w.always(nil) })
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if a := r.call(ctx, "Pay", "k", request("account", "a")); a.err == nil { // its own, or the guard's
					t.Errorf("got %q, %v", a.outcome(), a.resp)
				}
				passing(time.Second)
				r.wantRuns(0)
				if a := r.call(t.Context(), "Pay", "k", request("account", "a")); a.err != nil || a.outcome() != OutcomeExecuted {
					t.Errorf("the next try got %q, %v", a.outcome(), a.err)
				}
				book.want(t, 1)
			})
		})
	}
}
