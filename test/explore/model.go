package main

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/onced/onced"
)

// bounds says how large a model is and which events it has. What a bound leaves
// out cannot happen.
type bounds struct {
	Callers   int // at once
	Tokens    int // claim tokens that each caller mints, one after the other
	States    int // the walk ends after so many
	Lies      int // false reports and false verdicts
	Decisions int // calls of Resolve, each repeated at will
	Restores  int // of one backup, taken at any moment before

	Watch string  // the only property that ends the walk; "": all do
	Says  message // the only reports that are sent; 0: all are
	Hold  bool    // no run begins its effect: to be able to is bad enough

	Takeover   bool // callers take over what is unresolved
	Amend      bool // a run adds to what it has reported, or takes it back
	Renew      bool
	Restart    bool
	Expiry     bool // keys are forgotten key retention after their settlement
	Final      bool // Fail FINAL
	Rerun      bool // the policy says that reruns are safe
	Unreadable bool // a build that cannot read the record serves for a while
	PlainDeny  bool // the holder of a plain grant says DID_NOT_HAPPEN
	ShortRenew bool // a Renew asks for no more lease than what has passed
	KeepToken  bool // a restarted caller claims with the token of its first run, and begins its effect only after a Renew
	EndBlind   bool // an operator ends the blind period of a restore
	NoKeyTime  bool // claims come without a key time
}

// reconcileTicks is how long after the moment of doubt a takeover is due: the
// time in which an effect lands, and a lease more where a restore may leave
// holders of whom the store does not know.
func (b bounds) reconcileTicks() int16 {
	if b.Restores > 0 {
		return leaseTicks + landTicks
	}
	return landTicks
}

// model is the system that is walked: bounds, the policy that they imply, and
// the transitions, which a test may have replaced.
type model struct {
	bounds
	rules
	policy   onced.Policy
	digests  [maxRuns]onced.Digest // of the tokens
	results  [maxRuns]*onced.Result
	failures [maxRuns]*onced.Failure
	outcomes map[onced.Digest]byte // what each outcome is written as, by its digest
}

func newModel(b bounds, r rules) *model {
	reconcile := time.Duration(b.reconcileTicks()) * tick
	m := &model{bounds: b, rules: r, policy: onced.Policy{
		ResultRetention: forever * tick, KeyRetention: forever * tick,
		Takeover: onced.TakeoverByCaller, ReconcileAfter: &reconcile,
		SafeToRerun: b.Rerun, Skew: skewTicks * tick,
	}}
	if b.Expiry {
		m.policy.ResultRetention, m.policy.KeyRetention = resultTicks*tick, keyTicks*tick
	}
	m.outcomes = map[onced.Digest]byte{{}: 0, operatorResult.Identity(): 1}
	for i := range m.runCount() {
		token := i
		if b.KeepToken {
			token = i / b.Tokens
		}
		m.digests[i] = sha256.Sum256([]byte{byte(token)})
		m.results[i] = onced.NewResult("text/plain", true, []byte(m.name(i)))
		m.failures[i] = &onced.Failure{Code: "INTERNAL", Message: m.name(i)}
		m.outcomes[m.results[i].Identity()] = byte(2 + i)
		m.outcomes[m.failures[i].Identity()] = byte(2 + i)
	}
	return m
}

// start is the world before anything has happened: a store that has been there
// for long, and a key that was minted just now.
func (m *model) start() *world {
	return &world{generation: 1, lastGen: 1, fences: firstFence(1), serving: longAgo}
}

// runCount is the number of runs in the model.
func (m *model) runCount() int { return m.Callers * m.Tokens }

// name names a run for people: the caller's letter and the number of its token.
func (m *model) name(i int) string {
	return fmt.Sprintf("%c%d", 'A'+i/m.Tokens, i%m.Tokens+1)
}

// view is what a transition sees of a world.
func (m *model) view(w *world) onced.View {
	v := onced.View{
		ID:  onced.Identity{Namespace: "default", Key: "k", Method: "m"},
		Now: at(w.now), ExpiryTime: at(w.now), NextFence: w.fences.real(),
		Epoch: onced.Epoch{
			Generation: uint64(w.generation), HistoryStart: at(longAgo), ServingSince: at(w.serving),
		},
		Record: w.record, Unreadable: w.unreadable,
	}
	if w.unreadable {
		v.Record = nil
	}
	if w.blind {
		v.Epoch.BlindUntil = at(w.serving)
	}
	return v
}

// store applies a plan, and checks what must hold for every plan.
func (m *model) store(w *world, plan onced.Plan) {
	if plan.Changes() && w.unreadable {
		w.fail("S10", "a record that cannot be read was changed")
	}
	switch {
	case plan.Delete:
		w.expire()
		w.record = nil
	case plan.Put != nil:
		w.expire()
		w.record = plan.Put
	}
	if plan.UsesFence {
		f := fenceOf(plan.Put.Fence)
		if f <= w.lastFence {
			w.fail("S6", fmt.Sprintf("fence %d was given out although %d was before", plan.Put.Fence, w.lastFence.real()))
		}
		w.lastFence = max(w.lastFence, f)
		w.fences++
		if w.fences&15 == 0 {
			panic("explore: one generation has given out more fences than the model can tell apart")
		}
	}
}

// expire ends the history of an expired key before the store drops it: nothing of
// its attempts is to be known any more. A record that is lost without having
// expired leaves the ghosts as they are, so that the loss shows.
func (w *world) expire() {
	if w.record == nil || !w.absent() {
		return
	}
	for i, g := range w.ghosts {
		w.ghosts[i] = ghost{falseVerdict: g.falseVerdict, operatorSaid: g.operatorSaid, blindEnded: g.blindEnded}
	}
}
