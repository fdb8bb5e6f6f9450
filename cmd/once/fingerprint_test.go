package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/fingerprint"
)

// printOf runs `once fingerprint` on a document, with no server anywhere.
func printOf(t *testing.T, doc string, args ...string) run {
	t.Helper()
	s := &testServer{t: t, addr: "127.0.0.1:1", budgets: usualBudgets}
	cmd := s.command(append([]string{"fingerprint"}, args...)...)
	cmd.Stdin = strings.NewReader(doc)
	return finish(t, cmd)
}

// TestFingerprint: what is printed is the fingerprint of the library, from a file and
// from the standard input, and cj1 is what one gets without --scheme.
func TestFingerprint(t *testing.T) {
	file := inDir(t, "arguments.json")
	whole := `{"account":9007199254740993,"order":{"id":7,"note":"x"},"trace":"t"}`
	must(t, os.WriteFile(file, []byte(whole+"\n"), 0o600))
	json := func(opts ...fingerprint.Option) onced.Fingerprint {
		f, err := fingerprint.JSON([]byte(whole), opts...)
		must(t, err)
		return f
	}
	for _, c := range []struct {
		args []string
		want onced.Fingerprint
	}{
		{[]string{"--scheme", "cj1", "-"}, json()},
		{[]string{"-"}, json()},
		{[]string{file}, json()},
		{[]string{"--scheme=cj1", "--", file}, json()},
		{[]string{"--scheme", "raw1", "-"}, fingerprint.Raw([]byte(whole))},
		{[]string{file, "--scheme", "raw1"}, fingerprint.Raw([]byte(whole + "\n"))},
		{[]string{"--identity", "account,order.id", "-"}, json(fingerprint.Identity("account", "order.id"))},
		{[]string{"--identity", "order.id", "--identity=account", "-"}, json(fingerprint.Identity("account", "order.id"))},
		{[]string{"--ignore", "trace,order.note", "-"}, json(fingerprint.Ignore("trace", "order.note"))},
		{[]string{"--ignore", "trace", "--ignore", "order.note", file}, json(fingerprint.Ignore("trace", "order.note"))},
	} {
		if r := printOf(t, whole, c.args...).want(t, exitOK); r.stdout != c.want.String()+"\n" || r.stderr != "" {
			t.Errorf("%q: got %q and %q, want %s", c.args, r.stdout, r.stderr, c.want)
		}
		r := printOf(t, whole, append([]string{"-o", "json"}, c.args...)...).want(t, exitOK)
		if answer := jsonOf(t, r); len(answer) != 1 || answer["fingerprint"] != c.want.String() {
			t.Errorf("%q: got %v, want %s", c.args, answer, c.want)
		}
	}
}

// TestRawFingerprintOfBytes holds the encoding for other languages, and that exec
// makes the same fingerprint of one word.
func TestRawFingerprintOfBytes(t *testing.T) {
	// printf '\012onced raw1\003a\000\377' | sha256sum
	const want = "raw1:dc2bfbe79be110c1e95f3d2f6df9d14494839c6d9c1b712a027e1f549f132540"
	if r := printOf(t, "a\x00\xff", "--scheme", "raw1", "-").want(t, exitOK); r.stdout != want+"\n" {
		t.Errorf("got %s", r.stdout)
	}
	if got := (words{"a\x00\xff"}).fingerprint().String(); got != want {
		t.Errorf("exec makes %s", got)
	}
}

