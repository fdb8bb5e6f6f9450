package main

import (
	"fmt"
	"slices"

	"github.com/onced/onced"
)

// property is something that must hold in every state, or on every step.
type property struct{ name, text string }

// properties are what the walk checks. The first two are the promise; the others
// are what keeps it true, and what callers and operators may rely on.
var properties = []property{
	{"S1", "no two effects, unless a lie or an operator's override stands behind the second"},
	{"S2", "a plain grant only when no other attempt has had or can still have an effect"},
	{"S3", "a settled operation never changes by itself, and everybody is given its first outcome"},
	{"S4", "PENDING and UNRESOLVED never become absent"},
	{"S5", "a refusal changes nothing; it may add doubt"},
	{"S6", "fences are unique and increase over generations; a token gets one attempt"},
	{"S7", "nothing is RELEASED while an attempt's last word is that it does not know, or an outcome, and nobody has overruled it"},
	{"S8", "what was accepted is accepted again and changes nothing, nor does a weaker report after an outcome"},
	{"S9", "a takeover applies to the attempt that it named, after every effect that it could miss; no rerun of what may have an outcome"},
	{"S10", "a record that cannot be read is neither granted, swept nor rewritten"},
}

// meaning is the text of a property.
func meaning(name string) string {
	i := slices.IndexFunc(properties, func(p property) bool { return p.name == name })
	return properties[i].text
}

// checkKept: what is unsettled stays, what is settled stays as it is. It holds
// for every step but a restore and an operator's decision.
func (m *model) checkKept(before, w *world) {
	if before.record == nil {
		return
	}
	was, is := before.record, w.record
	if was.State.Unsettled() && (is == nil || is.Attempt < was.Attempt || len(is.Attempts) < len(was.Attempts)) {
		w.fail("S4", "an unsettled operation was forgotten")
	}
	if was.State.Settled() && !before.absent() &&
		(is == nil || is.State != was.State || is.SettledDigest != was.SettledDigest) {
		w.fail("S3", "a settled operation changed by itself")
	}
}

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
		// Runs that share a token cannot be told apart: only one that waits counts.
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

// checkRefusal: a refusal changes nothing but that it may add doubt.
func (m *model) checkRefusal(before, w *world, plan onced.Plan) {
	if !plan.Changes() {
		return
	}
	if plan.Delete || plan.UsesFence || plan.Put == nil || before.record == nil {
		w.fail("S5", "a refusal granted, deleted or created something")
		return
	}
	was, is := before.record, w.record
	state := m.showsSame(before, w) || was.State == onced.StateReleased && is.State == onced.StateUnresolved
	doubt := (is.Doubt || !was.Doubt) && (is.Contradicted || !was.Contradicted)
	if !state || !doubt || was.State.Settled() ||
		is.Attempt != was.Attempt || is.Fence != was.Fence || is.Lease != was.Lease || !is.LeaseEnd.Equal(was.LeaseEnd) ||
		is.Subject != was.Subject || !is.KeyTime.Equal(was.KeyTime) || !slices.EqualFunc(is.Attempts, was.Attempts, sameAttempt) {
		w.fail("S5", "a refusal changed more than doubt")
	}
}

// showsSame reports whether the operation is in the same state in both worlds, as
// everybody sees it.
func (m *model) showsSame(a, b *world) bool {
	was, _, errWas := onced.Show(m.view(a), m.policy)
	is, _, errIs := onced.Show(m.view(b), m.policy)
	return errWas == nil && errIs == nil && was != nil && is != nil && was.State == is.State
}

func sameAttempt(a, b onced.Attempt) bool {
	return a.Number == b.Number && a.Token == b.Token && a.Fence == b.Fence &&
		a.Reports == b.Reports && slices.Equal(a.Facts, b.Facts)
}

// checkWords: nothing is stored as RELEASED against an attempt's last word.
func (m *model) checkWords(w *world) {
	if w.unreadable || w.absent() || w.record.State != onced.StateReleased {
		return
	}
	for i, g := range w.ghosts {
		if g.word >= doubtful && !g.overridden {
			said := "that it does not know"
			if g.word == effective {
				said = "an outcome"
			}
			w.fail("S7", "RELEASED although "+m.name(i)+" has reported "+said)
		}
	}
}

// checkEffects: no two effects by honest callers. It is checked when an effect
// lands.
func (m *model) checkEffects(w *world) {
	count := 0
	for i := range w.runs {
		if w.runs[i].effect == landed {
			count++
		}
	}
	if count > 1 && !w.excused {
		w.fail("S1", "the effect happened twice")
	}
}
