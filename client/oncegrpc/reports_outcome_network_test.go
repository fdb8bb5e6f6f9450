package oncegrpc

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The tests named R and a number, here and in the file beside this one, are scenarios in
// which other systems have executed a mutation twice, or lost its result.

// R41: UNAVAILABLE is also what a client sees when the tool has done its work and its
// answer is lost. gRPC tries again by itself, and the try is a replay.
func TestR41_AnswerLostAfterTheEffect(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil, WithWait(time.Minute))
		conn := r.connect(retryUnavailable)
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			conn.cut()
			passing(time.Second)
			return response("id", "7"), nil
		})
		a := on(t.Context(), conn, "Pay", "k", request())
		a.wantResponse(t, response("id", "7"))
		a.wantMarked(t, OutcomeReplayed, "k")
		r.wantRuns(1)
	})
}

// Without a wait the try that gRPC makes by itself is told that the first one goes on,
// and makes no further one.
func TestR41_AnswerLostWhileExecuting(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		conn := r.connect(retryUnavailable)
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			conn.cut()
			passing(time.Second)
			return response("id", "7"), nil
		})
		on(t.Context(), conn, "Pay", "k", request()).wantRefused(t, codes.Aborted, "IN_PROGRESS")
		passing(2 * time.Second)
		on(t.Context(), conn, "Pay", "k", request()).wantResponse(t, response("id", "7"))
		r.wantRuns(1)
	})
}

// The tool is killed after its effect, and the client's next try comes to another process
// of it.
func TestR41_ToolKilledAfterTheEffect(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		killed, w := newRigOver(t, s)
		alive := newRigOn(t, s, nil)
		conn := connectTo(t, retryUnavailable, killed, alive)
		killed.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			w.always(answeredWith(codes.Unavailable)) // it is not heard of again
			conn.cut()
			return response("id", "7"), nil
		})
		a := on(t.Context(), conn, "Pay", "k", request())
		a.wantRefused(t, codes.Aborted, "IN_PROGRESS")
		passing(2 * time.Minute)
		on(t.Context(), conn, "Pay", "k", request()).wantUnresolved(t, "LAPSED")
		on(t.Context(), conn, "Pay", "k", request("amount", 1)).wantMismatch(t)
		if n := killed.ran.Load(); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		alive.wantRuns(0)
	})
}

// Hedged copies: the losers' answer is one that a hedging policy goes on after, and the
// winner's is delivered. A copy with another request is a bug, and its answer stops
// further tries.
func TestR41_HedgedCopies(t *testing.T) {
	nonFatal := []codes.Code{codes.Unavailable, codes.Aborted}
	for name, opts := range map[string][]Option{"no wait": nil, "wait": {WithWait(10 * time.Second)}} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				rigs := threeTools(t, s, opts...)
				for _, r := range rigs {
					r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
						passing(time.Second)
						return response("id", "7"), nil
					})
				}
				got, _ := hedge(t.Context(), rigs, nonFatal, "Pay", "k", request())
				got.wantResponse(t, response("id", "7"))
				if n := runsOf(rigs); n != 1 {
					t.Errorf("handlers ran %d times", n)
				}
				rigs[1].call(t.Context(), "Pay", "k", request("amount", 1)).wantMismatch(t)
				if n := s.Executions("k"); n != 1 {
					t.Errorf("%d executions", n)
				}
			})
		})
	}
}

// R44: without onced nothing is executed, and a try afterwards is.
func TestR44_CoordinatorDown(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		conn := r.connect(retryUnavailable)
		s.Down()
		on(t.Context(), conn, "Pay", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
		r.call(t.Context(), "Optional", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
		r.wantRuns(0)
		s.Up()
		on(t.Context(), conn, "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
		on(t.Context(), conn, "Pay", "k", request()).wantMarked(t, OutcomeReplayed, "k")
		r.wantRuns(1)
	})
}

// The client's own retries reach onced when it is back.
func TestR44_CoordinatorBackWhileTheClientRetries(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		conn := r.connect(retryUnavailable)
		s.Down()
		time.AfterFunc(DefaultClaimTimeout+2*time.Second, s.Up) // during the second try
		on(t.Context(), conn, "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
		r.wantRuns(1)
	})
}

// The claim was carried out and its answer lost: it is asked for again under the same
// token, and executed once.
func TestR44_ClaimAnswerLost(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r, w := newRigOver(t, s)
		lost := 0
		w.mu.Lock()
		w.rule = func(rpc string) happens {
			if lost++; rpc == "Claim" && lost <= 3 {
				return broken
			}
			return nil
		}
		w.mu.Unlock()
		r.call(t.Context(), "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
		claims := sentOf[*oncedv1.ClaimRequest](w)
		if len(claims) != 4 {
			t.Errorf("%d claims were sent", len(claims))
		}
		for _, c := range claims {
			if !slices.Equal(c.GetClaimToken(), claims[0].GetClaimToken()) {
				t.Error("a claim was sent again under another token")
			}
		}
		r.wantRuns(1)
	})
}

