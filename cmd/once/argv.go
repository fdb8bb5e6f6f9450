package main

import (
	"github.com/alecthomas/kong"

	"github.com/onced/onced"
	"github.com/onced/onced/fingerprint"
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

// fingerprint is the raw1 fingerprint of the words, each on its own.
func (w words) fingerprint() onced.Fingerprint {
	parts := make([][]byte, len(w))
	for i, word := range w {
		parts[i] = []byte(word)
	}
	return fingerprint.Raw(parts...)
}
