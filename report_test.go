package onced_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onced/onced"
)

func checkpoint(seq uint64, text string) *onced.Checkpoint {
	return &onced.Checkpoint{Seq: seq, Payload: *onced.NewResult("text/plain", true, []byte(text))}
}

// TestWithdrawnWordStopsGrant: attempt 1 NOT_EXECUTED, attempt 2 NOT_EXECUTED,
// attempt 1 "I was wrong": the third claim must not be granted.
func TestWithdrawnWordStopsGrant(t *testing.T) {
	w := newWorld(t)
	released(w)
	w.fenced("first", onced.Unknown)
	if op := w.claim("third", onced.OutcomeUnresolved).Operation; op.Reason != onced.ReasonDeclared {
		t.Errorf("reason %v", op.Reason)
	}
	// Nor when a third attempt runs by then: it may not release.
	w = newWorld(t)
	released(w)
	w.claim("third", onced.OutcomeGranted)
	w.fenced("second", onced.Unknown)
	w.fail("third", onced.NotExecuted)
	if op := w.claim("fourth", onced.OutcomeUnresolved).Operation; op.Reason != onced.ReasonDeclared || !op.Doubt {
		t.Errorf("after NOT_EXECUTED under doubt: %+v", op)
	}
	// Nor is a word taken back twice: the second time changes nothing.
	w.fenced("second", onced.Unknown)
	if w.plan.Changes() {
		t.Error("doubt was added twice")
	}
}

// TestNoGrantAgainUnderDoubt: attempt 1 NOT_EXECUTED, attempt 2's GRANTED is
// lost, attempt 1's Complete comes: the re-sent claim of attempt 2 would run
// although onced was told of an effect.
func TestNoGrantAgainUnderDoubt(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.claim("second", onced.OutcomeGranted)
	w.fencedComplete("first")
	answer := w.claim("second", onced.OutcomeUnresolved)
	if !answer.Yours || answer.Operation.Reason != onced.ReasonContradicted || answer.Operation.State != onced.StateUnresolved {
		t.Errorf("answered %+v of %+v", answer, answer.Operation)
	}
	if w.record().State != onced.StatePending {
		t.Errorf("stored as %v", w.record().State)
	}
}

// TestContradictionBlocksVerdict: once a former holder has reported an effect,
// no takeover may say that none happened; its outcome or an operator ends it.
func TestContradictionBlocksVerdict(t *testing.T) {
	endings := map[string]func(*world){
		"Complete": func(w *world) { w.complete("second") },
		"FINAL":    secondSays(onced.Final),
		"Resolve":  func(w *world) { w.lapse(); w.resolve(onced.ResolveReleased) },
	}
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			contradictedThenTakenOver(w)
			if _, err := w.failWith(w.holder("second"), failReport(onced.DidNotHappen)); reason(t, err) != onced.RefusedReport {
				t.Errorf("the verdict was answered %v", err)
			}
			end(w)
			if r := w.record(); r.Doubt || r.Contradicted || !r.DoubtTime.IsZero() {
				t.Errorf("doubt stayed: %+v", r)
			}
		})
	}
}

// TestHolderAddsFactsOnly: the last holder may make good what it declared, and
// never take a doubt back that it declared.
func TestHolderAddsFactsOnly(t *testing.T) {
	w := newWorld(t)
	declared(w)
	_, err := w.failWith(w.holder("second"), failReport(onced.NotExecuted))
	if reason(t, err) != onced.RefusedReport {
		t.Errorf("NOT_EXECUTED after UNKNOWN: %v", err)
	}
	w.complete("second")
	if r := w.record(); r.State != onced.StateCompleted || r.SettledBy != onced.SettledByHolder {
		t.Errorf("settled as %+v", r)
	}
}

