package onced_test

import (
	"testing"

	"github.com/onced/onced"
)

// formerRow is one row of the table of reports by a holder that has lost its
// claim.
type formerRow struct {
	name  string
	build func(*world)
	by    string // the former holder

	fact, unknown, notExecuted, didNotHappen, renew reportCell
}

var (
	lostSettled  = reportCell{refused: onced.RefusedClaimLost, alarm: onced.AlarmReportAfterSettled}
	lostAgain    = reportCell{refused: onced.RefusedClaimLost, alarm: onced.AlarmContradicted}
	contradicts  = lostBut(all(contradictedToo, doubtTimed), onced.AlarmContradicted)
	contraFrom   = lostBut(all(contradictedToo, unresolvedNow(onced.ReasonContradicted)), onced.AlarmContradicted)
	doubts       = lostBut(doubted, onced.AlarmNone)
	withdrawsNow = lostBut(all(doubted, unresolvedNow(onced.ReasonDeclared)), onced.AlarmNone)
)

// lostBut is CLAIM_LOST with doubt added.
func lostBut(change edit, alarm onced.Alarm) reportCell {
	return reportCell{refused: onced.RefusedClaimLost, changes: change, alarm: alarm}
}

// silent is a row whose former holder has said nothing of its effect. A fact
// contradicts, and nothing else leaves a trace.
func silent(name string, build func(*world), fact, unknown reportCell) formerRow {
	return formerRow{name, build, "first", fact, unknown, reportLost, reportLost, reportLost}
}

// said is a row whose former holder had said NOT_EXECUTED: a repeat of that is
// answered OK, and UNKNOWN takes it back.
func said(name string, build func(*world), fact, unknown reportCell) formerRow {
	return formerRow{name, build, "first", fact, unknown, repeated, reportLost, reportLost}
}

// judged is a row whose former holder had taken over and said DID_NOT_HAPPEN.
func judged(name string, then func(*world), fact, unknown reportCell) formerRow {
	build := func(w *world) {
		releasedByTaker(w)
		then(w)
	}
	return formerRow{name, build, "second", fact, unknown, reportLost, repeated, reportLost}
}

// oldGeneration says that a write leaves a lapsed claim of before a restore in
// its generation: doubt does not make it live again.
func oldGeneration(c reportCell) reportCell {
	c.changes = all(c.changes, restoredFlags, func(w *world, r *onced.Record) {
		r.Generation = w.record().Attempts[0].Fence >> 32
	})
	return c
}

