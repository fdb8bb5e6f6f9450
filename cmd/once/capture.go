package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"unicode/utf8"
)

// execResult is what onced keeps of a run. An omitted stream does not keep the
// exit status from being replayed.
type execResult struct {
	ExitStatus int    `json:"exit_status"`
	Stdout     output `json:"stdout"`
	Stderr     output `json:"stderr"`
}

// output is what is kept of one output stream: its size and digest, and its bytes
// as text or, if they are not UTF-8, in base64.
type output struct {
	Size    uint64  `json:"size"`
	SHA256  string  `json:"sha256"`
	Text    *string `json:"text,omitempty"`
	Data    []byte  `json:"data,omitempty"`
	Omitted bool    `json:"omitted,omitempty"` // too large to be kept
}

// omit gives the bytes up.
func (o *output) omit() { o.Text, o.Data, o.Omitted = nil, nil, true }

// bytes returns what was kept.
func (o *output) bytes() []byte {
	if o.Text != nil {
		return []byte(*o.Text)
	}
	return o.Data
}

// check finds out whether the record can have been written by exec.
func (r *execResult) check() error {
	if r.ExitStatus < 0 || r.ExitStatus > 255 {
		return fmt.Errorf("%d is not an exit status", r.ExitStatus)
	}
	for _, o := range []*output{&r.Stdout, &r.Stderr} {
		sum := sha256.Sum256(o.bytes())
		if !o.Omitted && (o.SHA256 != hex.EncodeToString(sum[:]) || o.Size != uint64(len(o.bytes()))) {
			return errors.New("an output differs from its size and digest")
		}
	}
	return nil
}

// fit omits the larger output, then both, until the encoded result is within the
// limit, so that onced does not omit the whole of it.
func (r *execResult) fit(limit uint64) error {
	outputs := []*output{&r.Stdout, &r.Stderr}
	slices.SortFunc(outputs, func(a, b *output) int { return len(b.bytes()) - len(a.bytes()) })
	for _, o := range append(outputs, nil) {
		encoded, err := json.Marshal(r)
		switch {
		case err != nil:
			return err
		case uint64(len(encoded)) <= limit || o == nil:
			return nil
		}
		o.omit()
	}
	return nil
}

// tee passes a stream on as it comes and keeps what it can of it. It is used by
// one goroutine at a time.
type tee struct {
	live   io.Writer // nil once it has failed
	failed error     // how it has failed
	limit  uint64    // the most bytes to keep
	kept   []byte
	over   bool
	size   uint64
	digest hash.Hash
}

func newTee(live io.Writer, limit uint64) *tee {
	return &tee{live: live, limit: limit, digest: sha256.New()}
}

// write takes the next bytes. A reader that has gone away, or a disk that is full,
// must not make a run with an effect look like one without a result: the stream is
// kept all the same.
func (t *tee) write(p []byte) {
	if t.live != nil {
		if _, err := t.live.Write(p); err != nil {
			t.live, t.failed = nil, err
		}
	}
	_, _ = t.digest.Write(p) // a hash never fails
	t.size += uint64(len(p))
	if t.over = t.over || t.size > t.limit; t.over {
		t.kept = nil
		return
	}
	t.kept = append(t.kept, p...)
}

// output is what was kept.
func (t *tee) output() output {
	o := output{Size: t.size, SHA256: hex.EncodeToString(t.digest.Sum(nil))}
	switch {
	case t.over:
		o.Omitted = true
	case utf8.Valid(t.kept):
		text := string(t.kept)
		o.Text = &text
	default:
		o.Data = t.kept
	}
	return o
}
