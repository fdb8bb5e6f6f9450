package bolt

import (
	"fmt"
	"os"

	"github.com/onced/onced/storage"
)

// A store keeps room in its own file for what must not be refused on a full disk:
// pages beyond those in use whose blocks the disk has given already. Nothing else
// can take them, as it could take a file that is deleted when room is needed.
const (
	// greatestReserve is enough for some hundred usual results and for several of
	// the greatest that the default policy takes. On a small disk the reserve is half
	// of it.
	greatestReserve = 8 << 20
	// growth is the part of the reserve by which the file grows beyond it at once.
	growth = 4
)

// reserve is the room that is kept in a data file. The committer's alone.
type reserve struct {
	file *os.File
	size int64 // bytes that are to be kept; 0: this disk cannot keep any
	end  int64 // up to which the disk has given blocks
}

// newReserve returns the reserve of a file that has just been opened.
func newReserve(file *os.File) reserve {
	return reserve{file: file, size: min(greatestReserve, diskSize(file.Name())/2)}
}

// keep makes the file longer when less than the reserve is left in it: used bytes
// have been in use once, and free ones of these may be used again. It returns
// ErrFull as full when the disk has no room for that; claims are refused then. err
// is the failure of a sync, after which nothing about the file is certain.
func (r *reserve) keep(used, free int64) (full, err error) {
	left := r.end - used + free
	if r.size == 0 || left >= r.size {
		return nil, nil
	}
	end := r.end + r.size + r.size/growth - left
	switch err := allocate(r.file, r.end, end); {
	case cannotAllocate(err):
		r.size = 0
		return nil, nil
	case err != nil:
		return fmt.Errorf("%w: %s keeps its last room for settlements: %w", storage.ErrFull, r.file.Name(), err), nil
	}
	// The new length is made durable before anything is written there.
	if err := r.file.Sync(); err != nil {
		return nil, err
	}
	r.end = end
	return nil, nil
}
