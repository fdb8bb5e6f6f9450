package main

import (
	"bytes"
	"crypto/sha256"
	"math/bits"
	"slices"
	"time"

	"github.com/onced/onced"
)

// digest names a state: two worlds with the same digest have the same future.
type digest [16]byte

// encoder writes worlds down so that worlds with the same future are written
// alike: instants as far as a comparison can tell them apart, fences by rank,
// callers in an order of their own, and nothing that no transition looks at.
type encoder struct {
	m     *model
	w     *world
	used  [4]uint64 // the fences that occur
	buf   []byte
	parts [maxCallers][]byte
}

// key returns the digest of a world.
func (e *encoder) key(m *model, w *world) digest {
	e.m, e.w = m, w
	e.collectFences()
	e.buf = e.buf[:0]
	e.service()
	e.record(w.record, uint64(w.generation))
	if w.backup != nil {
		e.record(w.backup.record, uint64(w.backup.fences>>4))
		e.put(e.rank(w.backup.fences))
	}
	for c := range m.Callers {
		e.parts[c] = e.caller(e.parts[c][:0], c)
	}
	callers := e.parts[:m.Callers]
	slices.SortFunc(callers, bytes.Compare)
	for _, part := range callers {
		e.buf = append(e.buf, part...)
	}
	sum := sha256.Sum256(e.buf)
	return digest(sum[:16])
}

func (e *encoder) put(b ...byte) { e.buf = append(e.buf, b...) }

func (e *encoder) collectFences() {
	e.used = [4]uint64{}
	use := func(f fence) { e.used[f>>6] |= 1 << (f & 63) }
	use(e.w.fences)
	use(e.w.lastFence)
	for i := range e.m.runCount() {
		use(e.w.runs[i].fence)
		use(e.w.runs[i].answer.fence)
		use(e.w.ghosts[i].fence)
	}
	records := []*onced.Record{e.w.record}
	if b := e.w.backup; b != nil {
		use(b.fences)
		records = append(records, b.record)
		for _, g := range b.ghosts {
			use(g.fence)
		}
	}
	for _, r := range records {
		if r != nil {
			use(fenceOf(r.Fence))
		}
	}
}

// rank is the position of a fence among those that occur; no fence has rank 0.
func (e *encoder) rank(f fence) byte {
	if f == 0 {
		return 0
	}
	n := 1
	for i := range f >> 6 {
		n += bits.OnesCount64(e.used[i])
	}
	return byte(n + bits.OnesCount64(e.used[f>>6]&(1<<(f&63)-1)))
}

// since is the distance of an instant from now, cut off where no comparison
// sees any further.
func (e *encoder) since(t, least, greatest int16) byte {
	return byte(100 + max(least, min(t-e.w.now, greatest)))
}

func (e *encoder) sinceTime(t time.Time, least, greatest int16) byte {
	if t.IsZero() {
		return 0
	}
	return e.since(ticks(t), least, greatest)
}

// horizon is how far back an instant can still matter to a takeover.
func (e *encoder) horizon() int16 { return leaseTicks + e.m.reconcileTicks() }

func (e *encoder) service() {
	w, horizon := e.w, e.horizon()
	e.put(e.since(w.serving, -horizon, 0), flags(w.blind, w.unreadable, w.excused, w.backup != nil))
	e.put(e.rank(w.fences), e.rank(w.lastFence), w.lies, w.restores, w.decided)
	if e.m.Expiry {
		e.put(byte(min(w.now, keyTicks+1))) // the key was minted at 0
	}
	for _, d := range w.decisions[:w.decided] {
		current := w.record != nil && w.record.Etag(uint64(w.generation)) == d.etag
		e.put(byte(d.as), flags(d.force, current))
	}
}

func (e *encoder) record(r *onced.Record, generation uint64) {
	if r == nil {
		e.put(0)
		return
	}
	e.put(1, byte(r.State), byte(r.Reason), byte(r.Attempt), e.rank(fenceOf(r.Fence)))
	e.put(flags(r.Generation == generation, r.Heard, r.ByTakeover, r.Doubt, r.Contradicted, r.ByOperator))
	e.put(e.sinceTime(r.LeaseEnd, -e.horizon(), leaseTicks), e.sinceTime(r.DoubtTime, -e.horizon(), 0))
	expiries := int16(0)
	if e.m.Expiry {
		expiries = keyTicks
	}
	e.put(e.sinceTime(r.KeyExpire, 0, expiries), e.sinceTime(r.ResultExpire, 0, expiries))
	byOperator := e.m.outcomes[r.SettledDigest] == 1
	e.put(flags(r.Result != nil && r.Result.Presence == onced.Stored, byOperator))
	if r.LastResolve != nil {
		e.put(r.LastResolve.Evidence[0])
	}
	e.put(byte(len(r.Attempts)))
}

// caller writes a caller's runs, each with its attempts in the record and in the
// backup, so that the record itself need not say whose they are.
func (e *encoder) caller(b []byte, c int) []byte {
	for i := c * e.m.Tokens; i < (c+1)*e.m.Tokens; i++ {
		b = e.run(b, &e.w.runs[i])
		b = e.ghost(b, &e.w.ghosts[i])
		b = e.attempt(b, e.w.record, i)
		if e.w.backup != nil {
			b = e.ghost(b, &e.w.backup.ghosts[i])
			b = e.attempt(b, e.w.backup.record, i)
		}
	}
	return b
}

func (e *encoder) run(b []byte, r *run) []byte {
	b = append(b, byte(r.phase), r.takes, byte(r.effect), byte(r.sent), e.rank(r.fence), flags(r.tookOver, r.rerun, r.lied))
	switch r.phase {
	case claiming:
		b = append(b, e.since(r.sentAt, -leaseTicks, 0), byte(r.answer.licence))
		if r.answer.licence != noLicence {
			b = append(b, e.rank(r.answer.fence), e.since(r.answer.deadline, 0, leaseTicks))
		}
	case running:
		b = append(b, e.since(r.deadline, 0, leaseTicks))
	}
	if r.effect == flying {
		b = append(b, e.since(r.landBy, 0, leaseTicks+landTicks))
	}
	return b
}

func (e *encoder) ghost(b []byte, g *ghost) []byte {
	return append(b, e.rank(g.fence), byte(g.accepted), byte(g.word),
		flags(g.overridden, g.falseVerdict, g.operatorSaid, g.blindEnded))
}

// attempt writes what a record holds of a run: where its attempts stand, what
// they have reported, and whether its outcome is the operation's.
func (e *encoder) attempt(b []byte, r *onced.Record, i int) []byte {
	if r == nil {
		return append(b, 0)
	}
	for at, a := range r.Attempts {
		if a.Token != e.m.digests[i] {
			continue
		}
		var said byte
		for _, f := range a.Facts {
			if f.Failed {
				said |= 1
			} else {
				said |= 2
			}
		}
		b = append(b, byte(at+1), byte(a.Number), e.rank(fenceOf(a.Fence)), byte(a.Reports), said)
	}
	return append(b, 255, flags(e.m.outcomes[r.SettledDigest] == byte(2+i)))
}

func flags(set ...bool) byte {
	var b byte
	for i, on := range set {
		if on {
			b |= 1 << i
		}
	}
	return b
}
