package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// run makes an update of a class.
func (h *harness) run(i int, class storage.Class, plan func(onced.View) onced.Plan) error {
	return h.store.Update(h.t.Context(), storage.Target{ID: benchmarkID(i), Class: class}, plan)
}

func (h *harness) claim(i int) error {
	return h.run(i, storage.ClassClaim, func(v onced.View) onced.Plan {
		return onced.Plan{Put: grant(v.ID, v.Now), UsesFence: true}
	})
}

// settle completes a claim with a result of some bytes.
func (h *harness) settle(i, size int) error {
	return h.run(i, storage.ClassSettlement, completed(size))
}

func (h *harness) sweep(i int) error { return h.run(i, storage.ClassSweep, gone) }

// completed plans a completion with a result of some bytes, and gone a deletion.
func completed(size int) func(onced.View) onced.Plan {
	return func(v onced.View) onced.Plan {
		r := *v.Record
		r.State, r.Revision = onced.StateCompleted, r.Revision+1
		r.Result = onced.NewResult("", false, make([]byte, size))
		return onced.Plan{Put: &r}
	}
}

func gone(onced.View) onced.Plan { return onced.Plan{Delete: true} }

// TestLargeInTurn: settlements and sweeps that take a commit each do not keep the other
// classes out.
func TestLargeInTurn(t *testing.T) {
	const large, larger = maxBatchBytes, pieceSize * maxBatchEdits
	h := newHarness(t)
	for i := range 10 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	for i := range 2 {
		if err := h.settle(i, larger); err != nil {
			t.Fatal(err)
		}
	}
	var decided []storage.Class // the committer's
	var all sync.WaitGroup
	release, queued := h.hold(), 0
	try := func(i int, class storage.Class, plan func(onced.View) onced.Plan) {
		all.Go(func() {
			err := h.run(i, class, func(v onced.View) onced.Plan {
				decided = append(decided, class)
				return plan(v)
			})
			if err != nil {
				t.Error(err)
			}
		})
		queued++
		eventually(t, "an update to queue", func() bool { return h.store.queue.len() == queued })
	}
	before := h.commits.Load()
	for i := range 2 {
		try(i, storage.ClassSweep, gone)
		try(2+i, storage.ClassClaim, func(v onced.View) onced.Plan { return plainGrant(i, v) })
	}
	for i := range 3 {
		try(4+i, storage.ClassSettlement, completed(large))
	}
	release()
	all.Wait()
	const s, c, w = storage.ClassSettlement, storage.ClassClaim, storage.ClassSweep
	if want := []storage.Class{s, c, c, w, s, w, s}; !slices.Equal(decided, want) {
		t.Errorf("they were decided in the order %v, want %v", decided, want)
	}
	if got := h.commits.Load() - before - 1; got != 5 {
		t.Errorf("they took %d commits, want 5", got)
	}
}

// TestPanicBefore: a panic in a batch that found no room is none of an update that was
// carried out after that.
func TestPanicBefore(t *testing.T) {
	h := newHarness(t)
	release := h.hold()
	h.before.Store(&full)
	runs := 0
	errs := make(chan error, 2)
	go func() {
		errs <- h.run(0, storage.ClassSettlement, func(v onced.View) onced.Plan { return plainGrant(0, v) })
	}()
	eventually(t, "the first update to queue", func() bool { return h.store.queue.len() == 1 })
	go func() {
		defer func() {
			if p := recover(); p != nil {
				errs <- fmt.Errorf("the caller met %v", p)
			}
		}()
		errs <- h.run(1, storage.ClassSettlement, func(v onced.View) onced.Plan {
			if runs++; runs != 2 {
				panic("fault")
			}
			h.before.Store(nil)
			return plainGrant(1, v)
		})
	}()
	eventually(t, "the updates to queue", func() bool { return h.store.queue.len() == 2 })
	release()
	for range 2 {
		if err := <-errs; err != nil && !errors.Is(err, storage.ErrFull) {
			t.Error(err)
		}
	}
	if v, err := h.store.Get(t.Context(), benchmarkID(1)); err != nil || v.Record == nil {
		t.Errorf("it was not carried out: %+v, %v", v.Record, err)
	}
}

// TestRoomAfterClaims: a claim that found no room is not forgotten when a settlement
// finds some.
func TestRoomAfterClaims(t *testing.T) {
	h := newHarness(t)
	var settling atomic.Bool // which finds room
	h.store.hooks.beforeCommit = func() error {
		if h.before.Load() != nil && !settling.Load() {
			return full
		}
		return nil
	}
	h.put(grant(benchmarkID(0), h.clock.Wall()))
	h.before.Store(&full)
	if err := h.claim(1); !errors.Is(err, storage.ErrFull) {
		t.Fatal(err)
	}
	settling.Store(true)
	if err := h.settle(0, 10); err != nil {
		t.Fatal(err)
	}
	settling.Store(false)
	if err := h.store.Room(t.Context()); !errors.Is(err, storage.ErrFull) {
		t.Errorf("after a settlement: %v, want ErrFull", err)
	}
	h.before.Store(nil)
	commits := h.commits.Load()
	for range 3 {
		if err := h.store.Room(t.Context()); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	if n := h.commits.Load() - commits; n != 1 {
		t.Errorf("that there is room again took %d commits to find out, want 1", n)
	}
}

// TestPayloadPages: what a large payload takes up is little more than its size, when it
// is written and when the file is compacted.
func TestPayloadPages(t *testing.T) {
	const size, most = 4 << 20, 5 << 20
	h := newHarness(t)
	h.put(grant(benchmarkID(0), h.clock.Wall()))
	before := h.store.Stats()
	if err := h.settle(0, size); err != nil {
		t.Fatal(err)
	}
	after := h.store.Stats()
	if took := after.Used - before.Used + before.Free - after.Free; took > most {
		t.Errorf("a payload of %d bytes takes %d", size, took)
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, after, err := Compact(t.Context(), h.dir, nil); err != nil || after > most {
		t.Errorf("compacted, the store takes %d bytes, %v", after, err)
	}
}

// TestZerosLieBehind: zeros are written behind what was in use once, and nowhere else,
// also by a process that knows nothing of the zeros of the one before.
func TestZerosLieBehind(t *testing.T) {
	const page, most = 4096, 24 << 20
	file, err := os.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := reserve{file: file, size: 4<<20 + 1}
	content := make([]byte, page)
	for i := range content {
		content[i] = 0xA5
	}
	used := int64(2 * page)
	fill := func(from, to int64) {
		for at := from; at < to; at += page {
			if _, err := file.WriteAt(content, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(0, used)
	for step := int64(1); used < most; step++ {
		if step%7 == 0 { // a start
			r = reserve{file: file, size: r.size}
		}
		if _, err := r.forBatch(used, used/3); err != nil {
			t.Fatal(err)
		}
		if step%3 == 0 { // a commit that failed when its pages were written
			fill(used, used+step*page)
			continue
		}
		next := used + step*page
		fill(used, next)
		used = next
	}
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	for at, c := range b[:used] {
		if c != 0xA5 {
			t.Fatalf("byte %d was written over, with %d in use", at, used)
		}
	}
}
