package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestReserveKeep: the file is made longer when less than the reserve is left in it,
// by enough for a while, and what is free counts as left.
func TestReserveKeep(t *testing.T) {
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
		{"free pages are enough", 0, 5 << 20, 4 << 20, size + size/growth + 1<<20},
		{"all is used", 2 << 20, 2 << 20, 0, 2<<20 + size + size/growth},
		{"used beyond the end", 2 << 20, 3 << 20, 0, 3<<20 + size + size/growth},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		r := reserve{file: file, size: size, end: step.end}
		if full, err := r.keep(step.used, step.free); full != nil || err != nil {
			t.Errorf("%s: %v, %v", step.name, full, err)
		}
		if r.size == 0 {
			t.Skip("this disk gives no blocks in advance")
		}
		if r.end != step.want {
			t.Errorf("%s: the file reaches to %d, want %d", step.name, r.end, step.want)
		}
		if left := r.end - step.used + step.free; left < size {
			t.Errorf("%s: %d bytes are left, less than the reserve", step.name, left)
		}
		if info, err := file.Stat(); err != nil || step.end != r.end && info.Size() != r.end {
			t.Errorf("%s: the file has %v bytes, %v", step.name, info.Size(), err)
		}
	}
}

// setReserve changes the reserve by the committer, whose it is.
func (h *harness) setReserve(size int64) {
	h.t.Helper()
	err := h.store.queue.do(h.t.Context(), storage.ClassSettlement, func(b *batch) (change, error) {
		b.store.reserve.size = size
		return change{}, nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// moreThanAnyDisk cannot be kept on any.
const moreThanAnyDisk = 1 << 60

// TestReserveClaims: when the reserve cannot be kept, claims are refused before
// they write, and settlements and sweeps go on; what changes nothing is answered.
// With room again claims go on as well.
func TestReserveClaims(t *testing.T) {
	h := newHarness(t)
	h.put(grant(benchmarkID(0), h.clock.Wall()))
	h.setReserve(moreThanAnyDisk)
	try := func(i int, class storage.Class, plan func(int, onced.View) onced.Plan) error {
		return h.store.Update(t.Context(), storage.Target{ID: benchmarkID(i), Class: class}, func(v onced.View) onced.Plan { return plan(i, v) })
	}
	nothing := func(_ int, v onced.View) onced.Plan {
		if v.Record == nil {
			t.Error("a refusal was decided on nothing")
		}
		return onced.Plan{}
	}
	for i, c := range []struct {
		class storage.Class
		plan  func(int, onced.View) onced.Plan
		want  error
	}{
		{storage.ClassClaim, nothing, nil},
		{storage.ClassClaim, plainGrant, storage.ErrFull},
		{storage.ClassSettlement, plainGrant, nil},
		{storage.ClassSweep, plainGrant, nil},
	} {
		if err := try(i, c.class, c.plan); !errors.Is(err, c.want) || errors.Is(err, storage.ErrFailed) {
			t.Errorf("%v %d: %v, want %v", c.class, i, err, c.want)
		}
	}
	if err := h.store.Room(t.Context()); !errors.Is(err, storage.ErrFull) {
		t.Errorf("Room: %v, want ErrFull", err)
	}
	if err := h.store.UpdateMeta(t.Context(), func(m storage.Meta) storage.Meta { return m }); err != nil {
		t.Errorf("UpdateMeta: %v", err)
	}
	if v, err := h.store.Get(t.Context(), benchmarkID(1)); err != nil || v.Record != nil {
		t.Errorf("a claim that was refused has left %+v, %v", v.Record, err)
	}
	h.setReserve(1 << 20)
	if err := errors.Join(h.store.Room(t.Context()), try(1, storage.ClassClaim, plainGrant)); err != nil {
		t.Errorf("with room again: %v", err)
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
	written := h.written.Load()
	release := h.HoldSync()
	defer release()
	first := make(chan error)
	go func() {
		first <- h.tryPut(grant(benchmarkID(100), h.clock.Wall()))
	}()
	eventually(t, "a commit to be held", func() bool { return h.written.Load() > written })
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
	if err := <-first; err != nil {
		t.Fatal(err)
	}
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

// TestNoReserveOnThisDisk: where a disk gives no blocks in advance, nothing is
// refused for that.
func TestNoReserveOnThisDisk(t *testing.T) {
	r := reserve{file: os.Stdin, size: 0}
	if full, err := r.keep(1<<40, 0); full != nil || err != nil {
		t.Errorf("%v, %v", full, err)
	}
	for _, err := range []error{os.ErrPermission, errors.New("any other")} {
		if cannotAllocate(err) {
			t.Errorf("%v is taken for a disk without blocks in advance", err)
		}
	}
}