// TestOtherResultIsRefused: another result under the same token changes nothing;
// the stored bytes stay the first ones.
func TestOtherResultIsRefused(t *testing.T) {
	w := newWorld(t)
	completed(w)
	before := copyRecord(w.record())
	others := map[string]*onced.Result{
		"bytes":        onced.NewResult("application/json", true, []byte(`{"ticket":8}`)),
		"content type": onced.NewResult("text/plain", true, []byte(`{"ticket":7}`)),
		"empty":        onced.NewResult("application/json", true, nil),
	}
	for name, other := range others {
		_, err := w.completeWith(w.holder("second"), other)
		if reason(t, err) != onced.RefusedAlreadySettled {
			t.Errorf("another %s: %v", name, err)
		}
		w.wantChange(before, nil)
	}
}

// TestResultIdentity: content type, size and digest of the bytes, however they
// came; failures by code, message and details.
func TestResultIdentity(t *testing.T) {
	base := onced.NewResult("text/plain", true, []byte("seven"))
	omitted := &onced.Result{ContentType: "text/plain", Presence: onced.Omitted, Size: 5, SHA256: onced.TokenDigest([]byte("seven"))}
	asData := onced.NewResult("text/plain", false, []byte("seven"))
	for name, same := range map[string]*onced.Result{"omitted": omitted, "as data": asData} {
		if same.Identity() != base.Identity() {
			t.Errorf("%s: another identity", name)
		}
	}
	longer := *omitted
	longer.Size++
	all := []onced.Digest{
		base.Identity(), longer.Identity(),
		onced.NewResult("text/plai", true, []byte("nseven")).Identity(),
		onced.NewResult("", true, []byte("text/plainseven")).Identity(),
		onced.NewResult("text/plain", true, nil).Identity(),
		failure().Identity(),
		(&onced.Failure{Code: "A", Message: "BC"}).Identity(),
		(&onced.Failure{Code: "AB", Message: "C"}).Identity(),
		(&onced.Failure{Code: "A", Message: "BC", Details: base}).Identity(),
		(&onced.Failure{Code: "A", Message: "BC", Details: onced.NewResult("text/plain", true, nil)}).Identity(),
	}
	for i, d := range all {
		if slices.Index(all, d) != i {
			t.Errorf("outcomes %d and %d have one identity", slices.Index(all, d), i)
		}
	}
}

// TestOmittedStaysOmitted: bytes that come later are not stored, and retention
// and erasure have nothing to drop.
func TestOmittedStaysOmitted(t *testing.T) {
	w := newWorld(t)
	live(w)
	full := result()
	omitted := &onced.Result{ContentType: full.ContentType, Presence: onced.Omitted, Size: full.Size, SHA256: full.SHA256}
	_, err := w.completeWith(w.holder("second"), omitted)
	w.ok(err)
	before := copyRecord(w.record())
	w.complete("second") // with the bytes
	w.wantChange(before, nil)
	afterErasure(w)
	w.wantChange(before, nil)
	resultExpires(w)
	w.sweep()
	w.wantRecord(before)
	if got := w.claim("third", onced.OutcomeReplayed).Operation.Result; got.Presence != onced.Omitted {
		t.Errorf("replayed as %v", got.Presence)
	}
}

// TestEmptyResult: presence, never the length, says whether there is a result.
func TestEmptyResult(t *testing.T) {
	w := newWorld(t)
	live(w)
	_, err := w.completeWith(w.holder("second"), onced.NewResult("", false, nil))
	w.ok(err)
	if got := w.claim("third", onced.OutcomeReplayed).Operation.Result; got == nil || got.Presence != onced.Stored || got.Size != 0 {
		t.Errorf("replayed as %+v", got)
	}
	resultExpires(w)
	if got := w.claim("third", onced.OutcomeReplayed).Operation.Result; got.Presence != onced.Dropped {
		t.Errorf("replayed after its retention as %+v", got)
	}
}

// TestFailureTombstone: result retention drops details and keeps code and
// message; erasure takes the message too. A repeat is known either way.
func TestFailureTombstone(t *testing.T) {
	w := newWorld(t)
	failed(w)
	afterResultRetention(w)
	f := w.claim("third", onced.OutcomeFailed).Operation.Failure
	if f.Code == "" || f.Message == "" || f.Details.Presence != onced.Dropped || f.Details.Bytes != nil || f.Details.Size == 0 {
		t.Errorf("replayed as %+v, %+v", f, f.Details)
	}
	afterErasure(w)
	if f = w.claim("third", onced.OutcomeFailed).Operation.Failure; f.Code == "" || f.Message != "" || !f.Erased {
		t.Errorf("replayed after erasure as %+v", f)
	}
	w.fail("second", onced.Final)
}

