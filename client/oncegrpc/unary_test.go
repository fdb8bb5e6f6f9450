package oncegrpc

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExecutedThenReplayed(t *testing.T) {
	r := newRig(t)
	first := r.call(t.Context(), "Pay", "k", request("account", "a", "amount", 5))
	again := r.call(t.Context(), "Pay", "k", request("account", "a", "amount", 5))
	if first.err != nil || again.err != nil {
		t.Fatalf("got %v and %v", first.err, again.err)
	}
	if first.outcome() != OutcomeExecuted || again.outcome() != OutcomeReplayed || text(again.resp, "id") != "first" {
		t.Errorf("got %q, then %q with %v", first.outcome(), again.outcome(), again.resp)
	}
	r.wantRuns(1)
	if other := r.call(t.Context(), "Pay", "k", request("account", "b")); status.Code(other.err) != codes.FailedPrecondition {
		t.Errorf("other arguments under the key: %v", other.err)
	}
	r.wantRuns(1)
}
