package onced_test

import (
	"testing"

	"github.com/onced/onced"
)

// TestEtag: a decision on another version than the current one is refused, for
// every verb; without an etag any version will do.
func TestEtag(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.lapse()
	stale := w.show().Etag()
	w.fail("second", onced.Unknown)
	if current := w.show().Etag(); current == stale {
		t.Fatal("a write kept the etag")
	}
	before := copyRecord(w.record())
	for _, as := range []onced.Resolution{onced.ResolveCompleted, onced.ResolveFailed, onced.ResolveReleased, onced.ResolveReopen} {
		q := resolution(as)
		q.Etag = stale
		if _, err := w.resolveWith(q); reason(t, err) != onced.RefusedEtag {
			t.Errorf("%v: %v", as, err)
		}
		w.wantChange(before, nil)
	}
	q := resolution(onced.ResolveCompleted)
	q.Etag = w.show().Etag()
	_, err := w.resolveWith(q)
	w.ok(err)

	erase := onced.EraseRequest{Etag: stale, Evidence: "a request", Who: "olga"}
	if _, err := w.eraseWith(erase); reason(t, err) != onced.RefusedEtag {
		t.Errorf("erase: %v", err)
	}
	erase.Etag = w.show().Etag()
	_, err = w.eraseWith(erase)
	w.ok(err)
	// Erased already: nothing to do, whatever version was seen.
	before = copyRecord(w.record())
	_, err = w.eraseWith(erase)
	w.ok(err)
	w.wantChange(before, nil)
	if len(w.audit) != 2 {
		t.Errorf("%d entries in the audit trail, want 2", len(w.audit))
	}
}

// TestEtagNamesVersions: two versions of a record never share an etag, and a
// sweep, which nobody can see, makes none.
func TestEtagNamesVersions(t *testing.T) {
	w := newWorld(t)
	seen := map[string]int{}
	for i, step := range []func(*world){
		live, secondRenews, secondRenews, secondSays(onced.Unknown), contradict,
		func(w *world) { w.takeOver("third") }, thirdCompletes, afterErasure, reopen,
	} {
		step(w)
		if earlier, found := seen[w.record().Etag(w.epoch.Generation)]; found {
			t.Errorf("step %d has the etag of step %d", i, earlier)
		}
		seen[w.record().Etag(w.epoch.Generation)] = i
	}
	w = newWorld(t)
	completed(w)
	etag := w.show().Etag()
	resultExpires(w)
	w.sweep()
	if w.record().Result.Presence != onced.Dropped || w.record().Etag(w.epoch.Generation) != etag {
		t.Errorf("swept into %+v", w.record())
	}
}

// TestRepeatedResolve: the last Resolve again, by outcome, digest and evidence,
// is answered OK and leaves one trace, whether its etag was read before or not.
func TestRepeatedResolve(t *testing.T) {
	for _, as := range []onced.Resolution{onced.ResolveCompleted, onced.ResolveFailed, onced.ResolveReleased} {
		w := newWorld(t)
		live(w)
		w.lapse()
		q := resolution(as)
		q.Etag = w.show().Etag()
		_, err := w.resolveWith(q)
		w.ok(err)
		before := copyRecord(w.record())
		for range 2 {
			op, err := w.resolveWith(q)
			w.ok(err)
			if op.State != before.State {
				t.Errorf("%v again: shown as %v", as, op.State)
			}
			w.wantChange(before, nil)
			q.Etag = ""
		}
		if len(w.audit) != 1 {
			t.Errorf("%v: %d entries in the audit trail", as, len(w.audit))
		}
	}
}

// TestEtagEndsWithTheStore: a Resolve that was decided on before a restore does not
// apply after it: what has happened in between is not known any more.
func TestEtagEndsWithTheStore(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.lapse()
	q := resolution(onced.ResolveReleased)
	q.Etag = w.show().Etag()
	w.restore()
	before := copyRecord(w.record())
	_, err := w.resolveWith(q)
	if got := reason(t, err); got != onced.RefusedEtag {
		t.Errorf("answered %q, want ETAG_MISMATCH", got)
	}
	w.wantChange(before, nil)
}

