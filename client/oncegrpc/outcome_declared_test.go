package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// What was declared not to have been executed is executed by the next try, of which the
// answer is kept.
func TestReleasedThenExecuted(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		err    error
	}{
		"declared code":                         {"Declared", status.Error(codes.InvalidArgument, "too high")},
		"not executed":                          {"Pay", client.NotExecuted(errors.New("too high"))},
		"not executed, of an undeclared code":   {"Declared", client.NotExecuted(status.Error(codes.Internal, "too high"))},
		"not executed, of unclassified context": {"Pay", client.NotExecuted(context.Canceled)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.fail(c.err)
			for range 3 {
				if a := r.call(t.Context(), c.method, "k", request("amount", 1)); a.outcome() != OutcomeNotExecuted || len(a.header) != 0 {
					t.Errorf("got %v, %q", a.err, a.outcome())
				}
			}
			r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
				return response("id", "7"), nil
			})
			r.call(t.Context(), c.method, "k", request("amount", 2)).wantMismatch(t)
			executed := r.call(t.Context(), c.method, "k", request("amount", 1))
			executed.wantResponse(t, response("id", "7"))
			executed.wantMarked(t, OutcomeExecuted, "k")
			r.call(t.Context(), c.method, "k", request("amount", 1)).wantMarked(t, OutcomeReplayed, "k")
			r.call(t.Context(), c.method, "k", request("amount", 2)).wantMismatch(t)
			r.wantRuns(4)
			if n := r.onced.Executions("k"); n != 1 {
				t.Errorf("%d executions", n)
			}
		})
	}
}

// After 16 attempts only an operator can go on, and the caller learns that.
func TestAttemptsExhausted(t *testing.T) {
	r := newRig(t)
	r.fail(client.NotExecuted(errors.New("not yet")))
	for range 16 {
		r.call(t.Context(), "Pay", "k", request())
	}
	r.wantRuns(16)
	r.call(t.Context(), "Pay", "k", request()).wantRefused(t, codes.FailedPrecondition, "ATTEMPTS_EXHAUSTED")
	r.wantRuns(16)
}

// What an inner operation says of itself says nothing of the handler's own.
func TestInnerOperationNotExecuted(t *testing.T) {
	for _, mark := range []func(error) error{client.NotExecuted, client.Final} {
		r := newRig(t)
		r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
			key, err := client.ClaimFromContext(ctx).Child("inner")
			if err != nil {
				return nil, err
			}
			_, err = client.Do(ctx, r.client, client.Call{Key: key, Method: "inner"}, func(context.Context, *client.Claim) (string, error) {
				return "", mark(status.Error(codes.FailedPrecondition, "no"))
			})
			return nil, errors.Join(err) // of one alone
		})
		if a := r.call(t.Context(), "Declared", "k", request()); a.outcome() != OutcomeExecuted || status.Code(a.err) != codes.FailedPrecondition {
			t.Errorf("got %v, %q", a.err, a.outcome())
		}
		r.call(t.Context(), "Declared", "k", request()).wantUnresolved(t, "DECLARED")
		r.wantRuns(1)
	}
}

// Under doubt, an attempt that did nothing proves nothing about the one before it.
func TestNotExecutedUnderDoubt(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		r.fail(status.Error(codes.Internal, "after the effect"))
		r.call(t.Context(), "Rerun", "k", request())
		passing(2 * time.Minute)
		r.fail(client.NotExecuted(errors.New("before anything")))
		if a := r.call(t.Context(), "Rerun", "k", request()); a.outcome() != OutcomeNotExecuted {
			t.Errorf("got %v, %q", a.err, a.outcome())
		}
		r.wantRuns(2)
		if a := r.call(t.Context(), "Rerun", "k", request()); status.Code(a.err) != codes.FailedPrecondition {
			t.Errorf("got %v", a.err)
		}
		r.wantRuns(2) // too early for another takeover
	})
}

