package fingerprint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// gather writes the members that are in to the ordered sink, by their names. All of
// them are looked at for a name that stands twice.
func (w *walker) gather(members []member) error {
	slices.SortFunc(members, w.compare)
	w.ordered.buf = append(w.ordered.buf, inObject)
	for i, m := range members {
		if i > 0 && w.compare(members[i-1], m) == 0 {
			return twice(w.out[m.name:m.value])
		}
		if m.in {
			write(&w.ordered, w.out[m.start:m.end])
		}
	}
	return nil
}

// compare orders members by the bytes of their names.
func (w *walker) compare(a, b member) int {
	if a.head != b.head {
		return cmp.Compare(a.head, b.head)
	}
	return bytes.Compare(w.out[a.name:a.value], w.out[b.name:b.value])
}

// head returns the first eight bytes of a name, in its order.
func head(name []byte) uint64 {
	var first [8]byte
	copy(first[:], name)
	return binary.BigEndian.Uint64(first[:])
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

// twice refuses an object.
func twice(name []byte) error {
	return fmt.Errorf("cj1: the name %s stands twice in one object; send each name once", quote(name))
}

// through refuses a value that a path leads into.
func (w *walker) through() error {
	if len(w.frames) == 0 {
		return errors.New("cj1: the options name members, and the document is not an object; send an object, or leave the options out")
	}
	m := w.members[len(w.members)-1]
	return fmt.Errorf("cj1: a path leads into the member %s, which is not an object; name the member itself", quote(w.out[m.name:m.value]))
}

// syntax makes a sentence of the tokenizer's error. The place is a byte offset, not
// the names on the way to it, which may be many and long.
func syntax(err error) error {
	var where *jsontext.SyntacticError
	switch {
	case err == io.EOF:
		return errEmpty
	case errors.As(err, &where):
		why, _, _ := strings.Cut(where.Err.Error(), "`")
		why, _, _ = strings.Cut(why, "'")
		return fmt.Errorf("cj1: not JSON by RFC 8259 at byte %d: %s; send one valid JSON value in UTF-8", where.ByteOffset, strings.TrimSpace(why))
	}
	return errors.New("cj1: not JSON by RFC 8259; send one valid JSON value in UTF-8")
}
