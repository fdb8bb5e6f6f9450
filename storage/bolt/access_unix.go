//go:build !windows && !plan9 && !solaris && !aix && !android

package bolt

import (
	"errors"
	"os"
	"syscall"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 20 * time.Millisecond

// lock locks an open file as bbolt does: for this process alone, or together with
// others that only read. It is held until the file is closed. When the timeout has
// passed in vain the error is bbolt's.
func lock(f *os.File, alone bool, timeout time.Duration) error {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for left := timeout; ; left -= lockPoll {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case left <= 0:
			return berrors.ErrTimeout
		}
		<-time.After(min(lockPoll, left))
	}
}

// mayWrite reports why this process may not make and replace files in a folder.
func mayWrite(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// keepOwner gives a file the owner and the mode that another one has.
func keepOwner(f *os.File, like os.FileInfo) error {
	if owner, ok := like.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(like.Mode().Perm())
}
