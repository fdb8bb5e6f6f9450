package onced_test

import (
	"fmt"
	"testing"

	"github.com/onced/onced"
)

// operatorCell is what one verb of an operator answers in one row, and what it
// changes beside leaving its trace. OK without changes leaves none.
type operatorCell struct {
	refused onced.RefusalReason
	changes edit
}

// operatorRow is one row of the table of operators' verbs.
type operatorRow struct {
	name  string
	build func(*world)
	shown onced.State // before the verb, for the audit trail

	completed, failed, released, reopen, erase operatorCell
}

var (
	settlesAs  = operatorCell{changes: settledWith(result(), nil, onced.SettledByOperator)}
	failsAs    = operatorCell{changes: settledWith(nil, failure(), onced.SettledByOperator)}
	releasesIt = operatorCell{changes: releasedNow(true)}
	sameThing  = operatorCell{}
	refusedIt  = operatorCell{refused: onced.RefusedReport}
	notFound   = operatorCell{refused: onced.RefusedNotFound}
	claimLive  = operatorCell{refused: onced.RefusedClaimLive}
	otherThing = operatorCell{refused: onced.RefusedAlreadySettled}
	unreadOp   = operatorCell{refused: onced.RefusedUnreadable}
	erases     = operatorCell{changes: bytesDropped}
	erasesFail = operatorCell{changes: all(bytesDropped, messageErased)}
	erasesMsg  = operatorCell{changes: messageErased}
)

// bytesDropped is a tombstone: what identifies the bytes stays.
func bytesDropped(_ *world, r *onced.Record) {
	for _, p := range []**onced.Result{&r.Result, detailsOf(r)} {
		if *p != nil {
			c := **p
			c.Presence, c.Bytes = onced.Dropped, nil
			*p = &c
		}
	}
}

func detailsOf(r *onced.Record) **onced.Result {
	if r.Failure == nil {
		return new(*onced.Result)
	}
	return &r.Failure.Details
}

func messageErased(_ *world, r *onced.Record) { r.Failure.Message, r.Failure.Erased = "", true }

func unsettledRow(name string, build func(*world)) operatorRow {
	return operatorRow{name, build, onced.StateUnresolved, settlesAs, failsAs, releasesIt, refusedIt, refusedIt}
}

func operatorRows() []operatorRow {
	released3 := func(name string, build func(*world)) operatorRow {
		return operatorRow{name, build, onced.StateReleased, settlesAs, failsAs, releasesIt, releasesIt, refusedIt}
	}
	completed5 := func(name string, build func(*world), erase operatorCell) operatorRow {
		return operatorRow{name, build, onced.StateCompleted, sameThing, otherThing, refusedIt, releasesIt, erase}
	}
	failed5 := func(name string, build func(*world), erase operatorCell) operatorRow {
		return operatorRow{name, build, onced.StateFailed, otherThing, sameThing, refusedIt, releasesIt, erase}
	}
	return []operatorRow{
		{"absent", nothing, 0, notFound, notFound, notFound, notFound, notFound},
		{"absent, expired", then(completed, expire), 0, notFound, notFound, notFound, notFound, notFound},
		{"LIVE", live, onced.StatePending, claimLive, claimLive, claimLive, refusedIt, refusedIt},
		{"LIVE, taken over", liveTakenOver, onced.StatePending, claimLive, claimLive, claimLive, refusedIt, refusedIt},
		unsettledRow("LAPSED", then(live, lapse)),
		unsettledRow("LAPSED, contradicted takeover", then(takenOverContradicted, lapse)),
		unsettledRow("LAPSED, restored", then(live, restore)),
		unsettledRow("DECLARED", declaredInDoubt),
		unsettledRow("DECLARED, restored", then(declared, restore)),
		unsettledRow("CONTRA", contradicted),
		unsettledRow("HISTORY", forgotten),
		unsettledRow("HISTORY, restored", then(forgotten, restore)),
		unsettledRow("RESTORED-R", then(released, restore)),
		released3("RELEASED", released),
		released3("RELEASED, by an operator before, for other reasons", then(released, releaseByOperator)),
		{"RELEASED, by an operator before, in the same words", releasedByOperator, onced.StateReleased, settlesAs, failsAs, sameThing, releasesIt, refusedIt},
		completed5("COMPLETED", completed, erases),
		completed5("COMPLETED, bytes expired and not swept", then(completed, resultExpires), erases),
		completed5("COMPLETED, tombstone", then(completed, afterResultRetention), sameThing),
		completed5("COMPLETED, restored", then(completed, restore), erases),
		failed5("FAILED", failed, erasesFail),
		failed5("FAILED, details dropped", then(failed, afterResultRetention), erasesMsg),
		failed5("FAILED, tombstone", then(failed, afterErasure), sameThing),
		{"UNREADABLE", then(live, unreadable), 0, unreadOp, unreadOp, unreadOp, unreadOp, unreadOp},
	}
}

