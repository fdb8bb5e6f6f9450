package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// fate is what becomes of an operation by what its handler does.
type fate string

const (
	fateUnresolved fate = "unresolved"
	fateReleased   fate = "released"
	fateFinal      fate = "final"     // the failure is replayed
	fateCompleted  fate = "completed" // the response is replayed
	fateGone       fate = "gone"      // completed without a response that could be replayed
)

// handled is a way in which a handler ends.
type handled struct {
	name, method string
	fate         fate
	end          func() (proto.Message, error)
}

// detailedStatus is a status with details of several kinds.
func detailedStatus(code codes.Code, message string) error {
	s, err := status.New(code, message).WithDetails(
		&errdetails.ErrorInfo{Domain: "tickets.example", Reason: "LATER_STEP", Metadata: map[string]string{"step": "2"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "amount", Description: "too high"}}},
	)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// withStatus is an error with a status of its own.
type withStatus struct{ s *status.Status }

func (e withStatus) Error() string              { return "an error of its own" }
func (e withStatus) GRPCStatus() *status.Status { return e.s }

// waysToEnd lists the ways in which a handler ends.
func waysToEnd() []handled {
	var list []handled
	failing := func(name, method string, f fate, err error) {
		list = append(list, handled{name, method, f, func() (proto.Message, error) { return nil, err }})
	}
	declared := map[codes.Code]bool{codes.InvalidArgument: true, codes.Unavailable: true, codes.NotFound: true}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		failing(code.String(), "Pay", fateUnresolved, detailedStatus(code, "a later step failed"))
		f := fateUnresolved
		if declared[code] {
			f = fateReleased
		}
		failing("declaring, "+code.String(), "Declared", f, detailedStatus(code, "a later step failed"))
		failing("final, "+code.String(), "Pay", fateFinal, client.Final(detailedStatus(code, "declined")))
		failing("not executed, "+code.String(), "Pay", fateReleased, client.NotExecuted(detailedStatus(code, "before anything")))
	}
	plain, internal := errors.New("a later step failed"), detailedStatus(codes.Internal, "a later step failed")
	failing("code 99", "Pay", fateUnresolved, status.Error(99, "of another world"))
	failing("code 99, final", "Pay", fateFinal, client.Final(status.Error(99, "of another world")))
	failing("plain", "Pay", fateUnresolved, plain)
	failing("plain, final", "Pay", fateFinal, client.Final(plain))
	failing("plain, not executed", "Pay", fateReleased, client.NotExecuted(plain))
	failing("plain, declaring", "Declared", fateUnresolved, plain)
	failing("empty message", "Pay", fateUnresolved, errors.New(""))
	failing("empty message, final", "Pay", fateFinal, client.Final(status.Error(codes.NotFound, "")))
	failing("message that is no UTF-8", "Pay", fateFinal, client.Final(status.Error(codes.NotFound, "a\xffb")))
	failing("context cancelled", "Pay", fateUnresolved, context.Canceled)
	failing("deadline exceeded", "Pay", fateUnresolved, fmt.Errorf("ask the bank: %w", context.DeadlineExceeded))
	failing("deadline exceeded, declaring", "Declared", fateUnresolved, context.DeadlineExceeded)
	failing("deadline exceeded, final", "Pay", fateFinal, client.Final(context.DeadlineExceeded))
	failing("wrapped", "Pay", fateUnresolved, fmt.Errorf("step 2: %w", internal))
	failing("wrapped, declared", "Declared", fateReleased, fmt.Errorf("look up: %w", status.Error(codes.NotFound, "no such account")))
	failing("wrapped final", "Pay", fateFinal, fmt.Errorf("step 2: %w", client.Final(internal)))
	failing("final, wrapped inside", "Pay", fateFinal, client.Final(fmt.Errorf("step 2: %w", internal)))
	failing("final with a code and details of its own", "Pay", fateFinal, client.FinalWith(internal, "LIMIT", "details"))
	failing("wrapped not executed", "Pay", fateReleased, fmt.Errorf("step 1: %w", client.NotExecuted(internal)))
	failing("final beats declared", "Declared", fateFinal, client.Final(detailedStatus(codes.InvalidArgument, "for good")))
	failing("final beats not executed", "Pay", fateFinal, errors.Join(client.NotExecuted(plain), client.Final(internal)))
	failing("not executed, method that declares", "Declared", fateReleased, client.NotExecuted(internal))
	failing("joined", "Pay", fateUnresolved, errors.Join(internal, plain))
	failing("joined final", "Pay", fateFinal, errors.Join(plain, client.Final(internal)))
	failing("not executed, and something else", "Pay", fateUnresolved, errors.Join(client.NotExecuted(plain), internal))
	failing("declared, and something else", "Declared", fateUnresolved, errors.Join(status.Error(codes.NotFound, "no such account"), errors.New("the charge was not taken back")))
	failing("something else, and declared", "Declared", fateUnresolved, fmt.Errorf("%w, after %w", internal, status.Error(codes.NotFound, "no such account")))
	failing("declared twice", "Declared", fateReleased, errors.Join(status.Error(codes.NotFound, "no such account"), status.Error(codes.InvalidArgument, "nor amount")))
	failing("declared, and marked so", "Declared", fateReleased, errors.Join(status.Error(codes.NotFound, "no such account"), client.NotExecuted(plain)))
	failing("a status of its own", "Declared", fateReleased, withStatus{status.New(codes.NotFound, "no such account")})
	failing("a status of its own, nil", "Pay", fateUnresolved, withStatus{})
	failing("an error with the status OK", "Pay", fateUnresolved, withStatus{status.New(codes.OK, "")})

	answering := func(name string, f fate, resp proto.Message) {
		list = append(list, handled{name, "Pay", f, func() (proto.Message, error) { return resp, nil }})
	}
	other := dynamicpb.NewMessage(requestDesc.ParentFile().Messages().ByName("Other"))
	answering("response", fateCompleted, response("id", "7", "note", "n"))
	answering("empty response", fateCompleted, response())
	answering("no response", fateCompleted, nil)
	answering("response that cannot be encoded", fateGone, response("id", "\xff"))
	answering("another message", fateGone, fill(other, []any{"id", "7"}))
	list = append(list, handled{"panic", "Pay", fateUnresolved, func() (proto.Message, error) { panic("a later step") }})
	list = append(list, handled{"panic with a declared status", "Declared", fateUnresolved, func() (proto.Message, error) {
		panic(status.Error(codes.NotFound, "no such account"))
	}})
	list = append(list, handled{"panic with nothing executed", "Pay", fateUnresolved, func() (proto.Message, error) { panic(client.NotExecuted(nil)) }})
	return list
}

