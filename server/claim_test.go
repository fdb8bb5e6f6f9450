package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server"
)

const (
	granted    = oncedv1.Outcome_OUTCOME_GRANTED
	replayed   = oncedv1.Outcome_OUTCOME_REPLAYED
	failed     = oncedv1.Outcome_OUTCOME_FAILED
	inProgress = oncedv1.Outcome_OUTCOME_IN_PROGRESS
	unresolved = oncedv1.Outcome_OUTCOME_UNRESOLVED
	takenOver  = oncedv1.Outcome_OUTCOME_TAKEN_OVER
	blocked    = oncedv1.Outcome_OUTCOME_BLOCKED_BY_TWIN

	pending         = oncedv1.State_STATE_PENDING
	stateUnresolved = oncedv1.State_STATE_UNRESOLVED
	released        = oncedv1.State_STATE_RELEASED
	completed       = oncedv1.State_STATE_COMPLETED
	stateFailed     = oncedv1.State_STATE_FAILED

	lapsed       = oncedv1.Reason_REASON_LAPSED
	declared     = oncedv1.Reason_REASON_DECLARED
	historyLost  = oncedv1.Reason_REASON_HISTORY_LOST
	contradicted = oncedv1.Reason_REASON_CONTRADICTED

	notExecuted  = oncedv1.Disposition_DISPOSITION_NOT_EXECUTED
	final        = oncedv1.Disposition_DISPOSITION_FINAL
	unknown      = oncedv1.Disposition_DISPOSITION_UNKNOWN
	didNotHappen = oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN

	precondition = codes.FailedPrecondition
)

func TestGrantShowsTheClaim(t *testing.T) {
	w := newWire(t)
	op := w.claim(granted, "k", "a").GetOperation()
	generation := w.svc.Generation()
	want := &oncedv1.Operation{
		Ref: ref("k"), State: pending, Attempt: 1, Fence: generation<<32 + 1, Etag: op.GetEtag(), Generation: generation,
		FirstClaimTime: timestamppb.New(start), ClaimTime: timestamppb.New(start),
		Lease: op.GetLease(), LeaseEnd: timestamppb.New(start.Add(30 * time.Second)), LeaseRemaining: op.GetLease(),
		Holder: "holder a", AttemptsLeft: 15,
	}
	if !proto.Equal(op, want) || op.GetEtag() == "" || op.GetLease().AsDuration() != 30*time.Second {
		t.Errorf("got  %v\nwant %v", op, want)
	}
	if generation != uint64(start.Unix()) {
		t.Errorf("generation %d is not the second of the store's init", generation)
	}
}

// However many claim one key at once, one of them is granted it.
func TestOneGrant(t *testing.T) {
	w := newWire(t)
	for round := range 20 {
		var claims sync.WaitGroup
		var grants, others atomic.Int32
		for i := range 64 {
			claims.Go(func() {
				resp, err := w.client.Claim(t.Context(), claimOf(fmt.Sprint("k", round), fmt.Sprint(i)))
				switch {
				case err != nil:
					t.Error(err)
				case resp.GetOutcome() == granted:
					grants.Add(1)
				case resp.GetOutcome() == inProgress:
					others.Add(1)
				}
			})
		}
		claims.Wait()
		if grants.Load() != 1 || others.Load() != 63 {
			t.Fatalf("round %d: %d granted, %d in progress", round, grants.Load(), others.Load())
		}
	}
}

