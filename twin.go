package onced

import (
	"slices"
	"time"
)

// TwinID names a twin entry: what two operations share that are the same act
// under different keys.
type TwinID struct {
	Namespace   string
	Method      string
	Subject     string
	Fingerprint Fingerprint
}

// Encode returns the identity as bytes; no two share an encoding.
func (t TwinID) Encode() []byte {
	b := appendPart(NamespacePrefix(t.Namespace), t.Method)
	b = appendPart(appendPart(b, t.Subject), t.Fingerprint.Scheme)
	return appendPart(b, t.Fingerprint.Digest)
}

// TwinKey is one key of a twin entry.
type TwinKey struct {
	Key        string
	ClaimTime  time.Time
	SettleTime time.Time // zero while unsettled
}

// TwinEntry holds the keys under which one act was claimed with the twin guard:
// up to 16 unsettled ones (the oldest falls out) and the last settled one.
type TwinEntry struct {
	ID        TwinID
	Unsettled []TwinKey // oldest claim first
	Last      *TwinKey
}

// TwinBlock says which twins stop a claim.
type TwinBlock uint8

// The twin blocks.
const (
	BlockUnsettled         TwinBlock = iota + 1 // twins that are not settled
	BlockUnsettledOrRecent                      // and the last settled one, within the window
)

// TwinGuard asks that a claim be stopped while the same act is under way, or
// was just done, under another key.
type TwinGuard struct {
	Block     TwinBlock
	Window    time.Duration // how long after its settlement a twin is recent
	Confirmed string        // this twin, and all that were claimed before it, are known to the caller
}

// Due returns when the entry can be dropped: nothing is unsettled and the last
// settlement is a day old. ok is false while it must stay.
func (e *TwinEntry) Due() (due time.Time, ok bool) {
	switch {
	case len(e.Unsettled) > 0:
		return time.Time{}, false
	case e.Last == nil:
		return time.Time{}, true
	default:
		return e.Last.SettleTime.Add(twinEntryLifetime), true
	}
}

// blocker returns the newest twin that stops a claim of key, or nil.
func (e *TwinEntry) blocker(key string, g TwinGuard, now time.Time) *TwinKey {
	if e == nil {
		return nil
	}
	candidates := slices.Clone(e.Unsettled)
	if e.Last != nil && g.Block == BlockUnsettledOrRecent && now.Before(e.Last.SettleTime.Add(g.Window)) {
		candidates = append(candidates, *e.Last)
	}
	passed, confirmed := e.claimTime(g.Confirmed)
	var newest *TwinKey
	for i, c := range candidates {
		if c.Key == key || confirmed && !c.ClaimTime.After(passed) {
			continue
		}
		if newest == nil || !c.ClaimTime.Before(newest.ClaimTime) {
			newest = &candidates[i]
		}
	}
	return newest
}

func (e *TwinEntry) claimTime(key string) (time.Time, bool) {
	if key == "" {
		return time.Time{}, false
	}
	for _, k := range e.Unsettled {
		if k.Key == key {
			return k.ClaimTime, true
		}
	}
	if e.Last != nil && e.Last.Key == key {
		return e.Last.ClaimTime, true
	}
	return time.Time{}, false
}

// claimed returns the entry with key among the unsettled ones.
func (e *TwinEntry) claimed(id TwinID, key string, at time.Time) *TwinEntry {
	next := e.without(id, key)
	next.Unsettled = append(next.Unsettled, TwinKey{Key: key, ClaimTime: at})
	// A key that comes back, its release withdrawn, was claimed before others.
	slices.SortStableFunc(next.Unsettled, func(a, b TwinKey) int { return a.ClaimTime.Compare(b.ClaimTime) })
	if n := len(next.Unsettled); n > maxTwinKeys {
		next.Unsettled = next.Unsettled[n-maxTwinKeys:]
	}
	return next
}

// settled returns the entry with key as the last settled one.
func (e *TwinEntry) settled(id TwinID, key string, claimed, at time.Time) *TwinEntry {
	next := e.without(id, key)
	next.Last = &TwinKey{Key: key, ClaimTime: claimed, SettleTime: at}
	return next
}

// without returns a copy of the entry, which may be nil, that does not hold key.
func (e *TwinEntry) without(id TwinID, key string) *TwinEntry {
	next := &TwinEntry{ID: id}
	if e == nil {
		return next
	}
	for _, k := range e.Unsettled {
		if k.Key != key {
			next.Unsettled = append(next.Unsettled, k)
		}
	}
	if e.Last != nil && e.Last.Key != key {
		next.Last = e.Last
	}
	return next
}
