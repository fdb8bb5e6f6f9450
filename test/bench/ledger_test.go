package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// TestLedgerFindsLosses changes what a ledger has of operations that a real server
// knows: each difference must be found, and nothing else.
func TestLedgerFindsLosses(t *testing.T) {
	r := newRig(t.TempDir(), programs, io.Discard)
	defer r.close()
	dir := r.name("store")
	if err := r.newStore(dir); err != nil {
		t.Fatal(err)
	}
	s, err := r.serve(t.Context(), dir, setup{})
	if err != nil {
		t.Fatal(err)
	}
	stubs, err := r.stubs(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		key     string
		settled bool
		change  func(*entry)
		finds   string // "": nothing
	}{
		{"settled", true, func(*entry) {}, ""},
		{"held", false, func(*entry) {}, ""},
		{"settled without an answer", true, func(e *entry) { e.completed = false }, ""},
		{"settled by nobody", true, func(e *entry) { e.completed, e.reported = false, false }, "was granted, and is STATE_COMPLETED"},
		{"other bytes", true, func(e *entry) { e.size++ }, "is replayed with other bytes"},
		{"replayed fence", true, func(e *entry) { e.fence++ }, "was completed under fence"},
		{"held fence", false, func(e *entry) { e.fence++ }, "was granted under fence"},
		{"never settled", false, func(e *entry) { e.completed = true }, "was completed, and a claim is answered OUTCOME_IN_PROGRESS"},
		{"forgotten", false, func(e *entry) { e.ref.Key = "another key" }, "NotFound"},
	}
	l := newLedger()
	for _, test := range tests {
		req := claimOf("default", test.key)
		fence, err := claim(t.Context(), stubs.of(0), req)
		if err != nil {
			t.Fatal(err)
		}
		e := l.granted(req, fence, 10)
		if test.settled {
			if err := l.settle(t.Context(), stubs.of(0), e); err != nil {
				t.Fatal(err)
			}
		}
		test.change(e)
	}
	looked, lost := l.lost(t.Context(), stubs, "")
	if looked != len(tests) {
		t.Errorf("%d operations were looked at, want %d", looked, len(tests))
	}
	want := 0
	for _, test := range tests {
		if test.finds == "" {
			if slices.ContainsFunc(lost, func(s string) bool { return strings.HasPrefix(s, test.key+":") }) {
				t.Errorf("%s counts as lost: %q", test.key, lost)
			}
			continue
		}
		want++
		if !slices.ContainsFunc(lost, func(s string) bool { return strings.Contains(s, test.finds) }) {
			t.Errorf("%s: %q is not among %q", test.key, test.finds, lost)
		}
	}
	if len(lost) != want {
		t.Errorf("%d are lost, want %d: %q", len(lost), want, lost)
	}
}
