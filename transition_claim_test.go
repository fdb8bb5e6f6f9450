package onced_test

import (
	"testing"
	"time"

	"github.com/onced/onced"
)

// claimCell is what one claim answers in one row, and what it changes.
type claimCell struct {
	refused  onced.RefusalReason
	outcome  onced.Outcome
	reason   onced.Reason // of the UNRESOLVED operation that is shown
	takeover onced.TakeoverRefusal
	changes  func(onced.ClaimRequest) edit // nil: nothing
	none     bool                          // the row cannot meet this claim
}

var (
	grants      = claimCell{outcome: onced.OutcomeGranted, changes: granted}
	grantsAnew  = claimCell{outcome: onced.OutcomeGranted, changes: func(c onced.ClaimRequest) edit { return all(bound(c), granted(c)) }}
	takesOver   = claimCell{outcome: onced.OutcomeTakenOver, changes: takenOver}
	forgets     = claimCell{outcome: onced.OutcomeUnresolved, reason: onced.ReasonHistoryLost, changes: historyLost}
	sameGrant   = claimCell{outcome: onced.OutcomeGranted}
	sameTaking  = claimCell{outcome: onced.OutcomeTakenOver}
	inProgress  = claimCell{outcome: onced.OutcomeInProgress}
	replayed    = claimCell{outcome: onced.OutcomeReplayed}
	failedCell  = claimCell{outcome: onced.OutcomeFailed}
	blocked     = claimCell{outcome: onced.OutcomeBlockedByTwin}
	claimLost   = claimCell{refused: onced.RefusedClaimLost}
	exhaustedBy = claimCell{refused: onced.RefusedAttempts}
	notReadable = claimCell{refused: onced.RefusedUnreadable}
	cannotBe    = claimCell{none: true}
)

func unresolved(why onced.Reason) claimCell {
	return claimCell{outcome: onced.OutcomeUnresolved, reason: why}
}

// notTaken is the UNRESOLVED answer to a takeover that does not apply.
func notTaken(why onced.Reason, refusal onced.TakeoverRefusal) claimCell {
	return claimCell{outcome: onced.OutcomeUnresolved, reason: why, takeover: refusal}
}

// claimRow is one row of the table: how a world gets there, what its claims
// carry, and the cells by column.
type claimRow struct {
	name   string
	begin  func(*world)              // up to the claim of "second", the present holder
	then   func(*world)              // what brings the row about; nil: begin did
	asking func(*onced.ClaimRequest) // nil: a request as usual

	plain       claimCell // a new token, take_over_attempt 0
	rerun       claimCell // the same under safe_to_rerun
	due         claimCell // a new token, take_over_attempt = attempt, due
	notDue      claimCell // the same, a millisecond before it is due
	nobody      claimCell // the same, due, and the policy lets nobody take over
	other       claimCell // a new token, take_over_attempt ≠ attempt
	notHeard    claimCell // the present token; nothing but the claim has come from it
	heard       claimCell // the present token after a Renew
	presentTake claimCell // the present token with take_over_attempt, under safe_to_rerun
	former      claimCell // the token of an older attempt
}

// absentRow is a row in which there is no record and so no known token.
func absentRow(name string, begin func(*world), asking func(*onced.ClaimRequest), plain claimCell) claimRow {
	return claimRow{
		name: name, begin: begin, asking: asking,
		plain: plain, rerun: plain, due: forgets, notDue: cannotBe, nobody: forgets, other: forgets,
		notHeard: cannotBe, heard: cannotBe, presentTake: cannotBe, former: cannotBe,
	}
}

// everyCell is a row in which all claims are answered alike.
func everyCell(name string, begin, then func(*world), c claimCell) claimRow {
	return claimRow{
		name: name, begin: begin, then: then,
		plain: c, rerun: c, due: c, notDue: cannotBe, nobody: c, other: c, notHeard: c, heard: c, presentTake: c, former: c,
	}
}

// liveRow is a claim whose lease runs: only its own token gets another answer
// than IN_PROGRESS.
func liveRow(name string, begin func(*world), notHeard claimCell) claimRow {
	r := everyCell(name, begin, nil, inProgress)
	r.notHeard, r.presentTake, r.former = notHeard, notHeard, claimLost
	return r
}

