package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// The facts of this file are about bbolt's file: its room, its growth and its lock.

// A full file refuses to grow. Reads go on, and so do deletions as long as there
// are free pages; nothing of a refused commit is visible, and its number is given
// to the next.
func TestFactFullFile(t *testing.T) {
	db := factDB(t)
	factUpdate(t, db, put("kept", 10_000))
	factUpdate(t, db, put("deleted", 100_000))
	factUpdate(t, db, put("freed", 20_000))
	factUpdate(t, db, func(tx *bbolt.Tx) error { return tx.Bucket(factBucket).Delete([]byte("freed")) })
	factUpdate(t, db, put("kept", 10_000)) // what was freed is free now
	info, err := os.Stat(db.Path())
	if err != nil {
		t.Fatal(err)
	}
	db.MaxSize = int(info.Size())
	_, before := factGet(t, db, "kept")
	for range 3 {
		err := db.Update(put("refused", 300_000))
		if !errors.Is(err, berrors.ErrMaxSizeReached) {
			t.Fatalf("an update that does not fit: %v", err)
		}
		value, visible := factGet(t, db, "refused")
		if value != nil || visible != before {
			t.Errorf("of a refused update %d bytes and commit %d are visible, want none and %d", len(value), visible, before)
		}
	}
	factUpdate(t, db, func(tx *bbolt.Tx) error {
		if tx.ID() != before+1 {
			t.Errorf("the commit after a refused one has number %d, want %d", tx.ID(), before+1)
		}
		return tx.Bucket(factBucket).Delete([]byte("deleted"))
	})
	factUpdate(t, db, put("kept", 10_000))
	factUpdate(t, db, put("again", 90_000))
	if value, _ := factGet(t, db, "again"); len(value) != 90_000 {
		t.Errorf("in the place of what was deleted %d bytes are stored", len(value))
	}
}

// A file that cannot be made longer is told by these words, before anything is
// written.
func TestFactResizeError(t *testing.T) {
	var file *os.File
	db := factDB(t, func(o *bbolt.Options) {
		o.OpenFile = func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag, mode)
			file = f
			return f, err
		}
	})
	_, before := factGet(t, db, "")
	restore := redirect(t, file, db.Path(), os.O_RDONLY)
	err := db.Update(put("large", 1<<20))
	restore()
	if err == nil || !noRoom(err) {
		t.Errorf("an update for which the file cannot grow: %v, which is not taken for a want of room", err)
	}
	if _, visible := factGet(t, db, ""); visible != before {
		t.Errorf("commit %d is visible, want %d", visible, before)
	}
	factUpdate(t, db, put("large", 1<<20))
}

// What its statistics call free is free for pages, one by one. A value that takes
// several pages needs them in one run: free pages that lie apart are no room for it.
func TestFactFreePages(t *testing.T) {
	const values, size = 100, 3000 // a page each, in buckets of their own
	db := factDB(t)
	used := func() (n int64) {
		if err := db.View(func(tx *bbolt.Tx) error { n = tx.Size(); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	free := func() int { return db.Stats().FreePageN * db.Info().PageSize }
	store := func(tx *bbolt.Tx, i int) error {
		b, err := tx.CreateBucket(fmt.Append(nil, i))
		return errors.Join(err, b.Put([]byte("value"), make([]byte, size)))
	}
	for i := range values {
		factUpdate(t, db, func(tx *bbolt.Tx) error { return store(tx, i) })
	}
	before := free()
	factUpdate(t, db, func(tx *bbolt.Tx) error {
		for i := 0; i < values; i += 2 {
			if err := tx.DeleteBucket(fmt.Append(nil, i)); err != nil {
				return err
			}
		}
		return nil
	})
	if got := free(); got >= before+values/2*size {
		t.Errorf("%d bytes count as free while a crash would still need them", got)
	}
	factUpdate(t, db, put("other", 1))
	apart := free()
	if apart < values/2*size {
		t.Errorf("%d bytes count as free, want the %d that were deleted", apart, values/2*size)
	}
	grown := used()
	factUpdate(t, db, put("large", values/4*size))
	if now := used(); now <= grown {
		t.Errorf("a value of %d bytes found room among %d free ones that lie apart", values/4*size, apart)
	}
	grown = used()
	for i := 0; i < values/4; i += 2 {
		factUpdate(t, db, func(tx *bbolt.Tx) error { return store(tx, i) })
	}
	if now := used(); now > grown {
		t.Errorf("the file in use grew from %d to %d bytes although single pages were free", grown, now)
	}
}

// Without a time-out a second process waits for ever. A reader excludes a writer,
// and no other reader.
func TestFactLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "db")
		held, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		opened := make(chan *bbolt.DB, 1)
		go func() {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Error(err)
			}
			opened <- db
		}()
		select {
		case <-opened:
			t.Fatal("two writers have the file open")
		case <-time.After(time.Hour):
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
		if err := (<-opened).Close(); err != nil {
			t.Fatal(err)
		}

		reading := &bbolt.Options{ReadOnly: true, Timeout: time.Second}
		for range 2 {
			db, err := bbolt.Open(path, 0, reading)
			if err != nil {
				t.Fatalf("a reader beside another: %v", err)
			}
			defer db.Close()
		}
		if _, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second}); !errors.Is(err, berrors.ErrTimeout) {
			t.Errorf("a writer beside readers: %v, want a time-out", err)
		}
	})
}