func resultExpires(w *world) { w.advance(w.policy.ResultRetention) }

// operatorColumns are the verbs, without force.
var operatorColumns = []struct {
	name string
	verb string
	as   onced.Resolution // 0: erase
}{
	{"Resolve completed", "completed", onced.ResolveCompleted},
	{"Resolve failed", "failed", onced.ResolveFailed},
	{"Resolve released", "released", onced.ResolveReleased},
	{"Resolve reopen", "reopen", onced.ResolveReopen},
	{"EraseResult", "erase-result", 0},
}

// TestOperator walks the table of operators' verbs.
func TestOperator(t *testing.T) {
	for _, row := range operatorRows() {
		cells := []operatorCell{row.completed, row.failed, row.released, row.reopen, row.erase}
		for i, column := range operatorColumns {
			t.Run(row.name+"/"+column.name, func(t *testing.T) {
				w := newWorld(t)
				row.build(w)
				w.checkOperator(column.as, false, column.verb, row.shown, cells[i])
			})
		}
	}
}

// TestOperatorForce: force lets an operator decide while a lease runs; reopen is
// for what is settled, whatever the force.
func TestOperatorForce(t *testing.T) {
	cells := []operatorCell{settlesAs, failsAs, releasesIt, refusedIt}
	for name, build := range map[string]func(*world){"LIVE": live, "LIVE, taken over": liveTakenOver, "LIVE, contradicted": liveContradicted} {
		for i, want := range cells {
			t.Run(name+"/"+operatorColumns[i].name, func(t *testing.T) {
				w := newWorld(t)
				build(w)
				w.checkOperator(operatorColumns[i].as, true, operatorColumns[i].verb, onced.StatePending, want)
				// The holder stays the last one: its report is heard.
				if _, err := w.completeWith(w.holder("second"), result()); reason(t, err) == onced.RefusedClaimLost {
					t.Error("the holder has lost its claim to the operator")
				}
			})
		}
	}
}

// checkOperator makes one verb and compares answer, record and audit trail.
func (w *world) checkOperator(as onced.Resolution, force bool, verb string, shown onced.State, want operatorCell) {
	w.t.Helper()
	before, trail := copyRecord(w.record()), len(w.audit)
	var op *onced.Operation
	var err error
	if as == 0 {
		op, err = w.eraseWith(onced.EraseRequest{Evidence: "seen in the outside system", Who: "olga"})
	} else {
		q := resolution(as)
		q.Force = force
		op, err = w.resolveWith(q)
	}
	if got := reason(w.t, err); got != want.refused || (op == nil) != (want.refused != "") {
		w.t.Fatalf("refused %q, showing %+v; want %q", got, op, want.refused)
	}
	if want.changes == nil {
		w.wantChange(before, nil)
		if len(w.audit) != trail {
			w.t.Errorf("a trace of what was not done: %+v", w.audit[trail:])
		}
		return
	}
	w.wantChange(before, all(restoredUnsettled, want.changes, func(_ *world, r *onced.Record) {
		if as != 0 {
			r.LastResolve = &onced.LastResolve{Resolution: as, Content: r.SettledDigest, Evidence: "seen in the outside system"}
		}
	}))
	trace := onced.AuditEntry{
		Time: w.now, Who: "olga", Verb: verb, ID: w.id, Evidence: "seen in the outside system",
		Before: shown, After: w.record().State,
	}
	if len(w.audit) != trail+1 || w.audit[trail] != trace {
		w.t.Errorf("audit trail %+v, want %+v", w.audit[trail:], trace)
	}
}

