//go:build faults

package bolt

import (
	"errors"
	"slices"
	"testing"

	"github.com/onced/onced/storage"
)

// TestWithFaults: each switch stands where it says, and its error counts.
func TestWithFaults(t *testing.T) {
	h := newHarness(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	var called []string
	var before, after error
	h.options = h.options.WithFaults(Faults{
		BeforeCommit: func() error { called = append(called, "before commit"); return before },
		AfterCommit:  func() error { called = append(called, "after commit"); return after },
		BeforeAnswer: func() { called = append(called, "before answer") },
	})
	h.store = h.open(h.dir)
	h.put(grant(benchmarkID(0), h.clock.Wall()))
	if want := []string{"before commit", "after commit", "before answer"}; !slices.Equal(called, want) {
		t.Errorf("called: %q, want %q", called, want)
	}
	before = DiskFull
	if err := h.tryPut(grant(benchmarkID(1), h.clock.Wall())); !errors.Is(err, storage.ErrFull) {
		t.Errorf("a full disk: %v", err)
	}
	before, after = nil, errors.New("sync failed on purpose")
	if err := h.tryPut(grant(benchmarkID(1), h.clock.Wall())); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("a failed sync: %v", err)
	}
}
