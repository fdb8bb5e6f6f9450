package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/onced/onced/storage/bolt/pages"
)

// What is refused, and in which words: each sentence names the path and says what
// to do next.

// ErrNoStore says that there is no store in a folder, and none was lost there as
// far as can be seen.
var ErrNoStore = errors.New("no store here")

func noStore(dir string) error {
	return fmt.Errorf("%w; `onced init --data %s` creates one", ErrNoStore, dir)
}

// unsound is the error for a folder whose content is not a whole store.
type unsound struct{ error }

func (u unsound) Unwrap() error { return u.error }

func refuse(format string, args ...any) error { return unsound{fmt.Errorf(format, args...)} }

// damage says that a data file cannot be used.
func damage(path string, why error) error {
	return refuse("%s cannot be used, and was left as it is: %w. Put back the newest intact copy of the whole folder", path, why)
}

// lost says that a marker has no data file.
func lost(data string) error {
	return refuse("%s is gone, and its marker is still there: put the file back, or give its operations up for lost with `onced init --data %s --replaces-lost-store`", data, filepath.Dir(data))
}

// irregular says what stands where a file should.
type irregular fs.FileMode

func (i irregular) Error() string { return fmt.Sprintf("it is no regular file (%v)", fs.FileMode(i)) }

// openError puts an error of the system's or of bbolt's about a path into words.
func openError(path string, err error) error {
	var (
		told   unsound
		system syscall.Errno
		kind   irregular
	)
	switch {
	case err == nil || errors.As(err, &told):
		return err
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("another process holds %s%s: a store is for one process; stop that one first", path, holder(path))
	case errors.As(err, &kind):
		return damage(path, kind)
	case errors.As(err, &system):
		return fmt.Errorf("%s cannot be opened: %w%s", path, system, remedy(system))
	case errors.Is(err, berrors.ErrInvalid):
		err = pages.ErrNoMeta
	}
	return damage(path, err)
}

// remedy says what to do about an error of the system's, as the end of a sentence.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return ": mount its disk for writing"
	case errors.Is(err, fs.ErrPermission):
		return ": the folder and both files of a store must belong to the user that onced runs as"
	case errors.Is(err, syscall.ELOOP):
		return ": mend the symbolic link"
	case errors.Is(err, syscall.EIO):
		return ": look after its disk, and put the newest copy of the folder on another one"
	default:
		return ""
	}
}

// check reports a data file that is not the one that the marker was written for.
func (m marker) check(path string, f facts) error {
	switch {
	case m.generation != f.meta.Generation:
		return refuse("%s is of another store than its marker: it has generation %d, the marker %d; put back the two that belong together", path, f.meta.Generation, m.generation)
	case f.progress.Sequence < m.sequence:
		return refuse("%s was put back from an older copy: it ends with commit %d, and commit %d was made; what was done since would be done again. Put the newest copy back", path, f.progress.Sequence, m.sequence)
	}
	return nil
}

// checkFormat reports a format that this build does not know.
func checkFormat(n uint32) error {
	switch {
	case n > format:
		return fmt.Errorf("it is in format %d, and this build knows formats up to %d: use the build that wrote it, or a later one", n, format)
	case n < format:
		return fmt.Errorf("it is in format %d, which was never released, and this build reads %d: make a new store", n, format)
	}
	return nil
}

// markerDamage says that a marker cannot be read.
func markerDamage(dir string, why error) error {
	return refuse("%s is damaged: %w. Put it back from the newest copy of the folder", filepath.Join(dir, fileMarker), why)
}
