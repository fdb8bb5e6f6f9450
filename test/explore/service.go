package main

import (
	"fmt"

	"github.com/onced/onced"
)

// service is the run of a step that no caller takes.
const service = -1

// clock lets a tick pass. An effect that must land before then stops it.
func (m *model) clock(w *world, out emit) {
	next := *w
	next.now++
	for i := range w.runs {
		if w.runs[i].effect == flying && w.runs[i].landBy <= next.now {
			return
		}
	}
	out(step{run: service, verb: "a tick passes"}, &next)
}

// operations are what may happen to the store: a restart, a backup, a restore
// of it, a sweep, and a build that cannot read the record.
func (m *model) operations(w *world, out emit) {
	if m.Restart && w.serving != w.now {
		next := *w
		next.serving = w.now
		out(step{run: service, verb: "the server restarts"}, &next)
	}
	if plan := m.sweep(m.view(w), m.policy); plan.Changes() {
		next := *w
		m.store(&next, plan)
		m.checkKept(w, &next)
		out(step{run: service, verb: "the sweep changes the record"}, &next)
	}
	if m.Unreadable && w.record != nil {
		next := *w
		next.unreadable = !w.unreadable
		out(step{run: service, verb: "another build serves"}, &next)
	}
	if w.unreadable {
		return
	}
	m.recovery(w, out)
}

func (m *model) recovery(w *world, out emit) {
	if m.Restores > 0 && w.backup == nil {
		next := *w
		next.backup = &snapshot{record: w.record, fences: w.fences, ghosts: w.ghosts}
		out(step{run: service, verb: "a backup is made"}, &next)
	}
	if w.backup != nil && w.restores < uint8(m.Restores) {
		out(step{run: service, verb: "the backup is restored"}, m.restore(w))
	}
	if m.EndBlind && w.blind {
		next := *w
		next.blind = false
		if w.absent() {
			for i := range w.runs {
				if w.effective(i) {
					next.ghosts[i].blindEnded, next.excused = true, true
				}
			}
		}
		out(step{run: service, verb: "an operator ends the blind period"}, &next)
	}
}

// restore puts the backup in place of the store: a new generation, fences above
// all earlier ones, and a blind period.
func (m *model) restore(w *world) *world {
	next := *w
	backup := uint8(w.backup.fences >> 4)
	next.generation = m.generation(w.lastGen, backup)
	next.lastGen = max(w.lastGen, next.generation)
	next.fences = firstFence(next.generation)
	if next.generation == backup {
		next.fences = w.backup.fences
	}
	next.record, next.ghosts = w.backup.record, w.backup.ghosts
	next.serving, next.blind = w.now, true
	next.decisions = [maxDecisions]decision{} // their calls end with the store that they were made to
	next.restores++
	return &next
}

// resolutions are what an operator may decide: that it happened, that no attempt
// had an effect, the same although a lease runs, and that it is to run anew.
var resolutions = []decision{
	{as: onced.ResolveCompleted}, {as: onced.ResolveReleased}, {as: onced.ResolveReleased, force: true}, {as: onced.ResolveReopen},
}

// operator makes decisions, and the network repeats those that were carried out.
func (m *model) operator(w *world, out emit) {
	for k := range w.decided {
		if w.decisions[k].as == 0 {
			continue
		}
		next, err := m.resolveOnce(w, int(k))
		if next.record != w.record {
			next.fail("S8", "a decision that was repeated changed the record")
		}
		out(step{run: service, verb: fmt.Sprintf("decision %d arrives again", k+1), note: noteOf(err)}, next)
	}
	if w.decided == uint8(m.Decisions) || w.absent() || w.unreadable {
		return
	}
	for _, d := range resolutions {
		m.decide(w, d, out)
	}
}

// decide makes a decision, by what the operator finds out: what has landed or is
// under way outside, and, when onced shows no live holder, that nobody is about
// to begin. Of a live one only onced knows.
func (m *model) decide(w *world, d decision, out emit) {
	op, _, _ := onced.Show(m.view(w), m.policy)
	live := op.State == onced.StatePending
	seen := func(i int) bool { return w.effective(i) && (!live || w.runs[i].effect != none) }
	falsely := d.force
	for i := range w.runs {
		falsely = falsely || d.as == onced.ResolveReleased && seen(i)
	}
	switch {
	case d.as == onced.ResolveCompleted && !w.happened():
		return // false, and no danger to anything but the operation itself
	case falsely && w.lies == uint8(m.Lies):
		return
	}
	made := *w
	d.etag = w.record.Etag(uint64(w.generation))
	made.decisions[made.decided] = d
	made.decided++
	if falsely {
		made.lies++
	}
	next, err := m.resolveOnce(&made, int(w.decided))
	if err != nil {
		next.decisions, next.decided = w.decisions, w.decided
	} else if d.as == onced.ResolveReleased || d.as == onced.ResolveReopen && w.record.State.Settled() {
		next.override(func(i int) bool { return seen(i) || d.force && w.effective(i) })
	}
	m.checkWords(next)
	verb := "an operator decides " + d.as.String()
	if falsely {
		verb += ", falsely or by force"
	}
	out(step{run: service, verb: verb, note: noteOf(err)}, next)
}

// override records an operator's decision to release or reopen: it overrules
// everything that was said, and answers for the effects of the runs in question.
func (w *world) override(answersFor func(int) bool) {
	for i := range w.ghosts {
		w.ghosts[i].overridden = true
		if answersFor(i) {
			w.ghosts[i].operatorSaid, w.excused = true, true
		}
	}
}

// resolveOnce brings a decision to the store.
func (m *model) resolveOnce(before *world, k int) (*world, error) {
	w := *before
	d := before.decisions[k]
	request := onced.ResolveRequest{
		Resolution: d.as, Force: d.force, Etag: d.etag, Evidence: evidence[k], Who: "operator",
	}
	if d.as == onced.ResolveCompleted {
		request.Result = operatorResult
	}
	plan, _, err := m.resolve(m.view(before), m.policy, request)
	m.store(&w, plan)
	if err != nil {
		m.checkRefusal(before, &w, plan)
	}
	return &w, err
}

// evidence tells the decisions apart, as their texts do.
var evidence = [maxDecisions]string{"1", "2"}

var operatorResult = onced.NewResult("text/plain", true, []byte("by an operator"))
