package main

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/alecthomas/kong"

	"github.com/onced/onced"
)

// raw1 is the scheme of fingerprints over bytes as they are, and rawDomain what
// keeps its digests apart from every other use of SHA-256.
const (
	raw1      = "raw1"
	rawDomain = "onced raw1"
)

// words are a command and its arguments.
type words []string

// Decode takes all that is left of the command line, byte by byte.
func (w *words) Decode(ctx *kong.DecodeContext) error {
	for _, token := range ctx.Scan.PopWhile(kong.Token.IsValue) {
		*w = append(*w, token.String())
	}
	return nil
}

// rawFingerprint is the raw1 fingerprint of a list of byte strings: SHA-256 over
// the domain and each string, every one behind its length as an unsigned varint,
// so that no two lists have the same encoding.
func rawFingerprint(parts []string) onced.Fingerprint {
	digest := sha256.New()
	writePart(digest, rawDomain)
	for _, part := range parts {
		writePart(digest, part)
	}
	return onced.Fingerprint{Scheme: raw1, Digest: string(digest.Sum(nil))}
}

// writePart writes to a hash, which never fails.
func writePart(digest hash.Hash, part string) {
	_, _ = digest.Write(binary.AppendUvarint(nil, uint64(len(part))))
	_, _ = digest.Write([]byte(part))
}
