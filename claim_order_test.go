package onced_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
)

// TestMismatchInEveryState: another subject, then other arguments, are refused
// before the state has a say, in the same words in every state, whoever claims
// and however; nothing is changed and nothing is shown.
func TestMismatchInEveryState(t *testing.T) {
	states := map[string]func(*world){
		"LIVE": live, "LAPSED": then(live, lapse), "DECLARED": declared, "CONTRA": contradicted,
		"HISTORY": forgotten, "RESTORED-R": then(released, restore), "RELEASED": released,
		"exhausted": then(exhausted, secondSays(onced.NotExecuted)), "COMPLETED": completed, "FAILED": failed,
	}
	mismatches := map[string]struct {
		edit func(*onced.ClaimRequest)
		want onced.RefusalReason
	}{
		"subject":    {func(c *onced.ClaimRequest) { c.Subject = "bob" }, onced.RefusedSubject},
		"no subject": {func(c *onced.ClaimRequest) { c.Subject = "" }, onced.RefusedSubject},
		"subject and arguments": {func(c *onced.ClaimRequest) {
			c.Subject, c.Fingerprints = "bob", nil
		}, onced.RefusedSubject},
		"arguments":      {func(c *onced.ClaimRequest) { c.Fingerprints = []onced.Fingerprint{fingerprint("cj1", "others")} }, onced.RefusedFingerprint},
		"no arguments":   {func(c *onced.ClaimRequest) { c.Fingerprints = nil }, onced.RefusedFingerprint},
		"another scheme": {func(c *onced.ClaimRequest) { c.Fingerprints = []onced.Fingerprint{fingerprint("pb1", "arguments")} }, onced.RefusedFingerprintScheme},
	}
	for name, mismatch := range mismatches {
		words := map[string]bool{}
		for state, build := range states {
			for _, who := range []string{"second", "first", "third"} {
				w := newWorld(t)
				build(w)
				before := copyRecord(w.record())
				c := request(who)
				c.QuotaFull = true
				mismatch.edit(&c)
				answer, err := w.claimWith(c)
				if reason(t, err) != mismatch.want || answer.Operation != nil || answer.Outcome != 0 {
					t.Errorf("%s, %s by %s: %v, %+v", state, name, who, err, answer)
					continue
				}
				words[err.Error()] = true
				w.wantChange(before, nil)
			}
		}
		if len(words) != 1 {
			t.Errorf("%s: the words tell the states apart: %v", name, words)
		}
	}
}

// TestFingerprints: compared under any scheme in common; absent differs from
// present; without a common scheme the stored one is named.
func TestFingerprints(t *testing.T) {
	list := func(names ...string) (all []onced.Fingerprint) {
		for _, name := range names {
			scheme, content, _ := strings.Cut(name, ":")
			all = append(all, fingerprint(scheme, content))
		}
		return all
	}
	tests := []struct {
		name         string
		bound, given []onced.Fingerprint
		want         onced.RefusalReason
	}{
		{"none and none", nil, nil, ""},
		{"none bound", nil, list("cj1:a"), onced.RefusedFingerprint},
		{"none given", list("cj1:a"), nil, onced.RefusedFingerprint},
		{"the same", list("cj1:a"), list("cj1:a"), ""},
		{"another", list("cj1:a"), list("cj1:b"), onced.RefusedFingerprint},
		{"one in common", list("cj1:a", "pb1:a"), list("raw1:x", "pb1:a"), ""},
		{"one in common, another", list("cj1:a", "pb1:a"), list("raw1:x", "pb1:b"), onced.RefusedFingerprint},
		{"two in common, one equal", list("cj1:a", "raw1:x"), list("cj1:a", "raw1:y"), ""},
		{"no scheme in common", list("cj1:a"), list("raw1:a", "pb1:a"), onced.RefusedFingerprintScheme},
	}
	for _, test := range tests {
		w := newWorld(t)
		c := request("first")
		c.Fingerprints = test.bound
		w.wantOutcome(c, onced.OutcomeGranted)
		c.Fingerprints = test.given
		_, err := w.claimWith(c)
		if reason(t, err) != test.want {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if test.want == onced.RefusedFingerprintScheme && !strings.Contains(err.Error(), "scheme cj1 ") {
			t.Errorf("%s: %q does not name the stored scheme", test.name, err)
		}
	}
}

// TestGuardsOfNewGrants: key birth comes before the twin, the twin before the
// quota; and none of them stops the present holder's re-sent claim.
func TestGuardsOfNewGrants(t *testing.T) {
	w := newWorld(t)
	twinClaims(w)
	c := request("first")
	c.KeyTime, c.Guard, c.QuotaFull = start.Add(-31*day), &onced.TwinGuard{Block: onced.BlockUnsettled}, true
	if _, err := w.claimWith(c); reason(t, err) != onced.RefusedQuota {
		t.Errorf("old key, twin, quota: %v", err) // HISTORY_LOST makes a record, which is counted
	}
	c.KeyTime = start
	w.wantOutcome(c, onced.OutcomeBlockedByTwin)
	c.Guard.Confirmed = "twin of order-1"
	if _, err := w.claimWith(c); reason(t, err) != onced.RefusedQuota || w.record() != nil {
		t.Errorf("quota: %v, stored %+v", err, w.record())
	}
	c.QuotaFull = false
	granted := w.wantOutcome(c, onced.OutcomeGranted)

	c.KeyTime, c.Guard.Confirmed, c.QuotaFull = start.Add(-31*day), "", true
	w.advance(time.Second)
	again := w.wantOutcome(c, onced.OutcomeGranted)
	if a, b := granted.Operation, again.Operation; a.Attempt != b.Attempt || a.Fence != b.Fence || !a.LeaseEnd.Equal(b.LeaseEnd) {
		t.Errorf("granted again as %+v after %+v", b, a)
	}
	if w.plan.Changes() {
		t.Error("a re-sent claim was written")
	}
	// RELEASED is found: no key birth. Its quota counts.
	w.fail("first", onced.NotExecuted)
	c = request("second")
	c.KeyTime, c.QuotaFull = start.Add(-31*day), true
	if _, err := w.claimWith(c); reason(t, err) != onced.RefusedQuota {
		t.Errorf("quota on RELEASED: %v", err)
	}
	c.QuotaFull = false
	w.wantOutcome(c, onced.OutcomeGranted)
}

// TestTimeNeverPrecedesTheRecord: a clock behind the newest stamp of a record
// does not bring a lapsed claim back or settle in the past.
func TestTimeNeverPrecedesTheRecord(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.advance(20 * time.Second)
	w.renew("second")
	newest := w.now
	w.now = start
	if op := w.show(); op.LeaseRemaining != 30*time.Second {
		t.Errorf("%v remain", op.LeaseRemaining)
	}
	w.complete("second")
	if r := w.record(); !r.SettleTime.Equal(newest) || !r.UpdateTime.Equal(newest) {
		t.Errorf("settled %v, written %v; the record was of %v", r.SettleTime, r.UpdateTime, newest)
	}
}