// Two identical calls: the second is given the first bytes, and the time of the
// first claim.
func TestReplay(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	w.clock.Advance(time.Second)
	w.must(completed)(h.complete("done"))
	w.clock.Advance(time.Minute)
	for _, tok := range []string{"b", "a"} {
		resp := w.claim(replayed, "k", tok)
		op := resp.GetOperation()
		if op.GetResult().GetStored().GetText() != "done" || !op.GetFirstClaimTime().AsTime().Equal(start) {
			t.Errorf("replay by %s: %v", tok, op)
		}
		if resp.GetYours() != (tok == "a") {
			t.Errorf("replay by %s: yours = %v", tok, resp.GetYours())
		}
		if op.GetSettledBy() != oncedv1.SettledBy_SETTLED_BY_HOLDER || !op.GetSettleTime().AsTime().Equal(start.Add(time.Second)) {
			t.Errorf("settled by %v at %v", op.GetSettledBy(), op.GetSettleTime().AsTime())
		}
	}
	if w.seen.count("settled n COMPLETED HOLDER") != 1 || w.seen.count("claimed n REPLAYED") != 2 || w.seen.count("claimed n GRANTED") != 1 {
		t.Errorf("counted %q", w.seen.events)
	}
}

// A claim whose answer was lost is sent again under its token and gets the same
// answer, until something else has come from the holder.
func TestFirstAnswerAgain(t *testing.T) {
	w := newWire(t)
	first := w.claim(granted, "k", "a")
	w.clock.Advance(time.Second)
	w.unchanged(func() {
		again := w.claim(granted, "k", "a")
		a, b := first.GetOperation(), again.GetOperation()
		if a.GetAttempt() != b.GetAttempt() || a.GetFence() != b.GetFence() || !proto.Equal(a.GetLeaseEnd(), b.GetLeaseEnd()) || !again.GetYours() {
			t.Errorf("first %v\nagain %v", first, again)
		}
		if b.GetLeaseRemaining().AsDuration() != 29*time.Second {
			t.Errorf("lease_remaining %v", b.GetLeaseRemaining().AsDuration())
		}
		if other := w.claim(inProgress, "k", "b"); other.GetYours() || other.GetOperation().GetHolder() != "holder a" || other.GetRetryAfter().AsDuration() != 29*time.Second {
			t.Errorf("another token: %v", other)
		}
	})
	h := held{w: w, key: "k", token: "a", fence: first.GetOperation().GetFence()}
	w.must(pending)(h.renew())
	if restart := w.claim(inProgress, "k", "a"); !restart.GetYours() {
		t.Errorf("a restart after a renewal: %v", restart)
	}
}

// Exact at each boundary: a lease of 1500 ms is not cut to seconds.
func TestLapse(t *testing.T) {
	w := newWire(t)
	w.clock.Advance(2 * time.Minute) // past the grace of a restart
	w.grant("k", "a", withLease(1500*time.Millisecond))
	w.clock.Advance(1500*time.Millisecond - 1)
	if again := w.claim(inProgress, "k", "b"); again.GetRetryAfter().AsDuration() != 50*time.Millisecond {
		t.Errorf("retry_after %v", again.GetRetryAfter().AsDuration())
	}
	w.clock.Advance(1)
	w.unchanged(func() {
		resp := w.claim(unresolved, "k", "b")
		op := resp.GetOperation()
		if op.GetState() != stateUnresolved || op.GetReason() != lapsed || op.GetLeaseRemaining() != nil || resp.GetRetryAfter() != nil {
			t.Errorf("%v", resp)
		}
		if yours := w.claim(unresolved, "k", "a"); !yours.GetYours() {
			t.Errorf("the holder's own claim: %v", yours)
		}
	})
}

// Retention counts from the completion, not from the claim (R16), and is exact.
func TestRetention(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) { p.ResultRetention, p.KeyRetention = 24*time.Hour, 48*time.Hour })
	h := w.grant("k", "a")
	w.clock.Advance(29 * time.Second)
	w.must(completed)(h.complete("done"))
	w.clock.Advance(24*time.Hour - 1)
	w.claim(replayed, "k", "b")
	w.clock.Advance(1)
	result := w.claim(replayed, "k", "b").GetOperation().GetResult()
	if result.GetDropped().GetSize() != 4 || result.GetSize() != 4 || len(result.GetSha256()) != 32 || result.GetDropped().GetContentType() != "text/plain" {
		t.Errorf("a tombstone's result: %v", result)
	}
	w.clock.Advance(24*time.Hour - 1)
	w.claim(replayed, "k", "b")
	w.clock.Advance(1)
	w.claim(granted, "k", "b")
}

