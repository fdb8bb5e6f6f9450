package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/onced/onced"
)

// JSON returns the cj1 fingerprint of one JSON text. Two texts have the same one
// exactly when they hold the same value: white space, the order of members, the
// spelling of strings and of numbers do not matter; everything else does.
//
// A text that parsers read in different ways is refused with an error that says
// where: what is not RFC 8259, a name that stands twice in one object, invalid
// UTF-8, a lone surrogate, a byte order mark, anything behind the value, nesting
// deeper than 1000. This holds also for what the options leave out. A path of the
// options that leads through anything but an object is refused, and so is a text
// with none of the members that [Identity] names.
//
// Time is linear in the text, but for the sorting of names; memory is linear in it
// with a small factor. JSON is safe for concurrent use and keeps nothing of doc.
func JSON(doc []byte, opts ...Option) (onced.Fingerprint, error) {
	c, err := choose(opts)
	if err != nil {
		return onced.Fingerprint{}, err
	}
	w := walkers.Get().(*walker)
	defer w.release()
	if err := w.walk(doc, &c); err != nil {
		return onced.Fingerprint{}, err
	}
	if c.mode == onlyNamed && w.named == 0 {
		return onced.Fingerprint{}, errNoneNamed
	}
	digest := seal(domainJSON, w.out)
	return onced.Fingerprint{Scheme: SchemeJSON, Digest: string(digest[:])}, nil
}

var (
	errNoneNamed = errors.New("cj1: the document has none of the members that make its identity; name members that it has, or send them")
	errEmpty     = errors.New("cj1: the document is empty; send one JSON value, {} if there are no arguments")
	errDeep      = fmt.Errorf("cj1: arrays and objects are nested deeper than %d; flatten the document", maxDepth)
	errTrailing  = errors.New("cj1: something follows the JSON value; send exactly one")
)

// walkers keeps the buffers of calls that are over.
var walkers = sync.Pool{New: func() any {
	w := &walker{}
	w.dec = jsontext.NewDecoder(&w.in, jsontext.AllowDuplicateNames(true))
	return w
}}

// Buffers that grew beyond these are not kept.
const (
	keepBytes   = 64 << 10
	keepMembers = 1 << 10
)

// Tags of the encoding.
const (
	tagNull   = 'n'
	tagTrue   = 't'
	tagFalse  = 'f'
	tagString = 's'
	tagNumber = 'd'
	tagArray  = 'a' // before the digest of an array
	tagObject = 'o'
	inArray   = 'A' // before the content that is digested
	inObject  = 'O'
)

// walker encodes one document. Scalars stand in out as they are, a closed array or
// object as its digest, and an open one as the content found so far: out never
// holds a byte for each level that the byte is nested in.
type walker struct {
	in      bytes.Buffer
	dec     *jsontext.Decoder
	choice  *choice
	out     []byte
	frames  []frame  // open arrays and objects, the innermost last
	members []member // of the open objects, in one stack
	ordered sink     // an object's members in order of their names
	named   int      // values that Identity names and the document has
}

// frame is an open array or object.
type frame struct {
	object  bool
	start   int   // where its content begins in out
	first   int   // object: its first in members
	inside  *node // object: decides which members are in; nil: all
	next    *node // object: decides what is in of the member at hand; nil: all
	atName  bool  // object: a name comes next
	scatter bool  // object: members are not in order, or not all in
	sink    *sink // array: content that has left out
}

// member is a member of an open object, by offsets into out.
type member struct {
	start int // the name behind its length
	name  int // the name
	value int // the encoding of the value
	end   int
	head  uint64 // the name's first bytes, which most comparisons need alone
	in    bool   // makes part of the fingerprint
}

// walk leaves the encoding of the document in out.
func (w *walker) walk(doc []byte, c *choice) error {
	w.in = *bytes.NewBuffer(doc)
	w.dec.Reset(&w.in, jsontext.AllowDuplicateNames(true))
	w.choice = c
	for {
		if err := w.token(); err != nil {
			return err
		}
		if len(w.frames) == 0 {
			break
		}
	}
	switch _, err := w.dec.ReadToken(); err {
	case io.EOF:
		return nil
	case nil:
		return errTrailing
	default:
		return syntax(err)
	}
}

// token reads one token, and what it completes.
func (w *walker) token() error {
	switch kind := w.dec.PeekKind(); kind {
	case '{', '[':
		if _, err := w.dec.ReadToken(); err != nil {
			return syntax(err)
		}
		return w.open(kind == '{')
	case '}', ']':
		if _, err := w.dec.ReadToken(); err != nil {
			return syntax(err)
		}
		return w.close()
	default:
		raw, err := w.dec.ReadValue()
		if err != nil {
			return syntax(err)
		}
		if n := len(w.frames); n > 0 && w.frames[n-1].atName {
			return w.name(raw)
		}
		return w.scalar(kind, raw)
	}
}

