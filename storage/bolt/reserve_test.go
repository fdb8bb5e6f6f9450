package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestReserve: the file is made longer when less than the reserve is left in it,
// by enough for a while, and what is free counts as left.
func TestReserve(t *testing.T) {
	const size = 1 << 20
	for _, step := range []struct {
		name       string
		end        int64 // before
		used, free int64
		want       int64 // end after it
	}{
		{"a new file", 0, 8192, 0, 8192 + size + size/growth},
		{"enough is left", 3 << 20, 2 << 20, 0, 3 << 20},
		{"a byte is missing", 3 << 20, 2<<20 + 1, 0, 2<<20 + 1 + size + size/growth},
		{"free pages are enough", 0, 5 << 20, 4 << 20, 5 << 20},
		{"free pages are not enough", 0, 5 << 20, size / 2, 5<<20 + size/2 + size/growth},
		{"all is used", 2 << 20, 2 << 20, 0, 2<<20 + size + size/growth},
		{"used beyond the end", 2 << 20, 3 << 20, 0, 3<<20 + size + size/growth},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		r := reserve{file: file, size: size, end: step.end}
		m, err := r.forBatch(step.used, step.free)
		if m.scarce != nil || err != nil {
			t.Errorf("%s: %v, %v", step.name, m.scarce, err)
		}
		if r.size == 0 {
			t.Skip("NOT TESTED: this disk gives no blocks in advance")
		}
		if r.end != step.want {
			t.Errorf("%s: the file reaches to %d, want %d", step.name, r.end, step.want)
		}
		if m.left() < size {
			t.Errorf("%s: %d bytes are left, less than the reserve", step.name, m.left())
		}
		if info, err := file.Stat(); err != nil || r.end > max(step.end, step.used) && info.Size() != r.end {
			t.Errorf("%s: the file has %v bytes, %v", step.name, info.Size(), err)
		}
		if r.end > step.used && (r.zeroed <= step.used || r.zeroed > r.end) {
			t.Errorf("%s: zeros were written up to %d, with %d in use and the end at %d", step.name, r.zeroed, step.used, r.end)
		}
	}
}