// A takeover has to be asked for, by the attempt that was seen, and is due only
// when the earlier attempt's own request has had time to land.
func TestTakeover(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a", withLease(90*time.Second))
	w.must(pending)(h.renew(func(r *oncedv1.RenewRequest) {
		r.Lease, r.Checkpoint = durationpb.New(90*time.Second), checkpoint(7, 3)
	}))
	w.claim(inProgress, "k", "b", takeOver(1))
	w.clock.Advance(90 * time.Second)
	w.unchanged(func() {
		w.claim(unresolved, "k", "b")
		early := w.claim(unresolved, "k", "b", takeOver(1))
		if early.GetTakeoverRefused() != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET || early.GetRetryAfter().AsDuration() != 90*time.Second {
			t.Errorf("%v", early)
		}
		other := w.claim(unresolved, "k", "b", takeOver(2))
		if other.GetTakeoverRefused() != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_OTHER_ATTEMPT {
			t.Errorf("%v", other)
		}
	})
	w.clock.Advance(90 * time.Second)
	w.unchanged(func() {
		if own := w.claim(unresolved, "k", "a", takeOver(1)); !own.GetYours() {
			t.Errorf("a token gets one attempt: %v", own)
		}
	})
	taken := w.claim(takenOver, "k", "b", takeOver(1))
	if op := taken.GetOperation(); op.GetAttempt() != 2 || op.GetFence() <= h.fence || op.GetHolder() != "holder b" {
		t.Errorf("%v", op)
	}
	if c := taken.GetCheckpoint(); c.GetAttempt() != 1 || c.GetSeq() != 7 || len(c.GetPayload().GetData()) != 3 {
		t.Errorf("checkpoint %v", c)
	}
	if again := w.claim(takenOver, "k", "b"); again.GetCheckpoint().GetSeq() != 7 {
		t.Errorf("the first answer again: %v", again)
	}
	wantError(t, w.tryClaim("k", "a"), precondition, "CLAIM_LOST", "no")
}

func TestTakeoverPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		policy  onced.TakeoverPolicy
		options []grpc.ServerOption
		want    oncedv1.Outcome
	}{
		"nobody":                      {onced.TakeoverByNobody, []grpc.ServerOption{grpc.UnaryInterceptor(server.Authenticated)}, unresolved},
		"operator, by an operator":    {onced.TakeoverByOperator, []grpc.ServerOption{grpc.UnaryInterceptor(server.Authenticated)}, takenOver},
		"operator, by no one of note": {onced.TakeoverByOperator, nil, unresolved},
		"caller":                      {onced.TakeoverByCaller, nil, takenOver},
	} {
		t.Run(name, func(t *testing.T) {
			zero := time.Duration(0)
			w := newWire(t, func(p *onced.Policy) { p.Takeover, p.ReconcileAfter = c.policy, &zero })
			w.serve(c.options...)
			w.grant("k", "a")
			w.clock.Advance(time.Hour)
			resp := w.claim(c.want, "k", "b", takeOver(1))
			if refused := resp.GetTakeoverRefused() == oncedv1.TakeoverRefused_TAKEOVER_REFUSED_POLICY; refused != (c.want == unresolved) {
				t.Errorf("%v", resp)
			}
		})
	}
}

// Where the policy says that it is safe, a plain claim of a lapsed operation
// runs it again, and says so.
func TestSafeToRerun(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) { p.SafeToRerun = true })
	h := w.grant("k", "a")
	w.clock.Advance(time.Hour)
	if resp := w.claim(takenOver, "k", "b"); resp.GetOperation().GetAttempt() != 2 {
		t.Errorf("%v", resp)
	}
	// A fenced report of an effect ends that.
	w.refused(precondition, "CLAIM_LOST")(h.complete("done"))
	w.clock.Advance(time.Hour)
	if resp := w.claim(unresolved, "k", "c"); resp.GetOperation().GetReason() != contradicted {
		t.Errorf("%v", resp)
	}
}