func formerRows() []formerRow {
	restoredContra := lostBut(all(contradictedToo, restoredFlags, unresolvedNow(onced.ReasonContradicted)), onced.AlarmContradicted)
	return []formerRow{
		silent("LIVE, said nothing", liveTakenOver, contradicts, reportLost),
		said("LIVE, said NOT_EXECUTED", live, contradicts, doubts),
		said("LIVE, said NOT_EXECUTED, doubt already", liveDoubted, contradicts, reportLost),
		said("LIVE, contradicted already", liveContradicted, lostAgain, reportLost),
		silent("LAPSED, said nothing", then(liveTakenOver, lapse), contradicts, reportLost),
		said("LAPSED, said NOT_EXECUTED", then(live, lapse), contradicts, doubts),
		silent("LAPSED, restored, said nothing", then(liveTakenOver, restore), oldGeneration(contradicts), reportLost),
		said("LAPSED, restored, said NOT_EXECUTED", then(live, restore), oldGeneration(contradicts), reportLost),

		silent("DECLARED, said nothing", declaredInDoubt, contraFrom, reportLost),
		said("DECLARED, said NOT_EXECUTED", declared, contraFrom, doubts),
		silent("DECLARED, by NOT_EXECUTED under doubt", declaredByTaker, contraFrom, reportLost),
		said("DECLARED, by this holder's withdrawal", declaredByWithdrawal, contraFrom, reportLost),
		said("DECLARED, restored, said NOT_EXECUTED", then(declared, restore), restoredContra, reportLost),
		said("CONTRA", contradicted, lostAgain, reportLost),
		silent("CONTRA, from RELEASED", contradictedAfterVerdict, lostAgain, reportLost),

		said("RESTORED-R, said NOT_EXECUTED", then(released, restore), contraFrom, withdrawsNow),
		silent("RESTORED-R, said nothing", then(releasedByTaker, restore), contraFrom, reportLost),
		said("RELEASED, said NOT_EXECUTED", released, contraFrom, withdrawsNow),
		silent("RELEASED, said nothing", releasedByTaker, contraFrom, reportLost),
		said("RELEASED, by an operator", releasedByOperator, contraFrom, withdrawsNow),
		judged("RELEASED, said DID_NOT_HAPPEN", thirdIsReleased, contraFrom, withdrawsNow),
		judged("LIVE, said DID_NOT_HAPPEN", thirdClaims, contradicts, doubts),
		judged("DECLARED, said DID_NOT_HAPPEN", then(thirdClaims, thirdSays(onced.Unknown)), contraFrom, doubts),

		said("COMPLETED", completed, lostSettled, reportLost),
		silent("COMPLETED, said nothing", completedByTaker, lostSettled, reportLost),
		said("FAILED", failed, lostSettled, reportLost),
		said("COMPLETED, tombstone", then(completed, afterResultRetention), lostSettled, reportLost),

		{"absent, expired", then(completed, expire), "first", reportLost, reportLost, reportLost, reportLost, reportLost},
		{"UNREADABLE", then(live, unreadable), "first", reportUnread, reportUnread, reportUnread, reportUnread, reportUnread},
	}
}

func thirdIsReleased(w *world) {
	thirdClaims(w)
	w.fail("third", onced.NotExecuted)
}

// TestReportsOfFormerHolder walks the table of a fenced holder's reports.
func TestReportsOfFormerHolder(t *testing.T) {
	for _, row := range formerRows() {
		cells := []reportCell{row.fact, row.fact, row.notExecuted, row.unknown, row.didNotHappen, row.renew}
		for i, column := range reportColumns {
			t.Run(row.name+"/"+column.name, func(t *testing.T) {
				w := newWorld(t)
				row.build(w)
				w.checkReport(column, row.by, cells[i])
			})
		}
	}
}

// TestReportsOfUnknownToken: a token that the operation has never seen, and one
// that names another fence than its own, reports nothing in any state.
func TestReportsOfUnknownToken(t *testing.T) {
	states := map[string]func(*world){
		"LIVE": live, "LIVE, taken over": liveTakenOver, "LAPSED": then(live, lapse), "DECLARED": declared,
		"CONTRA": contradicted, "HISTORY": forgotten, "RESTORED-R": then(released, restore),
		"RELEASED": released, "RELEASED by an operator": releasedByOperator, "COMPLETED": completed, "FAILED": failed,
	}
	strangers := map[string]func(w *world) onced.Holder{
		"token never seen": func(w *world) onced.Holder {
			return onced.Holder{Token: token("a stranger"), Fence: w.record().Fence}
		},
		"present token, another fence": func(w *world) onced.Holder {
			return onced.Holder{Token: token("second"), Fence: w.record().Fence + 1}
		},
		"former token, the present fence": func(w *world) onced.Holder {
			return onced.Holder{Token: token("first"), Fence: w.record().Fence}
		},
		"fence without a token": func(w *world) onced.Holder { return onced.Holder{Fence: w.record().Fence} },
	}
	for state, build := range states {
		for who, holder := range strangers {
			for _, column := range reportColumns {
				t.Run(state+"/"+who+"/"+column.name, func(t *testing.T) {
					w := newWorld(t)
					build(w)
					before := copyRecord(w.record())
					op, err := column.report(w, holder(w))
					w.lost(err)
					if op != nil || w.plan.Alarm != onced.AlarmNone {
						t.Errorf("shown %+v, alarm %v", op, w.plan.Alarm)
					}
					w.wantChange(before, nil)
				})
			}
		}
	}
}