// A handler may send its headers itself; then the trailers say what the answer is.
func TestHandlerSendsItsHeaders(t *testing.T) {
	r := newRig(t)
	for i, err := range []error{nil, status.Error(codes.Internal, "after the effect"), client.Final(errors.New("no")), client.NotExecuted(errors.New("no"))} {
		key := fmt.Sprint("k", i)
		r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
			if err := grpc.SendHeader(ctx, metadata.Pairs("of-the-handler", "1")); err != nil {
				t.Error(err)
			}
			return response(), err
		})
		a := r.call(t.Context(), "Pay", key, request())
		want := OutcomeExecuted
		if client.IsNotExecuted(err) {
			want = OutcomeNotExecuted
		}
		if first(a.trailer.Get(HeaderOutcome)) != want || first(a.trailer.Get(HeaderKey)) == "" || first(a.header.Get("of-the-handler")) != "1" {
			t.Errorf("%v: headers %v and trailers %v", err, a.header, a.trailer)
		}
	}
}

// intercepted runs a handler inside a guard without a server, as a test of a user may.
func intercepted(ctx context.Context, g *Guard, key string, handler grpc.UnaryHandler) (any, error) {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(MetadataKey, key))
	return g.UnaryServerInterceptor()(ctx, request(), &grpc.UnaryServerInfo{FullMethod: "/" + toolsService + "/Pay"}, handler)
}

// A handler whose goroutine ends has had its effect or not: nobody knows.
func TestGoexit(t *testing.T) {
	r := newRig(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = intercepted(t.Context(), r.guard, "k", func(context.Context, any) (any, error) {
			runtime.Goexit()
			return nil, nil
		})
	}()
	<-done
	r.call(t.Context(), "Pay", "k", request("amount", 1)).wantMismatch(t)
	r.call(t.Context(), "Pay", "k", request()).wantUnresolved(t, "DECLARED")
	r.wantRuns(0)
}

// A panic goes on with the value that it has.
func TestPanicGoesOn(t *testing.T) {
	r := newRig(t)
	type value struct{ n int }
	func() {
		defer func() {
			if p, ok := recover().(*value); !ok || p.n != 7 {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = intercepted(t.Context(), r.guard, "k", func(context.Context, any) (any, error) { panic(&value{7}) })
	}()
	r.call(t.Context(), "Pay", "k", request()).wantUnresolved(t, "DECLARED")
}

// A response that is no message was an execution.
func TestResponseThatIsNoMessage(t *testing.T) {
	r := newRig(t)
	for i, resp := range []any{"text", 7, struct{}{}, (*dynamicpb.Message)(nil), []byte("bytes")} {
		key := fmt.Sprint("k", i)
		got, err := intercepted(t.Context(), r.guard, key, func(context.Context, any) (any, error) { return resp, nil })
		if err != nil || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", resp) {
			t.Errorf("got %#v, %v", got, err)
		}
		a := r.call(t.Context(), "Pay", key, request())
		wantInfo(t, a.err, codes.FailedPrecondition, "RESULT_UNAVAILABLE")
		a.wantMarked(t, OutcomeReplayed, key)
	}
	r.wantRuns(0)
}

// What was executed under a claim that was lost says that it was executed.
func TestExecutedButLost(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			s.Lapse()
			passing(2 * time.Minute)
			taker := &other{t: t, stub: oncedv1.NewIdempotencyServiceClient(s.Conn()), claim: payClaim(t, "k", request())}
			taker.claim.TakeOverAttempt = 1
			taker.gets(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
			if err := taker.fails(oncedv1.Disposition_DISPOSITION_FINAL, &oncedv1.Failure{Code: "NOT_FOUND", Message: "by hand"}); err != nil {
				t.Error(err)
			}
			return response("id", "7"), nil
		})
		a := r.call(t.Context(), "Pay", "k", request())
		wantInfo(t, a.err, codes.FailedPrecondition, "CLAIM_LOST")
		a.wantMarked(t, OutcomeExecuted, "k")
		again := r.call(t.Context(), "Pay", "k", request())
		again.wantStatus(t, status.New(codes.NotFound, "by hand"))
		r.wantRuns(1)
	})
}
