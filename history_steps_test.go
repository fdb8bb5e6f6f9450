package onced_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/onced/onced"
)

// messageKind is what a message asks, or that it answers.
type messageKind uint8

const (
	claimMessage messageKind = iota
	completeMessage
	failMessage
	renewMessage
	resolveMessage
	answerMessage
)

var kindNames = [...]string{"Claim", "Complete", "Fail", "Renew", "Resolve", "answer"}

// message is on its way, for as long as it likes and as often as it likes.
type message struct {
	kind messageKind
	call *call // nil: an operator's
	id   onced.Identity
	sent time.Time // by the sender's clock

	result     *onced.Result
	fail       onced.FailRequest
	lease      time.Duration
	checkpoint *onced.Checkpoint
	resolve    onced.ResolveRequest

	to     *message // the request that is answered
	answer onced.ClaimAnswer
	op     *onced.Operation
	err    error
}

func (m *message) String() string {
	if m.kind == answerMessage {
		return fmt.Sprintf("the answer to %v", m.to)
	}
	s := kindNames[m.kind]
	if m.kind == failMessage {
		s += " " + m.fail.Disposition.String()
	}
	if m.call == nil {
		return s + " " + m.resolve.Resolution.String()
	}
	return fmt.Sprintf("%s of call %d", s, m.call.number)
}

// poolSize bounds the messages that are on their way; the oldest get lost.
const poolSize = 16

func (h *history) send(m *message) {
	m.sent = h.real
	if m.call != nil {
		m.id = m.call.id
	}
	h.note("send %v", m)
	h.post(m)
}

func (h *history) post(m *message) {
	h.pool = append(h.pool, m)
	if n := len(h.pool); n > poolSize {
		h.pool = h.pool[n-poolSize:]
	}
}

// step is what the invariants look at: one event, and all operations before and
// after it.
type step struct {
	event         string
	before, after picture

	// Of an event that is a transition:
	id      onced.Identity
	message *message // nil: a sweep
	answer  onced.ClaimAnswer
	op      *onced.Operation
	err     error
	plan    onced.Plan
	decided bool

	lost bool // by the event, the store may have lost what it held: power loss and restore
}

// picture is what is stored, and what is shown of it; nil for what is absent.
type picture map[onced.Identity]seen

type seen struct {
	record *onced.Record
	shown  *onced.Operation
}

func (h *history) picture() picture {
	p := picture{}
	for id := range h.outside {
		v := h.view(id, nil)
		v.Unreadable = false
		op, _, err := onced.Show(v, h.policy)
		if err != nil {
			h.t.Fatal(err)
		}
		p[id] = seen{v.Record, op}
	}
	return p
}

// actions are what a step may be, by weight.
var actions = []struct {
	name   string
	weight int
	rare   bool // a history may have none of it, or much
	do     func(*history)
}{
	{"act", 16, false, (*history).act},
	{"act promptly", 24, false, (*history).actPromptly},
	{"deliver", 36, false, (*history).deliverAny},
	{"lose", 2, true, (*history).loseAny},
	{"pass", 6, false, (*history).passAny},
	{"effect", 6, true, (*history).effectAny},
	{"hold sync", 1, true, (*history).holdSync},
	{"sync", 4, false, (*history).sync},
	{"restart", 1, true, (*history).restart},
	{"power loss", 1, true, (*history).loseAnyPower},
	{"backup", 2, true, (*history).backup},
	{"restore", 1, true, (*history).restoreAny},
	{"end blind period", 1, true, (*history).endBlindPeriod},
	{"sweep", 1, true, (*history).sweepAll},
	{"operate", 1, true, (*history).operate},
	{"unreadable", 1, true, (*history).makeUnreadable},
}

func (h *history) step() {
	h.t.Helper()
	if h.unreadable && h.choose.pick("still unreadable", 4) > 0 {
		h.makeUnreadable()
	}
	total := 0
	for _, w := range h.weights {
		total += w
	}
	at := h.choose.pick("step", total)
	for i, w := range h.weights {
		if at -= w; at < 0 {
			actions[i].do(h)
			return
		}
	}
}

// mix draws how often each action comes in this history: a history in which
// some never come, and others often, gets further into its corner than one in
// which all come evenly.
func (h *history) mix() {
	for _, a := range actions {
		factor := 2
		if a.rare {
			factor = []int{0, 1, 2, 8}[h.choose.pick(a.name, 4)]
		}
		h.weights = append(h.weights, a.weight*factor)
	}
}

// note adds a line to what a failing history shows.
func (h *history) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// happens makes a step of an event that is no transition.
func (h *history) happens(event string, do func()) {
	h.t.Helper()
	s := step{event: event, before: h.picture()}
	h.note("%s", event)
	do()
	s.after = h.picture()
	h.check(s)
}

func (h *history) passAny() {
	d := []time.Duration{
		time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 5 * time.Second, 30 * time.Second, 30 * time.Second,
		time.Minute, time.Minute, 2 * time.Minute, time.Hour, shortRetention,
	}[h.choose.pick("time", 12)]
	h.happens(fmt.Sprint(d, " pass"), func() { h.pass(d) })
}

func (h *history) effectAny() {
	for _, id := range h.ids() {
		o := h.outside[id]
		if len(o.underWay) == 0 {
			continue
		}
		e := o.underWay[h.choose.pick("effect", len(o.underWay))]
		happens := h.choose.pick("the effect happens", 4) > 0
		h.note("an effect happens: %v", happens)
		o.decide(e, happens)
		h.check(step{event: "effect", before: h.picture(), after: h.picture()})
	}
}

func (h *history) restart() {
	h.sync()
	h.happens("restart", h.restarted)
}

