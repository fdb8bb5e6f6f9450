package pages

import "bytes"

// place says what a node of a tree has to fit.
type place struct {
	low, high []byte // its keys lie between them; a high of nil is no bound
	bucket    []byte // the bucket it is of; nil: the root
	depth     int    // how many pages are above it
}

// walk checks the tree under a page.
func (p *tree) walk(id uint64, at place) error {
	if at.depth++; at.depth > greatestDepth {
		return damaged(id, "its tree is too deep")
	}
	g, err := p.open(id)
	if err != nil {
		return err
	}
	defer g.close()
	switch g.flags {
	case flagLeaf:
		return g.leaf(at)
	case flagBranch:
		return g.branch(at)
	default:
		return damaged(id, "it is neither a leaf nor a branch")
	}
}

// branch checks a branch page and what is below it.
func (g *page) branch(at place) error {
	if g.count == 0 {
		return damaged(g.id, "it is a branch without children")
	}
	list := g.elements(at)
	keys, children := make([][]byte, g.count), make([]uint64, g.count)
	for i := range keys {
		element, err := list.next()
		if err != nil {
			return err
		}
		if keys[i], err = list.key(order.Uint32(element), order.Uint32(element[4:])); err != nil {
			return err
		}
		children[i] = order.Uint64(element[8:])
	}
	for i, child := range children {
		below := at
		below.low = keys[i]
		if i+1 < len(keys) {
			below.high = keys[i+1]
		}
		if err := g.in.walk(child, below); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a leaf page and the buckets in it.
func (g *page) leaf(at place) error {
	list := g.elements(at)
	for range g.count {
		element, err := list.next()
		if err != nil {
			return err
		}
		flags, size := order.Uint32(element), uint64(order.Uint32(element[12:]))
		key, err := list.key(order.Uint32(element[4:]), order.Uint32(element[8:]))
		if err != nil {
			return err
		}
		begin := list.end
		if list.end += size; list.end > g.size {
			return damaged(g.id, "an element points outside")
		}
		switch flags {
		case 0:
			err = g.value(at.bucket, key, begin, size)
		case flagBucket:
			err = g.bucket(place{bucket: key, depth: at.depth}, begin, size)
		default:
			err = damaged(g.id, "an element is of an unknown kind")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value visits a value in a bucket.
func (g *page) value(bucket, key []byte, begin, size uint64) error {
	if bucket == nil {
		return nil
	}
	g.in.entries++
	if g.in.visit == nil {
		return nil
	}
	value, err := g.bytes(begin, size)
	if err == nil {
		err = g.in.visit(bucket, key, value)
	}
	if err != nil {
		return damaged(g.id, "%v", err)
	}
	return nil
}

// bucket checks the bucket that an element's value describes: the root page of
// its tree, or, when it is small, its only page itself.
func (g *page) bucket(at place, begin, size uint64) error {
	if !g.in.deep {
		return nil
	}
	if size < bucketSize {
		return damaged(g.id, "a bucket is truncated")
	}
	value, err := g.bytes(begin, size)
	if err != nil {
		return err
	}
	if root := order.Uint64(value); root != 0 {
		return g.in.walk(root, at)
	}
	inline := &page{in: g.in, id: g.id, size: size - bucketSize, head: value[bucketSize:]}
	if inline.size < pageHeader {
		return damaged(g.id, "a bucket is truncated")
	}
	inline.flags, inline.count = order.Uint16(inline.head[8:]), order.Uint16(inline.head[10:])
	if inline.flags != flagLeaf || order.Uint64(inline.head) != 0 || order.Uint32(inline.head[12:]) != 0 {
		return damaged(g.id, "a bucket is not a leaf")
	}
	return inline.leaf(at)
}

// elements are the elements of a page, read from the first to the last. Their keys
// and values follow the table without a gap, so that a number of elements, a size
// or a position that is wrong is noticed.
type elements struct {
	page    *page
	at      place
	element uint64 // where the next one stands in the table
	end     uint64 // where the keys and values up to here end
	before  []byte // the key before
}

func (g *page) elements(at place) *elements {
	return &elements{page: g, at: at, element: pageHeader, end: pageHeader + uint64(g.count)*elementSize}
}

// next returns the next element of the table.
func (l *elements) next() ([]byte, error) {
	element, err := l.page.bytes(l.element, elementSize)
	l.element += elementSize
	return element, err
}

// key returns the key of the element that next has returned.
func (l *elements) key(position, size uint32) ([]byte, error) {
	if l.element-elementSize+uint64(position) != l.end {
		return nil, damaged(l.page.id, "an element does not follow the one before")
	}
	key, err := l.page.bytes(l.end, uint64(size))
	if err != nil {
		return nil, err
	}
	l.end += uint64(size)
	switch {
	case len(key) == 0:
		return nil, damaged(l.page.id, "a key is empty")
	case l.before != nil && bytes.Compare(l.before, key) >= 0,
		bytes.Compare(key, l.at.low) < 0,
		l.at.high != nil && bytes.Compare(key, l.at.high) >= 0:
		return nil, damaged(l.page.id, "its keys are out of order")
	}
	l.before = key
	return key, nil
}
