package client

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/onced/onced"
)

// NewKey mints a key for one intent, a UUID of version 7 (RFC 9562): it tells when it
// was minted to a namespace that reads that from keys. Mint it before the first try, and
// keep it for all tries.
func NewKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], ms[2:])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

var errAbsentPart = errors.New("client: a key cannot be derived from an absent part; refuse the call, or take the part from where it is known")

// PerRequest derives the key for the one operation of this method that a request
// asks for. Changed arguments under the same request are a [*Mismatch] if the call
// carries fingerprints. The request id is the caller's own, made before its first
// try and kept through all of them.
func PerRequest(tenant, requestID, method string) (string, error) {
	return deriveKey("request", tenant, requestID, method)
}

// PerArguments derives a key for each set of arguments that a request uses with
// this method: changed arguments are another operation. It is for requests that
// call one method several times.
func PerArguments(tenant, requestID, method string, args onced.Fingerprint) (string, error) {
	return deriveKey("arguments", tenant, requestID, method, args.Scheme, args.Digest)
}

// Child derives the key for a call that an operation makes to another service. A
// second execution of the parent makes it with the same key. The step names the
// call within the parent, and stays the same across releases.
func Child(parentKey, step string) (string, error) {
	return deriveKey("child", parentKey, step)
}

// Content derives the key for an effect whose identity is its content, such as the
// upload of a blob under its digest: whoever does it again, for whatever reason,
// does the same. The digest is that of a cryptographic hash.
func Content(digest []byte) (string, error) {
	return deriveKey("content", string(digest))
}

// deriveKey hashes parts, each behind its length, under the helper's own name: no two
// different lists of parts, and no two helpers, share a key. An absent part is
// refused, never mapped to a key: otherwise all callers without one would share an
// operation. So is what stands for one.
func deriveKey(domain string, parts ...string) (string, error) {
	b := appendPart(nil, "onced key 1")
	b = appendPart(b, domain)
	for _, part := range parts {
		if part == "" || onced.Placeholder(part) {
			return "", errAbsentPart
		}
		b = appendPart(b, part)
	}
	sum := sha256.Sum256(b)
	return domain + "-" + hex.EncodeToString(sum[:]), nil
}

func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}
