package server

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/onced/onced/storage"
)

// phase is the scan in which a listing stands.
type phase byte

const (
	phaseIdentity phase = iota + 1 // all records, by identity
	phaseDue                       // unsettled ones, in the order of time
	phaseRestored                  // after these: what a restore made unresolved, by identity
)

// position is where a listing goes on.
type position struct {
	phase  phase
	cursor storage.Cursor
}

// leadsTo reports whether a listing that begins in this phase comes by another.
func (p phase) leadsTo(other phase) bool {
	return other == p || p == phaseDue && other == phaseRestored
}

// filtersDigest identifies what a listing asks for, the size of its pages apart.
type filtersDigest [8]byte

func (c *listCall) digest() (d filtersDigest) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %d", c.namespace, c.key, c.method, c.states, c.minAge))
	copy(d[:], sum[:])
	return d
}

// pageTokens makes and reads the tokens by which listings go on: a byte for the
// phase, the digest of the conditions, the store's cursor. A cursor by time goes
// through the entries of all namespaces: it may hold a key of another one, and one
// that its holder made up would show, by how much lies behind it, when the others'
// operations lapse and what their keys are. So it is sealed with a key of this
// process. A cursor by identity stays within the namespace, whatever is in it, and
// outlasts the process.
type pageTokens struct{ seal cipher.AEAD }

// sealedSize is the multiple to which a cursor is filled up before it is sealed, in
// bytes, so that its length does not show that of a key. It is above the cursor of the
// longest identity.
const sealedSize = 1024

var errNoToken = errors.New("is not one that a listing gave: send next_page_token as it came, or leave it empty for the first page")

var tokenEncoding = base64.RawURLEncoding.Strict()

func newPageTokens() (pageTokens, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return pageTokens{}, fmt.Errorf("server: make the key of page tokens: %w", err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return pageTokens{}, fmt.Errorf("server: make the key of page tokens: %w", err)
	}
	return pageTokens{seal}, nil
}

// token returns the token of a position.
func (t pageTokens) token(filters filtersDigest, at position) string {
	head := append([]byte{byte(at.phase)}, filters[:]...)
	if at.phase != phaseDue {
		return tokenEncoding.EncodeToString(append(head, at.cursor...))
	}
	return tokenEncoding.EncodeToString(t.seal.Seal(head, nil, filled(at.cursor), head))
}

// filled returns a cursor with a mark behind it, and as many zeros as it takes.
func filled(cursor storage.Cursor) []byte {
	b := make([]byte, (len(cursor)/sealedSize+1)*sealedSize)
	b[copy(b, cursor)] = 1
	return b
}

// unfilled returns the cursor in what filled has made.
func unfilled(b []byte) storage.Cursor { return b[:bytes.LastIndexByte(b, 1)] }

// position reads a token that was given for the same conditions to a listing that
// begins in a phase; the error is a sentence about the token.
func (t pageTokens) position(filters filtersDigest, first phase, token string) (position, error) {
	b, err := tokenEncoding.DecodeString(token)
	if err != nil || len(b) < 1+len(filters) {
		return position{}, errNoToken
	}
	head, cursor := b[:1+len(filters)], b[1+len(filters):]
	if !bytes.Equal(head[1:], filters[:]) {
		return position{}, fmt.Errorf("is of a listing with other conditions: repeat those of the page before, or leave it empty for the first page")
	}
	at := position{phase: phase(head[0])}
	if !first.leadsTo(at.phase) {
		return position{}, errNoToken
	}
	if at.phase == phaseDue {
		if cursor, err = t.seal.Open(nil, nil, cursor, head); err != nil {
			return position{}, fmt.Errorf("cannot be read, as the server was started again since or it is not as it was given: leave it empty for the first page")
		}
		cursor = unfilled(cursor)
	}
	if len(cursor) > 0 {
		at.cursor = cursor
	}
	return at, nil
}
