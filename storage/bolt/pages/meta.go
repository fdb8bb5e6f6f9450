package pages

import (
	"fmt"
	"hash/fnv"
	"io"
)

// find finds the newest of the two meta pages, both of which must be intact.
//
// bbolt goes on with the other one when one is damaged. But that one is older, or
// may be: nothing tells whether the commit that the damaged one described was
// answered. A write that a power loss has cut short leaves none damaged, because
// what counts of a meta page lies within one sector.
func find(file io.ReaderAt, size int64) (*tree, error) {
	first := readMeta(file, 0)
	if first == nil {
		for at := int64(leastPageSize); at <= greatestPageSize; at *= 2 {
			if readMeta(file, at) != nil {
				return nil, damagedMeta(0)
			}
		}
		return nil, ErrNoMeta
	}
	if needed := first.pages * first.pageSize; uint64(size) < needed {
		return nil, truncated(size, needed)
	}
	second := readMeta(file, int64(first.pageSize))
	if second == nil || second.pageSize != first.pageSize {
		return nil, damagedMeta(1)
	}
	if needed := second.pages * second.pageSize; uint64(size) < needed {
		return nil, truncated(size, needed)
	}
	if second.txid > first.txid {
		return second, nil
	}
	return first, nil
}

func damagedMeta(which int) error {
	return fmt.Errorf("meta page %d is damaged, and the other one may be from before the last commit", which)
}

func truncated(size int64, needed uint64) error {
	return fmt.Errorf("it was truncated: it has %d bytes, and its pages need %d", size, needed)
}

// readMeta reads a meta page; nil if there is no intact one.
func readMeta(file io.ReaderAt, at int64) *tree {
	b := make([]byte, pageHeader+metaSize)
	if _, err := file.ReadAt(b, at); err != nil {
		return nil
	}
	b = b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	if order.Uint32(b) != metaMagic || order.Uint32(b[4:]) != metaVersion || order.Uint64(b[metaSize-8:]) != sum.Sum64() {
		return nil
	}
	m := &tree{
		file: file, pageSize: uint64(order.Uint32(b[8:])), root: order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:]),
	}
	plausible := m.pageSize >= leastPageSize && m.pageSize <= greatestPageSize && m.pages >= 2 && m.pages <= greatestPages
	if !plausible || at != 0 && at != int64(m.pageSize) {
		return nil
	}
	return m
}

// greatestPages keeps sums of offsets from overflowing.
const greatestPages = 1 << 38
