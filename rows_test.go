package onced_test

import (
	"fmt"
	"time"

	"github.com/onced/onced"
)

// The builders below bring an empty world into one row of the transition table.
// Where the row has a holder, "second" is the present one; where it says so,
// "first" is a former one. A builder ends at the first moment of its row.

// live: attempt 1 said NOT_EXECUTED, attempt 2 was granted. No doubt.
func live(w *world) {
	w.claim("first", onced.OutcomeGranted)
	w.fail("first", onced.NotExecuted)
	w.claim("second", onced.OutcomeGranted)
}

// liveTakenOver: attempt 1 lapsed without a word, attempt 2 took over.
func liveTakenOver(w *world) {
	w.claim("first", onced.OutcomeGranted)
	w.takeOver("second")
}

// liveDoubted: attempt 2 was granted after NOT_EXECUTED, which attempt 1 then
// took back.
func liveDoubted(w *world) {
	live(w)
	w.fenced("first", onced.Unknown)
}

// liveContradicted: attempt 2 was granted after NOT_EXECUTED, and then attempt 1
// reported its effect.
func liveContradicted(w *world) {
	live(w)
	w.fencedComplete("first")
}

// takenOverContradicted: attempt 2 took over, and then attempt 1 reported its
// effect.
func takenOverContradicted(w *world) {
	liveTakenOver(w)
	w.fencedComplete("first")
}

// contradictedThenTakenOver: attempt 2 said UNKNOWN, attempt 1 reported its
// effect, and only then "second" took over.
func contradictedThenTakenOver(w *world) {
	w.claim("zeroth", onced.OutcomeGranted)
	w.fail("zeroth", onced.NotExecuted)
	w.claim("first", onced.OutcomeGranted)
	w.fail("first", onced.Unknown)
	w.fencedComplete("zeroth")
	w.takeOver("second")
}

// declared: attempt 2 said UNKNOWN; attempt 1 had said NOT_EXECUTED.
func declared(w *world) {
	live(w)
	w.fail("second", onced.Unknown)
}

// declaredByTaker: attempt 2 took over and said NOT_EXECUTED of itself alone.
func declaredByTaker(w *world) {
	liveTakenOver(w)
	w.fail("second", onced.NotExecuted)
}

// declaredInDoubt: attempt 2 took over and said UNKNOWN.
func declaredInDoubt(w *world) {
	liveTakenOver(w)
	w.fail("second", onced.Unknown)
}

// declaredByWithdrawal: two attempts said NOT_EXECUTED, and then attempt 1 took
// its word back.
func declaredByWithdrawal(w *world) {
	released(w)
	w.fenced("first", onced.Unknown)
}

// contradicted: attempt 2 said UNKNOWN, and then attempt 1 reported its effect.
func contradicted(w *world) {
	declared(w)
	w.fencedComplete("first")
}

// contradictedReleased: RELEASED, and then attempt 1 reported its effect.
func contradictedReleased(w *world) {
	released(w)
	w.fencedComplete("first")
}

// contradictedAfterVerdict: attempt 2 took over and said DID_NOT_HAPPEN, and
// then attempt 1 reported its effect.
func contradictedAfterVerdict(w *world) {
	releasedByTaker(w)
	w.fencedComplete("first")
}

// forgotten: the first claim came with a key older than the store's memory.
func forgotten(w *world) {
	c := request("first")
	c.KeyTime = w.epoch.HistoryStart.Add(-time.Hour)
	w.wantOutcome(c, onced.OutcomeUnresolved)
}

// released: attempts 1 and 2 said NOT_EXECUTED.
func released(w *world) {
	live(w)
	w.fail("second", onced.NotExecuted)
}

// releasedByTaker: attempt 2 took over and said DID_NOT_HAPPEN.
func releasedByTaker(w *world) {
	liveTakenOver(w)
	w.fail("second", onced.DidNotHappen)
}

// releasedByOperator: attempt 2 was granted and has said nothing; its holder is
// dead, an operator found that it had no effect.
func releasedByOperator(w *world) {
	live(w)
	q := resolution(onced.ResolveReleased)
	q.Force = true
	_, err := w.resolveWith(q)
	w.ok(err)
}

// reopened: attempt 2 completed, and an operator lets the operation run anew.
func reopened(w *world) {
	completed(w)
	w.resolve(onced.ResolveReopen)
}

// reopenedFailed: attempt 2 failed for good, and an operator reopened.
func reopenedFailed(w *world) {
	failed(w)
	w.resolve(onced.ResolveReopen)
}

// completed: attempt 2 reported the result; attempt 1 had said NOT_EXECUTED.
func completed(w *world) {
	live(w)
	w.complete("second")
}

// completedByTaker: attempt 2 took over and found that the effect had happened.
func completedByTaker(w *world) {
	liveTakenOver(w)
	w.complete("second")
}

// failed: attempt 2 reported a final failure.
func failed(w *world) {
	live(w)
	w.fail("second", onced.Final)
}

// completedByOperator and failedByOperator: attempt 2 lapsed, and an operator
// settled.
func completedByOperator(w *world) {
	live(w)
	w.lapse()
	w.resolve(onced.ResolveCompleted)
}

func failedByOperator(w *world) {
	live(w)
	w.lapse()
	w.resolve(onced.ResolveFailed)
}

// exhausted: attempts 1 ("first") to 15 said NOT_EXECUTED and attempt 16
// ("second") runs.
func exhausted(w *world) {
	for n := 1; n < onced.MaxAttempts; n++ {
		name := fmt.Sprint("attempt ", n)
		if n == 1 {
			name = "first"
		}
		w.claim(name, onced.OutcomeGranted)
		w.fail(name, onced.NotExecuted)
	}
	w.claim("second", onced.OutcomeGranted)
}

// What can happen to a row to make it another one.

func nothing(*world) {}

func lapse(w *world) { w.lapse() }

func restore(w *world) { w.restore() }

func secondSays(d onced.Disposition) func(*world) {
	return func(w *world) { w.fail("second", d) }
}

func secondCompletes(w *world) { w.complete("second") }

// afterResultRetention and afterErasure make tombstones of settled operations.
func afterResultRetention(w *world) {
	w.advance(w.policy.ResultRetention)
	w.sweep()
}

func afterErasure(w *world) {
	_, err := w.eraseWith(onced.EraseRequest{Evidence: "a request of the data subject", Who: "olga"})
	w.ok(err)
}

func unreadable(w *world) { w.unreadable = true }

// then makes a builder out of several steps.
func then(steps ...func(*world)) func(*world) {
	return func(w *world) {
		for _, step := range steps {
			step(w)
		}
	}
}

// fenced makes a former holder's report, which must lose.
func (w *world) fenced(name string, d onced.Disposition) {
	w.t.Helper()
	_, err := w.failWith(w.holder(name), failReport(d))
	w.lost(err)
}

func (w *world) fencedComplete(name string) {
	w.t.Helper()
	_, err := w.completeWith(w.holder(name), result())
	w.lost(err)
}

func (w *world) lost(err error) {
	w.t.Helper()
	if got := reason(w.t, err); got != onced.RefusedClaimLost {
		w.t.Fatalf("a former holder was answered %q, want CLAIM_LOST", got)
	}
}
