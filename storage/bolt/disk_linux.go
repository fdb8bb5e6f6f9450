package bolt

import (
	"errors"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// diskSize returns how many bytes the disk of a file has in all. Where that cannot
// be told, it is as much as there can be.
func diskSize(path string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &fs); err != nil || fs.Bsize <= 0 || fs.Blocks > math.MaxInt64/uint64(fs.Bsize) {
		return math.MaxInt64
	}
	return int64(fs.Blocks) * fs.Bsize
}

// diskRoom returns how many bytes the disk of a file has left for this process.
// Where that cannot be told, it is as much as there can be.
func diskRoom(path string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &fs); err != nil || fs.Bsize <= 0 || fs.Bavail > math.MaxInt64/uint64(fs.Bsize) {
		return math.MaxInt64
	}
	return int64(fs.Bavail) * fs.Bsize
}

// readAhead has the disk begin to give all of a file, in its own order.
func readAhead(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_WILLNEED) }

// allocate makes a file at least end bytes long, and has the disk give it the
// blocks from one offset to the other.
func allocate(f *os.File, from, end int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, from, end-from)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// cannotAllocate reports that the disk never gives blocks in advance.
func cannotAllocate(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
