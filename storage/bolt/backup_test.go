package bolt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// TestBackupSlowReader: while somebody reads a backup slowly the store goes on,
// also when its file has to grow and be mapped anew, for which no read
// transaction may be open.
func TestBackupSlowReader(t *testing.T) {
	h := filled(t)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := h.store.Backup(t.Context(), w)
		done <- errors.Join(err, w.Close())
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		big := grant(benchmarkID(100+i), h.clock.Wall())
		big.State, big.Result = onced.StateCompleted, onced.NewResult("", false, make([]byte, 1<<20))
		h.put(big)
	}
	rest, err := io.ReadAll(r)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	copied := h.Restore(append(first, rest...))
	for i, want := range map[int]bool{0: true, 40: true, 100: false} {
		v, err := copied.Get(t.Context(), benchmarkID(i))
		if err != nil || (v.Record != nil) != want {
			t.Errorf("record %d in the backup: %t, want %t (%v)", i, v.Record != nil, want, err)
		}
	}
}

// TestBackupLeavesNothing: not in the folder, and not behind a reader that has
// gone.
func TestBackupLeavesNothing(t *testing.T) {
	h := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failing := errors.New("the reader has gone")
	for name, c := range map[string]struct {
		ctx  context.Context
		to   io.Writer
		want error
	}{
		"done":           {t.Context(), &bytes.Buffer{}, nil},
		"cancelled":      {ctx, io.Discard, context.Canceled},
		"cancelled late": {nil, io.Discard, context.Canceled},
		"broken":         {t.Context(), writerFunc(func([]byte) (int, error) { return 0, failing }), failing},
	} {
		if c.ctx == nil {
			late, cancel := context.WithCancel(t.Context())
			c.ctx, c.to = late, writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
		}
		if err := h.store.Backup(c.ctx, c.to); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if entries, err := os.ReadDir(h.dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Backup(t.Context(), io.Discard); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestBackupStuckReader: it ends with its context also while nobody takes what it
// writes, and the store can then be closed.
func TestBackupStuckReader(t *testing.T) {
	h := filled(t)
	r, w := io.Pipe()
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.store.Backup(ctx, w) }()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("backup: %v", err)
	}
	if err := h.store.Close(); err != nil {
		t.Error(err)
	}
}

// TestBackupClosing: Close does not wait for a copy that is under way, here to a file
// that takes nothing.
func TestBackupClosing(t *testing.T) {
	h := filled(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	copied, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := h.store.snapshotTo(t.Context(), w)
		copied <- err
		_ = w.Close()
	}()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	size := h.store.Stats().Used
	go func() { closed <- h.store.Close() }()
	<-h.store.stopped
	n, err := io.Copy(io.Discard, r)
	if err := errors.Join(err, <-closed); err != nil {
		t.Error(err)
	}
	if err := <-copied; !errors.Is(err, storage.ErrClosed) || n >= size {
		t.Errorf("the copy ended with %v after %d bytes", err, n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
