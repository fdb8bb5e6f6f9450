package bolt

import (
	"fmt"
	"os"

	"github.com/onced/onced/storage"
)

// A store keeps room in its own file for what must not be refused on a full disk:
// pages beyond those in use whose blocks the disk has given already. Nothing else
// can take them, as it could take a file that is deleted when room is needed. Pages
// that are free between those in use are as good, since payloads lie in pieces (see
// pieceSize): only records near the bounds of their labels or names need a few pages
// in a row, and may find none on a full disk on which much was swept.
//
// The next pages beyond those in use are written once, with zeros. A page that lies
// in blocks which were only given and never written makes the sync that follows its
// first write wait for the disk's own book-keeping too, which shows in the commit of a
// single claim.
const (
	// greatestReserve is enough for some hundred usual results and for several of
	// the greatest that the default policy takes. On a small disk the reserve is a
	// third of it.
	greatestReserve = 8 << 20
	reservePart     = 3
	// growth is the part of the reserve by which the file grows beyond it at once.
	growth = 4
	// sweepReserve is the part of the reserve that settlements leave to sweeps, which
	// write before they free anything.
	sweepReserve = 8
	// ahead is how many bytes of zeros are written at once; a half of them at least
	// lies before what is used next.
	ahead = 2 << 20
)

// reserve is the room that is kept in a data file. The committer's alone.
type reserve struct {
	file   *os.File
	size   int64 // bytes that are to be kept; 0: this disk cannot keep any
	end    int64 // up to which the disk has given blocks
	zeroed int64 // up to which the file was written, if only with zeros
}

// newReserve returns the reserve of a file that has just been opened.
func newReserve(file *os.File) reserve {
	size, _ := disk(file.Name())
	return reserve{file: file, size: min(greatestReserve, size/reservePart)}
}

// room is what a data file has for a batch.
type room struct {
	reserve    *reserve
	used, free int64 // bytes that have been in use once, and of these what is free
	scarce     error // why there is less than the reserve; nil: there is not less
}

// forBatch returns the room that there is, and makes it the reserve at least if the
// disk lets it. The error is the failure of a sync, after which nothing about the
// file is certain.
func (r *reserve) forBatch(used, free int64) (room, error) {
	r.end = max(r.end, used) // what was in use has its blocks
	m := room{reserve: r, used: used, free: free}
	var err error
	if m.scarce, err = m.make(r.size); err == nil {
		err = m.writeAhead()
	}
	return m, err
}

// left is how many bytes can certainly be written.
func (m *room) left() int64 { return m.reserve.end - m.used + m.free }

// claims reports why claims may write nothing; nil: they may. What a batch of them
// writes is little beside the reserve.
func (m *room) claims() error { return m.scarce }

// settlement reports why one may not write so many bytes beside what its batch
// writes already; nil: it may. Where the disk has room it is taken now.
func (m *room) settlement(bytes, batch int) (scarce, err error) {
	if m.reserve.size == 0 {
		return nil, nil
	}
	return m.make(written(bytes+batch) + m.reserve.size/sweepReserve)
}

// written is how many bytes of pages a commit takes up at most, beside those that
// it frees, for so many bytes of keys and values. Pages are half full at least.
func written(bytes int) int64 { return 2*int64(bytes) + 64<<10 }

// make makes the file longer when less than want is left in it: by some more, so
// that it is not done for every batch, or by as much as is missing.
func (m *room) make(want int64) (scarce, err error) {
	r := m.reserve
	missing := want - m.left()
	if r.size == 0 || missing <= 0 {
		return nil, nil
	}
	end := r.end + missing + r.size/growth
	scarce = allocate(r.file, r.end, end)
	if wantsRoom(scarce) {
		end = r.end + missing
		scarce = allocate(r.file, r.end, end)
	}
	switch {
	case wantsRoom(scarce):
		return fmt.Errorf("%w: %s keeps its last room for what was begun: %w", storage.ErrFull, r.file.Name(), scarce), nil
	case scarce != nil: // this disk gives no blocks in advance, each kind in words of its own
		r.size = 0
		return nil, nil
	}
	// The new length is made durable before anything is written there.
	if err := r.file.Sync(); err != nil {
		return nil, err
	}
	r.end = end
	return nil, nil
}

// writeAhead writes zeros where pages are used next. They go to the disk with the
// next commit. They make later ones faster and nothing else, so a disk that has no
// room for them after all is no matter.
func (m *room) writeAhead() error {
	r := m.reserve
	from := max(r.zeroed, m.used)
	to := min(from+ahead, r.end)
	if from-m.used >= ahead/2 || to <= from {
		return nil
	}
	// One page at a time: of a long write the kernel keeps the pages together, and
	// takes more than one of them for changed when one is.
	page := make([]byte, os.Getpagesize())
	for at := from; at < to; at += int64(len(page)) {
		if _, err := r.file.WriteAt(page, at); err != nil {
			if wantsRoom(err) {
				break
			}
			return err
		}
	}
	r.zeroed = to
	return nil
}
