// Package pages checks the structure of a bbolt file without bbolt.
//
// bbolt maps the file and trusts every page number in it: on a damaged one it
// panics, or the process gets a fault that nothing can catch. Here the file is
// read, and nothing in it is believed before it has been checked.
package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
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
)

var order = binary.NativeEndian

// tree is a bbolt file as its newest intact meta page describes it.
type tree struct {
	file     io.ReaderAt
	pageSize uint64
	root     uint64
	freelist uint64
	pages    uint64 // page numbers are below it
	txid     uint64

	deep       bool // also look into the buckets
	used, free map[uint64]bool
}

// Check reports the first damage in the structure of a bbolt file: meta
// pages, free list, and the tree of the root bucket; with deep also the trees of
// all buckets, which reads every page that holds keys.
func Check(file io.ReaderAt, size int64, deep bool) error {
	p, err := find(file, size)
	if err != nil {
		return err
	}
	p.deep, p.used, p.free = deep, map[uint64]bool{0: true, 1: true}, map[uint64]bool{}
	if err := p.readFreelist(); err != nil {
		return err
	}
	return p.walk(p.root, nil, nil)
}

// ErrNoMeta says that a file has no intact meta page: nothing else in it can be
// found.
var ErrNoMeta = errors.New("it is not a store, or both of its meta pages are damaged")

// find finds the newest intact meta page.
func find(file io.ReaderAt, size int64) (*tree, error) {
	var newest *tree
	consider := func(at int64) *tree {
		m := readMeta(file, at)
		if m != nil && (newest == nil || m.txid > newest.txid) {
			newest = m
		}
		return m
	}
	// The first page says where the second one is. When it is damaged, the second
	// one stands where it says itself.
	if first := consider(0); first != nil {
		consider(int64(first.pageSize))
	} else {
		for at := int64(leastPageSize); at <= greatestPageSize && newest == nil; at *= 2 {
			consider(at)
		}
	}
	switch {
	case newest == nil:
		return nil, ErrNoMeta
	case uint64(size)/newest.pageSize < newest.pages:
		return nil, fmt.Errorf("it was truncated: it has %d bytes, and its pages need %d", size, newest.pages*newest.pageSize)
	}
	return newest, nil
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
	if m.pageSize < leastPageSize || m.pageSize > greatestPageSize || at != 0 && at != int64(m.pageSize) {
		return nil
	}
	return m
}

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

// open reads the beginning of a page that something refers to.
func (p *tree) open(id uint64) (*page, error) {
	if id < 2 || id >= p.pages {
		return nil, damaged(id, "no page of this file has that number")
	}
	head := make([]byte, p.pageSize)
	if _, err := p.file.ReadAt(head, int64(id*p.pageSize)); err != nil {
		return nil, damaged(id, "%v", err)
	}
	overflow := uint64(order.Uint32(head[12:]))
	if order.Uint64(head) != id || overflow >= p.pages-id {
		return nil, damaged(id, "its header is not its own")
	}
	for n := id; n <= id+overflow; n++ {
		switch {
		case p.used[n]:
			return nil, damaged(n, "it is in use twice")
		case p.free[n]:
			return nil, damaged(n, "it is in use and free")
		}
		p.used[n] = true
	}
	return &page{
		in: p, id: id, size: (overflow + 1) * p.pageSize, head: head,
		flags: order.Uint16(head[8:]), count: order.Uint16(head[10:]),
	}, nil
}

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
		return nil // it is rebuilt from what is in use
	}
	g, err := p.open(p.freelist)
	if err != nil {
		return err
	}
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
		if id < 2 || id >= p.pages || p.free[id] || p.used[id] {
			return damaged(g.id, "the free list names page %d", id)
		}
		p.free[id] = true
	}
	return nil
}

// walk checks the tree under a page, whose keys lie between low and high; nil
// for a high that is open.
func (p *tree) walk(id uint64, low, high []byte) error {
	g, err := p.open(id)
	if err != nil {
		return err
	}
	switch g.flags {
	case flagLeaf:
		return g.leaf(low, high)
	case flagBranch:
		return g.branch(low, high)
	default:
		return damaged(id, "it is neither a leaf nor a branch")
	}
}

// branch checks a branch page and what is below it.
func (g *page) branch(low, high []byte) error {
	var keys [][]byte
	var children []uint64
	for i := range uint64(g.count) {
		at := pageHeader + i*elementSize
		element, err := g.bytes(at, elementSize)
		if err != nil {
			return err
		}
		key, err := g.bytes(at+uint64(order.Uint32(element)), uint64(order.Uint32(element[4:])))
		if err != nil {
			return err
		}
		if err := g.inOrder(keys, key, low, high); err != nil {
			return err
		}
		keys, children = append(keys, key), append(children, order.Uint64(element[8:]))
	}
	if len(keys) == 0 {
		return damaged(g.id, "it is a branch without children")
	}
	for i, child := range children {
		end := high
		if i+1 < len(keys) {
			end = keys[i+1]
		}
		if err := g.in.walk(child, keys[i], end); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a leaf page and the buckets in it.
func (g *page) leaf(low, high []byte) error {
	var keys [][]byte
	for i := range uint64(g.count) {
		at := pageHeader + i*elementSize
		element, err := g.bytes(at, elementSize)
		if err != nil {
			return err
		}
		flags, size := order.Uint32(element), uint64(order.Uint32(element[12:]))
		begin, keySize := at+uint64(order.Uint32(element[4:])), uint64(order.Uint32(element[8:]))
		key, err := g.bytes(begin, keySize)
		if err != nil {
			return err
		}
		if err := g.inOrder(keys, key, low, high); err != nil {
			return err
		}
		keys = append(keys, key)
		switch {
		case begin+keySize+size > g.size:
			return damaged(g.id, "an element points outside")
		case flags == flagBucket:
			err = g.bucket(begin+keySize, size)
		case flags != 0:
			err = damaged(g.id, "an element is of an unknown kind")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inOrder checks a key against its neighbour before it and the bounds of its page.
func (g *page) inOrder(before [][]byte, key, low, high []byte) error {
	switch {
	case len(key) == 0:
		return damaged(g.id, "a key is empty")
	case len(before) > 0 && bytes.Compare(before[len(before)-1], key) >= 0,
		bytes.Compare(key, low) < 0,
		high != nil && bytes.Compare(key, high) >= 0:
		return damaged(g.id, "its keys are out of order")
	}
	return nil
}

// bucket checks the bucket that an element's value describes: the root page of
// its tree, or, when it is small, its only page itself.
func (g *page) bucket(at, size uint64) error {
	if !g.in.deep {
		return nil
	}
	if size < bucketSize {
		return damaged(g.id, "a bucket is truncated")
	}
	value, err := g.bytes(at, size)
	if err != nil {
		return err
	}
	if root := order.Uint64(value); root != 0 {
		return g.in.walk(root, nil, nil)
	}
	inline := &page{in: g.in, id: g.id, size: size - bucketSize, head: value[bucketSize:]}
	if inline.size < pageHeader {
		return damaged(g.id, "a bucket is truncated")
	}
	inline.flags, inline.count = order.Uint16(inline.head[8:]), order.Uint16(inline.head[10:])
	if inline.flags != flagLeaf {
		return damaged(g.id, "a bucket is not a leaf")
	}
	return inline.leaf(nil, nil)
}
