package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// Init makes a store in a folder, which it makes too if need be. It refuses a
// folder in which there is a store or a part of one. The store's generation is
// the Unix second of the clock's wall time, and above that of any marker found.
func Init(dir string, o Options) error {
	folder, err := lockFolder(dir, o.lockTimeout())
	if err != nil {
		return err
	}
	defer folder.Close()
	old, err := vacancy(dir, o.ReplacesLostStore)
	if err != nil {
		return err
	}
	now := o.Clock.Wall().Round(0).UTC()
	generation := max(uint64(max(now.Unix(), 1)), old.generation+1)
	f := facts{
		meta:     storage.Meta{Generation: generation, HistoryStart: now, ReplacesLost: o.ReplacesLostStore},
		progress: codec.Progress{Fence: storage.FirstFence(generation), Newest: now, Sequence: 1},
	}

	// The marker comes first, at 0: should this end half way, it says that nothing
	// was ever served from here, and Init may be run again.
	if err := (marker{format: format, generation: generation}).write(dir); err != nil {
		return err
	}
	data := filepath.Join(dir, fileData)
	if err := writeData(data+suffixNew, f, o); err != nil {
		return err
	}
	if err := os.Rename(data+suffixNew, data); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

// lockFolder makes a folder if need be, and locks it until it is closed: two that
// make a store in it at once would make one over the other.
func lockFolder(dir string, timeout time.Duration) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, openError(dir, err)
	}
	if err := writable(dir); err != nil {
		return nil, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, openError(dir, err)
	}
	if err := lock(folder, true, timeout); err != nil {
		_ = folder.Close()
		return nil, openError(dir, err)
	}
	return folder, nil
}

// vacancy reports why a store cannot be made in a folder, and the marker of one
// that was there, if any.
func vacancy(dir string, replacesLost bool) (marker, error) {
	data := filepath.Join(dir, fileData)
	there, err := exists(data)
	if err != nil {
		return marker{}, err
	}
	if there {
		return marker{}, fmt.Errorf("%s is there already: a store is never made over another one", data)
	}
	m, err := readMarker(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err != nil && replacesLost:
		return marker{}, nil
	case err == nil && m.sequence > 0 && !replacesLost:
		return m, lost(data)
	}
	return m, err
}

// writeData makes a data file that holds nothing but facts.
func writeData(path string, f facts, o Options) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: o.lockTimeout()})
	if err != nil {
		return openError(path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return f.write(tx)
	})
	return errors.Join(err, db.Close())
}

// facts are the contents of the meta bucket.
type facts struct {
	meta     storage.Meta
	progress codec.Progress
}

func (f facts) write(tx *bbolt.Tx) error {
	meta, err := codec.EncodeMeta(keyMeta, f.meta)
	if err != nil {
		return err
	}
	progress, err := codec.EncodeProgress(keyProgress, f.progress)
	if err != nil {
		return err
	}
	b := tx.Bucket(bucketMeta)
	return errors.Join(
		b.Put(keyFormat, binary.BigEndian.AppendUint32(nil, format)),
		b.Put(keyMeta, meta),
		b.Put(keyProgress, progress),
	)
}

// readFacts reads the meta bucket, and looks whether the others are there.
func readFacts(tx *bbolt.Tx) (f facts, err error) {
	b := tx.Bucket(bucketMeta)
	if b == nil || len(b.Get(keyFormat)) != 4 {
		return f, errors.New("it is not a store of onced")
	}
	if err := checkFormat(binary.BigEndian.Uint32(b.Get(keyFormat))); err != nil {
		return f, err
	}
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return f, fmt.Errorf("its bucket %q is missing", name)
		}
	}
	if f.meta, err = codec.DecodeMeta(keyMeta, b.Get(keyMeta)); err != nil {
		return f, fmt.Errorf("its facts about itself: %w", err)
	}
	if f.progress, err = codec.DecodeProgress(keyProgress, b.Get(keyProgress)); err != nil {
		return f, fmt.Errorf("its progress: %w", err)
	}
	return f, nil
}
