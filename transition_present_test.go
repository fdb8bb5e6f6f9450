package onced_test

import (
	"testing"
	"time"

	"github.com/onced/onced"
)

// reportCell is what one report answers in one row, and what it changes beside
// being remembered as accepted. An accepted report without changes is a repeat,
// or weaker than what the attempt has said: nothing at all is written.
type reportCell struct {
	refused onced.RefusalReason
	alarm   onced.Alarm
	changes edit
}

// column is one report, of the holder that is named when it is made.
type column struct {
	name     string
	report   func(w *world, h onced.Holder) (*onced.Operation, error)
	accepted func(a *onced.Attempt) // what an accepted one leaves with its attempt
	fact     bool
}

// The columns of the tables of reports.
var reportColumns = []column{
	{name: "Complete", fact: true, report: func(w *world, h onced.Holder) (*onced.Operation, error) {
		return w.completeWith(h, result())
	}, accepted: func(a *onced.Attempt) {
		a.Facts = append(a.Facts, onced.Fact{Digest: result().Identity()})
	}},
	{name: "Fail FINAL", fact: true, report: failColumn(onced.Final), accepted: func(a *onced.Attempt) {
		a.Facts = append(a.Facts, onced.Fact{Failed: true, Digest: failure().Identity()})
	}},
	{name: "Fail NOT_EXECUTED", report: failColumn(onced.NotExecuted), accepted: func(a *onced.Attempt) {
		a.Reports = a.Reports.With(onced.NotExecuted)
	}},
	{name: "Fail UNKNOWN", report: failColumn(onced.Unknown), accepted: func(a *onced.Attempt) {
		a.Reports = a.Reports.With(onced.Unknown)
	}},
	{name: "Fail DID_NOT_HAPPEN", report: failColumn(onced.DidNotHappen), accepted: func(a *onced.Attempt) {
		a.Reports = a.Reports.With(onced.DidNotHappen)
	}},
	{name: "Renew", report: func(w *world, h onced.Holder) (*onced.Operation, error) {
		return w.renewWith(h, 45*time.Second, nil)
	}, accepted: func(*onced.Attempt) {}},
}

func failColumn(d onced.Disposition) func(*world, onced.Holder) (*onced.Operation, error) {
	return func(w *world, h onced.Holder) (*onced.Operation, error) { return w.failWith(h, failReport(d)) }
}

// checkReport makes one report of the named attempt's holder and compares the
// answer and the record with the cell.
func (w *world) checkReport(c column, name string, want reportCell) {
	w.t.Helper()
	before := copyRecord(w.record())
	op, err := c.report(w, w.holder(name))
	if got := reason(w.t, err); got != want.refused {
		w.t.Fatalf("refused %q (%v), want %q", got, err, want.refused)
	}
	if w.plan.Alarm != want.alarm {
		w.t.Errorf("alarm %v, want %v", w.plan.Alarm, want.alarm)
	}
	if by := w.plan.AlarmBy; (by != nil) != (want.alarm != onced.AlarmNone) || by != nil && by.Token != token(name) {
		w.t.Errorf("alarm %v by %+v", w.plan.Alarm, by)
	}
	if (op == nil) != (want.refused != "") {
		w.t.Errorf("showed %+v with refusal %q", op, want.refused)
	}
	if op != nil && op.Etag() != w.record().Etag(w.epoch.Generation) {
		w.t.Errorf("showed another version than the stored one: %+v", op)
	}
	if want.changes == nil || want.refused != "" {
		w.wantChange(before, want.changes)
		return
	}
	w.wantChange(before, all(want.changes, func(_ *world, r *onced.Record) {
		for i := range r.Attempts {
			if r.Attempts[i].Token == token(name) {
				c.accepted(&r.Attempts[i])
			}
		}
		r.Heard = r.Heard || !c.fact
	}))
}