// name begins a member.
func (w *walker) name(raw []byte) error {
	f := &w.frames[len(w.frames)-1]
	m := member{start: len(w.out), in: true}
	var err error
	if w.out, m.name, err = appendString(w.out, raw); err != nil {
		return syntax(err)
	}
	m.value = len(w.out)
	name := w.out[m.name:m.value]
	m.head = head(name)
	if len(w.members) > f.first {
		switch order := w.compare(w.members[len(w.members)-1], m); {
		case order == 0:
			return twice(name)
		case order > 0:
			f.scatter = true
		}
	}
	if f.inside != nil {
		child := f.inside.children[string(name)]
		m.in, f.next = w.choice.mode.step(child)
		if m.in && f.next == nil {
			w.named++
		}
	}
	w.members = append(w.members, m)
	f.atName = false
	return nil
}

// scalar adds a string, a number or a literal.
func (w *walker) scalar(kind jsontext.Kind, raw []byte) error {
	if w.inside() != nil {
		return w.through()
	}
	var err error
	switch kind {
	case 'n':
		w.out = append(w.out, tagNull)
	case 't':
		w.out = append(w.out, tagTrue)
	case 'f':
		w.out = append(w.out, tagFalse)
	case '"':
		if w.out, _, err = appendString(append(w.out, tagString), raw); err != nil {
			return syntax(err)
		}
	default:
		w.out = slices.Grow(w.out, len(raw)+16) // once, for tag, length and exponent too
		mark := len(w.out) + 1
		w.out = appendDecimal(append(w.out, tagNumber, 0), raw)
		w.out = setLength(w.out, mark)
	}
	w.added(true)
	return nil
}

// open begins an array or object.
func (w *walker) open(object bool) error {
	if len(w.frames) == maxDepth {
		return errDeep
	}
	inside := w.inside()
	if inside != nil && !object {
		return w.through()
	}
	tag := byte(inArray)
	if object {
		tag = inObject
	}
	w.frames = append(w.frames, frame{
		object: object, start: len(w.out), first: len(w.members), inside: inside, atName: object,
	})
	w.out = append(w.out, tag)
	return nil
}

// close replaces the content of the innermost array or object with its digest.
func (w *walker) close() error {
	f := w.frames[len(w.frames)-1]
	tag, in := byte(tagArray), true
	if f.object {
		tag = tagObject
		// An object that is there for its named members alone, and has none of
		// them, is not there.
		in = f.inside == nil || w.choice.mode == allButNamed
		for _, m := range w.members[f.first:] {
			f.scatter = f.scatter || !m.in
			in = in || m.in
		}
	}
	var digest [sha256.Size]byte
	switch {
	case f.scatter:
		if err := w.gather(w.members[f.first:]); err != nil {
			return err
		}
		digest = w.ordered.sum()
	case f.sink != nil:
		write(f.sink, w.out[f.start:])
		digest = f.sink.sum()
	default:
		digest = sha256.Sum256(w.out[f.start:])
	}
	w.out = append(append(w.out[:f.start], tag), digest[:]...)
	w.members = w.members[:f.first]
	w.frames[len(w.frames)-1] = frame{}
	w.frames = w.frames[:len(w.frames)-1]
	w.added(in)
	return nil
}

// added takes note of a value that has just been added to out, and drops it when
// it is not in.
func (w *walker) added(in bool) {
	if len(w.frames) == 0 {
		return
	}
	f := &w.frames[len(w.frames)-1]
	if f.object {
		m := &w.members[len(w.members)-1]
		m.in = m.in && in
		if !m.in {
			w.out = w.out[:m.value]
		}
		m.end = len(w.out)
		f.atName = true
		return
	}
	if len(w.out)-f.start >= sinkSize {
		if f.sink == nil {
			f.sink = &sink{}
		}
		write(f.sink, w.out[f.start:])
		w.out = w.out[:f.start]
	}
}

// inside returns the node that decides about what is inside the next value.
func (w *walker) inside() *node {
	if len(w.frames) == 0 {
		return w.choice.root
	}
	return w.frames[len(w.frames)-1].next
}

// release makes the walker ready for another document.
func (w *walker) release() {
	w.in = bytes.Buffer{}
	w.dec.Reset(&w.in)
	w.choice, w.named = nil, 0
	w.ordered.sum()
	clear(w.frames)
	clear(w.members)
	w.frames, w.members, w.out = w.frames[:0], w.members[:0], w.out[:0]
	if cap(w.out) > keepBytes || cap(w.members) > keepMembers {
		w.out, w.members = nil, nil
	}
	walkers.Put(w)
}
