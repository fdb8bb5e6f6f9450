package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// TestRawFingerprint holds the encoding: another one would make every command a
// mismatch after an upgrade.
func TestRawFingerprint(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		// printf '\012onced raw1' | sha256sum
		{nil, "ebe4853aa802c4f3053d44fb84056749a44bf066d14d929557932ae1abc6c379"},
		// printf '\012onced raw1\002ls\002-l' | sha256sum
		{[]string{"ls", "-l"}, "1ef1350eeeefc87a1ffd4909332435e66d241d79659742c704b52f456f3741e0"},
		// printf '\012onced raw1\005ls -l' | sha256sum
		{[]string{"ls -l"}, "c26aa6f6b6df2e7e3a4ddc61f35b232cc63a124e93b01ea505df944d7bb92128"},
		// printf '\012onced raw1\000\001\377' | sha256sum
		{[]string{"", "\xff"}, "292bd499cc347f40ee5afcb092cef251926d88455db8c0ba0bbbca74f8906d3e"},
		// printf '\012onced raw1\310\001%0200d' 0 | sha256sum
		{[]string{strings.Repeat("0", 200)}, "ff6a1ab506970eb44f7955b49d22ef66c3a6e42fedd0499e7fac6a434148fcc4"},
	} {
		if got := words(c.argv).fingerprint().String(); got != "raw1:"+c.want {
			t.Errorf("%q: %s", c.argv, got)
		}
	}
}

// TestOutcomeStatus: each outcome and each code of gRPC has a row, or is known to
// have none.
func TestStatusTables(t *testing.T) {
	for value, name := range oncedv1.Outcome_name {
		_, known := outcomeStatus[oncedv1.Outcome(value)]
		if known == (value == int32(oncedv1.Outcome_OUTCOME_UNSPECIFIED)) {
			t.Errorf("%s has a row: %v", name, known)
		}
	}
	for code, want := range map[codes.Code]int{
		codes.InvalidArgument: 64, codes.FailedPrecondition: 65, codes.Aborted: 65, codes.NotFound: 66,
		codes.Unavailable: 69, codes.ResourceExhausted: 69, codes.DeadlineExceeded: 69,
		codes.PermissionDenied: 77, codes.Unauthenticated: 77, codes.Internal: 70, codes.Unknown: 70, codes.Canceled: 70, codes.Code(99): 70,
	} {
		if got := statusOf(status.Error(code, "x")); got != want {
			t.Errorf("%v: %d, want %d", code, got, want)
		}
	}
	if statusOf(errors.New("x")) != 70 || statusOf(usage(errors.New("x"))) != 64 {
		t.Error("an error without a code")
	}
}

// TestFit: the larger output goes first, the status stays.
func TestFit(t *testing.T) {
	made := func() execResult {
		out, errs := newTee(nil, math.MaxInt), newTee(nil, math.MaxInt)
		out.write([]byte(strings.Repeat("x", 1000)))
		errs.write([]byte(strings.Repeat("\x00", 300)))
		return execResult{ExitStatus: 3, Stdout: out.output(), Stderr: errs.output()}
	}
	full := made()
	all, err := json.Marshal(full)
	must(t, err)
	for _, c := range []struct {
		limit            uint64
		noStdout, noText bool
	}{
		{uint64(len(all)), false, false},
		{uint64(len(all)) - 1, true, false},
		{500, true, true},
		{1, true, true},
	} {
		r := made()
		must(t, r.fit(c.limit))
		if r.Stdout.Omitted != c.noStdout || r.Stderr.Omitted != c.noText || r.ExitStatus != 3 || r.Stdout.Size != 1000 || r.Stdout.SHA256 != full.Stdout.SHA256 {
			t.Errorf("limit %d: %+v", c.limit, r)
		}
		must(t, r.check())
	}
}

// FuzzOutput: what is kept comes back byte by byte, through JSON.
func FuzzOutput(f *testing.F) {
	for _, s := range []string{"", "text\n", "\xff\x00", "<&>\u2028", "\xed\xa0\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := newTee(nil, uint64(len(b)))
		out.write(b)
		encoded, err := json.Marshal(execResult{Stdout: out.output(), Stderr: newTee(nil, 0).output()})
		must(t, err)
		var r execResult
		must(t, json.Unmarshal(encoded, &r))
		must(t, r.check())
		if string(r.Stdout.bytes()) != string(b) {
			t.Errorf("%q became %q", b, r.Stdout.bytes())
		}
	})
}

// TestCheckRefusesForeignResults: a result that exec has not written is not taken
// for a run.
func TestCheckRefusesForeignResults(t *testing.T) {
	for _, text := range []string{`{}`, `{"exit_status":256}`, `{"exit_status":0,"stdout":{"text":"x"},"stderr":{}}`} {
		var r execResult
		must(t, json.Unmarshal([]byte(text), &r))
		if r.check() == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// TestPrintable: nothing from elsewhere acts on the terminal.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ключ {\"a\": 1}": "plain ключ {\"a\": 1}",
		"\x1b[31mred":           `"\x1b[31mred"`,
		"two\nlines":            `"two\nlines"`,
		"\xff":                  `"\xff"`,
		"\u202eright to left":   `"\u202eright to left"`,
	} {
		got := printable(in)
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// TestFiles: a file is made whole or not at all, and never over another by
// createFile.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, createFile(path, 0o600, []byte("1")))
	if err := createFile(path, 0o600, []byte("2")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second creation: %v", err)
	}
	if got := readFile(t, path); got != "1" {
		t.Errorf("content %q", got)
	}
	must(t, replaceFile(path, 0o600, []byte("3")))
	if got := readFile(t, path); got != "3" {
		t.Errorf("content %q", got)
	}
	if err := replaceFile(filepath.Join(dir, "none", "f"), 0o600, nil); err == nil {
		t.Error("a file in a folder that is not there")
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestShellWord: what is quoted is one word to a shell, and what needs no quotes has
// none.
func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"nightly-2026-11-30": "nightly-2026-11-30", "raw1:ab": "raw1:ab", "": "''", "a b": "'a b'",
		"it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'", "*": "'*'", "é": "'é'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
