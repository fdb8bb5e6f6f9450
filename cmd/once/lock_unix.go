//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile opens a file that is there and waits until nobody else has it locked. The
// lock ends when the file is closed. A file that was replaced meanwhile is opened
// anew: a lock on what has no name any more keeps nobody out.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR, 0) // on NFS, only a file that is open for writing can be locked
		if err != nil {
			return nil, err
		}
		named, err := lockOpen(f, path)
		if err == nil && named {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// lockOpen waits for the lock of an open file, and tells whether it still has its
// name then.
func lockOpen(f *os.File, path string) (named bool, err error) {
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("locking %s: %w", path, err)
	}
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(locked, there), err
}