// presentRow is one row of the table of the present holder's reports.
type presentRow struct {
	name  string
	build func(*world)

	complete, final, notExecuted, unknown, didNotHappen, renew reportCell
}

var (
	settles      = reportCell{changes: settledWith(result(), nil, onced.SettledByHolder)}
	settlesLate  = reportCell{changes: settledWith(result(), nil, onced.SettledByHolder), alarm: onced.AlarmSettledAfterResolve}
	settlesOld   = reportCell{changes: all(restoredFlags, settles.changes)}
	fails        = reportCell{changes: settledWith(nil, failure(), onced.SettledByHolder)}
	failsLate    = reportCell{changes: settledWith(nil, failure(), onced.SettledByHolder), alarm: onced.AlarmSettledAfterResolve}
	failsOld     = reportCell{changes: all(restoredFlags, fails.changes)}
	releases     = reportCell{changes: releasedNow(false)}
	declares     = reportCell{changes: unresolvedNow(onced.ReasonDeclared)}
	declaresOld  = reportCell{changes: all(unresolvedNow(onced.ReasonDeclared), restoredFlags)}
	contraNow    = reportCell{changes: unresolvedNow(onced.ReasonContradicted)}
	contraStill  = reportCell{changes: unresolvedStill(onced.ReasonContradicted)}
	renews       = reportCell{changes: renewed}
	revivesOld   = reportCell{changes: all(renewed, restoredFlags)}
	changesOnly  = reportCell{changes: func(*world, *onced.Record) {}} // accepted; the operation stays as it is
	repeated     = reportCell{}
	reportNo     = reportCell{refused: onced.RefusedReport}
	settledElse  = reportCell{refused: onced.RefusedAlreadySettled}
	reportLost   = reportCell{refused: onced.RefusedClaimLost}
	reportUnread = reportCell{refused: onced.RefusedUnreadable}
)

// renewed is a lease prolonged by the Renew of the column.
func renewed(w *world, r *onced.Record) {
	grace := w.epoch.ServingSince.Add(min(r.Lease, time.Minute))
	for _, end := range []time.Time{grace, w.now.Add(45 * time.Second)} {
		if end.After(r.LeaseEnd) {
			r.LeaseEnd = end
		}
	}
	r.Lease, r.Heard = 45*time.Second, true
}

// running is a row of a claim, live or lapsed, in which every fact settles.
func running(name string, build func(*world), notExecuted, unknown, didNotHappen, renew reportCell) presentRow {
	return presentRow{name, build, settles, fails, notExecuted, unknown, didNotHappen, renew}
}

// everyReport is a row in which all reports are answered alike.
func everyReport(name string, build func(*world), c reportCell) presentRow {
	return presentRow{name, build, c, c, c, c, c, c}
}

