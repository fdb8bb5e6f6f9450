package bolt

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestReadBesideACommit: while a commit that can be seen is not durable, what it leaves
// alone is read without waiting for it; what it writes or deletes is not.
func TestReadBesideACommit(t *testing.T) {
	h := newHarness(t)
	write := func(id onced.Identity, plan func(onced.View) onced.Plan) error {
		return h.store.Update(context.Background(), storage.Target{ID: id}, plan)
	}
	large := onced.NewResult("", false, make([]byte, 2*storage.LargePayload))
	put := func(v onced.View) onced.Plan {
		r := grant(v.ID, v.Now)
		r.State, r.Result = onced.StateCompleted, large
		return onced.Plan{Put: r}
	}
	const deleted, left, absent, written = 0, 1, 2, 3
	for _, i := range []int{deleted, left} {
		if err := write(benchmarkID(i), put); err != nil {
			t.Fatal(err)
		}
	}
	commits, release := h.written.Load(), h.HoldSync()
	defer release()
	// The first is held; the two behind it are one batch, which the test lets be seen.
	var all sync.WaitGroup
	all.Go(func() { _ = write(benchmarkID(9), put) })
	eventually(t, "a commit", func() bool { return h.written.Load() == commits+1 })
	all.Go(func() { _ = write(benchmarkID(written), put) })
	all.Go(func() {
		_ = write(benchmarkID(deleted), func(onced.View) onced.Plan { return onced.Plan{Delete: true} })
	})
	eventually(t, "two that wait", func() bool { return h.store.queue.len() == 2 })
	releaseSecond := h.HoldSync()
	defer releaseSecond()
	release()
	eventually(t, "the second commit", func() bool { return h.written.Load() == commits+2 })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, there := range map[int]bool{left: true, absent: false} {
		if v, err := h.store.Get(ctx, benchmarkID(i)); err != nil || (v.Record != nil) != there {
			t.Errorf("%d, which the commit leaves alone: %v, %v", i, v.Record, err)
		}
	}
	if b, err := h.store.Payload(ctx, benchmarkID(left), large.SHA256); err != nil || len(b) != int(large.Size) {
		t.Errorf("its payload: %d bytes, %v", len(b), err)
	}
	for _, i := range []int{written, deleted} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if v, err := h.store.Get(ctx, benchmarkID(i)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d was shown before its commit was durable: %v, %v", i, v.Record, err)
		}
		cancel()
	}
	releaseSecond()
	all.Wait()
	for i, there := range map[int]bool{written: true, deleted: false} {
		if v, err := h.store.Get(ctx, benchmarkID(i)); err != nil || (v.Record != nil) != there {
			t.Errorf("%d, after the commit: %v, %v", i, v.Record, err)
		}
	}
}
