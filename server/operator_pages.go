package server

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
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
	// foreign says that the cursor was given behind an entry of another namespace,
	// and may hold its key.
	foreign bool
}

// filtersDigest identifies what a listing asks for, the size of its pages apart.
type filtersDigest [8]byte

func digestFilters(req *oncedv1.ListOperationsRequest) (d filtersDigest, err error) {
	filters := proto.CloneOf(req)
	filters.PageSize, filters.PageToken = 0, ""
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(filters)
	if err != nil {
		return d, fmt.Errorf("server: digest the conditions of a listing: %w", err)
	}
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d, nil
}

// pageTokens makes and reads the tokens by which listings go on: a byte for the
// phase, the digest of the conditions, the store's cursor. A cursor that may hold
// something of another namespace is sealed with a key of this process. All others
// outlast it: nothing in them has to be believed, as what a page shows depends on
// the conditions alone.
type pageTokens struct{ seal cipher.AEAD }

// sealed marks the phase of a token with a sealed cursor.
const sealed = 0x80

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
	if !at.foreign {
		return tokenEncoding.EncodeToString(append(head, at.cursor...))
	}
	head[0] |= sealed
	return tokenEncoding.EncodeToString(t.seal.Seal(head, nil, at.cursor, head))
}

// position reads a token that was given for the same conditions; the error is a
// sentence about the token.
func (t pageTokens) position(filters filtersDigest, token string) (position, error) {
	b, err := tokenEncoding.DecodeString(token)
	if err != nil || len(b) < 1+len(filters) {
		return position{}, fmt.Errorf("is not one that a listing gave: send next_page_token as it came, or leave it empty for the first page")
	}
	head, cursor := b[:1+len(filters)], b[1+len(filters):]
	if !bytes.Equal(head[1:], filters[:]) {
		return position{}, fmt.Errorf("is of a listing with other conditions: repeat those of the page before, or leave it empty for the first page")
	}
	at := position{phase: phase(head[0] &^ sealed), foreign: head[0]&sealed != 0}
	if at.foreign {
		if cursor, err = t.seal.Open(nil, nil, cursor, head); err != nil {
			return position{}, fmt.Errorf("cannot be read, as the server was started again since: leave it empty for the first page")
		}
	}
	if len(cursor) > 0 {
		at.cursor = cursor
	}
	return at, nil
}
