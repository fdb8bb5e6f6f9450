package main

import (
	"bytes"
	"slices"
	"testing"
)

// TestStatesWithOneDigestHaveOneFuture checks the encoding of states: whatever
// it leaves out must not matter. When a step leads to a state that was visited
// in another form, both must have the same successors.
func TestStatesWithOneDigestHaveOneFuture(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := s.in
			b.States = 10_000 / raceFactor
			m := newModel(b, realRules())
			compared := compareForms(t, m, 5_000/raceFactor)
			if compared == 0 {
				t.Error("no state was met in two forms")
			}
		})
	}
}

// compareForms walks m and compares the futures of states with the same digest,
// up to a number of comparisons. It returns how many it made.
func compareForms(t *testing.T, m *model, most int) int {
	var enc encoder
	first := map[digest]world{enc.key(m, m.start()): *m.start()}
	compared := 0
	explore(m, func(_ *world, s step, next *world) {
		k := enc.key(m, next)
		known, ok := first[k]
		if !ok {
			first[k] = *next
			return
		}
		if compared == most || sameForm(&known, next) {
			return
		}
		compared++
		if !slices.Equal(successors(m, &known), successors(m, next)) {
			compared = most
			t.Errorf("%q led to a world whose future differs from that of one with the same digest:\n%+v\n%+v", s.verb, *next, known)
		}
	})
	return compared
}

// sameForm reports whether two worlds are the same but for records that were
// made apart.
func sameForm(a, b *world) bool {
	return a.now == b.now && a.fences == b.fences && a.runs == b.runs && a.ghosts == b.ghosts && a.record == b.record
}

func successors(m *model, w *world) []digest {
	var enc encoder
	var keys []digest
	m.steps(w, func(_ step, next *world) {
		k := enc.key(m, next)
		for _, f := range next.broken {
			k[0] ^= f.property[1]
		}
		keys = append(keys, k)
	})
	slices.SortFunc(keys, func(a, b digest) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(keys)
}
