package main

import (
	"errors"

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
		return answeredOK
	case errors.As(err, &refusal):
		return string(refusal.Reason)
	default:
		return err.Error()
	}
}

const answeredOK = "OK"
