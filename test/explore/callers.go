package main

// step is one event, for people: who, what and how it was answered.
type step struct {
	run  int // -1: the store, its clock or its operator
	verb string
	note string
}

// emit receives a step and the world after it.
type emit func(step, *world)

// steps hands out every step that is possible in a world. Their order depends on
// nothing but the world, so that a step can be found again by its number.
func (m *model) steps(w *world, out emit) {
	for i := range m.runCount() {
		m.begin(w, i, out)
		if w.runs[i].phase == idle {
			continue
		}
		m.process(w, i, out)
		m.network(w, i, out)
		m.outside(w, i, out)
	}
	m.clock(w, out)
	m.operations(w, out)
	m.operator(w, out)
}

// begin lets a caller mint its next token. Its former run, wherever it stands,
// is a process that has crashed or gives up.
func (m *model) begin(w *world, i int, out emit) {
	first := i%m.Tokens == 0
	if w.runs[i].phase != idle || !first && w.runs[i-1].phase == idle {
		return
	}
	claim := func(takes uint8, verb string) {
		next := *w
		if !first {
			former := &next.runs[i-1]
			former.phase, former.answer = crashed, answer{}
		}
		next.runs[i] = run{phase: claiming, takes: takes, sentAt: w.now}
		out(step{run: i, verb: verb}, &next)
	}
	claim(0, "sends Claim")
	switch {
	case !m.Takeover || m.KeepToken:
	case w.absent() && m.EndBlind:
		claim(1, "sends Claim taking over attempt 1, of which it knew")
	case !w.absent() && w.record != nil && w.record.State.Unsettled():
		claim(uint8(w.record.Attempt), "sends Claim taking over the newest attempt")
	}
}

// process lets the process of a run act by the client's algorithm.
func (m *model) process(w *world, i int, out emit) {
	switch w.runs[i].phase {
	case claiming:
		m.await(w, i, out)
	case running:
		m.execute(w, i, out)
	case reconciling:
		m.reconcile(w, i, out)
	case over:
		if m.Amend {
			m.amend(w, i, out)
		}
	}
}

// await re-sends the claim or takes its answer up.
func (m *model) await(w *world, i int, out emit) {
	r := w.runs[i]
	if r.sentAt != w.now {
		next := *w
		next.runs[i].sentAt = w.now
		out(step{run: i, verb: "re-sends Claim"}, &next)
	}
	if r.answer.licence == noLicence || r.answer.licence == toWithdraw && m.KeepToken {
		return // nothing has come, or a process that cannot know what its former self did
	}
	next := *w
	n := &next.runs[i]
	n.fence, n.deadline, n.answer = r.answer.fence, r.answer.deadline, answer{}
	var verb string
	switch r.answer.licence {
	case toRun, toRerun:
		n.phase, n.rerun, verb = running, r.answer.licence == toRerun, "learns that it may run"
	case toFindOut:
		n.phase, n.tookOver, verb = reconciling, true, "learns that it may find out"
	case toWithdraw:
		n.phase, n.sent, verb = over, notExecuted, "learns that its lease is over before it started, sends NOT_EXECUTED"
	}
	out(step{run: i, verb: verb}, &next)
}

// execute is what the holder of a grant may do: begin its effect while its own lease
// clock runs, and report, truthfully or not.
func (m *model) execute(w *world, i int, out emit) {
	r := w.runs[i]
	prepared := !m.Hold && (!m.KeepToken || w.ghosts[i].accepted&renewed != 0)
	if r.effect == none && w.now < r.deadline && prepared {
		next := *w
		next.runs[i].effect, next.runs[i].landBy = flying, r.deadline+landTicks
		next.excused = w.excused || r.rerun
		out(step{run: i, verb: "begins its effect"}, &next)
	}
	m.renewing(w, i, out)
	m.say(w, i, unknown, true, out)
	switch r.effect {
	case none:
		m.say(w, i, notExecuted, true, out)
		if m.PlainDeny && !w.happened() {
			m.say(w, i, didNotHappen, true, out)
		}
	case flying:
		m.say(w, i, notExecuted, false, out)
	case landed:
		m.say(w, i, completed, true, out)
		m.say(w, i, notExecuted, false, out)
	case vanished:
		m.say(w, i, notExecuted, true, out)
		if m.Final {
			m.say(w, i, final, true, out)
		}
	}
}

