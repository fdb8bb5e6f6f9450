package bolt

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// newQueue returns a queue in which so many requests of each class wait.
func newQueue(limit int, wait [storage.Classes]int) *queue {
	q := &queue{clock: storagetest.NewClock(), limit: limit, wake: make(chan struct{}, 1)}
	for class, n := range wait {
		for range n {
			q.lines[class] = append(q.lines[class], &request{ctx: context.Background(), class: storage.Class(class)})
		}
	}
	return q
}

// TestPick: settlements come first and leave room to the others; what one class
// does not use the next one may.
func TestPick(t *testing.T) {
	const claims, settlements, sweeps = storage.ClassClaim, storage.ClassSettlement, storage.ClassSweep
	for name, c := range map[string]struct{ waiting, want [storage.Classes]int }{
		"nothing":           {},
		"all of all":        {[...]int{claims: 500, settlements: 500, sweeps: 500}, [...]int{claims: 16, settlements: 40, sweeps: 8}},
		"claims alone":      {[...]int{claims: 500, sweeps: 0}, [...]int{claims: 64, sweeps: 0}},
		"settlements alone": {[...]int{settlements: 500, sweeps: 0}, [...]int{settlements: 64, sweeps: 0}},
		"sweeps alone":      {[...]int{sweeps: 500}, [...]int{sweeps: 8}},
		"few settlements":   {[...]int{claims: 500, settlements: 4, sweeps: 500}, [...]int{claims: 52, settlements: 4, sweeps: 8}},
		"few claims":        {[...]int{claims: 3, settlements: 500, sweeps: 0}, [...]int{claims: 3, settlements: 61, sweeps: 0}},
		"few of all":        {[...]int{claims: 1, settlements: 1, sweeps: 1}, [...]int{claims: 1, settlements: 1, sweeps: 1}},
	} {
		q := newQueue(64, c.waiting)
		var got [storage.Classes]int
		var last storage.Class = settlements
		order := map[storage.Class]int{settlements: 0, claims: 1, sweeps: 2}
		for _, r := range q.pick() {
			got[r.class]++
			if order[r.class] < order[last] {
				t.Errorf("%s: a %v comes after a %v", name, r.class, last)
			}
			last = r.class
		}
		if got != c.want {
			t.Errorf("%s: picked %v, want %v", name, got, c.want)
		}
		for class, n := range q.depths() {
			if n != c.waiting[class]-got[class] {
				t.Errorf("%s: %d %vs are left of %d, and %d were picked", name, n, storage.Class(class), c.waiting[class], got[class])
			}
		}
	}
}

// TestPickKeepsOrder: those of a class are taken in the order in which they came.
func TestPickKeepsOrder(t *testing.T) {
	q := newQueue(8, [...]int{storage.ClassClaim: 30, storage.ClassSweep: 0})
	want := append([]*request(nil), q.lines[storage.ClassClaim]...)
	var got []*request
	for members := q.pick(); len(members) > 0; members = q.pick() {
		got = append(got, members...)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("request %d was taken out of turn", i)
		}
	}
}

// TestOverloaded: claims that would wait for more than two batches are refused at
// once, while settlements still find room, and nothing is left of them.
func TestOverloaded(t *testing.T) {
	h := newHarness(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	h.options.batchLimit = 8
	h.store = h.open(h.dir)
	finish := h.behind(lineBatches[storage.ClassClaim]*8, plainGrant)
	over := storage.Target{ID: benchmarkID(1000)}
	put := func(v onced.View) onced.Plan { return onced.Plan{Put: grant(v.ID, v.Now)} }
	if err := h.store.Update(t.Context(), over, put); !errors.Is(err, storage.ErrOverloaded) {
		t.Errorf("a claim too many: %v, want ErrOverloaded", err)
	}
	settlement := storage.Target{ID: benchmarkID(1001), Class: storage.ClassSettlement}
	var settled sync.WaitGroup
	settled.Go(func() {
		if err := h.store.Update(t.Context(), settlement, put); err != nil {
			t.Errorf("a settlement: %v", err)
		}
	})
	for i, err := range finish() {
		if err != nil {
			t.Errorf("claim %d: %v", i, err)
		}
	}
	settled.Wait()
	for id, want := range map[onced.Identity]bool{over.ID: false, settlement.ID: true} {
		if v, err := h.store.Get(t.Context(), id); err != nil || (v.Record != nil) != want {
			t.Errorf("%v: %v, %v", id, v.Record, err)
		}
	}
}

// TestWithdrawn: a caller whose context ends while it waits is answered at once,
// and nothing of it is carried out.
func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8, [storage.Classes]int{})
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error)
		go func() { answer <- q.do(ctx, storage.ClassClaim, nil) }()
		synctest.Wait()
		cancel()
		if err := <-answer; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
		members := q.pick()
		if len(members) != 1 || members[0].take() {
			t.Errorf("what was withdrawn is carried out: %v", members)
		}
		if err := q.do(ctx, storage.ClassClaim, nil); !errors.Is(err, context.Canceled) || q.len() != 0 {
			t.Errorf("a call whose context has ended was queued: %v", err)
		}
	})
}

// TestPutBack: what a batch had no place for comes next, in its order, and a class of
// which there was no place for any comes first.
func TestPutBack(t *testing.T) {
	const claims, settlements, sweeps = storage.ClassClaim, storage.ClassSettlement, storage.ClassSweep
	for name, c := range map[string]struct {
		done int // of 5 settlements, 2 claims and 1 sweep
		next storage.Class
	}{
		"one":             {1, claims},
		"all settlements": {5, claims},
		"a claim":         {6, sweeps},
		"all but a sweep": {7, sweeps},
		"all":             {8, settlements},
	} {
		q := newQueue(8, [...]int{claims: 30, settlements: 30, sweeps: 30})
		want := q.lines
		for class := range want {
			want[class] = slices.Clone(want[class])
		}
		members := q.pick()
		q.putBack(members, c.done)
		for _, r := range members[:c.done] {
			want[r.class] = want[r.class][1:]
		}
		for class := range want {
			if !slices.Equal(q.lines[class], want[class]) {
				t.Errorf("%s: the line of %vs is another one, of %d instead of %d", name, storage.Class(class), len(q.lines[class]), len(want[class]))
			}
		}
		if next := q.pick(); next[0].class != c.next || len(next) != 8 {
			t.Errorf("%s: %d are next and begin with a %v, want 8 and a %v", name, len(next), next[0].class, c.next)
		}
		if next := q.pick(); next[0].class != settlements {
			t.Errorf("%s: the batch after that begins with a %v", name, next[0].class)
		}
	}
}

// TestPickLetsGo: a line does not hold what was taken out of it, which may be large.
func TestPickLetsGo(t *testing.T) {
	q := newQueue(8, [...]int{storage.ClassClaim: 30, storage.ClassSweep: 0})
	line := q.lines[storage.ClassClaim]
	for i := range q.pick() {
		if line[i] != nil {
			t.Errorf("request %d is still held", i)
		}
	}
}
