package oncegrpc

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
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

// stored is an operation as onced has it.
func stored(t *testing.T, s *oncetest.Server, method, key string) *oncedv1.Operation {
	t.Helper()
	op, err := operationOf(t, s, method, key)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// R01: a refusal, and what its caller does then, leaves the operation as it is.
func TestR01_RefusalChangesNothing(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		a, b, c := newRigOn(t, s, nil), newRigOn(t, s, nil), newRigOn(t, s, nil)
		ends, answered := make(chan struct{}), make(chan answer)
		a.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			<-ends
			return response("id", "of a"), nil
		})
		go func() { answered <- a.call(t.Context(), "Pay", "k", request("amount", 1)) }()
		passing(time.Second)
		before := stored(t, s, "Pay", "k")
		b.call(t.Context(), "Pay", "k", request("amount", 1)).wantRefused(t, codes.Aborted, "IN_PROGRESS")
		b.call(t.Context(), "Pay", "k", request("amount", 2)).wantMismatch(t)
		cancelled, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		b.call(cancelled, "Pay", "k", request("amount", 1))
		cancel()
		b.client.Close(t.Context())
		c.call(t.Context(), "Pay", "k", request("amount", 1)).wantRefused(t, codes.Aborted, "IN_PROGRESS")
		stranger := &other{t: t, stub: oncedv1.NewIdempotencyServiceClient(s.Conn()), claim: payClaim(t, "k", request("amount", 1)), fence: before.GetFence()}
		if err := stranger.fails(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED, nil); err == nil {
			t.Error("a stranger has released it")
		}
		if after := stored(t, s, "Pay", "k"); after.GetEtag() != before.GetEtag() || after.GetState() != before.GetState() || after.GetFence() != before.GetFence() {
			t.Errorf("it was %v, and is %v", before, after)
		}
		close(ends)
		(<-answered).wantMarked(t, OutcomeExecuted, "k")
		settled := stored(t, s, "Pay", "k")
		c.call(t.Context(), "Pay", "k", request("amount", 2)).wantMismatch(t)
		replayed := c.call(t.Context(), "Pay", "k", request("amount", 1))
		replayed.wantMarked(t, OutcomeReplayed, "k")
		replayed.wantResponse(t, response("id", "of a"))
		if after := stored(t, s, "Pay", "k"); !proto.Equal(after, settled) {
			t.Errorf("it was %v, and is %v", settled, after)
		}
		if a.ran.Load() != 1 || b.ran.Load() != 0 || c.ran.Load() != 0 {
			t.Error("somebody else than the first caller executed")
		}
	})
}

// R02: an error after the effect is not "nothing happened", also for a client that tries
// again by itself.
func TestR02_ErrorAfterEffect(t *testing.T) {
	for name, fail := range map[string]func() error{
		"internal":    func() error { return status.Error(codes.Internal, "a later step failed") },
		"unavailable": func() error { return status.Error(codes.Unavailable, "a later step failed") },
		"panic":       func() error { panic("a later step") },
	} {
		for policy, config := range map[string]string{"no retries": `{}`, "retries of UNAVAILABLE": retryUnavailable, "retries of everything": retryEverything} {
			t.Run(name+", "+policy, func(t *testing.T) {
				inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
					r := newRigOn(t, s, nil)
					conn := r.connect(config)
					var ledger atomic.Int64
					r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
						ledger.Add(1)
						return nil, fail()
					})
					on(t.Context(), conn, "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
					passing(100 * time.Millisecond)
					on(t.Context(), conn, "Pay", "k", request()).wantUnresolved(t, "DECLARED")
					if n := ledger.Load(); n != 1 {
						t.Errorf("%d effects", n)
					}
				})
			})
		}
	}
}

// R15: a handler may change its own request; what the call was is fixed before.
func TestR15_HandlerChangesItsRequest(t *testing.T) {
	change := func(req *dynamicpb.Message) {
		fill(req, []any{"account", "EUR", "request_id", "another", "amount", 99})
	}
	for name, end := range map[string]error{"response": nil, "final": client.Final(errors.New("no")), "unclassified": errors.New("no"), "panic": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.handle(func(_ context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
				change(req)
				if name == "panic" {
					panic("after the change")
				}
				return response("id", "7"), end
			})
			original, changed := request("account", "eur", "amount", 1), request("account", "eur", "amount", 1)
			change(changed)
			r.call(t.Context(), "Field", "k", proto.CloneOf(original)).wantMarked(t, OutcomeExecuted, "k")
			again := r.call(t.Context(), "Field", "k", proto.CloneOf(original))
			if unresolved := name == "unclassified" || name == "panic"; unresolved {
				again.wantUnresolved(t, "DECLARED")
			} else {
				again.wantMarked(t, OutcomeReplayed, "k")
			}
			fill(changed, []any{"request_id", "k"})
			r.call(t.Context(), "Field", "k", changed).wantMismatch(t)
			r.wantRuns(1)
			if n := r.onced.Executions("another"); n != 0 {
				t.Errorf("%d executions under the key that the handler has written", n)
			}
		})
	}
}

