package main

import (
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
