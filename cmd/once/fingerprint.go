package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/onced/onced"
	"github.com/onced/onced/fingerprint"
)

// maxDocument is how large a document may be, in bytes. It is held in memory, and cj1
// may take nine times as much beside it.
const maxDocument = 16 << 20

type fingerprintCommand struct {
	Scheme   string   `help:"How the document is read: cj1, JSON; or raw1, bytes. cj1 by default, in every release." default:"cj1" placeholder:"SCHEME"`
	Identity []string `help:"Members that alone make the fingerprint, with commas between them; a dot leads into an object." sep:"none" xor:"members" placeholder:"a,b.c"`
	Ignore   []string `help:"Members that do not count, written in the same way." sep:"none" xor:"members" placeholder:"a,b.c"`
	File     source   `arg:"" name:"file|-" help:"File with the document, or - for the standard input."`
}

func (fingerprintCommand) Help() string {
	return `Prints the fingerprint of the arguments of a call, for --fingerprint of claim and lookup. No server is asked.

cj1 takes one JSON value of RFC 8259. However it is spelled, it has the same fingerprint: white space,
the order of members, 1 and 1.0 and 10e-1. What parsers read in different ways is refused: a name
that stands twice in one object, text behind the value, a byte order mark. raw1 takes the bytes as
they are, one at least. pb1 needs the message's schema and is made in Go: Message of package
github.com/onced/onced/fingerprint.

Exit status 64: refused, and there is no fingerprint. The sentence tells where, in bytes from 0, and
shows nothing of the document, names included: it may be secret.

Examples:

    once fingerprint --scheme cj1 arguments.json
    print=$(once fingerprint --scheme cj1 --ignore trace_id - < arguments.json) &&
      once claim --key order-7 --method send_email --fingerprint "$print" --token-file order-7.token

A program that writes the document anew on its way here, as jq does, may round its numbers.`
}

// Run prints the fingerprint.
func (c *fingerprintCommand) Run(s *session) error {
	f, err := c.fingerprint(s.in)
	if err != nil {
		return usage(err)
	}
	text := f.String()
	if s.json {
		line, err := json.Marshal(map[string]string{"fingerprint": text})
		if err != nil {
			return err
		}
		text = string(line)
	}
	_, err = fmt.Fprintln(s.out, text)
	return err
}

func (c *fingerprintCommand) fingerprint(stdin io.Reader) (onced.Fingerprint, error) {
	opts, err := c.options()
	if err != nil {
		return onced.Fingerprint{}, err
	}
	of, err := schemeNamed(c.Scheme, opts)
	if err != nil {
		return onced.Fingerprint{}, err
	}
	doc, err := c.document(stdin)
	if err != nil {
		return onced.Fingerprint{}, err
	}
	return of(doc)
}

// schemeNamed returns what makes fingerprints under a scheme.
func schemeNamed(scheme string, opts []fingerprint.Option) (func(doc []byte) (onced.Fingerprint, error), error) {
	switch {
	case scheme == fingerprint.SchemeJSON:
		return func(doc []byte) (onced.Fingerprint, error) { return fingerprint.JSON(doc, opts...) }, nil
	case scheme == fingerprint.SchemeRaw && len(opts) > 0:
		return nil, errors.New("raw1 takes the bytes as they are and knows no members; leave --identity and --ignore out, or use --scheme cj1")
	case scheme == fingerprint.SchemeRaw:
		return rawFingerprint, nil
	case scheme == fingerprint.SchemeMessage:
		return nil, errors.New("pb1 needs the message's schema, which this command does not have; make it in Go with Message of package github.com/onced/onced/fingerprint, or use --scheme cj1 for the arguments as JSON")
	default:
		return nil, fmt.Errorf("--scheme %q is not known; use cj1 for JSON, or raw1 for bytes", scheme)
	}
}

// rawFingerprint refuses no bytes: whatever fails in front of a pipe writes none, and
// all such calls would have one fingerprint.
func rawFingerprint(doc []byte) (onced.Fingerprint, error) {
	if len(doc) == 0 {
		return onced.Fingerprint{}, errors.New("the document is empty, as that of a program in front of the pipe that has failed; send the bytes of the arguments, or leave the fingerprint out if there are none")
	}
	return fingerprint.Raw(doc), nil
}

// options reads the flags that choose members; kong lets one of the two through.
func (c *fingerprintCommand) options() ([]fingerprint.Option, error) {
	if len(c.Ignore) > 0 {
		return members("--ignore", c.Ignore, fingerprint.Ignore)
	}
	return members("--identity", c.Identity, fingerprint.Identity)
}

// members reads the values of one flag. No document has a member of an empty or
// blank name: --identity would leave it out without a word.
func members(flag string, values []string, choose func(paths ...string) fingerprint.Option) (opts []fingerprint.Option, err error) {
	for _, value := range values {
		paths := strings.Split(value, ",")
		for _, path := range paths {
			if path == "" || strings.TrimSpace(path) != path {
				return nil, fmt.Errorf("%s: %q is not the path of a member; write the names with single commas between them and no blanks, as in a,b.c", flag, path)
			}
		}
		opts = append(opts, choose(paths...))
	}
	return opts, nil
}

// document reads the document.
func (c *fingerprintCommand) document(stdin io.Reader) ([]byte, error) {
	f, err := c.File.open(stdin)
	if err != nil {
		return nil, fmt.Errorf("reading the document: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	doc, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the document: %w", err)
	case len(doc) > maxDocument:
		return nil, fmt.Errorf("the document is larger than %d MiB; make the fingerprint of its digest, or of what identifies it", maxDocument>>20)
	}
	return doc, nil
}
