package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/pages"
)

const (
	// compactChunk is how many bytes of keys and values are copied in one transaction.
	compactChunk = 4 << 20
	// compactFill is how full pages are made, those of payloads aside. What is left takes up the next records
	// that belong between the present ones, so that not every one splits a page.
	compactFill = 0.9
)

// Compact writes the data file of a store anew, without the pages that nothing uses
// any more, and returns how many bytes the file had before and has now. No other
// process may use the store meanwhile, and its disk needs room for the new file
// beside the old one.
//
// A store in which [Check] finds something is refused. The new file takes the place
// of the old one when it is on the disk, has been checked as Check does, and has been
// compared with the old one, entry by entry. Whatever happens before leaves the old
// file as it was, and perhaps an unfinished onced.db.new, which the next run writes
// anew; so does the end of ctx.
func Compact(ctx context.Context, dir string, tell Progress) (before, after int64, err error) {
	if tell == nil {
		tell = func(string, uint64, uint64) {}
	}
	w, err := examine(dir, examination{write: true, timeout: offlineTimeout, deepUpTo: math.MaxInt64})
	if err != nil {
		return 0, 0, err
	}
	// The lock of the old file is held until the new one is in its place: who waits
	// for it then sees that the name is another file's.
	defer func() { err = errors.Join(err, w.close()) }()
	switch found, err := w.audit(ctx, tell); {
	case err != nil:
		return 0, 0, err
	case len(found) > 0:
		return 0, 0, fmt.Errorf("%s is not sound, and was left as it is: %s; `onced check` tells all of it", w.path, found[0])
	}
	info, err := w.file.Stat()
	if err != nil {
		return 0, 0, err
	}
	if _, room := disk(w.path); room < w.pages.Used() {
		return 0, 0, fmt.Errorf("%w: %s was left as it is: its disk needs room for a copy, about %s, and has %s: free some",
			storage.ErrFull, w.path, mebibytes(w.pages.Used()), mebibytes(room))
	}
	c := &compaction{ctx: ctx, old: w, tell: tell}
	after, err = c.run(info)
	switch told := (unsound{}); {
	case err == nil:
		return info.Size(), after, nil
	case c.placed:
		return 0, 0, fmt.Errorf("%s was replaced by its copy, and the disk has not confirmed that: %w; compact it again", w.path, err)
	case errors.As(err, &told):
		return 0, 0, err
	default:
		return 0, 0, fmt.Errorf("%s was left as it is: %w", w.path, err)
	}
}

// compaction is one run of Compact.
type compaction struct {
	ctx  context.Context
	old  *whole
	tell Progress
	done uint64

	path   string // of the new file
	file   *os.File
	db     *bbolt.DB // over it
	placed bool      // it has taken the place of the old one
}

// run makes the new file, puts it in the place of the old one, and returns its size.
func (c *compaction) run(old os.FileInfo) (size int64, err error) {
	target, err := filepath.EvalSymlinks(c.old.path)
	if err != nil {
		return 0, err
	}
	c.path = target + suffixNew
	if err := c.create(); err != nil {
		return 0, err
	}
	defer func() {
		_ = c.db.Close() // it was synced; up to here nobody else may open it
		if !c.placed {
			_ = os.Remove(c.path)
		}
	}()
	if err := warily(c.old.path, c.copy); err != nil {
		return 0, err
	}
	if err := errors.Join(keepOwner(c.file, old), c.file.Sync()); err != nil {
		return 0, err
	}
	if err := warily(c.old.path, c.compare); err != nil {
		return 0, err
	}
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}
	c.tell("replacing", c.old.pages.Entries, c.old.pages.Entries)
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	if err := os.Rename(c.path, target); err != nil {
		return 0, err
	}
	c.placed = true
	return info.Size(), syncDir(filepath.Dir(target))
}

// create makes the new file, with nothing in it.
func (c *compaction) create() (err error) {
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of a run that was killed
	}
	c.db, err = bbolt.Open(c.path, 0o600, &bbolt.Options{
		Timeout: offlineTimeout, FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			c.file, err = os.OpenFile(name, flag|os.O_EXCL, mode)
			return c.file, err
		},
	})
	if err != nil && c.file != nil {
		_ = os.Remove(c.path)
	}
	return err
}

// step counts an entry.
func (c *compaction) step(what string) {
	if c.done++; c.done%tellEvery == 0 {
		c.tell(what, c.done, c.old.pages.Entries)
	}
}

// copy copies all buckets.
func (c *compaction) copy() error {
	c.done = 0
	return c.old.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, from *bbolt.Bucket) error {
			cursor := from.Cursor()
			k, v := cursor.First()
			for more := true; more; more = k != nil {
				err := c.db.Update(func(tx *bbolt.Tx) error {
					to, err := tx.CreateBucketIfNotExists(name)
					if err != nil {
						return err
					}
					to.FillPercent = compactFill
					if bytes.Equal(name, bucketPayloads) {
						to.FillPercent = payloadFill
					}
					for size := 0; k != nil && size < compactChunk; k, v = cursor.Next() {
						if v == nil {
							return fmt.Errorf("its bucket %q holds another one", name)
						}
						if err := to.Put(k, v); err != nil {
							return err
						}
						size += len(k) + len(v)
						c.step("copying")
					}
					return c.ctx.Err()
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// compare holds the new file against the old one, and against itself.
func (c *compaction) compare() error {
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	sum, err := pages.Check(c.file, info.Size(), math.MaxInt64, sealed)
	if err != nil {
		return err
	}
	if sum.Entries != c.old.pages.Entries {
		return fmt.Errorf("the copy has %d entries instead of %d", sum.Entries, c.old.pages.Entries)
	}
	c.done = 0
	return c.old.db.View(func(old *bbolt.Tx) error {
		return c.db.View(func(made *bbolt.Tx) error {
			return old.ForEach(func(name []byte, want *bbolt.Bucket) error {
				return c.sameBucket(name, want, made.Bucket(name))
			})
		})
	})
}

// sameBucket compares two buckets, entry by entry.
func (c *compaction) sameBucket(name []byte, want, got *bbolt.Bucket) error {
	if got == nil {
		return fmt.Errorf("the copy lacks the bucket %q", name)
	}
	a, b := want.Cursor(), got.Cursor()
	k, v := a.First()
	for copied, value := b.First(); k != nil; copied, value = b.Next() {
		if !bytes.Equal(k, copied) || !bytes.Equal(v, value) {
			return fmt.Errorf("the copy of %s differs", entryName(name, k))
		}
		if c.step("comparing"); c.done%tellEvery == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		k, v = a.Next()
	}
	return nil
}