// TestCheckpoints: ordered by attempt and then by number; a Renew leaves one,
// and so does a Fail that is applied and keeps the doubt; a settlement or a
// release drops it.
func TestCheckpoints(t *testing.T) {
	w := newWorld(t)
	want := func(attempt uint32, text string) {
		t.Helper()
		c := w.record().Checkpoint
		if c == nil || c.Attempt != attempt || string(c.Payload.Bytes) != text {
			t.Errorf("stored %+v, want %q of attempt %d", c, text, attempt)
		}
	}
	renew := func(name string, c *onced.Checkpoint) {
		t.Helper()
		_, err := w.renewWith(w.holder(name), 30*time.Second, c)
		w.ok(err)
	}
	w.claim("first", onced.OutcomeGranted)
	for i, test := range []struct {
		seq  uint64
		want string
	}{{5, "0"}, {5, "0"}, {4, "0"}, {6, "3"}, {9, "4"}} {
		renew("first", checkpoint(test.seq, fmt.Sprint(i)))
		want(1, test.want)
	}
	renew("first", nil)
	want(1, "4")
	// The next attempt's numbers begin anew.
	if c := w.takeOver("second").Checkpoint; c == nil || c.Attempt != 1 || c.Seq != 9 {
		t.Errorf("handed over %+v", c)
	}
	if c := w.claim("second", onced.OutcomeTakenOver).Checkpoint; c == nil || c.Attempt != 1 {
		t.Errorf("handed over again %+v", c)
	}
	renew("second", checkpoint(1, "mine"))
	want(2, "mine")
	unknown := onced.FailRequest{Disposition: onced.Unknown, Checkpoint: checkpoint(2, "last")}
	_, err := w.failWith(w.holder("second"), unknown)
	w.ok(err)
	want(2, "last")
	unknown.Checkpoint = checkpoint(3, "with a repeat")
	_, err = w.failWith(w.holder("second"), unknown)
	w.ok(err)
	want(2, "last")
	w.takeOver("third")
	want(2, "last")
	w.fail("third", onced.DidNotHappen)
	if w.record().Checkpoint != nil {
		t.Error("a checkpoint outlived the release")
	}
}

// TestCheckpointsEnd: a Fail that releases takes no checkpoint, and a settlement
// leaves none.
func TestCheckpointsEnd(t *testing.T) {
	for name, end := range map[string]func(*world) error{
		"released": func(w *world) error {
			_, err := w.failWith(w.holder("second"), onced.FailRequest{Disposition: onced.NotExecuted, Checkpoint: checkpoint(9, "x")})
			return err
		},
		"failed": func(w *world) error {
			_, err := w.failWith(w.holder("second"), onced.FailRequest{Disposition: onced.Final, Failure: failure(), Checkpoint: checkpoint(9, "x")})
			return err
		},
		"completed": func(w *world) error {
			_, err := w.completeWith(w.holder("second"), result())
			return err
		},
	} {
		w := newWorld(t)
		live(w)
		_, err := w.renewWith(w.holder("second"), 30*time.Second, checkpoint(1, "progress"))
		w.ok(err)
		w.ok(end(w))
		if c := w.record().Checkpoint; c != nil {
			t.Errorf("%s: %+v is left", name, c)
		}
	}
}

// TestFactBeatsWeakerReports: an attempt that has reported an outcome does not
// weaken it afterwards, also when an operator has reopened the operation.
func TestFactBeatsWeakerReports(t *testing.T) {
	w := newWorld(t)
	reopened(w)
	before := copyRecord(w.record())
	for _, d := range []onced.Disposition{onced.NotExecuted, onced.Unknown, onced.DidNotHappen} {
		w.fail("second", d)
		w.wantChange(before, nil)
	}
}
