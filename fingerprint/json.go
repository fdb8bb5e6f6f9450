package fingerprint

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
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
// deeper than 1000. This holds also for what the options leave out. Under [Identity]
// a path that leads into anything but an object is refused, and so is a text with
// none of the members that it names. Errors show the paths of the options, and places
// in bytes from 0, but nothing of the text.
//
// Time is linear in the text, but for the sorting of names. What is allocated beside
// doc, all in all, is at most 2 MiB and nine times doc: five times for the worst, an
// object of very many short names, and what its buffers leave behind as they grow. For
// most documents it is less than doc. A text of more than 512 MiB is refused. JSON is
// safe for concurrent use and keeps nothing of doc.
func JSON(doc []byte, opts ...Option) (onced.Fingerprint, error) {
	c, err := choose(opts)
	if err != nil {
		return onced.Fingerprint{}, err
	}
	if len(doc) > maxText {
		return onced.Fingerprint{}, errLarge
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

// maxText is how long a text may be, in bytes. Members are found again by offsets of
// 32 bits into the encoding, which is never seven times as long as the text.
const maxText = 512 << 20

// walkers keeps the buffers of calls that are over.
var walkers = sync.Pool{New: func() any {
	w := &walker{}
	w.dec = jsontext.NewDecoder(&w.in, jsontext.AllowDuplicateNames(true))
	return w
}}

// Buffers that grew beyond these are not kept.
const (
	keepBytes   = 64 << 10
	keepMembers = 1 << 12
)

// Tags of the encoding.
const (
	tagNull    = 'n'
	tagTrue    = 't'
	tagFalse   = 'f'
	tagString  = 's'
	tagNumber  = 'd'
	tagArray   = 'a' // before the digest of an array
	tagObject  = 'o'
	inArray    = 'A' // before the content that is digested
	inObject   = 'O'
	tagLeftOut = '-' // in out alone: the value of a member that is not in
)

var (
	emptyArray  = sha256.Sum256([]byte{inArray})
	emptyObject = sha256.Sum256([]byte{inObject})
)

// hashAhead is how much of an array's content is gathered before it is hashed, in
// bytes. Each array on the way to a value may hold that much.
const hashAhead = 1 << 10

// walker encodes one document. Scalars stand in out as they are, a closed array or
// object as its digest, and an open one as the content found so far: out never
// holds a byte for each level that the byte is nested in.
type walker struct {
	doc     []byte
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
	atName  bool      // object: a name comes next
	scatter bool      // object: members are not in order, or not all in
	in      bool      // object: the member at hand makes part of the fingerprint
	any     bool      // object: any member does
	start   int       // where its content begins in out
	value   int       // object: where the value at hand begins in out
	first   int       // object: its first in members
	check   int       // object: when it has so many members, their names are compared
	offset  int       // object: where it begins in the document
	inside  *node     // object: decides which members are in; nil: all
	next    *node     // object: decides what is in of the member at hand; nil: all
	hash    hash.Hash // array: content that has left out
}

// walk leaves the encoding of the document in out.
func (w *walker) walk(doc []byte, c *choice) error {
	w.doc, w.in, w.choice = doc, *bytes.NewBuffer(doc), c
	w.dec.Reset(&w.in, jsontext.AllowDuplicateNames(true))
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
		return w.syntax(err)
	}
}

// token reads one token, and what it completes.
func (w *walker) token() error {
	switch kind := w.dec.PeekKind(); kind {
	case '{', '[':
		if _, err := w.dec.ReadToken(); err != nil {
			return w.syntax(err)
		}
		return w.open(kind == '{')
	case '}', ']':
		if _, err := w.dec.ReadToken(); err != nil {
			return w.syntax(err)
		}
		return w.close()
	default:
		raw, err := w.dec.ReadValue()
		if err != nil {
			return w.syntax(err)
		}
		w.reserve(len(raw))
		if n := len(w.frames); n > 0 && w.frames[n-1].atName {
			return w.name(raw)
		}
		return w.scalar(kind, raw)
	}
}

// name begins a member.
func (w *walker) name(raw []byte) error {
	f := &w.frames[len(w.frames)-1]
	at := len(w.out)
	var text int
	var err error
	if w.out, text, err = appendString(w.out, raw); err != nil {
		return w.syntax(err)
	}
	name := w.out[text:]
	m := member{head: head(name), at: uint32(at)}
	if len(w.members) > f.first && !f.scatter {
		switch order := w.compare(w.members[len(w.members)-1], m); {
		case order == 0:
			return twiceAt(int(w.dec.InputOffset()) - len(raw))
		case order > 0:
			f.scatter = true
		}
	}
	f.in, f.next, f.atName, f.value = true, nil, false, len(w.out)
	if f.inside != nil {
		f.in, f.next = w.choice.mode.step(f.inside.children[string(name)])
		if f.in && f.next == nil {
			w.named++
		}
	}
	w.members = append(w.roomForMember(), m)
	if f.scatter && len(w.members)-f.first >= f.check {
		f.check = 2 * (len(w.members) - f.first)
		return w.sort(f)
	}
	return nil
}

// scalar adds a string, a number or a literal.
func (w *walker) scalar(kind jsontext.Kind, raw []byte) error {
	if w.choice.mode == onlyNamed && w.inside() != nil {
		return w.through(len(raw))
	}
	switch kind {
	case 'n':
		w.out = append(w.out, tagNull)
	case 't':
		w.out = append(w.out, tagTrue)
	case 'f':
		w.out = append(w.out, tagFalse)
	case '"':
		var err error
		if w.out, _, err = appendString(append(w.out, tagString), raw); err != nil {
			return w.syntax(err)
		}
	default:
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
	if w.choice.mode == onlyNamed && inside != nil && !object {
		return w.through(1)
	}
	w.reserve(0)
	tag := byte(inArray)
	if object {
		tag = inObject
	}
	w.frames = append(w.frames, frame{
		object: object, atName: object, start: len(w.out), first: len(w.members), check: firstCheck,
		offset: int(w.dec.InputOffset()) - 1, inside: inside,
	})
	w.out = append(w.out, tag)
	return nil
}

// close replaces the content of the innermost array or object with its digest.
func (w *walker) close() error {
	f := &w.frames[len(w.frames)-1]
	in := true
	if f.object {
		// An object that is there for its named members alone, and has none of
		// them, is not there.
		in = f.any || f.inside == nil || w.choice.mode == allButNamed
	}
	if err := w.digest(f); err != nil {
		return err
	}
	w.members = w.members[:f.first]
	*f = frame{}
	w.frames = w.frames[:len(w.frames)-1]
	w.added(in)
	return nil
}

// digest puts a frame's tag and digest in the place of its content.
func (w *walker) digest(f *frame) error {
	content := w.out[f.start:]
	if f.hash != nil {
		f.hash.Write(content)
		w.out = f.hash.Sum(append(w.out[:f.start], tagArray))
		return nil
	}
	tag, digest := byte(tagArray), emptyArray
	if f.object {
		tag, digest = tagObject, emptyObject
	}
	switch {
	case f.scatter:
		if err := w.gather(f); err != nil {
			return err
		}
		digest = w.ordered.sum()
	case len(content) > 1:
		digest = sha256.Sum256(content)
	}
	w.out = append(append(w.out[:f.start], tag), digest[:]...)
	return nil
}

// added takes note of a value that has just been added to out, and drops it when
// it is not in.
func (w *walker) added(in bool) {
	if len(w.frames) == 0 {
		return
	}
	f := &w.frames[len(w.frames)-1]
	switch {
	case f.object && f.in && in:
		f.atName, f.any = true, true
	case f.object:
		f.atName, f.scatter = true, true
		w.out = append(w.out[:f.value], tagLeftOut)
	case len(w.out)-f.start >= hashAhead:
		if f.hash == nil {
			f.hash = sha256.New()
		}
		f.hash.Write(w.out[f.start:])
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
	w.doc, w.choice, w.named = nil, nil, 0
	w.ordered.sum()
	clear(w.frames)
	w.frames, w.members, w.out = w.frames[:0], w.members[:0], w.out[:0]
	if cap(w.out) > keepBytes || cap(w.members) > keepMembers {
		w.out, w.members = nil, nil
	}
	walkers.Put(w)
}
