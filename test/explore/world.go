package main

import (
	"time"

	"github.com/onced/onced"
)

// Time is counted in ticks of one lease. Nothing in the state machine depends on
// the length of a tick, only on the order of instants.
const (
	tick       = time.Minute
	leaseTicks = 1
	// An effect lands less than this after its holder last had leave to begin it.
	landTicks   = 1
	resultTicks = 2 // result retention, where anything expires
	keyTicks    = 3 // key retention, where anything expires
	skewTicks   = 1
	longAgo     = -1000
	forever     = 20000 // retention where nothing expires
)

// Bounds of the arrays of a world.
const (
	maxCallers   = 3
	maxRuns      = 9 // callers times tokens
	maxDecisions = 2
)

// epochStart is tick 0.
var epochStart = time.Unix(1_000_000, 0)

func at(t int16) time.Time { return epochStart.Add(time.Duration(t) * tick) }

func ticks(t time.Time) int16 { return int16(t.Sub(epochStart) / tick) }

// fence is a fence in one byte: the generation in the high half, as in a real
// one, and the count of grants in the low half.
type fence uint8

func firstFence(generation uint8) fence { return fence(generation << 4) }

func (f fence) real() uint64 { return uint64(f>>4)<<32 + uint64(f&15) }

func fenceOf(real uint64) fence { return fence(real>>32<<4 + real&15) }

// phase is where the process that runs with one claim token stands.
type phase uint8

const (
	idle        phase = iota // the token is not minted yet
	claiming                 // the claim is sent, no answer has been taken up
	running                  // GRANTED: it may have its effect, once
	reconciling              // TAKEN_OVER: it asks the outside system
	over                     // it has reported, and may still add to that
	crashed                  // the process is gone; its messages and its effect may be under way
)

// effect is what became of the one effect that a run may have outside.
type effect uint8

const (
	none     effect = iota
	flying          // begun; it will land or come to nothing
	landed          // it happened
	vanished        // begun, and certain not to happen
)

// message is a kind of report that a run sends about its attempt.
type message uint8

const (
	notExecuted message = 1 << iota
	unknown
	didNotHappen
	completed
	final
	renewed

	facts  = completed | final
	weaker = notExecuted | unknown | didNotHappen
)

// licence is what an answer to a claim lets the claimer do.
type licence uint8

const (
	noLicence  licence = iota
	toRun              // GRANTED
	toFindOut          // TAKEN_OVER, asked for
	toRerun            // TAKEN_OVER, by a policy that calls reruns safe
	toWithdraw         // UNRESOLVED, yours: it never started
)

// answer is an answer to a claim on its way to a run that waits for it.
type answer struct {
	licence  licence
	fence    fence
	deadline int16 // by the client's own lease clock
}

// run is one claim token and the process that uses it. A caller is a row of
// runs, one after the other.
type run struct {
	phase    phase
	takes    uint8 // the attempt that its claim asks to take over, 0: plain
	sentAt   int16 // when the claim was sent last
	answer   answer
	fence    fence // from the answer that it took up
	deadline int16 // until when it may begin its effect
	effect   effect
	landBy   int16 // a flying effect lands before this tick
	sent     message
	tookOver bool // its claim was a takeover
	rerun    bool // its takeover lets it run
	lied     bool // its DID_NOT_HAPPEN was false when it was said
}

// word is the last word of an attempt: the strongest thing that onced has been
// told of it. Messages overtake each other, so a weaker word never replaces a
// stronger one.
type word uint8

const (
	silent word = iota
	noEffect
	doubtful
	effective
)

// ghost is what the model remembers about a run beside the store: which attempt
// of the store's history it is and what has been said of it.
type ghost struct {
	fence    fence   // of its attempt in the present history; 0: there is none
	accepted message // reports that were answered OK
	word     word
	// overridden: the word was overruled by somebody who may do so, a verdict
	// after a takeover or an operator.
	overridden bool
	// These excuse onced for an effect that it does not take into account.
	falseVerdict bool // the holder of a takeover denied it, falsely
	operatorSaid bool // an operator released or reopened in spite of it
	blindEnded   bool // an operator ended the blind period in spite of it
}

// decision is one call of Resolve, which the network may repeat.
type decision struct {
	as    onced.Resolution
	force bool
	etag  string // the version that was decided on
}

// snapshot is a backup: the store, and what the model knew of its history.
type snapshot struct {
	record *onced.Record
	fences fence // the next one
	ghosts [maxRuns]ghost
}

// world is one state of the model.
type world struct {
	now        int16
	record     *onced.Record // nil: absent; never changed in place
	fences     fence         // the next one
	lastFence  fence         // the greatest that was ever given out
	generation uint8
	lastGen    uint8 // the greatest generation that ever served
	serving    int16 // serving since
	blind      bool  // a restore has left a blind period
	unreadable bool  // the record is of a newer build's format
	backup     *snapshot

	runs      [maxRuns]run
	ghosts    [maxRuns]ghost
	decisions [maxDecisions]decision
	decided   uint8 // how many decisions there are
	lies      uint8
	restores  uint8
	excused   bool // a lie or an operator's override stands behind a second effect

	broken []fault // by the step that led here; nil in every state that is kept
}

// fault is a property that does not hold, and how that shows.
type fault struct{ property, text string }

func (w *world) fail(property, text string) {
	w.broken = append(w.broken, fault{property, text})
}

// absent reports whether the key is not remembered: no record, or an expired one.
// What is unsettled does not expire, nor does what was RELEASED before a restore.
func (w *world) absent() bool {
	r := w.record
	if r == nil || w.unreadable {
		return !w.unreadable
	}
	return (r.State.Settled() || w.released()) && w.now >= ticks(r.KeyExpire)
}

// released reports whether the record lets the next plain claim be granted.
func (w *world) released() bool {
	return w.record != nil && w.record.State == onced.StateReleased && w.record.Generation == uint64(w.generation)
}

// holder returns the index of the run that holds the newest attempt, or -1.
func (w *world) holder() int {
	if w.record == nil {
		return -1
	}
	for i, g := range w.ghosts {
		if g.fence != 0 && g.fence.real() == w.record.Fence {
			return i
		}
	}
	return -1
}

// mayAct reports whether a run can still have an effect: one is under way, or
// it has leave to begin one and its own lease clock has not run out.
func (w *world) mayAct(i int) bool {
	r := &w.runs[i]
	switch {
	case r.effect != none:
		return r.effect == flying
	case r.phase == running:
		return w.now < r.deadline
	case r.phase == claiming && (r.answer.licence == toRun || r.answer.licence == toRerun):
		return w.now < r.answer.deadline
	default:
		return false
	}
}

// effective reports whether a run has had or can still have an effect.
func (w *world) effective(i int) bool { return w.runs[i].effect == landed || w.mayAct(i) }

// happened is what the outside system answers when it is asked: whether any
// effect has landed.
func (w *world) happened() bool {
	for i := range w.runs {
		if w.runs[i].effect == landed {
			return true
		}
	}
	return false
}