// Every way in which a handler ends, after its effect: what its caller gets is what it
// would get without a guard, and the next callers learn what became of it.
func TestR31_WhatHandlersEndWith(t *testing.T) {
	onced := oncetest.New(t)
	r := newRigOn(t, onced, nil)
	for i, h := range waysToEnd() {
		t.Run(h.name, func(t *testing.T) {
			key := fmt.Sprint("k", i)
			h.serve(r)
			bare := r.call(t.Context(), "Off", "", request("amount", 1))
			r.ran.Store(0)
			h.follow(t, r, r.conn, key, bare)
		})
	}
}

// The same with a client that tries again by itself after every error: a try that had an
// effect is not repeated, and its answer is the one that is delivered.
func TestR31_WhatHandlersEndWithAndRetries(t *testing.T) {
	var calls atomic.Int64
	r := newRigOn(t, oncetest.New(t), counted(&calls))
	conn := r.connect(retryEverything)
	for i, h := range waysToEnd() {
		t.Run(h.name, func(t *testing.T) {
			key := fmt.Sprint("k", i)
			h.serve(r)
			bare := r.call(t.Context(), "Off", "", request("amount", 1))
			if h.fate != fateReleased {
				calls.Store(0)
				r.ran.Store(0)
				h.follow(t, r, conn, key, bare)
				if n := calls.Load(); n != 4 {
					t.Errorf("the client sent %d calls, want each of the four once", n)
				}
				return
			}
			calls.Store(0)
			r.ran.Store(0)
			a := on(t.Context(), conn, h.method, key, request("amount", 1))
			if status.Code(a.err) != status.Code(bare.err) || a.trailer.Get(HeaderOutcome)[0] != OutcomeNotExecuted || len(a.header) != 0 {
				t.Errorf("got %v with headers %v and trailers %v", a.err, a.header, a.trailer)
			}
			r.wantRuns(4) // it had no effect, and was executed anew each time
			on(t.Context(), conn, h.method, key, request("amount", 2)).wantMismatch(t)
			r.wantRuns(4)
		})
	}
}

// serve has a rig's handlers end so.
func (h handled) serve(r *rig) {
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) { return h.end() })
}

// follow makes four calls: two that are the same, one with another request under the
// key, and the first once more. bare is what is answered without a guard.
func (h handled) follow(t *testing.T, r *rig, conn grpc.ClientConnInterface, key string, bare answer) {
	t.Helper()
	call := func(amount int) answer { return on(t.Context(), conn, h.method, key, request("amount", amount)) }
	one := call(1)
	one.wantStatus(t, status.Convert(bare.err))
	if bare.err == nil {
		one.wantResponse(t, bare.resp)
	}
	if h.fate == fateReleased {
		if len(one.header) != 0 || first(one.trailer.Get(HeaderOutcome)) != OutcomeNotExecuted || first(one.trailer.Get(HeaderKey)) != key {
			t.Errorf("headers %v and trailers %v; want them to say not-executed in trailers alone", one.header, one.trailer)
		}
		call(2).wantMismatch(t)
		r.wantRuns(1)
		call(1).wantStatus(t, status.Convert(bare.err))
		r.wantRuns(2)
		call(2).wantMismatch(t)
		r.wantRuns(2)
		return
	}
	claimed := one.wantMarked(t, OutcomeExecuted, key)
	for _, again := range []bool{true, false, true} {
		if !again {
			call(2).wantMismatch(t)
			continue
		}
		a := call(1)
		if h.fate == fateUnresolved {
			a.wantUnresolved(t, "DECLARED")
			continue
		}
		if at := a.wantMarked(t, OutcomeReplayed, key); !at.Equal(claimed) {
			t.Errorf("first claimed at %v, and then at %v", claimed, at)
		}
		switch h.fate {
		case fateFinal:
			a.wantStatus(t, status.Convert(bare.err))
		case fateCompleted:
			a.wantResponse(t, bare.resp)
		case fateGone:
			wantInfo(t, a.err, codes.FailedPrecondition, "RESULT_UNAVAILABLE")
		}
	}
	r.wantRuns(1)
}
