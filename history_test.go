package onced_test

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/onced/onced"
	"pgregory.net/rapid"
)

// A history is a random run of the state machine: a few callers of one or two
// keys over a network that loses, repeats and reorders messages, and a store that
// is swept, restarted, cut off its power and restored. After every step the invariants are
// checked. Beside the store, the history keeps what nobody in it knows: which
// effects really happened.
//
// In an honest history everybody keeps to the rules of the client algorithm, and
// then no key has more than one effect. What it takes for granted is this:
//
//   - A holder begins its effect only after GRANTED, before lease_remaining has
//     passed on its own clock since it sent the claim or renewal that was answered,
//     and before it has reported anything. It may go on after that: only
//     beginning is bounded.
//   - A begun effect happens within the time that reconcile_after leaves for it,
//     or never; and leases are not longer than that either, so that a holder whom
//     a restore has forgotten is through before a takeover is due.
//   - Reports, the verdicts of takers and the decisions of operators are true when
//     they are made; an operator who releases while a holder may still begin has
//     stopped that holder. Operators name the version that they looked at, and
//     look again after a restore.
//   - The wall clock is right at every start, or behind at every one by less than
//     the skew; and the store's newest stamp is kept with every write, a sweep's
//     included.
//   - A caller without a key_time does not outlive the key retention.
//
// In a history that is not honest, anybody reports anything, the clock jumps, and
// reruns are called safe. The invariants hold in both.
type history struct {
	*world
	choose     chooser
	honest     bool
	keyed      bool  // the callers send key_time
	guarded    bool  // some of them ask for the twin guard
	weights    []int // of the actions
	invariants []invariant

	real     time.Time     // of the callers' clocks
	wrong    time.Duration // how far the wall clock was ahead of it at the last start
	started  time.Time     // by real
	floor    time.Time     // the newest stamp at the last start
	gap      bool          // the clock had jumped at the last start
	newest   time.Time     // stamp of the store
	memory   onced.Memory
	memo     memo
	topFence uint64 // of all that have been used

	holding bool  // the sync is held: nothing is answered
	durable image // what a power loss leaves while it is
	held    []*message
	backups []image

	minted  map[onced.Identity]time.Time
	outside map[onced.Identity]*outside
	callers []*caller
	pool    []*message
	calls   int
	trace   []string
}

// memo is what the checks remember of the store's past, in the store's own
// timeline: a restore takes it back as well.
type memo struct {
	first map[onced.Identity]outcome // with which each settled operation was settled
	holds map[hold]terms             // what each token was told
}

// hold is a token of an operation.
type hold struct {
	id    onced.Identity
	token onced.Digest
}

// terms are what a claim was granted under.
type terms struct {
	outcome onced.Outcome
	attempt uint32
	fence   uint64
}

// outcome is what settled an operation.
type outcome struct {
	digest onced.Digest
	bytes  string
}

// image is a copy of the store.
type image struct {
	records  map[onced.Identity]*onced.Record
	twins    map[string]*onced.TwinEntry
	fence    uint64
	topFence uint64
	newest   time.Time
	memory   onced.Memory
	memo     memo
}

// chooser makes the choices of a history.
type chooser interface {
	pick(what string, n int) int // a number below n
	more() bool                  // whether the history goes on
}

// rapidChooser lets a property choose, so that failing histories shrink.
type rapidChooser struct {
	t     *rapid.T
	steps int
}

// pick tosses coins: rapid's numbers prefer small ones, and here no choice is
// better than another.
func (c *rapidChooser) pick(what string, n int) int {
	v := 0
	for range bits.Len(uint(n-1)) + 2 {
		v <<= 1
		if rapid.Bool().Draw(c.t, what) {
			v++
		}
	}
	return v % n
}

func (c *rapidChooser) more() bool {
	c.steps--
	return c.steps >= 0
}

// byteChooser lets the bytes of a fuzz target choose.
type byteChooser struct{ b []byte }

func (c *byteChooser) pick(_ string, n int) int {
	v := 0
	for reach := 1; reach < n && len(c.b) > 0; reach <<= 8 {
		v, c.b = v<<8|int(c.b[0]), c.b[1:]
	}
	return v % n
}

func (c *byteChooser) more() bool { return len(c.b) > 0 }

// The retentions of histories, short enough to be met.
const (
	shortRetention = 3 * time.Hour
	longRetention  = 10 * time.Hour
)

// newHistory draws the fixed parts of a history.
func newHistory(t tb, choose chooser, invariants []invariant) *history {
	h := &history{
		world: newWorld(t), choose: choose, invariants: invariants,
		honest: choose.pick("dishonest", 4) != 0, keyed: choose.pick("keyless", 4) != 0, guarded: choose.pick("guarded", 3) == 2,
		real: start, memo: memo{map[onced.Identity]outcome{}, map[hold]terms{}},
		minted: map[onced.Identity]time.Time{}, outside: map[onced.Identity]*outside{},
	}
	h.policy.ResultRetention, h.policy.KeyRetention = time.Hour, shortRetention
	if !h.keyed {
		h.policy.KeyRetention = 1000 * day
	}
	if !h.honest {
		h.policy.SafeToRerun = choose.pick("safe to rerun", 2) == 1
		h.policy.ReconcileAfter = ptr(time.Duration(choose.pick("reconcile after", 3)) * 30 * time.Second)
	}
	if h.honest {
		h.wrong = []time.Duration{0, -2 * time.Minute}[choose.pick("clock behind", 2)]
	}
	h.begin(start)
	h.memory = onced.Memory{Retention: h.policy.KeyRetention}
	h.topFence, h.started = h.fence, start
	for i := range 2 + choose.pick("callers", 3) {
		h.callers = append(h.callers, &caller{name: fmt.Sprint("caller ", i), seen: map[onced.Identity]uint32{}})
	}
	for _, key := range []string{"order-1", "order-2"}[:1+choose.pick("second key", 2)] {
		id := onced.Identity{Namespace: "acme", Key: key, Method: "send_email"}
		h.outside[id] = &outside{}
	}
	h.mix()
	h.boot()
	return h
}