// unresolvedRow is an unresolved operation: takeovers are what moves it.
func unresolvedRow(name string, begin, then func(*world), why onced.Reason, rerun claimCell) claimRow {
	here := unresolved(why)
	return claimRow{
		name: name, begin: begin, then: then,
		plain: here, rerun: rerun, due: takesOver,
		notDue:   notTaken(why, onced.TakeoverRefusedNotYet),
		nobody:   notTaken(why, onced.TakeoverRefusedPolicy),
		other:    notTaken(why, onced.TakeoverRefusedOtherAttempt),
		notHeard: here, heard: here, presentTake: here, former: claimLost,
	}
}

// releasedRow is a released operation: a new token is granted whatever it asks.
func releasedRow(name string, begin, then func(*world), c claimCell) claimRow {
	r := everyCell(name, begin, then, c)
	r.notHeard, r.heard, r.presentTake, r.former = claimLost, claimLost, claimLost, claimLost
	return r
}

// withoutHolder takes the columns away that need a known token.
func (r claimRow) withoutHolder() claimRow {
	r.notHeard, r.heard, r.presentTake, r.former = cannotBe, cannotBe, cannotBe, cannotBe
	return r
}

// afterReport takes the column away in which nothing has come from the holder.
func (r claimRow) afterReport() claimRow {
	r.notHeard = cannotBe
	return r
}

func claimRows() []claimRow {
	lapsed, lost := onced.ReasonLapsed, onced.ReasonHistoryLost
	old := func(c *onced.ClaimRequest) { c.KeyTime = start.Add(-31 * 24 * time.Hour) }
	keyless := func(c *onced.ClaimRequest) { c.KeyTime = time.Time{} }
	guarded := func(c *onced.ClaimRequest) { c.Guard = &onced.TwinGuard{Block: onced.BlockUnsettled} }
	oldGuarded := func(c *onced.ClaimRequest) { old(c); guarded(c) }

	long := unresolvedRow("LAPSED, 16 attempts", exhausted, lapse, lapsed, unresolved(lapsed))
	long.due = exhaustedBy
	blockedReleased := releasedRow("RELEASED, twin blocks", then(released, twinClaims), nil, blocked)
	blockedReleased.asking = guarded

	return []claimRow{
		absentRow("absent, memory covers it", nothing, nil, grantsAnew),
		absentRow("absent, key expired, memory covers it", then(completed, expire), func(c *onced.ClaimRequest) { c.KeyTime = time.Time{} }, grantsAnew),
		absentRow("absent, key expired, key older than memory", then(completed, expire), nil, forgets),
		absentRow("absent, key older than memory", nothing, old, forgets),
		absentRow("absent, blind period, key from before its end", restore, nil, forgets),
		absentRow("absent, blind period, key of unknown age", restore, keyless, forgets),
		absentRow("absent, twin blocks", twinClaims, guarded, blocked),
		absentRow("absent, twin blocks, key older than memory", twinClaims, oldGuarded, forgets),

		liveRow("LIVE", live, sameGrant),
		liveRow("LIVE, taken over", liveTakenOver, sameTaking),
		liveRow("LIVE, taken over, contradicted", takenOverContradicted, sameTaking),
		liveRow("LIVE, doubt on a plain grant", liveDoubted, unresolved(onced.ReasonDeclared)),
		liveRow("LIVE, contradicted plain grant", liveContradicted, unresolved(onced.ReasonContradicted)),

		unresolvedRow("LAPSED", live, lapse, lapsed, takesOver),
		unresolvedRow("LAPSED, taken over", liveTakenOver, lapse, lapsed, takesOver),
		unresolvedRow("LAPSED, doubt on a plain grant", liveDoubted, lapse, lapsed, takesOver),
		unresolvedRow("LAPSED, contradicted", liveContradicted, lapse, onced.ReasonContradicted, unresolved(onced.ReasonContradicted)),
		unresolvedRow("LAPSED, restored", live, restore, lapsed, takesOver),
		unresolvedRow("LAPSED, restored takeover", liveTakenOver, restore, lapsed, takesOver),
		long,
		unresolvedRow("DECLARED", live, secondSays(onced.Unknown), onced.ReasonDeclared, takesOver).afterReport(),
		unresolvedRow("DECLARED, by NOT_EXECUTED under doubt", liveTakenOver, secondSays(onced.NotExecuted), onced.ReasonDeclared, takesOver).afterReport(),
		unresolvedRow("DECLARED, by a withdrawn NOT_EXECUTED", releasedByOperator, withdraw, onced.ReasonDeclared, takesOver),
		unresolvedRow("DECLARED, restored", live, then(secondSays(onced.Unknown), restore), onced.ReasonDeclared, takesOver).afterReport(),
		unresolvedRow("CONTRA", live, then(secondSays(onced.Unknown), contradict), onced.ReasonContradicted, unresolved(onced.ReasonContradicted)).afterReport(),
		unresolvedRow("CONTRA, from RELEASED", releasedByOperator, contradict, onced.ReasonContradicted, unresolved(onced.ReasonContradicted)),
		unresolvedRow("HISTORY", forgotten, nil, lost, unresolved(lost)).withoutHolder(),
		unresolvedRow("HISTORY, restored", forgotten, restore, lost, unresolved(lost)).withoutHolder(),
		unresolvedRow("RESTORED-R", releasedByOperator, restore, lost, unresolved(lost)),
		unresolvedRow("RESTORED-R, by NOT_EXECUTED", live, then(secondSays(onced.NotExecuted), restore), lost, unresolved(lost)).afterReport(),

		releasedRow("RELEASED", live, secondSays(onced.NotExecuted), grants).afterReport(),
		releasedRow("RELEASED, by DID_NOT_HAPPEN", liveTakenOver, secondSays(onced.DidNotHappen), grants).afterReport(),
		releasedRow("RELEASED, by an operator", releasedByOperator, nil, grants),
		releasedRow("RELEASED, reopened", reopened, nil, grants),
		releasedRow("RELEASED, 16 attempts since the last operator release", exhausted, secondSays(onced.NotExecuted), exhaustedBy).afterReport(),
		blockedReleased,

		everyCell("COMPLETED", live, secondCompletes, replayed),
		everyCell("COMPLETED, restored", live, then(secondCompletes, restore), replayed),
		everyCell("COMPLETED, tombstone", live, then(secondCompletes, afterResultRetention), replayed),
		everyCell("FAILED", live, secondSays(onced.Final), failedCell),
		everyCell("FAILED, tombstone", live, then(secondSays(onced.Final), afterErasure), failedCell),
		everyCell("UNREADABLE", live, unreadable, notReadable),
	}
}