// TestRepeatedResolveIsLate: a Resolve that comes twice undoes nothing that has
// happened in between. With the current etag it is a decision of its own.
func TestRepeatedResolveIsLate(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.lapse()
	w.resolve(onced.ResolveReleased)
	w.claim("third", onced.OutcomeGranted)
	w.fail("third", onced.Unknown)
	before := copyRecord(w.record())
	w.resolve(onced.ResolveReleased) // delayed
	w.wantChange(before, nil)

	q := resolution(onced.ResolveReleased)
	q.Etag = w.show().Etag()
	_, err := w.resolveWith(q)
	w.ok(err)
	if w.record().State != onced.StateReleased || len(w.audit) != 2 {
		t.Errorf("stored %v, %d entries in the audit trail", w.record().State, len(w.audit))
	}
	// Another evidence is another decision.
	q.Etag, q.Evidence = "", "asked once more"
	_, err = w.resolveWith(q)
	w.ok(err)
	if len(w.audit) != 3 {
		t.Errorf("%d entries in the audit trail, want 3", len(w.audit))
	}
}

// TestResolveSameOutcome: settling as it is settled already is OK and leaves no
// trace; another outcome asks for a reopening first.
func TestResolveSameOutcome(t *testing.T) {
	w := newWorld(t)
	completed(w)
	before := copyRecord(w.record())
	w.resolve(onced.ResolveCompleted)
	w.wantChange(before, nil)
	q := resolution(onced.ResolveCompleted)
	q.Result = onced.NewResult("text/plain", true, []byte("another"))
	if _, err := w.resolveWith(q); reason(t, err) != onced.RefusedAlreadySettled {
		t.Errorf("another result: %v", err)
	}
	w.resolve(onced.ResolveReopen)
	_, err := w.resolveWith(q)
	w.ok(err)
	if r := w.record(); r.SettledBy != onced.SettledByOperator || string(r.Result.Bytes) != "another" {
		t.Errorf("settled as %+v", r)
	}
}

// TestReopen: the operation runs anew under the same key; attempts and fences
// go on counting, what was bound stays bound, and used tokens stay used.
func TestReopen(t *testing.T) {
	w := newWorld(t)
	completed(w)
	fence := w.record().Fence
	w.resolve(onced.ResolveReopen)
	if r := w.record(); r.Result != nil || r.SettledDigest != (onced.Digest{}) || r.SettledBy != onced.SettledByNobody || !r.SettleTime.IsZero() {
		t.Errorf("an outcome is left: %+v", r)
	}
	w.claimRefused("second", onced.RefusedClaimLost)
	other := request("third")
	other.Fingerprints = []onced.Fingerprint{fingerprint("cj1", "other arguments")}
	if _, err := w.claimWith(other); reason(t, err) != onced.RefusedFingerprint {
		t.Errorf("other arguments: %v", err)
	}
	op := w.claim("third", onced.OutcomeGranted).Operation
	if op.Attempt != 3 || op.Fence <= fence || !op.FirstClaimTime.Equal(start) {
		t.Errorf("granted as %+v", op)
	}
	// The former holder's fact is known and repeats nothing.
	w.complete("second")
	if w.plan.Changes() {
		t.Errorf("a repeat changed %+v", w.plan.Put)
	}
}

// TestEraseDropsBytesNow: the tombstone keeps what identifies the result, and
// the holder's repeat is known.
func TestEraseDropsBytesNow(t *testing.T) {
	w := newWorld(t)
	completed(w)
	afterErasure(w)
	r := w.claim("third", onced.OutcomeReplayed).Operation.Result
	if r.Presence != onced.Dropped || r.Bytes != nil || r.SHA256 != result().SHA256 || r.Size != result().Size {
		t.Errorf("replayed %+v", r)
	}
	w.complete("second")
	if w.plan.Changes() {
		t.Error("a repeat brought the bytes back")
	}
}

// TestOperatorOverruled: an operator released, and then the holder turns out to
// have executed: the fact stands, and an alarm is raised.
func TestOperatorOverruled(t *testing.T) {
	w := newWorld(t)
	releasedByOperator(w)
	w.complete("second")
	if w.plan.Alarm != onced.AlarmSettledAfterResolve || w.record().State != onced.StateCompleted {
		t.Errorf("alarm %v, stored %v", w.plan.Alarm, w.record().State)
	}
}