// TestFingerprintRefuses: 64, nothing but a sentence, and nothing of the document in
// it.
func TestFingerprintRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		args []string
		says string
	}{
		"empty":                     {"", nil, "empty"},
		"blanks":                    {" \n", nil, "empty"},
		"byte order mark":           {"\ufeff{}", nil, "byte 0"},
		"duplicate":                 {`{"pin":"secret","pin":"secret"}`, nil, "the name at byte 16 stands twice"},
		"duplicate, escaped":        {`{"amount":5,"\u0061mount":500}`, nil, "the name at byte 12 stands twice"},
		"duplicate, left out":       {`{"a":1,"b":{"c":"secret","c":2}}`, []string{"--ignore", "b"}, "the name at byte 25 stands twice"},
		"duplicate, secret":         {`{"secret@corp.example":1,"b":2,"secret@corp.example":3}`, nil, "the name at byte 31 stands twice"},
		"no colon":                  {`{"a":1,"secret@corp.example" 1}`, nil, "not JSON"},
		"no comma":                  {`{"a":1 "secret@corp.example":1}`, nil, "byte 7"},
		"a name as no JSON":         {`{secret:1}`, nil, "byte 1"},
		"an escape as no JSON":      {`{"a":"\ud83dsecret","b":"\qsecret"}`, nil, "byte 6"},
		"a path into a value":       {`{"a":"secret"}`, []string{"--identity", "a.b"}, `"a", which is not an object, at byte 5`},
		"no bytes":                  {"", []string{"--scheme", "raw1"}, "empty"},
		"text behind it":            {`{"a":1} secret`, nil, "byte 8"},
		"a second value":            {`{"a":1}{"a":"secret"}`, nil, "exactly one"},
		"not a number":              {`{"a":NaN}`, nil, "byte 5"},
		"a number as no JSON":       {`{"a":01}`, nil, "byte 6"},
		"a comma too many":          {`{"a":1,}`, nil, "not JSON"},
		"cut off":                   {`{"pin":"secret`, nil, "not JSON"},
		"no UTF-8":                  {"{\"a\":\"secret\xff\"}", nil, "UTF-8"},
		"lone surrogate":            {`{"a":"\ud83dsecret"}`, nil, "byte 6"},
		"too deep":                  {strings.Repeat("[", 10001), nil, "deeper than 1000"},
		"no object":                 {`["secret"]`, []string{"--identity", "a"}, "not an object"},
		"no such members":           {`{"b":"secret"}`, []string{"--identity", "a"}, "none of the members"},
		"identity of nothing":       {`{}`, []string{"--identity="}, "--identity"},
		"a path without a name":     {`{"a":1}`, []string{"--identity", "a,"}, "--identity"},
		"a path with a blank":       {`{"a":1}`, []string{"--identity", "a, b"}, `" b"`},
		"a path with two dots":      {`{"a":1}`, []string{"--ignore", "a..b"}, `"a..b"`},
		"identity and ignore":       {`{"a":1}`, []string{"--identity", "a", "--ignore", "b"}, "--identity and --ignore"},
		"members of bytes":          {`{"a":1}`, []string{"--scheme", "raw1", "--ignore", "a"}, "--ignore"},
		"a message":                 {`{"a":1}`, []string{"--scheme", "pb1"}, "github.com/onced/onced/fingerprint"},
		"an unknown scheme":         {`{"a":1}`, []string{"--scheme", "cj2"}, "cj1"},
		"no scheme":                 {`{"a":1}`, []string{"--scheme="}, "cj1"},
		"a scheme in other letters": {`{"a":1}`, []string{"--scheme", "CJ1"}, "cj1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := printOf(t, c.doc, append(c.args, "-")...).want(t, exitUsage)
			if r.stdout != "" || !strings.HasPrefix(r.stderr, "once: ") || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, c.says) {
				t.Errorf("stdout %q, stderr %q, want a sentence with %q", r.stdout, r.stderr, c.says)
			}
			if strings.Contains(r.stderr, "secret") {
				t.Errorf("the document is shown: %s", r.stderr)
			}
		})
	}
}

// TestFingerprintOfNoDocument: a document that cannot be read, or that nobody named,
// is not an empty one, under raw1 above all.
func TestFingerprintOfNoDocument(t *testing.T) {
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"none named": {}, "empty name": {""}, "absent": {dir + "/none"}, "a folder": {dir}, "two": {"-", "-"},
	} {
		for _, scheme := range []string{"cj1", "raw1"} {
			r := printOf(t, "x", append([]string{"--scheme", scheme}, args...)...).want(t, exitUsage)
			if r.stdout != "" || !strings.HasPrefix(r.stderr, "once: ") {
				t.Errorf("%s, %s: stdout %q, stderr %q", name, scheme, r.stdout, r.stderr)
			}
		}
	}
}

// TestFingerprintIsBounded: a stream without an end is refused, the largest document
// is not.
func TestFingerprintIsBounded(t *testing.T) {
	c := fingerprintCommand{File: "-"}
	if doc, err := c.document(io.LimitReader(endless{}, maxDocument)); err != nil || len(doc) != maxDocument {
		t.Errorf("the largest document: %d bytes, %v", len(doc), err)
	}
	if doc, err := c.document(endless{}); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("a document without an end: %d bytes, %v", len(doc), err)
	}
}

// endless is a stream without an end, of whatever the reader has.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestFingerprintIsClaimed: what it prints is what claims take.
func TestFingerprintIsClaimed(t *testing.T) {
	s := newServer(t)
	claim := func(doc, scheme string, status int) {
		t.Helper()
		print := strings.TrimSpace(printOf(t, doc, "--scheme", scheme, "-").want(t, exitOK).stdout)
		s.once("claim", "--key", "k", "--method", scheme, "--fingerprint", print).want(t, status)
	}
	for _, scheme := range []string{"cj1", "raw1"} {
		claim(`{"a":1}`, scheme, exitOK)
		claim(`{"a":1}`, scheme, exitInProgress)
		claim(`{"a":2}`, scheme, exitRefused)
	}
	claim(`{"a":1.0}`, "cj1", exitInProgress)
	claim(`{"a":1.0}`, "raw1", exitRefused)
}

// TestFingerprintHelp: it says what is taken by default, and has an example.
func TestFingerprintHelp(t *testing.T) {
	r := printOf(t, "", "--help").want(t, exitOK)
	for _, text := range []string{"    once fingerprint", "cj1 by default", "- for the standard input"} {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("no %q in\n%s", text, r.stdout)
		}
	}
}