func TestAttemptsExhausted(t *testing.T) {
	w := newWire(t)
	for i := range onced.MaxAttempts {
		h := w.grant("k", string(rune('a'+i)))
		w.must(released)(h.fail(notExecuted))
	}
	w.unchanged(func() { wantError(t, w.tryClaim("k", "last"), precondition, "ATTEMPTS_EXHAUSTED", "no") })
}

// The fingerprint is looked at before the state (R53): a key that was used with
// other arguments gets the same answer whatever became of it.
func TestFingerprintMismatch(t *testing.T) {
	w := newWire(t)
	first, other := withFingerprints(fp("cj1", "first")), withFingerprints(fp("cj1", "secret other"))
	h := w.grant("k", "a", first)
	mismatch := func(state string) {
		t.Helper()
		w.unchanged(func() {
			st := wantError(t, w.tryClaim("k", "b", other), precondition, "FINGERPRINT_MISMATCH", "no")
			if strings.Contains(st.Message(), "holder") || strings.Contains(st.Message(), "cj1") {
				t.Errorf("%s: the refusal shows what is stored: %s", state, st.Message())
			}
			wantError(t, w.tryClaim("k", "b"), precondition, "FINGERPRINT_MISMATCH", "no") // absent is not present
			scheme := wantError(t, w.tryClaim("k", "b", withFingerprints(fp("raw1", "first"))), precondition, "FINGERPRINT_SCHEME", "no")
			if !strings.Contains(scheme.Message(), "cj1") {
				t.Errorf("%s does not name the scheme that is stored", scheme.Message())
			}
		})
	}
	mismatch("live")
	w.clock.Advance(time.Hour)
	mismatch("lapsed")
	w.must(released)(h.fail(notExecuted))
	mismatch("released")
	h = w.grant("k", "c", withFingerprints(fp("raw1", "other"), fp("cj1", "first"))) // one in common is enough
	w.must(completed)(h.complete("done"))
	mismatch("completed")
	w.claim(replayed, "k", "d", first)

	for _, part := range []string{fp("cj1", "first"), fp("cj1", "secret other"), "holder a", "holder b", "level=ERROR"} {
		if !strings.Contains(w.logged.String(), part) {
			t.Errorf("the log does not hold %q:\n%s", part, w.logged)
		}
	}
	if n := strings.Count(w.logged.String(), "other arguments"); n != 8 {
		t.Errorf("%d mismatches logged, want 8: one without a scheme in common is none", n)
	}
	if w.seen.count("refused n Claim FINGERPRINT_MISMATCH") != 8 {
		t.Errorf("counted %q", w.seen.events)
	}
}

// A refusal of a mismatch does not touch the claim of the one who runs (R01).
func TestRefusalLeavesTheClaim(t *testing.T) {
	w := newWire(t)
	executions := 0
	args := withFingerprints(fp("cj1", "P"))
	a := w.grant("k", "a", args)
	executions++
	w.unchanged(func() {
		w.claim(inProgress, "k", "b", args)
		b := held{w: w, key: "k", token: "b", fence: a.fence} // B cleans up what is not its own
		w.refused(precondition, "CLAIM_LOST")(b.fail(notExecuted))
		w.claim(inProgress, "k", "c", args)
	})
	w.must(completed)(a.complete("done"))
	w.unchanged(func() {
		wantError(t, w.tryClaim("k", "d", withFingerprints(fp("cj1", "P2"))), precondition, "FINGERPRINT_MISMATCH", "no")
		w.claim(replayed, "k", "e", args)
	})
	t.Logf("R01: executions=%d", executions)
}

func TestSubjectMismatch(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a", withSubject("alice"))
	w.must(completed)(h.complete("SECRET"))
	for _, subject := range []string{"", "bob", "Alice"} {
		st := wantError(t, w.tryClaim("k", "b", withSubject(subject)), codes.PermissionDenied, "SUBJECT_MISMATCH", "no")
		if strings.Contains(st.Message(), "alice") {
			t.Errorf("%s names the stored subject", st.Message())
		}
		err := w.look(&oncedv1.LookupRequest{Ref: ref("k"), Subject: subject})
		wantError(t, err, codes.PermissionDenied, "SUBJECT_MISMATCH", "no")
	}
	w.claim(replayed, "k", "b", withSubject("alice"))
}

