package onced_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
)

// TestLookupOfAbsentKey: NOT_FOUND says what was asked and how far memory reaches.
func TestLookupOfAbsentKey(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name    string
		prepare func(*world)
		minted  time.Time
		older   bool
		says    string
	}{
		{"young key", nothing, start, false, "keys used since 2026-01-30T12:00:00Z are remembered"},
		{"key without a time", nothing, time.Time{}, false, "are remembered"},
		{"old key", nothing, start.Add(-31 * day), true, "older than what is remembered"},
		{"blind, key without a time", restore, time.Time{}, true, "the store was restored"},
	}
	for _, test := range tests {
		test.prepare(w)
		_, err := w.lookup(onced.LookupRequest{Subject: "alice", KeyTime: test.minted})
		got := refusal(t, err)
		if got.Reason != onced.RefusedNotFound || got.OlderThanMemory != test.older {
			t.Errorf("%s: %v, older than memory %v", test.name, err, got.OlderThanMemory)
		}
		for _, part := range []string{test.says, "order-1", "send_email", "acme"} {
			if !strings.Contains(got.Message, part) {
				t.Errorf("%s: %q does not say %q", test.name, got.Message, part)
			}
		}
	}
}

// TestLookup: the subject is always compared, fingerprints when they are given;
// then the operation is shown as it is now.
func TestLookup(t *testing.T) {
	bound := []onced.Fingerprint{fingerprint("cj1", "arguments")}
	tests := []struct {
		name string
		ask  onced.LookupRequest
		want onced.RefusalReason
	}{
		{"subject", onced.LookupRequest{Subject: "alice"}, ""},
		{"subject and fingerprint", onced.LookupRequest{Subject: "alice", Fingerprints: bound}, ""},
		{"no subject", onced.LookupRequest{}, onced.RefusedSubject},
		{"another subject", onced.LookupRequest{Subject: "bob", Fingerprints: bound}, onced.RefusedSubject},
		{"another fingerprint", onced.LookupRequest{Subject: "alice", Fingerprints: []onced.Fingerprint{fingerprint("cj1", "others")}}, onced.RefusedFingerprint},
		{"another scheme", onced.LookupRequest{Subject: "alice", Fingerprints: []onced.Fingerprint{fingerprint("raw1", "arguments")}}, onced.RefusedFingerprintScheme},
		{"another key time", onced.LookupRequest{Subject: "alice", KeyTime: start.Add(-100 * day)}, ""},
	}
	for _, test := range tests {
		w := newWorld(t)
		live(w)
		w.lapse()
		op, err := w.lookup(test.ask)
		if reason(t, err) != test.want {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if test.want == "" && (op.State != onced.StateUnresolved || op.Reason != onced.ReasonLapsed || op.Attempt != 2) {
			t.Errorf("%s: %+v", test.name, op)
		}
		if test.want != "" && op != nil {
			t.Errorf("%s: showed %+v", test.name, op)
		}
	}
}

// TestLookupUnbound: an operation without subject and fingerprints is found by
// those who give none.
func TestLookupUnbound(t *testing.T) {
	w := newWorld(t)
	c := request("first")
	c.Subject, c.Fingerprints = "", nil
	w.wantOutcome(c, onced.OutcomeGranted)
	if _, err := w.lookup(onced.LookupRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := w.lookup(onced.LookupRequest{Fingerprints: []onced.Fingerprint{fingerprint("cj1", "x")}}); reason(t, err) != onced.RefusedFingerprint {
		t.Errorf("with a fingerprint: %v", err)
	}
}

// TestUnreadable: a state of a newer build, or bytes that are none, is refused
// to everybody, and not swept.
func TestUnreadable(t *testing.T) {
	makes := map[string]func(*onced.View){
		"bytes":          func(v *onced.View) { v.Record, v.Unreadable = nil, true },
		"bytes, in part": func(v *onced.View) { v.Unreadable = true },
		"state": func(v *onced.View) {
			v.Record = copyRecord(v.Record)
			v.Record.State = onced.StateFailed + 1
		},
		"no state": func(v *onced.View) {
			v.Record = copyRecord(v.Record)
			v.Record.State = 0
		},
	}
	for name, make := range makes {
		w := newWorld(t)
		completed(w)
		w.advance(10 * w.policy.KeyRetention)
		v := w.view(w.id, nil)
		make(&v)
		if _, err := onced.Lookup(v, w.policy, onced.LookupRequest{Subject: "bob"}); reason(t, err) != onced.RefusedUnreadable {
			t.Errorf("%s: lookup %v", name, err)
		}
		if op, ok, err := onced.Show(v, w.policy); op != nil || ok || reason(t, err) != onced.RefusedUnreadable {
			t.Errorf("%s: show %+v, %v", name, op, err)
		}
		if plan := onced.Sweep(v, w.policy); plan.Changes() {
			t.Errorf("%s: sweep %+v", name, plan)
		}
		for _, err := range decideAll(v, w.policy) {
			if reason(t, err) != onced.RefusedUnreadable {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// decideAll runs every transition that can refuse and returns the errors.
func decideAll(v onced.View, p onced.Policy) []error {
	h := onced.Holder{Token: token("second"), Fence: 1}
	_, _, claim := onced.Claim(v, p, request("second"))
	_, _, complete := onced.Complete(v, p, h, result())
	_, _, fail := onced.Fail(v, p, h, failReport(onced.NotExecuted))
	_, _, renew := onced.Renew(v, p, h, time.Minute, nil)
	_, _, resolve := onced.Resolve(v, p, resolution(onced.ResolveCompleted))
	_, _, erase := onced.EraseResult(v, p, onced.EraseRequest{})
	return []error{claim, complete, fail, renew, resolve, erase}
}