func (h *history) loseAnyPower() {
	s := step{event: "power loss", lost: true}
	h.note("power loss")
	h.powerLoss()
	s.before = h.picture() // what was not durable was never told
	s.after = s.before
	h.check(s)
}

func (h *history) restoreAny() {
	if len(h.backups) == 0 {
		return
	}
	i := h.backups[h.choose.pick("backup", len(h.backups))]
	h.note("restore")
	h.restored(i)
	// What the backup holds unsettled stays; before is what it held.
	s := step{event: "restore", lost: true, before: picture{}, after: h.picture()}
	for id := range h.outside {
		s.before[id] = seen{record: i.records[id]}
	}
	h.check(s)
}

func (h *history) makeUnreadable() {
	h.unreadable = !h.unreadable
	h.note("unreadable: %v", h.unreadable)
}

func (h *history) sweepAll() {
	for _, id := range h.ids() {
		h.decide(id, "sweep", nil, func(s *step) {
			h.world.run(id, nil, func(v onced.View) onced.Plan { return onced.Sweep(v, h.policy) })
		})
		if r := h.records[id]; r != nil && r.Twin != nil {
			h.world.run(id, r.Twin, onced.SweepTwin)
		}
	}
}

// actPromptly is a caller whose message is not held up, nor is its answer.
func (h *history) actPromptly() {
	h.act()
	h.deliver(len(h.pool) - 1)
	h.deliver(len(h.pool) - 1)
}

// deliverAny delivers a message: the newest as often as any other.
func (h *history) deliverAny() {
	at := len(h.pool) - 1
	if at >= 0 && h.choose.pick("not the newest", 2) == 1 {
		at = h.choose.pick("message", len(h.pool))
	}
	h.deliver(at)
}

// deliver delivers one message, which may come again later.
func (h *history) deliver(at int) {
	if at < 0 {
		return
	}
	m := h.pool[at]
	if h.choose.pick("comes again", 4) < 3 {
		h.pool = slices.Delete(slices.Clone(h.pool), at, at+1)
	}
	if m.kind == answerMessage {
		h.note("deliver %v", m)
		h.receive(m)
		return
	}
	h.serve(m)
}

func (h *history) loseAny() {
	if len(h.pool) > 0 {
		at := h.choose.pick("message", len(h.pool))
		h.pool = slices.Delete(slices.Clone(h.pool), at, at+1)
	}
}

// serve decides a request and lets its answer leave, when it is durable.
func (h *history) serve(m *message) {
	h.t.Helper()
	reply := &message{kind: answerMessage, call: m.call, id: m.id, to: m}
	h.decide(m.id, m.String(), m, func(s *step) {
		h.id = m.id
		switch m.kind {
		case claimMessage:
			s.answer, s.err = h.claimWith(m.call.request)
			s.op = s.answer.Operation
		case completeMessage:
			s.op, s.err = h.completeWith(m.call.holder(), m.result)
		case failMessage:
			s.op, s.err = h.failWith(m.call.holder(), m.fail)
		case renewMessage:
			s.op, s.err = h.renewWith(m.call.holder(), m.lease, m.checkpoint)
		default:
			s.op, s.err = h.resolveWith(m.resolve)
		}
		reply.answer, reply.op, reply.err = s.answer, s.op, s.err
	})
	if h.holding {
		h.held = append(h.held, reply)
	} else {
		h.post(reply)
	}
}

func (c *call) holder() onced.Holder { return onced.Holder{Token: c.request.Token, Fence: c.fence} }

// decide makes a step of one transition.
func (h *history) decide(id onced.Identity, event string, m *message, transition func(*step)) {
	h.t.Helper()
	s := step{event: event, id: id, message: m, decided: true, before: h.picture()}
	transition(&s)
	s.plan, s.after = h.plan, h.picture()
	h.note("%s: %v %v, %v", event, s.answer.Outcome, s.err, s.after[id].shownState())
	if s.plan.Changes() {
		h.newest = later(h.newest, h.now)
	}
	h.check(s)
	h.remember(s)
}

func (s seen) shownState() string {
	if s.shown == nil {
		return "absent"
	}
	return fmt.Sprintf("%v/%v attempt %d", s.shown.State, s.shown.Reason, s.shown.Attempt)
}

// operate lets an operator decide about an operation, by the version that it
// has just looked at, which is durable. The request may come again later.
func (h *history) operate() {
	h.sync()
	h.id = h.pickID()
	seen := h.picture()[h.id]
	if seen.shown == nil || h.unreadable {
		return
	}
	as := onced.Resolution(1 + h.choose.pick("resolution", 5))
	if as > onced.ResolveReopen {
		h.decide(h.id, "erase", nil, func(s *step) {
			s.op, s.err = h.eraseWith(onced.EraseRequest{Evidence: "asked", Who: "olga"})
		})
		return
	}
	q := resolution(as)
	q.Evidence = fmt.Sprint("evidence ", h.choose.pick("evidence", 2))
	q.Force = h.choose.pick("force", 4) == 1
	if h.honest {
		q.Etag = seen.shown.Etag()
		if as >= onced.ResolveReleased && !h.maySayReleased(as) {
			return
		}
	}
	m := &message{kind: resolveMessage, id: h.id, resolve: q}
	h.send(m)
	h.serve(m)
}

// maySayReleased reports whether an operator may truthfully say that the next
// claim may execute. Holders who could still begin are stopped first.
func (h *history) maySayReleased(as onced.Resolution) bool {
	o := h.outside[h.id]
	reopens := as == onced.ResolveReopen
	if len(o.underWay) > 0 || !reopens && o.happened > 0 {
		return false
	}
	h.stop(h.id)
	if reopens && h.records[h.id].State.Settled() {
		o.happened = 0 // it is to happen once more
	}
	return true
}
