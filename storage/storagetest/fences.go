package storagetest

import (
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testFences: fences only grow, whatever happens to the process, and begin
// above all those of earlier generations.
func testFences(t *testing.T, newHarness newFunc) {
	subtests{
		"first": firstFence, "increase": fencesIncrease, "unused": unusedFences,
		"deleted": fenceOfDeleted, "restored": fencesRestored,
	}.run(t, newHarness)
}

// grant stores a record that uses a fence, and returns the fence.
func (f *fixture) grant(id onced.Identity) uint64 {
	f.t.Helper()
	v := f.update(storage.Target{ID: id}, useFence)
	return v.NextFence
}

// useFence puts a record with the view's next fence, one revision further.
func useFence(v onced.View) onced.Plan {
	r := plain(v.ID, revision(v)+1)
	r.Fence = v.NextFence
	return onced.Plan{Put: r, UsesFence: true}
}

func firstFence(f *fixture) {
	m := f.meta()
	if want := uint64(f.Clock().Wall().Unix()); m.Generation != want {
		f.t.Errorf("generation %d, want the Unix second %d", m.Generation, want)
	}
	if first := f.grant(op("k")); first <= storage.FirstFence(m.Generation) || first >= storage.FirstFence(m.Generation+1) {
		f.t.Errorf("the first fence of generation %d is %d, want one above %d", m.Generation, first, storage.FirstFence(m.Generation))
	}
}

func fencesIncrease(f *fixture) {
	last := uint64(0)
	for round := range 4 {
		for i := range 5 {
			fence := f.grant(op("%d", i%2))
			if fence <= last {
				f.t.Fatalf("round %d: fence %d after %d", round, fence, last)
			}
			if got := f.get(op("%d", i%2)).Record.Fence; got != fence {
				f.t.Fatalf("round %d: fence %d is stored as %d", round, fence, got)
			}
			last = fence
		}
		f.Reopen(round%2 == 0)
	}
}

// unusedFences: a plan that does not take the fence may leave a gap, and must
// not lower anything.
func unusedFences(f *fixture) {
	last := f.grant(op("k"))
	for range 3 {
		f.put(plain(op("l"), 1))
		f.look(storage.Target{ID: op("l")})
		if v := f.look(storage.Target{ID: op("m")}); v.NextFence <= last {
			f.t.Fatalf("the next fence is %d, and %d is used", v.NextFence, last)
		}
		f.Reopen(true)
	}
	if fence := f.grant(op("m")); fence <= last {
		f.t.Errorf("fence %d after %d", fence, last)
	}
}

// fenceOfDeleted: the record that took the newest fence is gone; the fence stays used.
func fenceOfDeleted(f *fixture) {
	last := f.grant(op("k"))
	f.apply(storage.Target{ID: op("k")}, onced.Plan{Delete: true})
	f.Reopen(true)
	if fence := f.grant(op("k")); fence <= last {
		f.t.Errorf("fence %d after %d, whose record was deleted", fence, last)
	}
}

func fencesRestored(f *fixture) {
	last := f.grant(op("k"))
	restored := f.Restore(f.backup())
	var fence uint64
	err := restored.Update(f.t.Context(), storage.Target{ID: op("l")}, func(v onced.View) onced.Plan {
		fence = v.NextFence
		return useFence(v)
	})
	if err != nil || fence <= last {
		f.t.Errorf("the backup's store gives fence %d after %d (%v)", fence, last, err)
	}
}
