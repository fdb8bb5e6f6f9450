package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage/bolt/codec"
	"github.com/onced/onced/storage/bolt/pages"
)

// examination says how a store is looked at.
type examination struct {
	write    bool                 // take it for this process alone, to write to it
	timeout  time.Duration        // for its lock
	deepUpTo int64                // check all of a file of up to so many bytes
	visit    pages.Visit          // of all values then; nil: they are not read
	database func(*bbolt.Options) // what bbolt is told besides; nil: nothing
}

// whole is a store that was found fit to be read. Its data file is locked until it
// is closed.
type whole struct {
	path  string   // of the data file
	file  *os.File // the one that bbolt uses
	db    *bbolt.DB
	pages pages.Summary
}

// examine opens the store in a folder, unless there is reason to refuse it. It
// writes nothing. The lock comes first, because a file that is being written looks
// damaged; then the check of the file, which bbolt would trust; and only then bbolt,
// which is given the very file that was locked and checked.
func examine(dir string, how examination) (w *whole, err error) {
	if _, err := look(dir, how.write); err != nil {
		return nil, err
	}
	w = &whole{path: filepath.Join(dir, fileData)}
	if w.file, err = openLocked(w.path, how); err != nil {
		return nil, openError(w.path, err)
	}
	err = warily(w.path, func() error {
		m, err := look(dir, how.write) // once more: while it was waited for the lock, all may have changed
		if err != nil {
			return err
		}
		return w.open(m, how)
	})
	if err != nil {
		_ = w.close()
		return nil, err
	}
	return w, nil
}

// open checks the locked file, and has bbolt open it.
func (w *whole) open(m marker, how examination) error {
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() <= deepAtOpen {
		readAhead(w.file) // the check jumps about in it
	}
	if w.pages, err = pages.Check(w.file, info.Size(), how.deepUpTo, how.visit); err != nil {
		return damage(w.path, err)
	}
	options := &bbolt.Options{
		ReadOnly: !how.write, Timeout: how.timeout,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return w.file, nil },
	}
	if how.database != nil {
		how.database(options)
	}
	if w.db, err = bbolt.Open(w.path, 0, options); err != nil {
		return openError(w.path, err)
	}
	return w.db.View(func(tx *bbolt.Tx) error {
		f, err := readFacts(tx)
		if err != nil {
			return damage(w.path, err)
		}
		return m.check(w.path, f)
	})
}

func (w *whole) close() (err error) {
	if w.db != nil {
		err = w.db.Close()
	}
	_ = w.file.Close() // bbolt has closed it, unless it did not come to open it
	return err
}

// look reads the marker of the store in a folder, and reports what is missing.
func look(dir string, write bool) (marker, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return marker{}, noStore(dir)
	case err != nil:
		return marker{}, openError(dir, err)
	case !info.IsDir():
		return marker{}, fmt.Errorf("%s is not a folder: a store is one", dir)
	}
	if write {
		if err := writable(dir); err != nil {
			return marker{}, err
		}
	}
	path := filepath.Join(dir, fileData)
	m, err := readMarker(dir)
	marked := !errors.Is(err, fs.ErrNotExist)
	if err != nil && marked {
		return marker{}, err
	}
	data, err := os.Stat(path)
	there := !errors.Is(err, fs.ErrNotExist)
	if err != nil && there {
		return marker{}, openError(path, err)
	}
	switch {
	case !there && !marked:
		return marker{}, noStore(dir)
	case !there && m.sequence == 0:
		return marker{}, refuse("%s is not there, because `onced init` did not finish: run it again", path)
	case !there:
		return marker{}, lost(path)
	case !marked:
		return marker{}, refuse("%s is there without its marker, so that it cannot be told from an older copy of itself: put %s back, from the newest copy of the folder", path, fileMarker)
	case data.Mode().IsRegular() && data.Size() == 0:
		return marker{}, damage(path, errors.New("it is empty"))
	}
	if err := checkFormat(m.format); err != nil {
		return marker{}, refuse("%s: %w", filepath.Join(dir, fileMarker), err)
	}
	return m, nil
}

// writable reports a folder in which no store can be kept.
func writable(dir string) error {
	if err := mayWrite(dir); err != nil {
		return fmt.Errorf("%s must be writable, and is not: %w%s", dir, err, remedy(err))
	}
	return nil
}

// openLocked opens a data file and locks it. When another file was put under its
// name while it was waited for, that one is opened: `onced compact` does so.
func openLocked(path string, how examination) (*os.File, error) {
	flag := os.O_RDONLY
	if how.write {
		flag = os.O_RDWR
	}
	for {
		f, err := openRegular(path, flag)
		if err != nil {
			return nil, err
		}
		same := false
		if err = lock(f, how.write, how.timeout); err == nil {
			same, err = isNamed(path, f)
		}
		if same {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// isNamed reports whether a path names an open file.
func isNamed(path string, f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(info, named), err
}

// openRegular opens a file, and nothing else that may stand under a name: a pipe
// would let one wait for ever, and to open a device may do something.
func openRegular(path string, flag int) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, irregular(info.Mode())
	}
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // by now
		err = irregular(info.Mode())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// warily runs fn, which reads a mapped file. What shows there that the file is
// damaged, a panic of bbolt's or a page that the disk does not give, is an error.
func warily(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = damage(path, errors.New("a part of it cannot be read from the disk"))
		default:
			err = damage(path, fmt.Errorf("%v", p))
		}
	}()
	return fn()
}

// sealed checks the seal of a value. Those of the meta bucket are read anyway.
func sealed(bucket, key, value []byte) error {
	ours := slices.ContainsFunc(buckets, func(b []byte) bool { return bytes.Equal(b, bucket) })
	if !ours || bytes.Equal(bucket, bucketMeta) {
		return nil
	}
	if _, err := codec.Unseal(key, value); err != nil {
		return fmt.Errorf("%s: %w", entryName(bucket, key), err)
	}
	return nil
}

// entryName tells people which entry of a bucket is meant.
func entryName(bucket, key []byte) string {
	switch string(bucket) {
	case string(bucketRecords):
		if id, err := onced.ParseIdentity(key); err == nil {
			return fmt.Sprintf("the record of %v", id)
		}
	case string(bucketPayloads):
		if _, identity, number, err := parsePieceKey(key); err == nil {
			if id, err := onced.ParseIdentity(identity); err == nil {
				return fmt.Sprintf("piece %d of a payload of %v", number, id)
			}
		}
	}
	return fmt.Sprintf("what stands under %x in the bucket %q", key, bucket)
}
