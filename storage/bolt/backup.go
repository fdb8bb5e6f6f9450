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

// Backup implements [storage.Store]. What it writes is a data file. It is copied
// to a file in the store's folder first, so that a slow reader of the backup does
// not keep the store from using its free pages again: the folder's disk needs
// room for a second copy meanwhile.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), "backup-*")
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	_ = os.Remove(f.Name()) // at once, where that is possible: a crash leaves nothing behind
	size, _, err := read(ctx, s, func(tx *bbolt.Tx) (int64, error) { return tx.WriteTo(f) })
	if wantsRoom(err) {
		return fmt.Errorf("%w: backup needs room for a copy of the store: %w", storage.ErrFull, err)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(w, contextReader{ctx, io.NewSectionReader(f, 0, size)})
	return err
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