// Namespaces do not see each other (R05), nor do methods.
func TestNamespacesApart(t *testing.T) {
	w := newWire(t)
	h := w.grant("1", "a")
	w.must(completed)(h.complete("SECRET"))
	elsewhere := func(namespace, method string) *oncedv1.OperationRef {
		return &oncedv1.OperationRef{Namespace: namespace, Key: "1", Method: method}
	}
	err := w.look(&oncedv1.LookupRequest{Ref: elsewhere("tenant-b", "m")})
	wantError(t, err, codes.NotFound, "NOT_FOUND", "no")
	for _, other := range []*oncedv1.OperationRef{elsewhere("tenant-b", "m"), elsewhere("n", "m2")} {
		resp := w.claim(granted, "", "a", func(r *oncedv1.ClaimRequest) { r.Ref = other })
		if resp.GetOperation().GetResult() != nil {
			t.Errorf("%v", resp)
		}
	}
	if w.seen.count("claimed other GRANTED") != 1 {
		t.Errorf("a namespace that is not configured became a label: %q", w.seen.events)
	}
}

// What this build cannot read is never granted, and never rewritten.
func TestUnreadable(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	w.put(&onced.Record{ID: identity("k"), State: 99})
	w.unchanged(func() {
		wantError(t, w.tryClaim("k", "b"), precondition, "RECORD_UNREADABLE", "no")
		w.refused(precondition, "RECORD_UNREADABLE")(h.complete("done"))
		w.refused(precondition, "RECORD_UNREADABLE")(h.fail(unknown))
		w.refused(precondition, "RECORD_UNREADABLE")(h.renew())
		for _, method := range []string{"m", ""} {
			err := w.look(&oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k", Method: method}})
			wantError(t, err, precondition, "RECORD_UNREADABLE", "no")
		}
	})
}

// An unset lease is the default, echoed (R21); a second claim finds it held.
func TestDefaultLease(t *testing.T) {
	w := newWire(t)
	executions := 0
	for i, tok := range []string{"a", "b"} {
		w.clock.Advance(time.Duration(i) * time.Second)
		if resp, err := w.client.Claim(t.Context(), claimOf("k", tok)); err == nil && resp.GetOutcome() == granted {
			executions++
			if resp.GetOperation().GetLease().AsDuration() != 30*time.Second {
				t.Errorf("%v", resp)
			}
		}
	}
	if executions != 1 {
		t.Errorf("R21: executions=%d", executions)
	}
	t.Logf("R21: executions=%d", executions)
}

// A holder that died blocks nobody for ever, and nothing runs silently (R16,
// R32): after the lease the answer names who claimed it and when.
func TestDeadHolder(t *testing.T) {
	w := newWire(t)
	executions := 1
	w.grant("k", "a")
	var outcomes []oncedv1.Outcome
	for _, at := range []time.Duration{5 * time.Second, 24 * time.Second, 32 * time.Second, 23 * time.Hour} {
		w.clock.Advance(at)
		resp, err := w.client.Claim(t.Context(), claimOf("k", "b"))
		if err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, resp.GetOutcome())
		if op := resp.GetOperation(); op.GetHolder() != "holder a" || !op.GetClaimTime().AsTime().Equal(start) {
			t.Errorf("%v", resp)
		}
		if resp.GetOutcome() == inProgress && resp.GetRetryAfter().AsDuration() > resp.GetOperation().GetLeaseRemaining().AsDuration() {
			t.Errorf("retry_after goes beyond the end of the lease: %v", resp)
		}
	}
	if !slices.Equal(outcomes, []oncedv1.Outcome{inProgress, inProgress, unresolved, unresolved}) {
		t.Errorf("%v", outcomes)
	}
	t.Logf("R16, R32: executions=%d", executions)
}
