package onced_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/onced/onced"
)

// caller makes one call after the other, for as long as the history lasts.
type caller struct {
	name string
	call *call
	seen map[onced.Identity]uint32 // the newest attempt that it saw unresolved
}

// phase is how far a call has come, as its caller knows.
type phase uint8

const (
	claiming    phase = iota // no answer yet
	executing                // GRANTED
	reconciling              // TAKEN_OVER
)

// call is one use of one token.
type call struct {
	number  int
	id      onced.Identity
	request onced.ClaimRequest
	phase   phase
	fence   uint64
	until   time.Time // the end of the lease by the caller's own clock
	over    bool      // it will not begin an effect any more
	effect  *effect
	renewed uint64
}

// effectTime is how long a begun effect may take to happen. Together with the
// longest lease it fits into the least reconcile_after.
const effectTime = 30 * time.Second

var leases = []time.Duration{5 * time.Second, 30 * time.Second}

// mayBegin reports whether the call may begin its effect now.
func (c *call) mayBegin(now time.Time) bool {
	return c.phase == executing && !c.over && c.effect == nil && now.Before(c.until)
}

// mayBegin reports whether any call of the key may begin an effect, now or when
// an answer reaches it that has already left.
func (h *history) mayBegin(id onced.Identity) bool {
	for _, c := range h.callers {
		if c.call != nil && c.call.id == id && c.call.mayBegin(h.real) {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(h.pool, h.held), func(m *message) bool {
		return m.kind == answerMessage && m.call != nil && m.call.id == id && m.call.phase == claiming && !m.call.over &&
			m.err == nil && m.answer.Outcome == onced.OutcomeGranted && h.real.Before(m.to.sent.Add(m.answer.Operation.LeaseRemaining))
	})
}

// stop ends every call of a key, as an operator does who knows the holders dead.
func (h *history) stop(id onced.Identity) {
	for _, c := range h.callers {
		if c.call != nil && c.call.id == id {
			c.call.over, c.call = true, nil
		}
	}
	for _, m := range slices.Concat(h.pool, h.held) {
		if m.call != nil && m.call.id == id {
			m.call.over = true
		}
	}
}

// act lets a caller do one thing.
func (h *history) act() {
	c := h.callers[h.choose.pick("caller", len(h.callers))]
	if c.call == nil {
		h.beginCall(c)
		return
	}
	if h.choose.pick("give up", 16) == 15 {
		h.giveUp(c)
		return
	}
	do := []func(){h.deliverAny, h.deliverAny, func() { h.sendClaim(c.call) }} // it waits, or claims again
	switch {
	case !h.honest:
		do = append(do, func() { h.reportAnything(c.call) }, func() { h.reportAnything(c.call) })
	case c.call.phase == reconciling:
		do = h.reconciler(c.call)
	case c.call.phase == executing:
		do = h.executor(c.call)
	}
	do[h.choose.pick("act", len(do))]()
}

func (h *history) giveUp(c *caller) {
	h.note("%s gives call %d up", c.name, c.call.number)
	c.call.over, c.call = true, nil
}

// beginCall mints a token and sends its claim, of the attempt to take over where
// one was seen unresolved.
func (h *history) beginCall(c *caller) {
	h.calls++
	id := h.pickID()
	if h.minted[id].IsZero() {
		h.minted[id] = h.real
	}
	r := request(fmt.Sprint("call ", h.calls))
	r.KeyTime, r.Holder = time.Time{}, c.name
	if h.keyed {
		r.KeyTime = h.minted[id]
	}
	r.Lease = leases[h.choose.pick("lease", len(leases))]
	if h.choose.pick("take over", 3) > 0 {
		r.TakeOverAttempt = c.seen[id]
	}
	if h.guarded && h.choose.pick("guard", 2) == 0 {
		r.Guard = &onced.TwinGuard{Block: onced.BlockUnsettledOrRecent, Window: time.Minute}
		if h.choose.pick("confirm the twin", 2) == 0 {
			r.Guard.Confirmed = h.ids()[h.choose.pick("twin", len(h.outside))].Key
		}
	}
	r.QuotaFull = h.guarded && h.choose.pick("quota full", 8) == 7
	c.call = &call{number: h.calls, id: id, request: r}
	h.sendClaim(c.call)
}

func (h *history) sendClaim(c *call) { h.send(&message{kind: claimMessage, call: c}) }

func (h *history) sendFail(c *call, d onced.Disposition) {
	f := onced.FailRequest{Disposition: d}
	if d == onced.Final {
		f.Failure = &onced.Failure{Code: "ABORTED", Message: fmt.Sprint("failure of call ", c.number)}
	}
	if h.choose.pick("with a checkpoint", 2) == 1 {
		f.Checkpoint = c.checkpoint()
	}
	c.over = true
	h.send(&message{kind: failMessage, call: c, fail: f})
}

func (h *history) sendComplete(c *call) {
	c.over = true
	h.send(&message{kind: completeMessage, call: c, result: onced.NewResult("text/plain", true, fmt.Append(nil, "result of call ", c.number))})
}

func (h *history) sendRenew(c *call) {
	m := &message{kind: renewMessage, call: c, lease: leases[h.choose.pick("lease", len(leases))]}
	if h.choose.pick("with a checkpoint", 2) == 1 {
		m.checkpoint = c.checkpoint()
	}
	h.send(m)
}

func (c *call) checkpoint() *onced.Checkpoint {
	c.renewed++
	return checkpoint(c.renewed, fmt.Sprint("progress of call ", c.number))
}

// executor is what a holder may truthfully do that was granted the claim.
func (h *history) executor(c *call) []func() {
	fail := func(d onced.Disposition) func() { return func() { h.sendFail(c, d) } }
	do := []func(){fail(onced.Unknown), func() { h.sendRenew(c) }}
	switch {
	case c.mayBegin(h.real):
		begin := func() { h.begins(c) }
		do = append(slices.Repeat([]func(){begin}, 12), append(do, fail(onced.NotExecuted), fail(onced.Final))...)
	case c.effect == nil || c.effect.lost:
		do = append(do, fail(onced.NotExecuted), fail(onced.Final))
	case c.effect.happened:
		do = append(do, slices.Repeat([]func(){func() { h.sendComplete(c) }}, 4)...)
	}
	return do
}

func (h *history) begins(c *call) {
	h.note("call %d begins its effect", c.number)
	c.effect = &effect{until: h.real.Add(effectTime)}
	o := h.outside[c.id]
	o.underWay = append(o.underWay, c.effect)
}

// reconciler is what a taker may truthfully do: it asks the outside system.
func (h *history) reconciler(c *call) []func() {
	fail := func(d onced.Disposition) func() { return func() { h.sendFail(c, d) } }
	do := []func(){fail(onced.Unknown), fail(onced.NotExecuted), func() { h.sendRenew(c) }}
	verdict := fail(onced.DidNotHappen)
	if h.outside[c.id].happened > 0 {
		verdict = func() { h.sendComplete(c) }
	}
	return append(do, verdict, verdict, verdict)
}

// reportAnything is a caller that tells whatever comes to its mind.
func (h *history) reportAnything(c *call) {
	switch n := h.choose.pick("report", 6); n {
	case 0:
		h.sendComplete(c)
	case 1:
		h.sendRenew(c)
	default:
		h.sendFail(c, onced.Disposition(n-1))
	}
}

// receive is a caller that gets an answer.
func (h *history) receive(m *message) {
	c := m.call
	i := slices.IndexFunc(h.callers, func(x *caller) bool { return c != nil && x.call == c })
	if i < 0 || m.err != nil && m.to.kind != claimMessage {
		return // nobody waits for it, or nothing follows from it
	}
	owner := h.callers[i]
	switch {
	case m.to.kind == renewMessage:
		if h.real.Before(c.until) { // a claim that was given up is not taken up again
			c.until = later(c.until, m.to.sent.Add(m.op.LeaseRemaining))
		}
	case m.to.kind != claimMessage || c.phase != claiming:
	case m.err != nil:
		owner.call = nil
	default:
		h.receiveClaim(owner, m)
	}
}

func (h *history) receiveClaim(owner *caller, m *message) {
	c := m.call
	switch m.answer.Outcome {
	case onced.OutcomeGranted, onced.OutcomeTakenOver:
		c.phase, c.fence = executing, m.answer.Operation.Fence
		if m.answer.Outcome == onced.OutcomeTakenOver {
			c.phase = reconciling
		}
		c.until = m.to.sent.Add(m.answer.Operation.LeaseRemaining)
	case onced.OutcomeUnresolved:
		if owner.seen[c.id] = m.answer.Operation.Attempt; m.answer.Yours { // it knows that it never began
			c.fence = m.answer.Operation.Fence
			h.sendFail(c, onced.NotExecuted)
		}
		c.over, owner.call = true, nil
	case onced.OutcomeInProgress: // it waits, or claims again
	default:
		c.over, owner.call = true, nil
	}
}