func presentRows() []presentRow {
	rows := []presentRow{
		running("LIVE, no doubt", live, releases, declares, reportNo, renews),
		running("LIVE, doubt by takeover", liveTakenOver, declares, declares, releases, renews),
		running("LIVE, doubt on a plain grant, fenced report", liveDoubted, declares, declares, reportNo, renews),
		running("LIVE, doubt on a plain grant, restored and revived", then(live, restore, secondRenews), declares, declares, reportNo, renews),
		running("LIVE, contradicted", liveContradicted, contraStill, contraNow, reportNo, renews),
		running("LIVE, contradicted takeover", takenOverContradicted, contraStill, contraNow, reportNo, renews),

		running("LAPSED, no doubt", then(live, lapse), releases, declares, reportNo, renews),
		running("LAPSED, doubt by takeover", then(liveTakenOver, lapse), declares, declares, releases, renews),
		running("LAPSED, doubt on a plain grant, fenced report", then(liveDoubted, lapse), declares, declares, reportNo, renews),
		running("LAPSED, doubt on a plain grant, restored", then(live, restore), declaresOld, declaresOld, reportNo, revivesOld),
		{"LAPSED, doubt on a restored takeover", then(liveTakenOver, restore), settlesOld, failsOld, declaresOld, declaresOld, reportNo, revivesOld},
		running("LAPSED, contradicted", then(liveContradicted, lapse), contraStill, contraNow, reportNo, renews),
		running("LAPSED, contradicted before it was taken over", then(contradictedThenTakenOver, lapse), contraStill, contraNow, reportNo, renews),

		running("DECLARED, by UNKNOWN", declared, reportNo, repeated, reportNo, reportLost),
		running("DECLARED, by NOT_EXECUTED under doubt", declaredByTaker, repeated, declares, reportNo, reportLost),
		running("DECLARED, by a former holder's withdrawal", declaredByWithdrawal, repeated, declares, reportNo, reportLost),
		running("DECLARED, nothing heard of the holder", then(releasedByOperator, withdraw), reportNo, declares, reportNo, reportLost),
		{"DECLARED, restored", then(declaredByTaker, restore), settlesOld, failsOld, repeated, declaresOld, reportNo, reportLost},

		running("CONTRA, after UNKNOWN", contradicted, reportNo, repeated, reportNo, reportLost),
		running("CONTRA, after NOT_EXECUTED", contradictedReleased, repeated, contraNow, reportNo, reportLost),
		running("CONTRA, after DID_NOT_HAPPEN", contradictedAfterVerdict, reportNo, contraNow, repeated, reportLost),

		everyReport("HISTORY", forgotten, reportLost),
		running("RESTORED-R, by NOT_EXECUTED", then(released, restore), repeated, declares, reportNo, reportLost),
		running("RESTORED-R, by DID_NOT_HAPPEN", then(releasedByTaker, restore), repeated, declares, repeated, reportLost),

		running("RELEASED, by NOT_EXECUTED", released, repeated, declares, reportNo, reportLost),
		running("RELEASED, by DID_NOT_HAPPEN", releasedByTaker, changesOnly, declares, repeated, reportLost),
		{"RELEASED by Resolve", releasedByOperator, settlesLate, failsLate, changesOnly, declares, reportNo, reportLost},
		{"RELEASED by reopen, Complete had been accepted", reopened, repeated, failsLate, repeated, repeated, repeated, reportLost},
		{"RELEASED by reopen, FINAL had been accepted", reopenedFailed, settlesLate, repeated, repeated, repeated, repeated, reportLost},
		{"RELEASED by reopen, nothing had been accepted", then(completedByOperator, reopen), settlesLate, failsLate, changesOnly, declares, reportNo, reportLost},

		{"COMPLETED", completed, repeated, settledElse, settledElse, settledElse, settledElse, settledElse},
		{"COMPLETED, restored", then(completed, restore), repeated, settledElse, settledElse, settledElse, settledElse, settledElse},
		{"COMPLETED, tombstone", then(completed, afterResultRetention), repeated, settledElse, settledElse, settledElse, settledElse, settledElse},
		{"COMPLETED, after UNKNOWN", then(declared, secondCompletes), repeated, settledElse, settledElse, repeated, settledElse, settledElse},
		{"COMPLETED, by an operator", completedByOperator, changesOnly, settledElse, settledElse, settledElse, settledElse, settledElse},
		{"FAILED", failed, settledElse, repeated, settledElse, settledElse, settledElse, settledElse},
		{"FAILED, tombstone", then(failed, afterErasure), settledElse, repeated, settledElse, settledElse, settledElse, settledElse},
		{"FAILED, by an operator", failedByOperator, settledElse, changesOnly, settledElse, settledElse, settledElse, settledElse},

		everyReport("absent, expired", then(completed, expire), reportLost),
		everyReport("UNREADABLE", then(live, unreadable), reportUnread),
	}
	return rows
}

func secondRenews(w *world) { w.renew("second") }

func reopen(w *world) { w.resolve(onced.ResolveReopen) }

