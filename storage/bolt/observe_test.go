package bolt

import (
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestObserve: what is told of a batch is who was in it, how long the first of each
// class had waited, and what was written and for how long; before any is answered.
func TestObserve(t *testing.T) {
	h := newHarness(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	var told []storage.Commit // the committer's, until its batch is answered
	h.options.Observe = func(c storage.Commit) { told = append(told, c) }
	h.store = h.open(h.dir)
	for i := range 2 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	release := h.hold()
	const waited, took = 2 * time.Second, 3 * time.Second
	errs := make(chan error)
	for i, try := range []func() error{
		func() error { return h.settle(0, 10) },
		func() error { return h.settle(1, 10) },
		func() error {
			return h.run(2, storage.ClassClaim, func(onced.View) onced.Plan {
				h.clock.Advance(took)
				return onced.Plan{}
			})
		},
	} {
		go func() { errs <- try() }()
		eventually(t, "an update to queue", func() bool { return h.store.queue.len() == i+1 })
		if i == 0 {
			h.clock.Advance(waited)
		}
	}
	release()
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 4 {
		t.Fatalf("%d batches were told of, want 4", len(told))
	}
	got := told[3]
	if got.Bytes < 100 || got.Bytes > 10_000 {
		t.Errorf("%d bytes were told of", got.Bytes)
	}
	got.Bytes = 0
	want := storage.Commit{
		Requests: [storage.Classes]int{storage.ClassClaim: 1, storage.ClassSettlement: 2},
		Waited:   [storage.Classes]time.Duration{storage.ClassSettlement: waited}, Took: took,
	}
	if got != want {
		t.Errorf("told was %+v, want %+v", got, want)
	}
	h.clock.Advance(time.Hour)
	err := h.run(0, storage.ClassClaim, func(onced.View) onced.Plan {
		h.clock.Advance(took)
		return onced.Plan{}
	})
	if err != nil {
		t.Fatal(err)
	}
	want = storage.Commit{Requests: [storage.Classes]int{storage.ClassClaim: 1}}
	if got := told[4]; got != want {
		t.Errorf("of one that changed nothing was told %+v, want %+v", got, want)
	}
}
