package oncegrpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// A handler has its effect, calls another guarded service, and hands on what that one's
// guard said, with a code that the handler's own method declares. It is no word on the
// handler's own call: nothing is released, and its caller is not told that nothing was
// executed.
func TestRefusalsOfOtherGuardsReleaseNothing(t *testing.T) {
	for name, c := range map[string]struct {
		nested func(*testing.T, *rig) error
		code   codes.Code
	}{
		"onced is down": {func(_ *testing.T, callee *rig) error {
			callee.onced.Down()
			return callee.call(context.Background(), "Pay", "nested", request()).err
		}, codes.Unavailable},
		"no key": {func(_ *testing.T, callee *rig) error {
			return callee.call(context.Background(), "Pay", "", request()).err
		}, codes.InvalidArgument},
		"wrapped": {func(_ *testing.T, callee *rig) error {
			return errors.Join(callee.call(context.Background(), "Pay", "", request()).err)
		}, codes.InvalidArgument},
		"not sent": {func(t *testing.T, callee *rig) error {
			conn := callee.dial(grpc.WithUnaryInterceptor(UnaryClientInterceptor()))
			defer conn.Close()
			return invoke(t.Context(), conn, "Pay", request(), WithKey("null")).err
		}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				r, callee := newRigOn(t, s, nil), newRig(t)
				effects := 0
				r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
					effects++
					return nil, c.nested(t, callee)
				})
				a := r.call(t.Context(), "Declared", "k", request())
				if info, own := infoOf(a.err); own || status.Code(a.err) != c.code || !strings.Contains(a.err.Error(), "a call that the handler made was refused") {
					t.Errorf("its caller got %v with %v", a.err, info)
				}
				a.wantMarked(t, OutcomeExecuted, "k")
				r.call(t.Context(), "Declared", "k", request()).wantUnresolved(t, "DECLARED")
				if effects != 1 {
					t.Errorf("%d effects, want one", effects)
				}
			})
		})
	}
}

// A handler that knows better says so.
func TestRefusalsOfOtherGuardsMayBeMarked(t *testing.T) {
	r, callee := newRig(t), newRig(t)
	r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		return nil, client.NotExecuted(callee.call(ctx, "Pay", "", request()).err)
	})
	for range 2 {
		a := r.call(t.Context(), "Pay", "k", request())
		wantInfo(t, a.err, codes.InvalidArgument, reasonKeyRequired)
		if a.outcome() != OutcomeNotExecuted {
			t.Errorf("it says that it was %q", a.outcome())
		}
	}
	r.wantRuns(2)
}

// Who is told that somebody executes asks again soon, and not when a lease is over that
// is renewed for as long as it takes.
func TestRetryInfoOfWhatIsInProgress(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		r.handle((&ledger{}).committing(t, 5*time.Second))
		first := r.calling(t.Context(), "Pay", "k", request())
		passing(time.Second)
		a := r.call(t.Context(), "Pay", "k", request())
		facts := wantInfo(t, a.err, codes.Aborted, reasonInProgress)
		retry, _ := detailOf(a.err, func(*errdetails.RetryInfo) bool { return true })
		if got := retry.GetRetryDelay().AsDuration(); got != time.Second {
			t.Errorf("it is to ask again after %v, want 1s", got)
		}
		if end, err := time.Parse(time.RFC3339Nano, facts["lease_end"]); err != nil || !end.After(s.Now()) {
			t.Errorf("the lease ends %q", facts["lease_end"])
		}
		<-first
	})
}

// Under safe_to_rerun the next try is all that is needed, and the answer says when.
func TestUnresolvedButSafeToRerun(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		r.fail(status.Error(codes.Internal, "after the effect"))
		r.call(t.Context(), "Rerun", "k", request())
		a := r.call(t.Context(), "Rerun", "k", request())
		a.wantUnresolved(t, "DECLARED")
		if !strings.Contains(a.err.Error(), "ask again under the same key in 1m0s") {
			t.Errorf("it says %v", a.err)
		}
		passing(time.Minute)
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			return response("id", "second"), nil
		})
		r.call(t.Context(), "Rerun", "k", request()).wantMarked(t, OutcomeExecuted, "k")
		r.wantRuns(2)
	})
}

// The code that a handler gives with FinalWith is the one that its caller gets, now and
// later.
func TestCodesOfFinalWith(t *testing.T) {
	r := newRig(t)
	r.fail(client.FinalWith(errors.New("it is there"), "ALREADY_EXISTS", nil))
	for range 2 {
		r.call(t.Context(), "Pay", "k", request()).wantStatus(t, status.New(codes.AlreadyExists, "it is there"))
	}
	r.wantRuns(1)
}