func withdraw(w *world) { w.fenced("first", onced.Unknown) }

func contradict(w *world) { w.fencedComplete("first") }

// twinClaims lets another key of the same act be claimed.
func twinClaims(w *world) {
	own := w.id
	w.id.Key = "twin of " + own.Key
	c := request("the twin's caller")
	c.Guard = &onced.TwinGuard{Block: onced.BlockUnsettled}
	w.wantOutcome(c, onced.OutcomeGranted)
	w.id = own
}

// expire lets the key be forgotten. Nothing has been swept yet, and a key that
// was minted at the test's start is now older than memory.
func expire(w *world) { w.advance(w.policy.KeyRetention) }

// TestClaim walks the table of claims: rows are what the operation is, columns
// what is claimed and by whom.
func TestClaim(t *testing.T) {
	for _, row := range claimRows() {
		columns := []struct {
			name string
			want claimCell
			by   string
			take func(attempt uint32) uint32 // nil: a plain claim
			prep func(*world)
		}{
			{"new token", row.plain, "third", nil, nothing},
			{"new token, safe_to_rerun", row.rerun, "third", nil, safeToRerun},
			{"new token takes over, due", row.due, "third", thatAttempt, waitTillDue},
			{"new token takes over, not due", row.notDue, "third", thatAttempt, waitTillAlmostDue},
			{"new token takes over, nobody may", row.nobody, "third", thatAttempt, then(takeoverByNobody, waitTillDue)},
			{"new token takes over another attempt", row.other, "third", nextAttempt, waitTillDue},
			{"present token, not heard", row.notHeard, "second", nil, nothing},
			{"present token, heard", row.heard, "second", nil, nothing},
			{"present token takes over", row.presentTake, "second", thatAttempt, then(safeToRerun, waitTillDue)},
			{"former token", row.former, "first", nil, nothing},
		}
		for _, column := range columns {
			if column.want.none {
				continue
			}
			t.Run(row.name+"/"+column.name, func(t *testing.T) {
				w := newWorld(t)
				row.reach(w, column.name == "present token, heard")
				column.prep(w)
				c := request(column.by)
				if row.asking != nil {
					row.asking(&c)
				}
				if column.take != nil {
					c.TakeOverAttempt = column.take(w.attempt())
				}
				w.checkClaim(c, column.want, column.by == "second")
			})
		}
	}
}

