package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/onced/onced/storage/bolt/pages"
)

// ErrNoStore says that there is no store in a folder, and none was lost there as
// far as can be seen.
var ErrNoStore = errors.New("no store here")

// deepAtOpen is up to which size Open checks the whole structure of a file.
const deepAtOpen = 64 << 20

// unsound is the error for a folder whose content is not a whole store.
type unsound struct{ error }

func (u unsound) Unwrap() error { return u.error }

func refuse(format string, args ...any) error { return unsound{fmt.Errorf(format, args...)} }

// damage says that a data file cannot be used.
func damage(path string, why error) error {
	return refuse("%s cannot be used, and was left as it is: %w. Put back the newest intact copy together with its marker, or restore a backup with `onced restore`", path, why)
}

// lost says that a marker has no data file.
func lost(data string) error {
	return refuse("%s is gone, and its marker is still there: put the file back, restore a backup with `onced restore`, or give its operations up for lost with `onced init --replaces-lost-store`", data)
}

// openError puts an error of bbolt's into words.
func openError(path string, err error) error {
	var system syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("another process holds %s: a store is for one process; stop that one first", path)
	case errors.As(err, &system):
		return fmt.Errorf("%s cannot be opened: %w", path, err)
	case errors.Is(err, berrors.ErrInvalid):
		err = pages.ErrNoMeta
	}
	return damage(path, err)
}

// look reads the marker of the store in a folder, and reports what is missing.
func look(dir string) (marker, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return marker{}, noStore(dir)
	case err != nil:
		return marker{}, err
	case !info.IsDir():
		return marker{}, fmt.Errorf("%s is not a folder: a store is one", dir)
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
		return marker{}, err
	}
	switch {
	case !there && !marked:
		return marker{}, noStore(dir)
	case !there && m.sequence == 0:
		return marker{}, refuse("%s is not there, because `onced init` did not finish: run it again", path)
	case !there:
		return marker{}, lost(path)
	case !marked:
		return marker{}, refuse("%s is there without its marker, so that it cannot be told from an older copy of itself: put %s back, or restore the file as a backup with `onced restore`", path, fileMarker)
	case data.Size() == 0:
		return marker{}, damage(path, errors.New("it is empty"))
	}
	if err := checkFormat(m.format); err != nil {
		return marker{}, refuse("%s: %w", dir, err)
	}
	return m, nil
}

func noStore(dir string) error {
	return fmt.Errorf("%w; `onced init --data %s` creates one", ErrNoStore, dir)
}

// check reports a data file that is not the one that the marker was written for.
func (m marker) check(path string, f facts) error {
	switch {
	case m.generation != f.meta.Generation:
		return refuse("%s is of another store than its marker: it has generation %d, the marker %d; bring a file in from elsewhere with `onced restore`", path, f.meta.Generation, m.generation)
	case f.progress.Sequence < m.sequence:
		return refuse("%s was put back from an older copy: it ends with commit %d, and commit %d was made; what was done since would be done again. Put the newest copy back, or restore this one with `onced restore`, which keeps that from happening", path, f.progress.Sequence, m.sequence)
	}
	return nil
}

// visit calls fn with the store in a folder, unless there is reason to refuse it.
// It writes nothing, and no other process does meanwhile. With deep the whole
// structure of the file is checked first, whatever its size.
func visit(dir string, timeout time.Duration, deep bool, fn func(*bbolt.Tx, facts) error) (err error) {
	m, err := look(dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, fileData)
	defer func() {
		if p := recover(); p != nil {
			err = damage(path, fmt.Errorf("%v", p))
		}
	}()
	// bbolt's lock comes first: a file that is being written looks damaged.
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: timeout})
	if err != nil {
		return openError(path, err)
	}
	defer db.Close()
	if err := checkFile(path, deep); err != nil {
		return damage(path, err)
	}
	return db.View(func(tx *bbolt.Tx) error {
		f, err := readFacts(tx)
		if err != nil {
			return damage(path, err)
		}
		if err := m.check(path, f); err != nil {
			return err
		}
		return fn(tx, f)
	})
}

// checkFile checks the structure of a data file.
func checkFile(path string, deep bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return pages.Check(f, info.Size(), deep || info.Size() <= deepAtOpen)
}