// The claim may have been carried out, and no answer comes in time: nothing is executed,
// the claim is given back, and the next try executes. Where it cannot be given back, the
// next try does not execute either.
func TestR44_ClaimTimesOut(t *testing.T) {
	for name, happen := range map[string]happens{"not carried out": silence, "carried out": swallowed, "carried out, broken": broken} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r, w := newRigOver(t, s, WithClaimTimeout(200*time.Millisecond))
				w.always(happen, "Claim")
				asked := time.Now()
				r.call(t.Context(), "Pay", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
				if took := time.Since(asked); took > time.Second {
					t.Errorf("it took %v", took)
				}
				w.always(nil)
				passing(10 * time.Second)
				a := r.call(t.Context(), "Pay", "k", request())
				if name == "not carried out" {
					a.wantMarked(t, OutcomeExecuted, "k")
					r.wantRuns(1)
					return
				}
				// The copy that gives it back had no answer either.
				a.wantRefused(t, codes.Aborted, "IN_PROGRESS")
				passing(time.Minute)
				r.call(t.Context(), "Pay", "k", request()).wantUnresolved(t, "LAPSED")
				r.wantRuns(0)
			})
		})
	}
	t.Run("given back", func(t *testing.T) {
		inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
			r, w := newRigOver(t, s, WithClaimTimeout(200*time.Millisecond))
			w.always(swallowed, "Claim")
			time.AfterFunc(199*time.Millisecond, func() { w.always(nil) })
			r.call(t.Context(), "Pay", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
			passing(time.Second)
			r.call(t.Context(), "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
			r.wantRuns(1)
		})
	})
}

// Whatever answers instead of onced, nothing is executed, and the caller is not told
// what is wrong behind the service.
func TestR44_SomethingElseAnswers(t *testing.T) {
	for _, code := range everyCode() {
		t.Run(code.String(), func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r, w := newRigOver(t, s)
				w.always(answeredWith(code), "Claim")
				a := r.call(t.Context(), "Pay", "k", request())
				a.wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
				if errors.Is(a.err, context.DeadlineExceeded) || status.Convert(a.err).Message() == "from the way" {
					t.Errorf("got %v", a.err)
				}
				r.wantRuns(0)
				w.always(nil)
				passing(time.Minute)
				r.call(t.Context(), "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
				r.wantRuns(1)
			})
		})
	}
	t.Run("no room", func(t *testing.T) {
		r := newRig(t, WithClaimTimeout(50*time.Millisecond))
		r.call(t.Context(), "Pay", "before", request())
		r.onced.Full(true)
		r.call(t.Context(), "Pay", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
		r.call(t.Context(), "Pay", "before", request()).wantMarked(t, OutcomeReplayed, "before")
		r.onced.Full(false)
		r.call(t.Context(), "Pay", "k", request()).wantMarked(t, OutcomeExecuted, "k")
		r.wantRuns(2)
	})
	t.Run("closed", func(t *testing.T) {
		r := newRig(t)
		r.client.Close(t.Context())
		r.call(t.Context(), "Pay", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
		r.wantRuns(0)
	})
}

// What was executed while onced is down is answered, and settled when it is back.
func TestR44_DownWhenTheHandlerReturns(t *testing.T) {
	for _, c := range []struct {
		name string
		end  error
		then func(t *testing.T, a answer)
	}{
		{"response", nil, func(t *testing.T, a answer) { a.wantResponse(t, response("id", "7")) }},
		{"final", client.Final(detailedStatus(codes.NotFound, "no")), func(t *testing.T, a answer) {
			a.wantStatus(t, status.Convert(detailedStatus(codes.NotFound, "no")))
		}},
		{"unclassified", status.Error(codes.Unavailable, "no"), func(t *testing.T, a answer) { a.wantUnresolved(t, "DECLARED") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r := newRigOn(t, s, nil)
				conn := r.connect(retryEverything)
				r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
					s.Down()
					return response("id", "7"), c.end
				})
				a := on(t.Context(), conn, "Pay", "k", request())
				a.wantStatus(t, status.Convert(c.end))
				a.wantMarked(t, OutcomeExecuted, "k")
				on(t.Context(), conn, "Pay", "k", request()).wantRefused(t, codes.Unavailable, "ONCED_UNAVAILABLE")
				passing(2 * time.Minute)
				s.Up()
				passing(30 * time.Second)
				c.then(t, on(t.Context(), conn, "Pay", "k", request()))
				r.wantRuns(1)
			})
		})
	}
}

// R49: a replay after a restart of onced, and of the tool, is the first answer in all that
// a caller sees, and another request is still refused.
func TestR49_ReplayAfterARestart(t *testing.T) {
	s := oncetest.New(t)
	r := newRigOn(t, s, nil)
	for i, h := range waysToEnd() {
		if h.fate != fateFinal && h.fate != fateCompleted {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			key := "k" + h.name
			h.serve(r)
			executed := r.call(t.Context(), h.method, key, request("amount", i))
			claimed := executed.wantMarked(t, OutcomeExecuted, key)
			s.Down()
			s.Up()
			restarted := newRigOn(t, s, nil)
			replayed := restarted.call(t.Context(), h.method, key, request("amount", i))
			replayed.wantStatus(t, status.Convert(executed.err))
			if executed.err == nil {
				replayed.wantResponse(t, executed.resp)
			}
			if at := replayed.wantMarked(t, OutcomeReplayed, key); !at.Equal(claimed) {
				t.Errorf("first claimed at %v, and then at %v", claimed, at)
			}
			if got := replayed.trailer.Get("grpc-status-details-bin"); !slices.Equal(got, executed.trailer.Get("grpc-status-details-bin")) {
				t.Errorf("the details' bytes differ: %q and %q", executed.trailer, replayed.trailer)
			}
			restarted.call(t.Context(), h.method, key, request("amount", i+1000)).wantMismatch(t)
			restarted.wantRuns(0)
		})
	}
}