// reconcile is what the holder of a takeover may do: ask the outside system and
// say what it found, or give up.
func (m *model) reconcile(w *world, i int, out emit) {
	m.renewing(w, i, out)
	m.say(w, i, didNotHappen, !w.happened(), out)
	if w.happened() {
		m.say(w, i, completed, true, out)
	}
	m.say(w, i, unknown, true, out)
	m.say(w, i, notExecuted, true, out)
}

// amend is what a run may add to its report: a fact that it has learned, or that
// it was wrong.
func (m *model) amend(w *world, i int, out emit) {
	r := w.runs[i]
	said := func(kinds message) bool { return r.sent&kinds != 0 }
	if r.effect == landed && !said(facts) {
		m.say(w, i, completed, true, out)
	}
	if said(weaker|facts) && !said(unknown) {
		m.say(w, i, unknown, true, out)
	}
	if said(unknown) && !said(notExecuted) {
		m.say(w, i, notExecuted, r.effect == none || r.effect == vanished, out)
	}
	if said(unknown) && r.tookOver && !said(didNotHappen) {
		m.say(w, i, didNotHappen, !w.happened(), out)
	}
}

// say sends a report, which ends what the run does. A false one is a lie and
// counts as such.
func (m *model) say(w *world, i int, kind message, truthful bool, out emit) {
	if !truthful && w.lies == uint8(m.Lies) || m.Says != 0 && m.Says&kind == 0 {
		return
	}
	next := *w
	r := &next.runs[i]
	r.phase, r.deadline = over, 0
	r.sent |= kind
	if r.effect == flying {
		// It is timed from this report, unless its lease ends first.
		r.landBy = min(r.landBy, w.now+landTicks)
	}
	verb := "sends " + messageNames[kind]
	if !truthful {
		next.lies++
		r.lied = r.lied || kind == didNotHappen
		verb += ", which is false"
	}
	out(step{run: i, verb: verb}, &next)
}

// renewing sends a Renew, whose answer may be lost or not.
func (m *model) renewing(w *world, i int, out emit) {
	if !m.Renew {
		return
	}
	if w.runs[i].sent&renewed == 0 {
		next := *w
		next.runs[i].sent |= renewed
		out(step{run: i, verb: "sends Renew"}, &next)
	}
	asked := *w
	asked.runs[i].sent |= renewed
	s, next := m.deliverReport(&asked, i, renewed)
	if s.note == answeredOK && w.runs[i].phase == running && next.record != nil {
		r := &next.runs[i]
		r.deadline = max(r.deadline, ticks(next.record.LeaseEnd))
		out(step{run: i, verb: "renews its lease", note: s.note}, next)
	}
}

// network delivers what a run has sent: any of it, any number of times, in any
// order. What is never delivered is lost.
func (m *model) network(w *world, i int, out emit) {
	out(m.deliverClaim(w, i))
	for kind := notExecuted; kind <= renewed; kind <<= 1 {
		if w.runs[i].sent&kind != 0 {
			out(m.deliverReport(w, i, kind))
		}
	}
}

// outside decides what becomes of an effect under way.
func (m *model) outside(w *world, i int, out emit) {
	if w.runs[i].effect != flying {
		return
	}
	happens, fails := *w, *w
	happens.runs[i].effect, happens.runs[i].landBy = landed, 0
	m.checkEffects(&happens)
	out(step{run: i, verb: "its effect lands"}, &happens)
	fails.runs[i].effect, fails.runs[i].landBy = vanished, 0
	out(step{run: i, verb: "its effect comes to nothing"}, &fails)
}
