package main

import (
	"errors"
	"fmt"

	"github.com/onced/onced"
)

// deliverClaim brings the claim of a run to the store. It may be the first time
// or the tenth, and the run may be long over.
func (m *model) deliverClaim(before *world, i int) (step, *world) {
	w := *before
	r := &w.runs[i]
	request := onced.ClaimRequest{
		Token: m.digests[i], Lease: leaseTicks * tick, TakeOverAttempt: uint32(r.takes),
	}
	if !m.NoKeyTime {
		request.KeyTime = at(0)
	}
	plan, a, err := m.claim(m.view(before), m.policy, request)
	m.store(&w, plan)
	m.checkClaim(before, &w, i, plan, a, err)
	if err != nil {
		m.checkRefusal(before, &w, plan)
		return step{run: i, verb: "claim arrives", note: noteOf(err)}, &w
	}
	if plan.UsesFence && (a.Outcome == onced.OutcomeGranted || a.Outcome == onced.OutcomeTakenOver) {
		g := &w.ghosts[i]
		*g = ghost{fence: fenceOf(plan.Put.Fence), falseVerdict: g.falseVerdict, operatorSaid: g.operatorSaid}
	}
	if l := licenceOf(a, r.takes != 0); l != noLicence && r.phase == claiming {
		r.answer = answer{
			licence: l, fence: fenceOf(a.Operation.Fence),
			deadline: r.sentAt + int16(a.Operation.LeaseRemaining/tick),
		}
	}
	return step{run: i, verb: "claim arrives", note: a.Outcome.String()}, &w
}

// licenceOf reads an answer as the client does. Whatever is not listed means:
// do not execute.
func licenceOf(a onced.ClaimAnswer, asked bool) licence {
	switch {
	case a.Outcome == onced.OutcomeGranted:
		return toRun
	case a.Outcome == onced.OutcomeTakenOver && asked:
		return toFindOut
	case a.Outcome == onced.OutcomeTakenOver:
		return toRerun
	case a.Outcome == onced.OutcomeUnresolved && a.Yours:
		return toWithdraw
	default:
		return noLicence
	}
}

// noteOf is what a transition answered beside an outcome: OK, or why it refused.
func noteOf(err error) string {
	var refusal *onced.Refusal
	switch {
	case err == nil:
		return accepted
	case errors.As(err, &refusal):
		return string(refusal.Reason)
	default:
		return err.Error()
	}
}

const accepted = "OK"

// checkClaim checks what must hold of every answer to a claim.
func (m *model) checkClaim(before, w *world, i int, plan onced.Plan, a onced.ClaimAnswer, err error) {
	m.checkKept(before, w)
	if !before.absent() && !before.unreadable && before.record.State.Settled() {
		checkReplay(before, w, a, err)
	}
	if err != nil {
		return
	}
	takes := before.runs[i].takes
	switch a.Outcome {
	case onced.OutcomeGranted:
		if !m.KeepToken || before.runs[i].phase == claiming {
			checkGrant(before, w, i, m.name, takes == 0)
		}
	case onced.OutcomeTakenOver:
		if plan.UsesFence {
			checkTakeover(before, w, i, m.name)
		}
	case onced.OutcomeUnresolved:
		if w.absent() {
			w.fail("S4", "an operation that was answered UNRESOLVED is absent")
		}
	}
	expired := before.record != nil && before.absent()
	if plan.UsesFence && before.ghosts[i].fence != 0 && !expired {
		w.fail("S6", fmt.Sprintf("token %s got a second attempt", m.name(i)))
	}
	if plan.Changes() && !plan.UsesFence {
		w.fail("S5", "a claim that was not granted changed the record")
	}
}

// checkGrant: a plain grant, given or repeated, while no other attempt has had
// or can still have an effect, unless somebody else answers for it.
func checkGrant(before, w *world, i int, name func(int) string, plain bool) {
	for j := range w.runs {
		if j == i || !before.effective(j) {
			continue
		}
		if !before.ghosts[j].excuses(plain) {
			what := "can still have its effect"
			if before.runs[j].effect == landed {
				what = "has had its effect"
			}
			w.fail("S2", fmt.Sprintf("%s is granted although %s %s", name(i), name(j), what))
		}
	}
}

// excuses reports whether onced was told, falsely, that there is nothing to
// take into account. The end of a blind period speaks for plain claims alone:
// who names an attempt knows that there was one.
func (g *ghost) excuses(plain bool) bool {
	return g.word == noEffect || g.falseVerdict || g.operatorSaid || plain && g.blindEnded
}

// checkTakeover: a takeover applies to the attempt that it named, and only when
// everything that came before has landed or never will. One that nobody asked
// for meets neither a history that is lost nor an effect that was reported.
func checkTakeover(before, w *world, i int, name func(int) string) {
	takes := uint32(before.runs[i].takes)
	if takes == 0 {
		for j, g := range before.ghosts {
			if g.word == effective && !g.overridden {
				w.fail("S9", fmt.Sprintf("%s may rerun although %s has reported its effect", name(i), name(j)))
			}
		}
		if before.absent() || before.record.Reason == onced.ReasonHistoryLost {
			w.fail("S9", fmt.Sprintf("%s may rerun an operation whose outcome may have been forgotten", name(i)))
		}
		return
	}
	if before.absent() || takes != before.record.Attempt {
		w.fail("S9", fmt.Sprintf("%s took over another attempt than %d, which it named", name(i), takes))
	}
	for j := range before.runs {
		if j != i && before.mayAct(j) && !before.ghosts[j].excuses(false) {
			w.fail("S9", fmt.Sprintf("%s took over while %s can still have its effect", name(i), name(j)))
		}
	}
}

// checkReplay: everybody is given the first outcome of a settled operation.
func checkReplay(before, w *world, a onced.ClaimAnswer, err error) {
	want := onced.OutcomeReplayed
	if before.record.State == onced.StateFailed {
		want = onced.OutcomeFailed
	}
	switch {
	case err != nil || a.Outcome != want:
		w.fail("S3", fmt.Sprintf("a settled operation answered %v, %v", a.Outcome, err))
	case a.Operation.SettledDigest != before.record.SettledDigest:
		w.fail("S3", "a replay differs from the first outcome")
	}
}
