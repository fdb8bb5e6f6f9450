package main

import (
	"github.com/onced/onced"
)

// dispositions of the messages that are sent with Fail.
var dispositions = map[message]onced.Disposition{
	notExecuted: onced.NotExecuted, unknown: onced.Unknown, didNotHappen: onced.DidNotHappen, final: onced.Final,
}

// kindOf is the message that is sent with a disposition.
func kindOf(d onced.Disposition) message {
	for kind, as := range dispositions {
		if as == d {
			return kind
		}
	}
	return 0
}

// messageNames are the messages as the trace shows them.
var messageNames = map[message]string{
	notExecuted: "NOT_EXECUTED", unknown: "UNKNOWN", didNotHappen: "DID_NOT_HAPPEN",
	completed: "Complete", final: "FINAL", renewed: "Renew",
}

// deliverReport brings a report of a run to the store.
func (m *model) deliverReport(before *world, i int, kind message) (step, *world) {
	w := *before
	plan, err := m.report(before, i, kind)
	m.store(&w, plan)
	m.checkKept(before, &w)
	if err != nil {
		m.checkRefusal(before, &w, plan)
	}
	if m.attributable(before, i) {
		m.checkRepeat(before, &w, i, kind, plan, err)
		// What is answered OK and changes nothing has said nothing new.
		w.listen(before, i, kind, err == nil && plan.Changes())
	}
	m.checkWords(&w)
	return step{run: i, verb: messageNames[kind] + " arrives", note: noteOf(err)}, &w
}

func (m *model) report(before *world, i int, kind message) (onced.Plan, error) {
	h := onced.Holder{Token: m.digests[i], Fence: before.runs[i].fence.real()}
	v := m.view(before)
	var plan onced.Plan
	var err error
	switch kind {
	case completed:
		plan, _, err = m.complete(v, m.policy, h, m.results[i])
	case renewed:
		lease := leaseTicks * tick
		if m.ShortRenew {
			lease = 0
		}
		plan, _, err = m.renew(v, m.policy, h, lease, nil)
	default:
		request := onced.FailRequest{Disposition: dispositions[kind]}
		if kind == final {
			request.Failure = m.failures[i]
		}
		plan, _, err = m.fail(v, m.policy, h, request)
	}
	return plan, err
}

// attributable reports whether a report of the run can be matched with an
// attempt of the present history. One that cannot tells onced nothing.
func (m *model) attributable(w *world, i int) bool {
	expired := w.record != nil && w.absent()
	return !expired && !w.unreadable && w.ghosts[i].fence != 0 && w.ghosts[i].fence == w.runs[i].fence
}

// checkRepeat: what this attempt has had accepted is accepted again and changes
// nothing, and nor does anything weaker after its outcome.
func (m *model) checkRepeat(before, w *world, i int, kind message, plan onced.Plan, err error) {
	accepted := before.ghosts[i].accepted
	if kind == renewed {
		return
	}
	repeated := accepted&kind != 0
	if repeated && err != nil {
		w.fail("S8", "a report that was accepted is refused when it is repeated")
	}
	outdone := kind&weaker != 0 && accepted&facts != 0 && before.holder() == i
	if (repeated || outdone) && plan.Changes() {
		w.fail("S8", "a report that says nothing new changed the record")
	}
}

// listen updates the ghosts after a report that onced could attribute.
func (w *world) listen(before *world, i int, kind message, accepted bool) {
	g := &w.ghosts[i]
	news := g.accepted&kind == 0 && (kind&weaker == 0 || g.accepted&facts == 0)
	if accepted {
		g.accepted |= kind
	}
	switch {
	case !news || kind == renewed:
	case kind&facts != 0:
		g.word, g.overridden, g.falseVerdict, g.operatorSaid = effective, false, false, false
	case kind == unknown:
		w.doubt(i, before.holder() == i)
	case accepted && kind == notExecuted:
		g.word = max(g.word, noEffect)
		w.excused = w.excused || g.word == noEffect && w.effective(i)
	case accepted && kind == didNotHappen:
		g.word = max(g.word, noEffect)
		w.overrule(i)
	}
}

// doubt records that a run does not know. That overrules what others have found
// out only if it takes back its own word, or comes from the last holder.
func (w *world) doubt(i int, holder bool) {
	g := &w.ghosts[i]
	if holder || g.word == noEffect {
		g.overridden = false
	}
	g.word = max(g.word, doubtful)
	if w.runs[i].lied && g.accepted&didNotHappen != 0 {
		for j := range w.ghosts {
			w.ghosts[j].falseVerdict = false
		}
	}
}

// overrule records the verdict of a takeover's holder: no attempt had its
// effect. It does not speak against an effect that was reported.
func (w *world) overrule(i int) {
	for j := range w.ghosts {
		g := &w.ghosts[j]
		if j == i || g.word == effective {
			continue
		}
		g.overridden = true
		if w.runs[i].lied && w.effective(j) {
			g.falseVerdict, w.excused = true, true
		}
	}
}
