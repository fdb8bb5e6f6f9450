package bolt

import (
	"errors"
	"math"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

// initialMap is how much address space the data file is given at once, 64 GiB where
// there is as much. A file that outgrows it is mapped anew, for which all readers have
// to leave, a backup among them, and all updates wait.
const initialMap = 1 << (30 + 6*(bits.UintSize/64))

// disk returns how many bytes the disk of a file or folder has in all, and how many it
// has left for this process. Where that cannot be told, it is as much as there can be.
func disk(path string) (size, left int64) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil || fs.Bsize <= 0 || fs.Blocks > math.MaxInt64/uint64(fs.Bsize) {
		return math.MaxInt64, math.MaxInt64
	}
	return int64(fs.Blocks) * int64(fs.Bsize), int64(fs.Bavail) * int64(fs.Bsize)
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
