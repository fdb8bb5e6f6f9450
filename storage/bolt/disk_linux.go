package bolt

import (
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Room returns how many bytes the store's disk has left for this process. Where
// that cannot be told, it is as much as there can be.
func (s *Store) Room() int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(s.path), &fs); err != nil {
		return math.MaxInt64
	}
	return int64(fs.Bavail) * fs.Bsize
}
