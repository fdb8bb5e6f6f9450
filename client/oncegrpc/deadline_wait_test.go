package oncegrpc

import (
	"context"
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

// A loser that may wait gets the answer when there is one.
func TestR04_WaitingForTheAnswer(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		book := &ledger{}
		r := newRigOn(t, s, nil, WithWait(30*time.Second))
		r.handle(book.committing(t, 25*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if a := r.call(ctx, "Pay", "k", request()); status.Code(a.err) != codes.DeadlineExceeded {
			t.Errorf("got %v", a.err)
		}
		start := time.Now()
		wantReplay(t, r.call(t.Context(), "Pay", "k", request()))
		if took := time.Since(start); took < 24*time.Second || took > 26*time.Second {
			t.Errorf("it waited %v", took)
		}
		book.want(t, 1)
		r.wantRuns(1)
	})
}

// It waits no longer than it was told to, nor than its caller.
func TestR04_WaitingIsBounded(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		book := &ledger{}
		r := newRigOn(t, s, nil, WithWait(2*time.Second))
		r.handle(book.committing(t, time.Minute))
		first := r.calling(t.Context(), "Pay", "k", request())
		passing(time.Second)
		start := time.Now()
		a := r.call(t.Context(), "Pay", "k", request())
		wantInfo(t, a.err, codes.Aborted, reasonInProgress)
		if took := time.Since(start); took < 2*time.Second || took > 2500*time.Millisecond {
			t.Errorf("it waited %v, want 2s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start = time.Now()
		// It is told in time, and not by its own deadline.
		a = r.call(ctx, "Pay", "k", request())
		wantInfo(t, a.err, codes.Aborted, reasonInProgress)
		if took := time.Since(start); took < 200*time.Millisecond || took >= 500*time.Millisecond {
			t.Errorf("it waited %v, want 250ms less than its deadline", took)
		}
		wantState(t, s, "Pay", "k", oncedv1.State_STATE_PENDING, 1) // waiting has not changed it
		if a := <-first; a.err != nil || a.outcome() != OutcomeExecuted {
			t.Errorf("got %q, %v", a.outcome(), a.err)
		}
		book.want(t, 1)
		r.wantRuns(1)
	})
}

// The one that executes has failed without an effect: one of those that wait executes.
func TestR04_WaitingForWhatWasNotExecuted(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil, WithWait(30*time.Second))
		book := &ledger{}
		paying := book.committing(t, 300*time.Millisecond)
		r.handle(func(ctx context.Context, method string, req *dynamicpb.Message) (proto.Message, error) {
			if client.ClaimFromContext(ctx).Attempt > 1 {
				return paying(ctx, method, req)
			}
			passing(time.Second)
			return nil, status.Error(codes.NotFound, "no such account")
		})
		first := r.calling(t.Context(), "Declared", "k", request())
		passing(100 * time.Millisecond)
		second := r.calling(t.Context(), "Declared", "k", request())
		third := r.calling(t.Context(), "Declared", "k", request())
		if a := <-first; status.Code(a.err) != codes.NotFound || a.outcome() != OutcomeNotExecuted {
			t.Errorf("got %q, %v", a.outcome(), a.err)
		}
		outcomes := map[string]int{}
		for _, got := range []<-chan answer{second, third} {
			a := <-got
			if a.err != nil {
				t.Errorf("got %v", a.err)
			}
			outcomes[a.outcome()]++
		}
		if outcomes[OutcomeExecuted] != 1 || outcomes[OutcomeReplayed] != 1 {
			t.Errorf("got %v", outcomes)
		}
		book.want(t, 1)
		r.wantRuns(2)
	})
}

// Without an answer of onced the call ends after the claim timeout, waiting or not, and
// nothing is executed.
func TestR04_NoAnswerOfTheCoordinator(t *testing.T) {
	for name, leg := range map[string]struct {
		opts []Option
		want time.Duration
	}{
		"the default":    {nil, DefaultClaimTimeout},
		"another":        {[]Option{WithClaimTimeout(time.Second)}, time.Second},
		"with a wait":    {[]Option{WithClaimTimeout(time.Second), WithWait(2 * time.Second)}, time.Second},
		"attached alike": {[]Option{WithCallerCancellation(), WithClaimTimeout(time.Second)}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r := newRigOn(t, s, nil, leg.opts...)
				s.Down()
				start := time.Now()
				a := r.call(t.Context(), "Pay", "k", request())
				wantInfo(t, a.err, codes.Unavailable, reasonUnavailable)
				if took := time.Since(start); took > leg.want {
					t.Errorf("it took %v, want %v at most", took, leg.want)
				}
				if len(a.trailer.Get("grpc-retry-pushback-ms")) != 0 {
					t.Error("a client is told not to try again")
				}
				s.Up()
				passing(time.Minute)
				if a := r.call(t.Context(), "Pay", "k", request()); a.err != nil || a.outcome() != OutcomeExecuted {
					t.Errorf("got %q, %v", a.outcome(), a.err)
				}
				r.wantRuns(1)
			})
		})
	}
}
