package memory

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"

	"github.com/onced/onced/storage"
)

// Backup implements [storage.Store]. The format is that of the build that wrote it.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	copied, err := read(ctx, s, func() (image, error) { return s.image.clone(), nil })
	if err != nil {
		return err
	}
	// Outside the lock: the writer may be slow.
	if err := gob.NewEncoder(w).Encode(copied); err != nil {
		return fmt.Errorf("memory: write the backup: %w", err)
	}
	return nil
}

// Restore returns a new store over what Backup wrote, as it was written: with
// the generation and the fences of the backup.
func Restore(clock storage.Clock, r io.Reader) (*Store, error) {
	var i image
	if err := gob.NewDecoder(r).Decode(&i); err != nil {
		return nil, fmt.Errorf("memory: read the backup: %w", err)
	}
	return open(clock, i), nil
}