// R25: empty and zero responses are responses.
func TestR25_EmptyResponses(t *testing.T) {
	unknown := response("id", "7")
	unknown.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 0x01, 'x'}) // of a newer release
	for name, resp := range map[string]proto.Message{
		"empty": response(), "no message": nil, "zero values": response("id", "", "replayed", false), "false": response("replayed", false),
		"an empty field": response("note", ""), "unknown fields": unknown, "full": response("id", "0", "note", "null"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) { return resp, nil })
			executed := r.call(t.Context(), "Pay", "k", request())
			executed.wantMarked(t, OutcomeExecuted, "k")
			for range 3 {
				replayed := r.call(t.Context(), "Pay", "k", request())
				replayed.wantMarked(t, OutcomeReplayed, "k")
				replayed.wantResponse(t, executed.resp)
			}
			r.wantRuns(1)
		})
	}
}

// R29: whoever is given a stored failure, or a stored response, learns that nothing ran
// now, and what is stored stays as it is.
func TestR29_ReplaysSayThatTheyAre(t *testing.T) {
	t.Run("failure", func(t *testing.T) {
		r := newRig(t)
		r.fail(client.Final(detailedStatus(codes.FailedPrecondition, "not yet due")))
		executed := r.call(t.Context(), "Pay", "k", request())
		claimed := executed.wantMarked(t, OutcomeExecuted, "k")
		kept := stored(t, r.onced, "Pay", "k")
		for range 3 {
			replayed := r.call(t.Context(), "Pay", "k", request())
			replayed.wantStatus(t, status.Convert(executed.err))
			if at := replayed.wantMarked(t, OutcomeReplayed, "k"); !at.Equal(claimed) {
				t.Errorf("first claimed at %v, and then at %v", claimed, at)
			}
		}
		if now := stored(t, r.onced, "Pay", "k"); !proto.Equal(now, kept) {
			t.Errorf("it was stored as %v, and is %v", kept, now)
		}
		r.wantRuns(1)
	})
	t.Run("response with a field for it", func(t *testing.T) {
		for _, resp := range []proto.Message{response(), response("id", "7", "note", "n"), nil} {
			s := oncetest.New(t)
			r := newRigOn(t, s, nil)
			r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) { return resp, nil })
			executed := r.call(t.Context(), "Flagged", "k", request())
			if executed.err != nil || replayedIn(executed.resp) {
				t.Fatalf("got %v, %v", executed.resp, executed.err)
			}
			before := stored(t, s, "Flagged", "k").GetResult().GetSha256()
			for range 3 {
				replayed := r.call(t.Context(), "Flagged", "k", request())
				replayed.wantMarked(t, OutcomeReplayed, "k")
				if !replayedIn(replayed.resp) {
					t.Error("the field does not say that it is a replay")
				}
				replayed.resp.ProtoReflect().Clear(responseDesc.Fields().ByName("replayed"))
				replayed.wantResponse(t, executed.resp)
			}
			if !slices.Equal(before, stored(t, s, "Flagged", "k").GetResult().GetSha256()) {
				t.Error("the stored bytes were changed")
			}
			r.wantRuns(1)
		}
	})
}

// R31: what is refused before the handler leaves nothing behind.
func TestR31_RefusalsBeforeTheHandler(t *testing.T) {
	r := newRig(t, WithValidation(func(_ context.Context, req any) error {
		if text(req.(proto.Message), "account") == "" {
			return status.Error(codes.InvalidArgument, "no account")
		}
		return nil
	}))
	for range 2 {
		a := r.call(t.Context(), "Pay", "k", request())
		a.wantStatus(t, status.New(codes.InvalidArgument, "no account"))
		if len(a.header) != 0 || a.outcome() != "" {
			t.Errorf("it was not executed, and has headers %v and trailers %v", a.header, a.trailer)
		}
	}
	// The corrected request may have the key: the refused ones were no operation.
	r.call(t.Context(), "Pay", "k", request("account", "a")).wantMarked(t, OutcomeExecuted, "k")
	r.wantRuns(1)
}

// R32: while somebody executes, and after he has died, callers are refused, with the time
// after which asking makes a difference; that is never a success.
func TestR32_InProgressIsNoSuccess(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		conn := r.connect(retryEverything)
		dead := claims(t, s, "k", request()) // and killed
		wants := func() {
			a := on(t.Context(), conn, "Pay", "k", request())
			facts := a.wantRefused(t, codes.Aborted, "IN_PROGRESS")
			if since, err := time.Parse(time.RFC3339Nano, facts["since"]); err != nil || since.IsZero() || facts["holder"] != "another" {
				t.Errorf("got %v", facts)
			}
			retry, _ := detailOf(a.err, func(*errdetails.RetryInfo) bool { return true })
			if d := retry.GetRetryDelay().AsDuration(); d <= 0 || d > 30*time.Second {
				t.Errorf("asked to try again after %v", d)
			}
		}
		wants()
		passing(20 * time.Second)
		wants()
		passing(20 * time.Second) // over the lease
		for range 3 {
			on(t.Context(), conn, "Pay", "k", request()).wantUnresolved(t, "LAPSED")
			passing(20 * time.Second)
		}
		r.wantRuns(0)
		// Its outcome is found out at last, and everybody has it.
		if err := dead.completes(&oncedv1.Payload{
			ContentType: "application/x-protobuf; messagetype=oncegrpc.test.v1.Response",
			Body:        &oncedv1.Payload_Data{Data: bytesOf(t, response("id", "7"))},
		}); err != nil {
			t.Fatal(err)
		}
		on(t.Context(), conn, "Pay", "k", request()).wantResponse(t, response("id", "7"))
		r.wantRuns(0)
	})
}
