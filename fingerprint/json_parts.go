package fingerprint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// member is a member of an open object. It is small, because an object may have as
// many of them as a fifth of its bytes.
type member struct {
	head uint32 // the name's first bytes, which most comparisons need alone
	at   uint32 // where it begins in out: the name behind its length, then the value
}

// firstCheck is how many members an object has when their names are compared for the
// first time; after that, whenever they have doubled. So an object of one name again
// and again is refused before it has taken much memory.
const firstCheck = 128

// nameOf returns the name of a member.
func (w *walker) nameOf(m member) []byte {
	name, _ := cutText(w.out[m.at:])
	return name
}

// contentOf returns a member's name and value as they are encoded.
func (w *walker) contentOf(m member) (content []byte, in bool) {
	all := w.out[m.at:]
	_, value := cutText(all)
	end := len(all) - len(value) + 1
	switch value[0] {
	case tagLeftOut:
		return nil, false
	case tagString, tagNumber:
		_, rest := cutText(value[1:])
		end = len(all) - len(rest)
	case tagArray, tagObject:
		end += len(emptyArray)
	}
	return all[:end], true
}

// cutText returns the text that b begins with, behind its length, and the rest.
func cutText(b []byte) (text, rest []byte) {
	n, k := uint64(b[0]), 1
	if n >= 0x80 {
		n, k = binary.Uvarint(b)
	}
	end := k + int(n)
	return b[k:end], b[end:]
}

// gather writes the members that are in to the ordered sink, by their names. All of
// them are looked at for a name that stands twice.
func (w *walker) gather(f *frame) error {
	if err := w.sort(f); err != nil {
		return err
	}
	w.ordered.buf = append(w.ordered.buf, inObject)
	for _, m := range w.members[f.first:] {
		if content, in := w.contentOf(m); in {
			write(&w.ordered, content)
		}
	}
	return nil
}

// sort brings an object's members into the order of their names, and refuses a name
// that stands twice.
func (w *walker) sort(f *frame) error {
	members := w.members[f.first:]
	slices.SortFunc(members, w.compare)
	for i := 1; i < len(members); i++ {
		if w.compare(members[i-1], members[i]) == 0 {
			return w.twice(f, max(members[i-1].at, members[i].at))
		}
	}
	return nil
}

// compare orders members by the bytes of their names.
func (w *walker) compare(a, b member) int {
	if a.head != b.head {
		return cmp.Compare(a.head, b.head)
	}
	return bytes.Compare(w.nameOf(a), w.nameOf(b))
}

// head returns the first four bytes of a name, in its order.
func head(name []byte) uint32 {
	var first [4]byte
	copy(first[:], name)
	return binary.BigEndian.Uint32(first[:])
}

// reserve makes room in out for a scalar or name that is spelled in n bytes, its tag
// and length, or for a digest.
func (w *walker) reserve(n int) {
	if n += 48; cap(w.out)-len(w.out) < n {
		w.out = grown(w.out, max(n, w.ahead(len(w.out))))
	}
}

// roomForMember returns members with room for one more.
func (w *walker) roomForMember() []member {
	if len(w.members) == cap(w.members) {
		return grown(w.members, max(16, w.ahead(len(w.members))))
	}
	return w.members
}

// grown returns a copy of b with room for n more, and for a quarter of it at least, so
// that a buffer is not moved too often.
func grown[T any](b []T, n int) []T {
	return append(make([]T, 0, len(b)+max(n, len(b)/4)), b...)
}

// ahead says by how much a buffer of length n will grow until the document's end, if
// it goes on as so far. A large one is moved seldom, and is not made much larger than
// it must be. A small part of a document says little about the rest.
func (w *walker) ahead(n int) int {
	const sample = 1 << 10
	read := float64(w.dec.InputOffset())
	if read < sample {
		return n
	}
	rest := min(float64(len(w.doc))-read, read*math.Floor(read/sample))
	more := float64(n) * rest / read
	return int(more + more/16)
}

// appendString appends the text that a JSON string spells, behind its length, and
// returns where the text begins.
func appendString(dst, raw []byte) (out []byte, text int, err error) {
	if spelled := raw[1 : len(raw)-1]; bytes.IndexByte(spelled, '\\') < 0 {
		out = appendText(dst, spelled)
		return out, len(out) - len(spelled), nil
	}
	mark := len(dst)
	out, err = jsontext.AppendUnquote(append(dst, 0), raw)
	if err != nil {
		return out, 0, err
	}
	length := len(out) - mark - 1
	out = setLength(out, mark)
	return out, len(out) - length, nil
}

// setLength puts the length of what stands behind the byte at mark in its place.
func setLength(b []byte, mark int) []byte {
	n := len(b) - mark - 1
	if n < 0x80 {
		b[mark] = byte(n)
		return b
	}
	var prefix [binary.MaxVarintLen64]byte
	return slices.Replace(b, mark, mark+1, prefix[:binary.PutUvarint(prefix[:], uint64(n))]...)
}