// run lets the history go on to its end.
func (h *history) run() {
	h.t.Helper()
	for h.choose.more() {
		h.step()
	}
}

// ids are the operations of the history, in a fixed order.
func (h *history) ids() []onced.Identity {
	return slices.SortedFunc(maps.Keys(h.outside), func(a, b onced.Identity) int { return strings.Compare(a.Key, b.Key) })
}

// pickID picks an operation, the first more often than the other.
func (h *history) pickID() onced.Identity { return h.ids()[h.choose.pick("key", 4)/3%len(h.outside)] }

// tick computes store time, and what expiry is measured against.
func (h *history) tick() {
	h.now = later(h.real.Add(h.wrong), h.floor)
	h.expiryHeld = 0
	if up := h.real.Sub(h.started); h.gap && up < time.Hour {
		h.expiryHeld = h.now.Sub(h.floor.Add(up))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pass lets time pass for everybody. Effects that are under way by then have
// happened, or never will.
func (h *history) pass(d time.Duration) {
	h.real = h.real.Add(d)
	for _, id := range h.ids() {
		for _, e := range slices.Clone(h.outside[id].underWay) {
			if !h.real.Before(e.until) {
				h.outside[id].decide(e, h.choose.pick("the effect happens", 2) == 1)
			}
		}
	}
	h.tick()
}

// boot starts the process over what is stored.
func (h *history) boot() {
	h.started, h.floor = h.real, h.newest
	h.gap = !h.floor.IsZero() && h.real.Add(h.wrong).Sub(h.floor) > time.Hour
	h.tick()
	h.epoch.ServingSince = h.now
	h.memory = h.memory.WithRetention(h.policy.KeyRetention, h.now.Add(-h.expiryHeld))
	h.policy.MemorySince = h.memory.Since
}

// restarted ends the process and starts it after a while, under the same
// configuration or another one.
func (h *history) restarted() {
	h.pass([]time.Duration{0, time.Second, 30 * time.Second, 2 * time.Hour}[h.choose.pick("down", 4)])
	if !h.honest {
		h.wrong = []time.Duration{0, time.Minute, 2 * time.Hour, 40 * day}[h.choose.pick("clock ahead", 4)]
	}
	if h.keyed {
		h.policy.KeyRetention = []time.Duration{shortRetention, longRetention}[h.choose.pick("retention", 2)]
	}
	h.boot()
}

// save copies the store as it is.
func (h *history) save() image {
	return image{
		records: maps.Clone(h.records), twins: maps.Clone(h.twins), fence: h.fence, topFence: h.topFence,
		newest: h.newest, memory: h.memory,
		memo: memo{maps.Clone(h.memo.first), maps.Clone(h.memo.holds)},
	}
}

// load puts a copy in the place of the store. Fences that have been used stay
// used.
func (h *history) load(i image) {
	h.records, h.twins, h.fence = maps.Clone(i.records), maps.Clone(i.twins), i.fence
	h.newest, h.memory = i.newest, i.memory
	h.memo = memo{maps.Clone(i.memo.first), maps.Clone(i.memo.holds)}
	h.holding, h.held = false, nil
}

// holdSync lets decisions pile up that are neither durable nor answered.
func (h *history) holdSync() {
	if !h.holding {
		h.holding, h.durable = true, h.save()
	}
}

// sync makes them durable and lets the answers leave.
func (h *history) sync() {
	h.holding = false
	h.pool = append(h.pool, h.held...)
	h.held = nil
}

// powerLoss loses what is not durable, which nobody was told of, and restarts.
func (h *history) powerLoss() {
	if h.holding {
		h.topFence = h.durable.topFence
		h.load(h.durable)
	}
	h.restarted()
}

// backup keeps a copy of what is durable.
func (h *history) backup() {
	if h.holding {
		h.backups = append(h.backups, h.durable)
	} else {
		h.backups = append(h.backups, h.save())
	}
}

// restored starts a new generation over a backup. Operators who were about to
// repeat a decision look again first.
func (h *history) restored(i image) {
	h.load(i)
	h.pool = slices.DeleteFunc(h.pool, func(m *message) bool { return m.kind == resolveMessage })
	h.epoch.Generation = max(uint64(h.real.Unix()), h.epoch.Generation+1)
	h.fence = h.epoch.Generation << 32
	h.restarted()
	h.epoch.BlindUntil = h.now
}

// endBlindPeriod is an operator's word that nothing unknown may have happened,
// after a look at what is durable.
func (h *history) endBlindPeriod() {
	h.sync()
	for id, o := range h.outside {
		if h.honest && h.records[id] == nil && (o.happened > 0 || len(o.underWay) > 0 || h.mayBegin(id)) {
			return
		}
	}
	h.note("the blind period ends")
	h.epoch.BlindUntil = time.Time{}
}

// outside is the system in which the effects of one key happen.
type outside struct {
	happened int // effects since the last reopening
	underWay []*effect
}

// effect is one execution: begun, and then happening or not.
type effect struct {
	until    time.Time // by real; it happens before, or never
	happened bool
	lost     bool
}

func (o *outside) decide(e *effect, happens bool) {
	o.underWay = slices.DeleteFunc(o.underWay, func(x *effect) bool { return x == e })
	e.happened, e.lost = happens, !happens
	if happens {
		o.happened++
	}
}