// reach builds the row; heard lets the present holder renew on the way.
func (r claimRow) reach(w *world, heard bool) {
	r.begin(w)
	if heard && w.pending() {
		w.renew("second")
	}
	if r.then != nil {
		r.then(w)
	}
}

func (w *world) pending() bool {
	r := w.record()
	return r != nil && r.State == onced.StatePending
}

func (w *world) attempt() uint32 {
	if w.unreadable {
		return 1
	}
	if op := w.show(); op != nil {
		return op.Attempt
	}
	return 1
}

func thatAttempt(attempt uint32) uint32 { return attempt }

func nextAttempt(attempt uint32) uint32 { return attempt + 1 }

func safeToRerun(w *world) { w.policy.SafeToRerun = true }

func takeoverByNobody(w *world) { w.policy.Takeover = onced.TakeoverByNobody }

// waitTillDue lets a takeover become due where one can.
func waitTillDue(w *world) {
	if w.unreadable {
		return
	}
	if op := w.show(); op != nil && op.State == onced.StateUnresolved {
		w.advance(2 * time.Minute)
	}
}

// waitTillAlmostDue stops a millisecond before a takeover becomes due.
func waitTillAlmostDue(w *world) {
	c := request("somebody who asks when")
	c.TakeOverAttempt = w.attempt()
	w.advance(w.wantOutcome(c, onced.OutcomeUnresolved).RetryAfter - time.Millisecond)
}

// checkClaim makes one claim and compares its answer and the record with the cell.
func (w *world) checkClaim(c onced.ClaimRequest, want claimCell, present bool) {
	w.t.Helper()
	before := copyRecord(w.record())
	if !w.unreadable && w.show() == nil {
		before = nil // absent, swept or not
	}
	answer, err := w.claimWith(c)
	if got := reason(w.t, err); got != want.refused || answer.Outcome != want.outcome {
		w.t.Fatalf("answered %v, refused %q; want %v, %q", answer.Outcome, got, want.outcome, want.refused)
	}
	if want.changes == nil && before == nil {
		if w.plan.Changes() {
			w.t.Errorf("an absent key was changed: %+v", w.plan)
		}
	} else if want.changes == nil {
		w.wantChange(before, nil)
	} else {
		w.wantChange(before, want.changes(c))
	}
	if want.refused != "" {
		return
	}
	if answer.TakeoverRefused != want.takeover {
		w.t.Errorf("takeover refused: %v, want %v", answer.TakeoverRefused, want.takeover)
	}
	if holds := present || w.plan.UsesFence && want.outcome != onced.OutcomeUnresolved; answer.Yours != holds {
		w.t.Errorf("yours = %v, want %v", answer.Yours, holds)
	}
	w.checkShown(answer, want)
}

// checkShown compares the operation that an answer shows with what is stored.
func (w *world) checkShown(answer onced.ClaimAnswer, want claimCell) {
	w.t.Helper()
	op, r := answer.Operation, w.record()
	if want.outcome == onced.OutcomeBlockedByTwin {
		if answer.Twin == "" || (op == nil) != (r == nil) {
			w.t.Errorf("blocked by twin %q, showing %+v", answer.Twin, op)
		}
		return
	}
	states := map[onced.Outcome]onced.State{
		onced.OutcomeGranted: onced.StatePending, onced.OutcomeTakenOver: onced.StatePending,
		onced.OutcomeInProgress: onced.StatePending, onced.OutcomeUnresolved: onced.StateUnresolved,
		onced.OutcomeReplayed: onced.StateCompleted, onced.OutcomeFailed: onced.StateFailed,
	}
	if op.State != states[want.outcome] || op.Reason != want.reason {
		w.t.Errorf("shown as %v/%v, want %v/%v", op.State, op.Reason, states[want.outcome], want.reason)
	}
	if op.Attempt != r.Attempt || op.Fence != r.Fence || !op.LeaseEnd.Equal(r.LeaseEnd) || op.Etag() != r.Etag(w.epoch.Generation) {
		w.t.Errorf("shown %+v of %+v", op, r)
	}
	wait := time.Duration(0)
	switch {
	case want.outcome == onced.OutcomeInProgress:
		wait = op.LeaseRemaining
	case want.takeover == onced.TakeoverRefusedNotYet:
		wait = 50 * time.Millisecond // the least, and a millisecond is left
	}
	if answer.RetryAfter != wait {
		w.t.Errorf("retry after %v, want %v", answer.RetryAfter, wait)
	}
}
