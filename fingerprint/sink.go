package fingerprint

import (
	"crypto/sha256"
	"hash"
)

// sinkSize is how many bytes a sink gathers before it hashes them.
const sinkSize = 4 << 10

// sink hashes what is written to it in large pieces, so that an encoding need
// not be held as a whole. What is short is hashed in one go from the buffer.
type sink struct {
	buf  []byte    // written, not yet hashed; may be appended to
	hash hash.Hash // nil until buf was full for the first time
}

// write adds p to what s hashes.
func write[T string | []byte](s *sink, p T) {
	for len(s.buf)+len(p) > sinkSize {
		n := max(sinkSize-len(s.buf), 0)
		s.buf = append(s.buf, p[:n]...)
		p = p[n:]
		s.flush()
	}
	s.buf = append(s.buf, p...)
}

// room returns the buffer with room for some bytes, few in number.
func (s *sink) room() []byte {
	if len(s.buf) >= sinkSize {
		s.flush()
	}
	return s.buf
}

// flush hashes the buffer and empties it.
func (s *sink) flush() {
	if s.hash == nil {
		s.hash = sha256.New()
	}
	s.hash.Write(s.buf)
	s.buf = s.buf[:0]
}

// sum ends the sink: it returns the digest of all that was written and makes
// ready for another.
func (s *sink) sum() [sha256.Size]byte {
	if s.hash == nil {
		digest := sha256.Sum256(s.buf)
		s.buf = s.buf[:0]
		return digest
	}
	s.flush()
	digest := [sha256.Size]byte(s.hash.Sum(nil))
	s.hash = nil
	return digest
}
