// Package pages checks the structure of a bbolt file without bbolt.
//
// bbolt maps the file and trusts every page number in it: on a damaged one it
// panics, or the process gets a fault that nothing can catch. Here the file is
// read, and nothing in it is believed before it has been checked.
package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The format is bbolt's version 2: pages begin with {id, flags, count, overflow};
// a leaf or branch page goes on with a table of elements that point to their keys
// and values; numbers are in the machine's byte order.
const (
	pageHeader  = 16
	elementSize = 16
	bucketSize  = 16 // what stands before an inline bucket's page
	metaSize    = 64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf element

	metaMagic   = 0xED0CDAED
	metaVersion = 2

	leastPageSize    = 1 << 10
	greatestPageSize = 1 << 24
	noFreelist       = ^uint64(0)

	greatestDepth = 64 // of a tree; bbolt's have half a dozen levels
)

var order = binary.NativeEndian

// tree is a bbolt file as its newest meta page describes it.
type tree struct {
	file     io.ReaderAt
	pageSize uint64
	root     uint64
	freelist uint64
	pages    uint64 // page numbers are below it
	txid     uint64

	deep       bool // also look into the buckets
	visit      Visit
	used, free set
	entries    uint64
	spare      [][]byte // buffers of a page
}

// Visit is called with each key and value in a bucket; the slices are valid until
// it returns. Its error is that of the check.
type Visit func(bucket, key, value []byte) error

// Summary says what a file consists of.
type Summary struct {
	PageSize int64  // bytes
	Pages    uint64 // that the file has, used and free, the two meta pages included
	Free     uint64 // pages that may be used again
	Deep     bool   // the buckets were checked as well; else the rest is zero
	Lost     uint64 // pages that are neither in use nor free: they only cost room
	Entries  uint64 // keys in all buckets
}

// Used returns how many bytes of pages are in use.
func (s Summary) Used() int64 { return int64(s.Pages-s.Free) * s.PageSize }

// Check reports the first damage in the structure of a bbolt file: meta pages,
// free list, and the tree of the root bucket. In a file whose pages take up to
// deepUpTo bytes it looks into all buckets too, which reads every page that holds
// keys, and all values if visit is not nil.
func Check(file io.ReaderAt, size, deepUpTo int64, visit Visit) (Summary, error) {
	p, err := find(file, size)
	if err != nil {
		return Summary{}, err
	}
	p.deep, p.visit = int64(p.pages*p.pageSize) <= deepUpTo, visit
	p.used, p.free = newSet(p.pages), newSet(p.pages)
	p.used.add(0)
	p.used.add(1)
	if err := p.readFreelist(); err != nil {
		return Summary{}, err
	}
	if err := p.walk(p.root, place{}); err != nil {
		return Summary{}, err
	}
	s := Summary{PageSize: int64(p.pageSize), Pages: p.pages, Free: p.free.size, Deep: p.deep, Entries: p.entries}
	if p.deep {
		s.Lost = p.pages - p.used.size - p.free.size
	}
	return s, nil
}

// ErrNoMeta says that a file has no intact meta page: nothing else in it can be
// found.
var ErrNoMeta = errors.New("it is not a store, or both of its meta pages are damaged")

// page is a run of pages that hold one node. Only its first page is read at
// once: the rest of it are values.
type page struct {
	in    *tree
	id    uint64
	size  uint64
	flags uint16
	count uint16
	head  []byte
}

// damaged describes damage of a page.
func damaged(id uint64, format string, args ...any) error {
	return fmt.Errorf("page %d is damaged: %s", id, fmt.Sprintf(format, args...))
}

// open reads the beginning of a page that something refers to. It is to be closed.
func (p *tree) open(id uint64) (*page, error) {
	if id < 2 || id >= p.pages {
		return nil, damaged(id, "no page of this file has that number")
	}
	head := p.buffer()
	if _, err := p.file.ReadAt(head, int64(id*p.pageSize)); err != nil {
		return nil, damaged(id, "%v", err)
	}
	overflow := uint64(order.Uint32(head[12:]))
	if order.Uint64(head) != id || overflow >= p.pages-id {
		return nil, damaged(id, "its header is not its own")
	}
	for n := id; n <= id+overflow; n++ {
		switch {
		case p.used.has(n):
			return nil, damaged(n, "it is in use twice")
		case p.free.has(n):
			return nil, damaged(n, "it is in use and free")
		}
		p.used.add(n)
	}
	return &page{
		in: p, id: id, size: (overflow + 1) * p.pageSize, head: head,
		flags: order.Uint16(head[8:]), count: order.Uint16(head[10:]),
	}, nil
}

// buffer returns memory for one page.
func (p *tree) buffer() []byte {
	n := len(p.spare)
	if n == 0 {
		return make([]byte, p.pageSize)
	}
	b := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return b
}

// close gives up what was read of a page.
func (g *page) close() { g.in.spare = append(g.in.spare, g.head) }

// bytes returns n bytes of the page.
func (g *page) bytes(at, n uint64) ([]byte, error) {
	switch {
	case at > g.size || n > g.size-at:
		return nil, damaged(g.id, "an element points outside")
	case at+n <= uint64(len(g.head)):
		return g.head[at : at+n], nil
	}
	b := make([]byte, n)
	if _, err := g.in.file.ReadAt(b, int64(g.id*g.in.pageSize+at)); err != nil {
		return nil, damaged(g.id, "%v", err)
	}
	return b, nil
}

// readFreelist marks the pages that are free.
func (p *tree) readFreelist() error {
	if p.freelist == noFreelist {
		return errors.New("it is not a store, which always has a free list")
	}
	g, err := p.open(p.freelist)
	if err != nil {
		return err
	}
	defer g.close()
	if g.flags != flagFreelist {
		return damaged(g.id, "it should be the free list")
	}
	at, n := uint64(pageHeader), uint64(g.count)
	if n == 0xFFFF { // more than fit the header: the number comes first
		b, err := g.bytes(at, 8)
		if err != nil {
			return err
		}
		at, n = at+8, order.Uint64(b)
	}
	if n > p.pages {
		return damaged(g.id, "the free list names more pages than there are")
	}
	list, err := g.bytes(at, n*8)
	if err != nil {
		return err
	}
	for ; len(list) > 0; list = list[8:] {
		id := order.Uint64(list)
		if id < 2 || id >= p.pages || p.free.has(id) || p.used.has(id) {
			return damaged(g.id, "the free list names page %d", id)
		}
		p.free.add(id)
	}
	return nil
}

// set is a set of page numbers.
type set struct {
	bits []uint64
	size uint64
}

func newSet(pages uint64) set { return set{bits: make([]uint64, pages/64+1)} }

func (s *set) has(id uint64) bool { return s.bits[id/64]&(1<<(id%64)) != 0 }

func (s *set) add(id uint64) {
	if !s.has(id) {
		s.bits[id/64] |= 1 << (id % 64)
		s.size++
	}
}
