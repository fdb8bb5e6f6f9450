package bolt

import (
	"context"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestPageBytes: a page of a scan ends with the record that takes it over its bytes,
// however many records were asked for; the next one goes on behind it.
func TestPageBytes(t *testing.T) {
	const n, size = 9, pageBytes / 4
	h := newHarness(t)
	for i := range n {
		r := grant(benchmarkID(i), h.clock.Wall())
		r.Holder = strings.Repeat("h", size)
		h.put(r)
	}
	var pages []int
	seen := map[onced.Identity]bool{}
	for cursor := storage.Cursor(nil); ; {
		page, err := h.store.ScanIdentity(t.Context(), nil, cursor, 1000)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(page.Views))
		for _, v := range page.Views {
			seen[v.ID] = true
		}
		if cursor = page.Next; cursor == nil {
			break
		}
	}
	if len(pages) != 3 || pages[0] != 4 || pages[1] != 4 || len(seen) != n {
		t.Errorf("%d records of a quarter page came as pages of %d, want 4, 4 and 1", len(seen), pages)
	}
}

// TestNotTakenAfterItsContext: what waits when its caller's context ends is not
// carried out, also when the committer comes to it before the caller has said so.
func TestNotTakenAfterItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &request{ctx: ctx}
	if r.take() || r.state.Load() != withdrawn {
		t.Errorf("a request whose context has ended is taken up, in state %d", r.state.Load())
	}
	r = &request{ctx: t.Context()}
	if !r.take() {
		t.Error("a request is not taken up")
	}
}

// TestRoomWritesNothing: whoever asks again and again whether there is room makes no
// commits.
func TestRoomWritesNothing(t *testing.T) {
	h := newHarness(t)
	h.put(grant(benchmarkID(0), h.clock.Wall()))
	before := h.commits.Load()
	for range 10 {
		if err := h.store.Room(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.commits.Load() - before; n != 0 {
		t.Errorf("10 questions took %d commits", n)
	}
}