// restoredUnsettled is what a restore makes of an unsettled record: its takeover
// may end no doubt any more.
func restoredUnsettled(w *world, r *onced.Record) {
	if r.State.Unsettled() && w.record().Fence>>32 != w.epoch.Generation {
		r.ByTakeover = false
	}
}

// TestTime walks the table of what time and a restore make of a row: what is
// shown, and what a sweep leaves.
func TestTime(t *testing.T) {
	const forever = 1000
	type moment struct {
		state  onced.State // 0: absent
		reason onced.Reason
	}
	pending, released := moment{state: onced.StatePending}, moment{state: onced.StateReleased}
	lapsed, declaredAs := moment{onced.StateUnresolved, onced.ReasonLapsed}, moment{onced.StateUnresolved, onced.ReasonDeclared}
	contra, lost := moment{onced.StateUnresolved, onced.ReasonContradicted}, moment{onced.StateUnresolved, onced.ReasonHistoryLost}
	done, gone := moment{state: onced.StateCompleted}, moment{}
	rows := []struct {
		name  string
		build func(*world)
		// now; when the lease has ended; after key retention; after a restore; and
		// after a restore and a thousand key retentions.
		now, later, expired, restored, forever moment
	}{
		{"LIVE", live, pending, lapsed, lapsed, lapsed, lapsed},
		{"LIVE, contradicted", liveContradicted, pending, contra, contra, contra, contra},
		{"DECLARED", declared, declaredAs, declaredAs, declaredAs, declaredAs, declaredAs},
		{"CONTRA", contradicted, contra, contra, contra, contra, contra},
		{"HISTORY", forgotten, lost, lost, lost, lost, lost},
		{"RELEASED", func(w *world) { live(w); w.fail("second", onced.NotExecuted) }, released, released, gone, lost, lost},
		{"COMPLETED", completed, done, done, gone, done, gone},
		{"FAILED", failed, moment{state: onced.StateFailed}, moment{state: onced.StateFailed}, gone, moment{state: onced.StateFailed}, gone},
	}
	for _, row := range rows {
		steps := []struct {
			name string
			pass func(*world)
			want moment
		}{
			{"now", nothing, row.now},
			{"lapse", func(w *world) { w.advance(w.show().LeaseRemaining) }, row.later},
			{"key retention", expire, row.expired},
			{"restore", restore, row.restored},
			{"restore and key retentions", func(w *world) {
				w.restore()
				w.advance(forever * w.policy.KeyRetention)
			}, row.forever},
		}
		for _, step := range steps {
			t.Run(fmt.Sprintf("%s/%s", row.name, step.name), func(t *testing.T) {
				w := newWorld(t)
				row.build(w)
				step.pass(w)
				for range 2 { // before and after the sweep
					op := w.show()
					if op == nil {
						op = &onced.Operation{}
					}
					if got := (moment{op.State, op.Reason}); got != step.want {
						t.Errorf("shown as %v/%v, want %v/%v", got.state, got.reason, step.want.state, step.want.reason)
					}
					if op.State != onced.StatePending && op.LeaseRemaining != 0 {
						t.Errorf("a lease of %v remains", op.LeaseRemaining)
					}
					w.sweep()
				}
				if (w.record() == nil) != (step.want == gone) {
					t.Errorf("the sweep left %+v", w.record())
				}
			})
		}
	}
}

// TestRestoreMakesDoubt: a restored unsettled operation is in doubt, and its
// takeover may not end the doubt.
func TestRestoreMakesDoubt(t *testing.T) {
	for name, build := range map[string]func(*world){"LIVE": live, "taken over": liveTakenOver, "DECLARED": declared, "CONTRA": contradicted, "HISTORY": forgotten} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			build(w)
			w.restore()
			if op := w.show(); !op.Doubt || op.ByTakeover {
				t.Errorf("doubt %v, by takeover %v", op.Doubt, op.ByTakeover)
			}
		})
	}
}