// setReserve changes how much is to be kept and how much is left, by the committer,
// whose it is.
func (h *harness) setReserve(size, left int64) {
	h.t.Helper()
	err := h.store.queue.do(h.t.Context(), storage.ClassSettlement, func(b *batch) (change, error) {
		r := &b.store.reserve
		r.size, r.end = size, left+b.tx.Size()-b.store.free()
		return change{}, nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestReserveClasses: with less than the reserve claims are refused before they
// write, and settlements go on until only the part of the sweeps is left, which go
// on to the end. What changes nothing is answered. With room again so is the rest.
func TestReserveClasses(t *testing.T) {
	h := newHarness(t)
	for i := range 3 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	try := func(i int, class storage.Class, plan func(onced.View) onced.Plan) error {
		return h.store.Update(t.Context(), storage.Target{ID: benchmarkID(i), Class: class}, plan)
	}
	nothing := func(v onced.View) onced.Plan {
		if v.Record == nil {
			t.Error("a refusal was decided on nothing")
		}
		return onced.Plan{}
	}
	change := func(v onced.View) onced.Plan { return onced.Plan{Put: grant(v.ID, v.Now)} }
	const more = 1 << 50 // than any disk has
	for _, c := range []struct {
		name                      string
		size, left                int64 // of the reserve
		claim, settlement, sweeps error
	}{
		{"all is kept", 8 << 20, 8 << 20, nil, nil, nil},
		{"less is kept", more, more/sweepReserve + 1<<20, storage.ErrFull, nil, nil},
		{"the part of the sweeps", more, more/sweepReserve + 1, storage.ErrFull, storage.ErrFull, nil},
		{"nothing is kept", more, 0, storage.ErrFull, storage.ErrFull, nil},
		{"with room again", 1 << 20, 1 << 20, nil, nil, nil},
	} {
		for class, want := range map[storage.Class]error{
			storage.ClassClaim: c.claim, storage.ClassSettlement: c.settlement, storage.ClassSweep: c.sweeps,
		} {
			h.setReserve(c.size, c.left)
			if err := try(int(class), class, change); !errors.Is(err, want) || errors.Is(err, storage.ErrFailed) {
				t.Errorf("%s: a %v: %v, want %v", c.name, class, err, want)
			}
			h.setReserve(c.size, c.left)
			if err := try(int(class), class, nothing); err != nil {
				t.Errorf("%s: a %v that changes nothing: %v", c.name, class, err)
			}
		}
		h.setReserve(c.size, c.left)
		if err := h.store.Room(t.Context()); !errors.Is(err, c.claim) {
			t.Errorf("%s: Room: %v, want %v", c.name, err, c.claim)
		}
	}
}

// TestSettlementRoom: a settlement finds room for twice what it and its batch write and
// a little, beside the part of the sweeps, and not with a byte less.
func TestSettlementRoom(t *testing.T) {
	const bytes, batch, used, free = 5 << 20, 3 << 20, 1 << 20, 4096
	const size = 1 << 50 // more than any disk has
	const needed int64 = 2*(bytes+batch) + 64<<10 + size/sweepReserve
	file, err := os.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for left, want := range map[int64]error{needed: nil, needed - 1: storage.ErrFull} {
		m := room{reserve: &reserve{file: file, size: size, end: used - free + left}, used: used, free: free}
		if scarce, err := m.settlement(bytes, batch); !errors.Is(scarce, want) || err != nil {
			t.Errorf("with %d bytes of %d: %v, %v; want %v", left, needed, scarce, err, want)
		}
	}
}

// TestSettlementsShareRoom: what a batch writes already counts for those that come after
// it.
func TestSettlementsShareRoom(t *testing.T) {
	const large, more = 100_000, 1 << 50 // than any disk has
	h := newHarness(t)
	for i := range 2 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	release := h.hold()
	errs := make([]chan error, 3)
	for i, call := range []func() error{
		func() error { h.setReserve(more, more/sweepReserve+4*large); return nil },
		func() error { return h.settle(0, large) },
		func() error { return h.settle(1, large) },
	} {
		errs[i] = make(chan error, 1)
		go func() { errs[i] <- call() }()
		eventually(t, "an update to queue", func() bool { return h.store.queue.len() == i+1 })
	}
	release()
	for i, want := range []error{nil, nil, storage.ErrFull} {
		if err := <-errs[i]; !errors.Is(err, want) || errors.Is(err, storage.ErrFailed) {
			t.Errorf("update %d: %v, want %v", i, err, want)
		}
	}
}

// TestNoRoomInParts: of a batch that finds no room only those are refused that find
// none without the others: claims first, and then what is too large.
func TestNoRoomInParts(t *testing.T) {
	const members, large = 9, 8
	h := newHarness(t)
	var sawLarge bool // the committer's
	h.store.hooks.beforeCommit = func() error {
		defer func() { sawLarge = false }()
		if sawLarge {
			return full
		}
		return nil
	}
	release := h.hold()
	errs := make([]chan error, members)
	for i := range errs {
		errs[i] = make(chan error, 1)
		class := storage.ClassSettlement
		if i%4 == 0 && i != large {
			class = storage.ClassClaim
		}
		go func() {
			errs[i] <- h.store.Update(t.Context(), storage.Target{ID: benchmarkID(i), Class: class}, func(v onced.View) onced.Plan {
				sawLarge = sawLarge || i == large
				return plainGrant(i, v)
			})
		}()
		eventually(t, "an update to queue", func() bool { return h.store.queue.len() == i+1 })
	}
	release()
	for i := range errs {
		want := error(nil)
		if i%4 == 0 { // the claims and the large one
			want = storage.ErrFull
		}
		if err := <-errs[i]; !errors.Is(err, want) || errors.Is(err, storage.ErrFailed) {
			t.Errorf("update %d: %v, want %v", i, err, want)
		}
		if v, err := h.store.Get(t.Context(), benchmarkID(i)); err != nil || (v.Record != nil) != (want == nil) {
			t.Errorf("record %d: %v, %v", i, v.Record, err)
		}
	}
}

// TestNoReserveOnThisDisk: where a disk gives no blocks in advance, nothing is refused
// for that, whatever it says instead.
func TestNoReserveOnThisDisk(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	for name, file := range map[string]*os.File{"a pipe": out, "no writing": in} {
		r := reserve{file: file, size: 1 << 20}
		m, err := r.forBatch(1<<30, 0)
		if m.claims() != nil || err != nil || r.size != 0 {
			t.Errorf("%s: %v, %v, and %d bytes are to be kept", name, m.claims(), err, r.size)
		}
		if scarce, err := m.settlement(16<<20, 0); scarce != nil || err != nil {
			t.Errorf("%s: %v, %v", name, scarce, err)
		}
	}
}
