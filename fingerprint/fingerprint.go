package fingerprint

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/onced/onced"
)

// Names of the schemes, as they stand before the colon of a fingerprint.
const (
	SchemeJSON    = "cj1"
	SchemeMessage = "pb1"
	SchemeRaw     = "raw1"
)

// The first bytes of everything that is hashed into a fingerprint, so that no
// scheme's digest is another's.
const (
	domainJSON    = "onced cj1"
	domainMessage = "onced pb1"
	domainRaw     = "onced raw1"
)

// maxDepth is how deeply arrays, objects and messages may be nested, the
// outermost counted as 1.
const maxDepth = 1000

// Raw returns the raw1 fingerprint of a list of byte strings: for arguments that are
// neither JSON nor a message, such as a body or the words of a command line. Equal
// means equal byte for byte and part for part. It is safe for concurrent use.
func Raw(parts ...[]byte) onced.Fingerprint {
	var s sink
	s.buf = appendText(make([]byte, 0, 64), domainRaw)
	for _, part := range parts {
		s.buf = binary.AppendUvarint(s.room(), uint64(len(part)))
		write(&s, part)
	}
	digest := s.sum()
	return onced.Fingerprint{Scheme: SchemeRaw, Digest: string(digest[:])}
}

// appendText appends a text behind its length.
func appendText[T string | []byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// seal hashes the encoding of a document under a scheme's domain.
func seal(domain string, encoding []byte) [sha256.Size]byte {
	prefix := appendText(make([]byte, 0, 64), domain)
	if len(encoding) < sinkSize {
		return sha256.Sum256(append(prefix, encoding...))
	}
	s := sink{buf: slices.Clone(prefix)}
	write(&s, encoding)
	return s.sum()
}
