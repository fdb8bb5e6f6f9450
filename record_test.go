package onced_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onced/onced"
)

// TestDue: unsettled work stands by the end of its lease or the moment of its
// doubt, everything else by its next expiry.
func TestDue(t *testing.T) {
	lease, result, key := 30*time.Second, 7*day, 30*day
	for _, test := range []struct {
		name  string
		build func(*world)
		kind  onced.DueKind
		after time.Duration // from start
	}{
		{"LIVE", live, onced.DueUnsettled, lease},
		{"LAPSED", then(live, lapse), onced.DueUnsettled, lease},
		{"DECLARED", then(live, lapse, secondSays(onced.Unknown)), onced.DueUnsettled, lease},
		{"HISTORY", forgotten, onced.DueUnsettled, 0},
		{"RELEASED", released, onced.DueExpiry, key},
		{"COMPLETED", completed, onced.DueExpiry, result},
		{"COMPLETED, tombstone", then(completed, afterErasure), onced.DueExpiry, key},
		{"FAILED with details", failed, onced.DueExpiry, result},
		{"FAILED, tombstone", then(failed, afterResultRetention), onced.DueExpiry, key},
	} {
		w := newWorld(t)
		test.build(w)
		kind, at := w.record().Due()
		if kind != test.kind || !at.Equal(start.Add(test.after)) {
			t.Errorf("%s: %v at %v, want %v at %v", test.name, kind, at, test.kind, start.Add(test.after))
		}
	}
}

// TestNames: what stands on the wire, in metrics and in the audit trail; a
// number without a name is not shown as one that has.
func TestNames(t *testing.T) {
	for _, test := range []struct {
		value fmt.Stringer
		want  string
	}{
		{onced.StatePending, "PENDING"},
		{onced.StateUnresolved, "UNRESOLVED"},
		{onced.StateReleased, "RELEASED"},
		{onced.StateCompleted, "COMPLETED"},
		{onced.StateFailed, "FAILED"},
		{onced.State(0), "UNSPECIFIED"},
		{onced.State(200), "UNSPECIFIED"},
		{onced.ReasonNone, "NONE"},
		{onced.ReasonLapsed, "LAPSED"},
		{onced.ReasonDeclared, "DECLARED"},
		{onced.ReasonHistoryLost, "HISTORY_LOST"},
		{onced.ReasonContradicted, "CONTRADICTED"},
		{onced.OutcomeGranted, "GRANTED"},
		{onced.OutcomeReplayed, "REPLAYED"},
		{onced.OutcomeFailed, "FAILED"},
		{onced.OutcomeInProgress, "IN_PROGRESS"},
		{onced.OutcomeUnresolved, "UNRESOLVED"},
		{onced.OutcomeTakenOver, "TAKEN_OVER"},
		{onced.OutcomeBlockedByTwin, "BLOCKED_BY_TWIN"},
		{onced.NotExecuted, "NOT_EXECUTED"},
		{onced.Final, "FINAL"},
		{onced.Unknown, "UNKNOWN"},
		{onced.DidNotHappen, "DID_NOT_HAPPEN"},
		{onced.TakeoverNotRefused, "NONE"},
		{onced.TakeoverRefusedNotYet, "NOT_YET"},
		{onced.TakeoverRefusedPolicy, "POLICY"},
		{onced.TakeoverRefusedOtherAttempt, "OTHER_ATTEMPT"},
		{onced.SettledByNobody, "NOBODY"},
		{onced.SettledByHolder, "HOLDER"},
		{onced.SettledByOperator, "OPERATOR"},
		{onced.TakeoverByNobody, "NOBODY"},
		{onced.TakeoverByOperator, "OPERATOR"},
		{onced.TakeoverByCaller, "CALLER"},
		{onced.Stored, "STORED"},
		{onced.Omitted, "OMITTED"},
		{onced.Dropped, "DROPPED"},
		{onced.ResolveCompleted, "completed"},
		{onced.ResolveFailed, "failed"},
		{onced.ResolveReleased, "released"},
		{onced.ResolveReopen, "reopen"},
		{onced.AlarmNone, "none"},
		{onced.AlarmContradicted, "contradicted"},
		{onced.AlarmReportAfterSettled, "report_after_settled"},
		{onced.AlarmSettledAfterResolve, "settled_after_resolve"},
	} {
		if got := test.value.String(); got != test.want {
			t.Errorf("%T(%d) is called %q, want %q", test.value, test.value, got, test.want)
		}
	}
}

// TestStateKinds: settled, unsettled, or neither.
func TestStateKinds(t *testing.T) {
	for state := range onced.State(8) {
		settled := state == onced.StateCompleted || state == onced.StateFailed
		unsettled := state == onced.StatePending || state == onced.StateUnresolved
		known := settled || unsettled || state == onced.StateReleased
		if state.Settled() != settled || state.Unsettled() != unsettled || state.Known() != known {
			t.Errorf("%v (%d): settled %v, unsettled %v, known %v", state, state, state.Settled(), state.Unsettled(), state.Known())
		}
	}
}

// TestPayloads: a record's payloads are its own, so that a store which keeps their
// bytes apart can take them out.
func TestPayloads(t *testing.T) {
	if got := (&onced.Record{}).Payloads(); len(got) != 0 {
		t.Errorf("an empty record has %d", len(got))
	}
	if got := (&onced.Record{Failure: &onced.Failure{Code: "c"}}).Payloads(); len(got) != 0 {
		t.Errorf("a failure without details has %d", len(got))
	}
	payload := func(s string) *onced.Result { return onced.NewResult("text/plain", true, []byte(s)) }
	r := &onced.Record{
		Result: payload("result"), Failure: &onced.Failure{Details: payload("details")},
		Checkpoint: &onced.Checkpoint{Payload: *payload("checkpoint")},
	}
	var got []string
	for _, p := range r.Payloads() {
		got = append(got, string(p.Bytes))
		p.Bytes = nil
	}
	if fmt.Sprint(got) != "[result details checkpoint]" || r.Result.Bytes != nil || r.Failure.Details.Bytes != nil || r.Checkpoint.Payload.Bytes != nil {
		t.Errorf("got %q, and the record is left with %v", got, r)
	}
}

// TestAttemptsLeft counts from the last release by an operator, and never below zero.
func TestAttemptsLeft(t *testing.T) {
	for _, c := range []struct{ attempt, base, left uint32 }{
		{0, 0, 16}, {1, 0, 15}, {16, 0, 0}, {17, 0, 0}, {16, 16, 16}, {20, 17, 13}, {1 << 31, 0, 0},
	} {
		if got := (&onced.Record{Attempt: c.attempt, AttemptBase: c.base}).AttemptsLeft(); got != c.left {
			t.Errorf("attempt %d after a release at %d: %d left, want %d", c.attempt, c.base, got, c.left)
		}
	}
}
