package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// source is the name of a file to read, or "-" for the standard input.
type source string

// Decode takes the value from the command line. It is needed for "-" alone,
// which would else count as a flag.
func (f *source) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	if text := token.String(); token.IsValue() || text == "-" {
		*f = source(text)
		return nil
	}
	return errors.New("expected the name of a file, or -")
}

// open opens the file.
func (f source) open(stdin io.Reader) (io.ReadCloser, error) {
	if f == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(string(f))
}

// setResult puts the result that the command line names into the request.
func (c *completeCommand) setResult(req *oncedv1.CompleteRequest, stdin io.Reader) error {
	if c.Text != nil {
		req.Result = stored([]byte(*c.Text), cmp.Or(c.ContentType, client.ContentTypeText))
		return nil
	}
	f, err := c.File.open(stdin)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return readResult(req, f, cmp.Or(c.ContentType, client.ContentTypeBytes))
}

// readResult puts what r gives into the request. More than any server stores is
// described and not sent: the message would be refused for its size, and the
// operation has been executed all the same.
func readResult(req *oncedv1.CompleteRequest, r io.Reader, contentType string) error {
	digest := sha256.New()
	r = io.TeeReader(r, digest)
	var kept bytes.Buffer
	size, err := io.Copy(&kept, io.LimitReader(r, onced.GreatestResult+1))
	if err != nil {
		return fmt.Errorf("reading the result: %w", err)
	}
	if size <= onced.GreatestResult {
		req.Result = stored(kept.Bytes(), contentType)
		return nil
	}
	more, err := io.Copy(io.Discard, r)
	if err != nil {
		return fmt.Errorf("reading the result: %w", err)
	}
	req.Result = &oncedv1.CompleteRequest_Omitted{Omitted: &oncedv1.OmittedResult{
		ContentType: contentType, Size: uint64(size + more), Sha256: digest.Sum(nil), //nolint:gosec // never negative
	}}
	return nil
}

// stored is a result with its bytes: as text where they are text, so that they
// can be read wherever messages are shown. The two count as the same result.
func stored(b []byte, contentType string) *oncedv1.CompleteRequest_Stored {
	p := &oncedv1.Payload{ContentType: contentType, Body: &oncedv1.Payload_Data{Data: b}}
	if utf8.Valid(b) {
		p.Body = &oncedv1.Payload_Text{Text: string(b)}
	}
	return &oncedv1.CompleteRequest_Stored{Stored: p}
}
