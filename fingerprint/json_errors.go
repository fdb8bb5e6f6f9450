package fingerprint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Errors tell where in the document a fault is and of which kind, and show nothing of
// the document: a name may be as secret as a value. So the tokenizer's words are not
// passed on.

var (
	errNoneNamed = errors.New("cj1: the document has none of the members that make its identity; name members that it has, or send them")
	errEmpty     = errors.New("cj1: the document is empty; send one JSON value, {} if there are no arguments")
	errDeep      = fmt.Errorf("cj1: arrays and objects are nested deeper than %d; flatten the document", maxDepth)
	errTrailing  = errors.New("cj1: something follows the JSON value; send exactly one")
	errMark      = errors.New("cj1: the document begins with a byte order mark, at byte 0; send it without one")
	errNoObject  = errors.New("cj1: the options name members, and the document is not an object; send an object, or leave the options out")
	errLarge     = fmt.Errorf("cj1: the document is larger than %d MiB; make the fingerprint of its digest, or of what identifies it", maxText>>20)
)

// twiceAt refuses an object for the name at a byte of the document.
func twiceAt(offset int) error {
	return fmt.Errorf("cj1: the name at byte %d stands twice in its object; send each name once", offset)
}

// twice refuses an object for the name that stands at a byte of out. Where that is
// in the document is found by reading the object once more.
func (w *walker) twice(f *frame, at uint32) error {
	before := 0
	for _, m := range w.members[f.first:] {
		if m.at < at {
			before++
		}
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(w.doc[f.offset:]), jsontext.AllowDuplicateNames(true))
	_, err := d.ReadToken()
	for i := 0; i < 2*before && err == nil; i++ {
		err = d.SkipValue()
	}
	name, err := d.ReadValue()
	if err != nil {
		return w.syntax(err)
	}
	return twiceAt(f.offset + int(d.InputOffset()) - len(name))
}

// through refuses a value that a path of an identity leads into, of which n bytes
// have been read.
func (w *walker) through(n int) error {
	path := w.inside().path
	if path == "" {
		return errNoObject
	}
	return fmt.Errorf("cj1: a path leads into %s, which is not an object, at byte %d; name %[1]s itself", quote(path), int(w.dec.InputOffset())-n)
}

// syntax makes a sentence of the tokenizer's error.
func (w *walker) syntax(err error) error {
	var where *jsontext.SyntacticError
	switch {
	case err == io.EOF:
		return errEmpty
	case bytes.HasPrefix(w.doc, []byte("\ufeff")):
		return errMark
	case !errors.As(err, &where):
		return errors.New("cj1: not JSON by RFC 8259; send one valid JSON value in UTF-8")
	}
	return fmt.Errorf("cj1: not JSON by RFC 8259 at byte %d%s; send one valid JSON value in UTF-8", where.ByteOffset, kindOf(where, w.doc))
}

// kindOf says what is wrong, as far as it is plain.
func kindOf(where *jsontext.SyntacticError, doc []byte) string {
	if errors.Is(where, io.ErrUnexpectedEOF) {
		return ": it ends too early"
	}
	rest := doc[min(max(where.ByteOffset, 0), int64(len(doc))):]
	if r, size := utf8.DecodeRune(rest); r == utf8.RuneError && size == 1 {
		return ": a byte is not UTF-8"
	}
	if len(rest) > 0 && rest[0] == '\\' {
		return ": an escape stands for no character"
	}
	return ""
}
