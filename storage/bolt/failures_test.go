package bolt

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// redirect makes what is done to the store's data file be done to another one, and
// returns what ends that. The errors are then real ones.
func (h *harness) redirect(file *os.File, to string) (restore func()) {
	h.t.Helper()
	return redirect(h.t, file, to, os.O_RDWR)
}

// redirect is that for any open file, with a choice of how the other is opened.
func redirect(t *testing.T, file *os.File, to string, flag int) (restore func()) {
	t.Helper()
	saved, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(to, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	swap := func(fd int) {
		if err := syscall.Dup3(fd, int(file.Fd()), 0); err != nil {
			t.Fatal(err)
		}
	}
	swap(int(other.Fd()))
	return func() {
		swap(saved)
		_ = syscall.Close(saved)
	}
}

// steady returns a harness whose file does not grow any more when one record is
// written again and again, and that file.
func steady(t *testing.T) (*harness, *os.File) {
	h := newHarness(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	var file *os.File
	h.options.tune = func(o *bbolt.Options) {
		open := o.OpenFile
		o.OpenFile = func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			f, err = open(name, flag, mode)
			file = f
			return f, err
		}
	}
	h.store = h.open(h.dir)
	for i := range uint64(20) {
		r := grant(benchmarkID(0), h.clock.Wall())
		r.Revision = i
		h.put(r)
	}
	return h, file
}

// full is the error of a write to a full disk.
var full error = &fs.PathError{Op: "write", Err: syscall.ENOSPC}

// TestDiskFull: a write that finds no room changes nothing and ends nothing. What
// needs no write goes on, and with room again so does the rest.
func TestDiskFull(t *testing.T) {
	for name, fill := range map[string]func(*harness, *os.File) (restore func()){
		"hook": func(h *harness, _ *os.File) func() {
			h.before.Store(&full)
			return func() { h.before.Store(nil) }
		},
		"real": func(h *harness, f *os.File) func() { return h.redirect(f, "/dev/full") },
	} {
		t.Run(name, func(t *testing.T) {
			h, file := steady(t)
			restore := fill(h, file)
			for range 3 {
				if err := h.tryPut(grant(benchmarkID(0), h.clock.Wall())); !errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrFailed) {
					t.Errorf("update: %v, want ErrFull", err)
				}
			}
			err := h.store.Update(t.Context(), storage.Target{ID: benchmarkID(0)}, func(v onced.View) onced.Plan {
				if v.Record == nil || v.Record.Revision != 19 {
					t.Errorf("a refusal was decided on %+v", v.Record)
				}
				return onced.Plan{}
			})
			if err != nil {
				t.Errorf("an update that changes nothing: %v", err)
			}
			if v, err := h.store.Get(t.Context(), benchmarkID(0)); err != nil || v.Record.Revision != 19 {
				t.Errorf("get: %+v, %v", v.Record, err)
			}
			restore()
			if err := h.store.failure(); err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				h.put(grant(benchmarkID(i), h.clock.Wall()))
			}
		})
	}
}

// TestDiskFullBatch: of a batch that finds no room, those that change nothing are
// answered by what is durable, never by what the batch would have changed.
func TestDiskFullBatch(t *testing.T) {
	h := newHarness(t)
	id := benchmarkID(0)
	var fences [3]uint64
	finish := h.behind(3, func(i int, v onced.View) onced.Plan {
		fences[i] = v.NextFence
		if i == 2 {
			return onced.Plan{}
		}
		return onced.Plan{Put: grant(v.ID, v.Now), UsesFence: true}
	})
	h.before.Store(&full)
	errs := finish()
	for i, want := range []error{storage.ErrFull, storage.ErrFull, nil, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("update %d: %v, want %v", i, errs[i], want)
		}
	}
	h.before.Store(nil)
	v, err := h.store.Get(t.Context(), id)
	if err != nil || v.Record != nil {
		t.Errorf("a record of a batch that found no room: %+v, %v", v.Record, err)
	}
}

// TestUnknownOutcome: after any other failure of a commit the store answers
// nothing more, and a full disk reported by a sync is such a failure.
func TestUnknownOutcome(t *testing.T) {
	for name, fail := range map[string]func(*harness, *os.File) (restore func()){
		"sync fails": func(h *harness, f *os.File) func() { return h.redirect(f, "/dev/null") }, // takes writes, cannot sync
		"sync finds no room": func(h *harness, _ *os.File) func() {
			var bare error = syscall.ENOSPC
			h.before.Store(&bare)
			return func() { h.before.Store(nil) }
		},
		"no room, and visible": func(h *harness, _ *os.File) func() {
			h.after.Store(&full)
			return func() { h.after.Store(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, file := steady(t)
			restore := fail(h, file)
			err := h.tryPut(grant(benchmarkID(0), h.clock.Wall()))
			if !errors.Is(err, storage.ErrFailed) || errors.Is(err, storage.ErrFull) || !strings.Contains(err.Error(), h.dir) {
				t.Fatalf("update: %v, want ErrFailed and the path", err)
			}
			<-h.store.Failed()
			if _, err := h.store.Get(t.Context(), benchmarkID(0)); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("get: %v, want ErrFailed", err)
			}
			restore()
			if err := h.store.Close(); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("close: %v, want ErrFailed", err)
			}
			h.store = h.open(h.dir)
			h.put(grant(benchmarkID(0), h.clock.Wall()))
		})
	}
}

// TestVisibleIsUnknown: a commit that found no room is not clean when a reader
// would see it nevertheless: then its meta page was written.
func TestVisibleIsUnknown(t *testing.T) {
	h := newHarness(t)
	if err := h.store.aftermath(full); !errors.Is(err, storage.ErrFull) {
		t.Fatalf("nothing to see: %v, want ErrFull", err)
	}
	if err := h.store.db.Update(func(*bbolt.Tx) error { return nil }); err != nil { // past the committer
		t.Fatal(err)
	}
	if err := h.store.aftermath(full); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("visible: %v, want ErrFailed", err)
	}
}