// TestReportsOfPresentHolder walks the table of the last holder's reports.
func TestReportsOfPresentHolder(t *testing.T) {
	for _, row := range presentRows() {
		cells := []reportCell{row.complete, row.final, row.notExecuted, row.unknown, row.didNotHappen, row.renew}
		for i, column := range reportColumns {
			t.Run(row.name+"/"+column.name, func(t *testing.T) {
				w := newWorld(t)
				row.build(w)
				w.checkReport(column, "second", cells[i])
			})
		}
	}
}

// TestReportsOnAbsentKey: without a record there is nothing to report on, and
// nothing is written.
func TestReportsOnAbsentKey(t *testing.T) {
	for _, column := range reportColumns {
		t.Run(column.name, func(t *testing.T) {
			w := newWorld(t)
			w.checkReport(column, "nobody", reportCell{refused: onced.RefusedClaimLost})
		})
	}
}

// TestReportRepeatsInEveryState: what an attempt has had accepted is answered
// OK again, unchanged, whatever has happened since: also from a holder that has
// lost its claim.
func TestReportRepeatsInEveryState(t *testing.T) {
	later := map[string]func(*world){
		"RELEASED":    nothing,
		"LIVE":        thirdClaims,
		"LAPSED":      then(thirdClaims, lapse),
		"DECLARED":    then(thirdClaims, thirdSays(onced.Unknown)),
		"CONTRA":      then(thirdClaims, thirdSays(onced.Unknown), contradict),
		"COMPLETED":   then(thirdClaims, thirdCompletes),
		"reopened":    then(thirdClaims, thirdCompletes, reopen),
		"FAILED":      then(thirdClaims, thirdSays(onced.Final)),
		"RESTORED-R":  restore,
		"restored":    then(thirdClaims, restore),
		"taken over":  then(thirdClaims, func(w *world) { w.takeOver("fourth") }),
		"by operator": releaseByOperator,
	}
	accepted := map[string]struct {
		reach  func(*world)
		column column
	}{
		"NOT_EXECUTED":   {released, reportColumns[2]},
		"DID_NOT_HAPPEN": {releasedByTaker, reportColumns[4]},
		"UNKNOWN":        {then(declared, releaseByOperator), reportColumns[3]},
		"Complete":       {reopened, reportColumns[0]},
		"FINAL":          {reopenedFailed, reportColumns[1]},
	}
	for said, a := range accepted {
		for state, happen := range later {
			t.Run(said+"/"+state, func(t *testing.T) {
				w := newWorld(t)
				a.reach(w)
				happen(w)
				w.checkReport(a.column, "second", repeated)
			})
		}
	}
}

func thirdClaims(w *world) { w.claim("third", onced.OutcomeGranted) }

func thirdCompletes(w *world) { w.complete("third") }

func thirdSays(d onced.Disposition) func(*world) {
	return func(w *world) { w.fail("third", d) }
}

func releaseByOperator(w *world) {
	q := resolution(onced.ResolveReleased)
	q.Evidence += ", once more"
	_, err := w.resolveWith(q)
	w.ok(err)
}

// TestRenewInTheGrace: a renewal never shortens the time that a restart has given
// to a claim, either.
func TestRenewInTheGrace(t *testing.T) {
	w := newWorld(t)
	c := request("first")
	c.Lease = time.Hour
	w.wantOutcome(c, onced.OutcomeGranted)
	w.advance(2 * time.Hour)
	w.restart()
	w.advance(time.Second)
	op, err := w.renewWith(w.holder("first"), 2*time.Second, nil)
	w.ok(err)
	if want := time.Minute - time.Second; op.LeaseRemaining != want {
		t.Errorf("renewed by 2 s, a second after a restart: %v remain, want the %v that remained", op.LeaseRemaining, want)
	}
	w.advance(time.Minute - time.Second - 1)
	w.claim("second", onced.OutcomeInProgress)
	w.advance(1)
	w.claim("second", onced.OutcomeUnresolved)
}
