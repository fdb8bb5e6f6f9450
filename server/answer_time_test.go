package server_test

import (
	"testing"
	"time"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Every answer of a claim says when it was decided, by the store's clock, whatever
// the outcome and whether a read or an update decided it.
func TestAnswerTime(t *testing.T) {
	w := newWire(t)
	guarded := func(r *oncedv1.ClaimRequest) {
		r.Fingerprints = []string{fp("cj1", "x")}
		r.TwinGuard = &oncedv1.TwinGuard{Block: oncedv1.TwinGuard_BLOCK_UNSETTLED}
	}
	asks := func(want oncedv1.Outcome, key, tok string, change ...func(*oncedv1.ClaimRequest)) *oncedv1.ClaimResponse {
		t.Helper()
		w.clock.Advance(7 * time.Second)
		resp := w.claim(want, key, tok, change...)
		if got := resp.GetAnswerTime(); got == nil || !got.AsTime().Equal(w.clock.Wall()) {
			t.Errorf("%v at %v says %v", want, w.clock.Wall(), got)
		}
		return resp
	}

	first := asks(granted, "k", "a", guarded)
	if again := asks(granted, "k", "a", guarded); again.GetAnswerTime().AsTime().Sub(again.GetOperation().GetClaimTime().AsTime()) != 7*time.Second {
		t.Errorf("a first answer that is given again has the first time: %v", again)
	}
	asks(inProgress, "k", "b", guarded)
	asks(oncedv1.Outcome_OUTCOME_BLOCKED_BY_TWIN, "twin", "c", guarded)
	w.clock.Advance(time.Hour)
	asks(unresolved, "k", "b", guarded)
	taken := asks(oncedv1.Outcome_OUTCOME_TAKEN_OVER, "k", "b", guarded, takeOver(1))
	w.must(completed)(held{w: w, key: "k", token: "b", fence: taken.GetOperation().GetFence()}.complete("done"))
	w.clock.Advance(time.Hour)
	replay := asks(replayed, "k", "d", guarded)
	if age := replay.GetAnswerTime().AsTime().Sub(first.GetOperation().GetFirstClaimTime().AsTime()); age < 2*time.Hour {
		t.Errorf("the replay is %v old", age)
	}
	if err := w.grant("f", "a").failFinal(&oncedv1.Failure{Code: "C"}); err != nil {
		t.Fatal(err)
	}
	asks(oncedv1.Outcome_OUTCOME_FAILED, "f", "b")
	asks(unresolved, "old", "a", takeOver(1)) // of an absent key: HISTORY_LOST
}
