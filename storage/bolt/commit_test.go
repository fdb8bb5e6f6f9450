package bolt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// eventually waits for something that must come true soon.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// hold makes a commit whose sync is held: what is queued now waits behind it.
func (h *harness) hold() (release func()) {
	h.t.Helper()
	written := h.written.Load()
	release = h.HoldSync()
	h.t.Cleanup(release)
	go func() { _ = h.tryPut(grant(benchmarkID(1000), h.clock.Wall())) }()
	eventually(h.t, "a commit to be held", func() bool { return h.written.Load() > written })
	return release
}

// behind queues n updates behind one whose sync is held, and returns what releases
// that and waits for all. The updates are those that plan returns.
func (h *harness) behind(n int, plan func(i int, v onced.View) onced.Plan) (finish func() []error) {
	h.t.Helper()
	written := h.written.Load()
	release := h.HoldSync()
	h.t.Cleanup(release)
	errs := make([]error, n+1)
	var wg sync.WaitGroup
	ctx := h.t.Context()
	update := func(i int, fn storage.UpdateFunc) {
		wg.Go(func() { errs[i] = h.store.Update(ctx, storage.Target{ID: benchmarkID(i)}, fn) })
	}
	ran := make(chan struct{})
	update(n, func(v onced.View) onced.Plan {
		close(ran)
		return onced.Plan{Put: grant(v.ID, v.Now)}
	})
	<-ran
	for i := range n {
		update(i, func(v onced.View) onced.Plan { return plan(i, v) })
	}
	eventually(h.t, "the updates to queue behind a commit", func() bool {
		return h.written.Load() > written && h.store.queue.len() == n
	})
	return func() []error {
		release()
		wg.Wait()
		return errs
	}
}

func plainGrant(_ int, v onced.View) onced.Plan { return onced.Plan{Put: grant(v.ID, v.Now)} }

// TestBatchTakesAll: what queued during a sync is written by one commit, up to
// the bounds of a batch.
func TestBatchTakesAll(t *testing.T) {
	large := func(_ int, v onced.View) onced.Plan {
		r := grant(v.ID, v.Now)
		r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, make([]byte, 3<<20))
		return onced.Plan{Put: r}
	}
	for name, c := range map[string]struct {
		n    int
		plan func(int, onced.View) onced.Plan
		want int64
	}{
		"few":   {64, plainGrant, 1},
		"full":  {maxBatch, plainGrant, 1},
		"over":  {maxBatch + 1, plainGrant, 2},
		"large": {6, large, 6},
		"empty": {10, func(int, onced.View) onced.Plan { return onced.Plan{} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			before := h.commits.Load()
			for i, err := range h.behind(c.n, c.plan)() {
				if err != nil {
					t.Errorf("update %d: %v", i, err)
				}
			}
			if got := h.commits.Load() - before - 1; got != c.want {
				t.Errorf("%d updates took %d commits, want %d", c.n, got, c.want)
			}
		})
	}
}

// TestNoCommit: what changes nothing writes nothing.
func TestNoCommit(t *testing.T) {
	h := filled(t)
	before := h.commits.Load()
	id, ctx := benchmarkID(3), t.Context()
	err := h.store.Update(ctx, storage.Target{ID: id}, func(onced.View) onced.Plan { return onced.Plan{} })
	_, errGet := h.store.Get(ctx, id)
	_, errScan := h.store.ScanIdentity(ctx, nil, nil, 10)
	_, errDue := h.store.ScanDue(ctx, onced.DueUnsettled, h.clock.Wall().Add(time.Hour), nil, 10)
	_, errMeta := h.store.Meta(ctx)
	if err := errors.Join(err, errGet, errScan, errDue, errMeta); err != nil {
		t.Fatal(err)
	}
	if n := h.commits.Load() - before; n != 0 {
		t.Errorf("a refusal and reads took %d commits", n)
	}
}

// TestPanic: a panic in an update function is raised in its caller, and those in
// the same batch are none the wiser.
func TestPanic(t *testing.T) {
	h := newHarness(t)
	raised := make([]any, 3)
	release := h.hold()
	var wg sync.WaitGroup
	for i := range raised {
		wg.Go(func() {
			defer func() { raised[i] = recover() }()
			err := h.store.Update(t.Context(), storage.Target{ID: benchmarkID(i)}, func(v onced.View) onced.Plan {
				if i == 1 {
					panic("transition with a fault")
				}
				return plainGrant(i, v)
			})
			if err != nil {
				t.Errorf("update %d: %v", i, err)
			}
		})
	}
	eventually(t, "the updates to queue", func() bool { return h.store.queue.len() == len(raised) })
	release()
	wg.Wait()
	if raised[0] != nil || raised[1] != "transition with a fault" || raised[2] != nil {
		t.Errorf("the callers met %v", raised)
	}
	for i := range raised {
		v, err := h.store.Get(t.Context(), benchmarkID(i))
		if err != nil || (v.Record != nil) != (i != 1) {
			t.Errorf("record %d: %v, %v", i, v.Record, err)
		}
	}
	err := h.store.UpdateMeta(t.Context(), func(storage.Meta) storage.Meta { panic("fault") })
	if err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("UpdateMeta: %v", err)
	}
}

