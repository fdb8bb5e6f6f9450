package bolt

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/onced/onced/storage"
)

// backupLeaves is how many bytes of the disk a backup leaves free: room that the
// store itself may need while the copy is there.
const backupLeaves = 64 << 20

// Backup implements [storage.Store]. What it writes is a data file. It is copied
// to a file in the store's folder first, so that a slow reader of the backup does
// not keep the store from using its free pages again: while it runs, the folder's
// disk needs room for a second copy and 64 MiB besides, else it is
// [storage.ErrFull]. Close does not wait for it: a copy that is not complete then
// is given up.
//
// It returns when ctx ends, also while w is stuck; a call of w that hangs then goes
// on by itself, and is the last one.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), "backup-*")
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	_ = os.Remove(f.Name()) // at once, where that is possible: a crash leaves nothing behind
	size, err := s.snapshotTo(ctx, f)
	if err != nil {
		discard(f)
		return err
	}
	sent := make(chan error, 1)
	go func() {
		defer discard(f)
		_, err := io.Copy(w, contextReader{ctx, io.NewSectionReader(f, 0, size)})
		sent <- err
	}()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// discard closes a temporary file and removes it.
func discard(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// snapshotTo copies the store's durable state into a file and returns its length.
func (s *Store) snapshotTo(ctx context.Context, f *os.File) (int64, error) {
	out := &snapshotWriter{ctx: ctx, s: s, f: f}
	size, _, err := read(ctx, s, func(tx *bbolt.Tx) (int64, error) {
		if _, room := disk(filepath.Dir(s.path)); room-backupLeaves < tx.Size() {
			return 0, fmt.Errorf("%w: a backup is copied to %s first, which takes %s and has to leave %s free; there are %s",
				storage.ErrFull, filepath.Dir(s.path), mebibytes(tx.Size()), mebibytes(backupLeaves), mebibytes(room))
		}
		return tx.WriteTo(out)
	})
	switch {
	case wantsRoom(out.err):
		return 0, fmt.Errorf("%w: a backup needs room for a copy of the store: %w", storage.ErrFull, out.err)
	case out.err != nil: // of which bbolt only keeps the text
		return 0, out.err
	default:
		return size, err
	}
}

// snapshotWriter writes to a file until the context ends or the store closes.
type snapshotWriter struct {
	ctx context.Context
	s   *Store
	f   *os.File
	err error // the first one
}

func (w *snapshotWriter) Write(b []byte) (n int, err error) {
	select {
	case <-w.s.stopped:
		if err = w.s.failure(); err == nil {
			err = storage.ErrClosed
		}
	default:
		if err = w.ctx.Err(); err == nil {
			n, err = w.f.Write(b)
		}
	}
	w.err = err
	return n, err
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// mebibytes is a size for people.
func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