// TestUnwritable: a plan that cannot be stored is refused, alone.
func TestUnwritable(t *testing.T) {
	h := newHarness(t)
	errs := h.behind(4, func(i int, v onced.View) onced.Plan {
		r := grant(v.ID, v.Now)
		switch i {
		case 1:
			r.Subject = "\xff"
		case 2:
			r.State = 99
		}
		return onced.Plan{Put: r}
	})()
	for i, err := range errs {
		if (err != nil) != (i == 1 || i == 2) || errors.Is(err, storage.ErrFailed) {
			t.Errorf("update %d: %v", i, err)
		}
	}
	long := onced.Identity{Namespace: "n", Key: strings.Repeat("k", bbolt.MaxKeySize), Method: "m"}
	if err := h.store.Update(t.Context(), storage.Target{ID: long}, func(onced.View) onced.Plan { return onced.Plan{} }); err == nil {
		t.Error("an identity that fits no key was taken")
	}
	if err := h.store.failure(); err != nil {
		t.Error(err)
	}
}

// TestDamageWhileServing: damage that is met later ends the store, not the
// process, and does not make anything absent.
func TestDamageWhileServing(t *testing.T) {
	for name, meet := range map[string]func(*harness, onced.Identity) error{
		"get": func(h *harness, id onced.Identity) error { _, err := h.store.Get(h.t.Context(), id); return err },
		"update": func(h *harness, id onced.Identity) error {
			return h.store.Update(h.t.Context(), storage.Target{ID: id}, func(onced.View) onced.Plan { return onced.Plan{} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			for i := range 200 {
				h.put(grant(benchmarkID(i), h.clock.Wall()))
			}
			data := filepath.Join(h.dir, fileData)
			b, err := os.ReadFile(data)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(data, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for page := 2 * os.Getpagesize(); page < len(b); page += os.Getpagesize() {
				if _, err := f.WriteAt(make([]byte, 16), int64(page)); err != nil { // no page has a header
					t.Fatal(err)
				}
			}
			if err := meet(h, benchmarkID(3)); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("%v, want ErrFailed", err)
			}
			if err := h.store.Close(); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("close: %v, want ErrFailed", err)
			}
		})
	}
}

// TestPayloadWrittenOnce: a record that is written again leaves a large payload
// where it is, and takes it along when it goes.
func TestPayloadWrittenOnce(t *testing.T) {
	h := newHarness(t)
	r := grant(benchmarkID(0), h.clock.Wall())
	r.Checkpoint = &onced.Checkpoint{Attempt: 1, Payload: *onced.NewResult("", false, make([]byte, 50_000))}
	r.Failure = &onced.Failure{Details: onced.NewResult("", false, make([]byte, 60_000))}
	h.put(r)
	edited := func(next *onced.Record) map[string]int {
		n := map[string]int{}
		err := h.store.db.View(func(tx *bbolt.Tx) error {
			edits, err := loadRecord(tx, r.ID).replace(next)
			for _, e := range edits {
				n[string(e.bucket)]++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	again := *r
	again.Revision++
	if n := edited(&again); n["payloads"] != 0 || n["due"] != 0 || n["records"] != 1 {
		t.Errorf("the same payloads: %v", n)
	}
	again.LeaseEnd = again.LeaseEnd.Add(1)
	again.Checkpoint = &onced.Checkpoint{Attempt: 1, Seq: 1, Payload: *onced.NewResult("", false, make([]byte, 50_001))}
	if n := edited(&again); n["payloads"] != pieces(50_001) || n["due"] != 2 {
		t.Errorf("another checkpoint and lease end: %v", n)
	}
	if n := edited(nil); n["payloads"] != pieces(50_000)+pieces(60_000) || n["due"] != 1 || n["records"] != 1 {
		t.Errorf("nothing in its place: %v", n)
	}
}

// TestCloseDrains: what had queued is carried out, what comes later is not.
func TestCloseDrains(t *testing.T) {
	h := newHarness(t)
	finish := h.behind(10, plainGrant)
	closed := make(chan error)
	go func() { closed <- h.store.Close() }()
	eventually(t, "the queue to close", func() bool {
		h.store.queue.mu.Lock()
		defer h.store.queue.mu.Unlock()
		return h.store.queue.closed != nil
	})
	if err := h.tryPut(grant(benchmarkID(99), h.clock.Wall())); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("update after Close: %v, want ErrClosed", err)
	}
	for i, err := range finish() {
		if err != nil {
			t.Errorf("update %d, queued before Close: %v", i, err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := h.store.Get(context.Background(), benchmarkID(0)); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("get after Close: %v, want ErrClosed", err)
	}
	if err := h.store.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	h.store = h.open(h.dir)
	for i := range 10 {
		if v, err := h.store.Get(t.Context(), benchmarkID(i)); err != nil || v.Record == nil {
			t.Errorf("record %d: %v, %v", i, v.Record, err)
		}
	}
}
