package onced_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onced/onced"
)

// takeOverWith asks for the newest attempt as the named caller.
func (w *world) takeOverWith(name string, edit func(*onced.ClaimRequest)) (onced.ClaimAnswer, error) {
	w.t.Helper()
	c := request(name)
	c.TakeOverAttempt = w.show().Attempt
	if edit != nil {
		edit(&c)
	}
	return w.claimWith(c)
}

// TestTakeoverDue: a takeover is let through reconcile_after the moment of
// doubt, to the nanosecond, and told how long that is before.
func TestTakeoverDue(t *testing.T) {
	longLease := func(w *world) {
		c := request("first")
		c.Lease = time.Hour
		w.wantOutcome(c, onced.OutcomeGranted)
		w.lapse()
	}
	at10s := func(do func(*world)) func(*world) {
		return func(w *world) {
			w.advance(10 * time.Second)
			do(w)
		}
	}
	tests := []struct {
		name  string
		build func(*world)
		after *time.Duration // reconcile_after of the policy
		due   time.Duration  // from the first moment of the row
	}{
		{"LAPSED, from the end of the lease", then(live, lapse), nil, time.Minute},
		{"LAPSED, lease above a minute", longLease, nil, time.Hour},
		{"LAPSED, by policy", then(live, lapse), ptr(5 * time.Second), 5 * time.Second},
		{"LAPSED, by policy at once", then(live, lapse), ptr(time.Duration(0)), 0},
		{"LAPSED, contradicted while it was held", then(liveContradicted, lapse), nil, time.Minute},
		{"LAPSED, contradicted after the lapse", then(live, lapse, at10s(contradict)), nil, time.Minute},
		{"LAPSED, renewed", then(live, at10s(secondRenews), lapse), nil, time.Minute},
		{"LAPSED, restored: from the end of the grace", then(live, restore), nil, 90 * time.Second},
		{"DECLARED, from the declaring Fail", then(live, at10s(secondSays(onced.Unknown))), nil, time.Minute},
		{"DECLARED, by NOT_EXECUTED under doubt", declaredByTaker, nil, time.Minute},
		{"DECLARED, by a withdrawal", then(released, at10s(withdraw)), nil, time.Minute},
		{"DECLARED, a refused report later", then(declared, at10s(nothing)), nil, 50 * time.Second},
		{"CONTRA, from the contradiction", then(declared, at10s(contradict)), nil, time.Minute},
		{"CONTRA, contradicted again", then(contradicted, at10s(contradict)), nil, 50 * time.Second},
		{"CONTRA, by NOT_EXECUTED: from the contradiction", then(liveContradicted, at10s(secondSays(onced.NotExecuted))), nil, 50 * time.Second},
		{"CONTRA, by UNKNOWN: from that Fail", then(liveContradicted, at10s(secondSays(onced.Unknown))), nil, time.Minute},
		{"CONTRA, contradicted before the takeover", then(contradictedThenTakenOver, secondSays(onced.NotExecuted)), ptr(time.Hour), time.Hour - 2*time.Minute},
		{"HISTORY, from the making of the record", forgotten, nil, time.Minute},
		{"RESTORED-R, from serving_since", then(released, restore), nil, time.Minute},
		{"DECLARED, restored: from serving_since", then(declared, at10s(restore)), nil, time.Minute},
		{"HISTORY, restored: from serving_since", then(forgotten, at10s(restore)), nil, time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, early := range []time.Duration{0, 1, time.Second, test.due} {
				if early > test.due {
					continue
				}
				w := newWorld(t)
				test.build(w)
				w.policy.ReconcileAfter = test.after
				w.advance(test.due - early)
				answer, err := w.takeOverWith("third", nil)
				w.ok(err)
				if early == 0 {
					if answer.Outcome != onced.OutcomeTakenOver {
						t.Errorf("when due: %v, %v, retry after %v", answer.Outcome, answer.TakeoverRefused, answer.RetryAfter)
					}
					continue
				}
				if answer.TakeoverRefused != onced.TakeoverRefusedNotYet || answer.RetryAfter != max(early, 50*time.Millisecond) {
					t.Errorf("%v early: %v/%v, retry after %v", early, answer.Outcome, answer.TakeoverRefused, answer.RetryAfter)
				}
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// TestTakeoverPolicy: who may take over, and in which order a takeover is
// refused: another attempt, policy, time.
func TestTakeoverPolicy(t *testing.T) {
	operator := func(c *onced.ClaimRequest) { c.Operator = true }
	other := func(c *onced.ClaimRequest) { c.TakeOverAttempt++ }
	tests := []struct {
		name   string
		policy onced.TakeoverPolicy
		edit   func(*onced.ClaimRequest)
		early  bool
		want   onced.TakeoverRefusal
	}{
		{"caller", onced.TakeoverByCaller, nil, false, onced.TakeoverNotRefused},
		{"caller, early", onced.TakeoverByCaller, nil, true, onced.TakeoverRefusedNotYet},
		{"operator policy, caller", onced.TakeoverByOperator, nil, false, onced.TakeoverRefusedPolicy},
		{"operator policy, operator", onced.TakeoverByOperator, operator, false, onced.TakeoverNotRefused},
		{"operator policy, operator, early", onced.TakeoverByOperator, operator, true, onced.TakeoverRefusedNotYet},
		{"operator policy, caller, early", onced.TakeoverByOperator, nil, true, onced.TakeoverRefusedPolicy},
		{"nobody, operator", onced.TakeoverByNobody, operator, false, onced.TakeoverRefusedPolicy},
		{"nobody, another attempt, early", onced.TakeoverByNobody, other, true, onced.TakeoverRefusedOtherAttempt},
		{"caller, another attempt", onced.TakeoverByCaller, other, false, onced.TakeoverRefusedOtherAttempt},
	}
	for _, test := range tests {
		w := newWorld(t)
		declared(w)
		w.policy.Takeover = test.policy
		if !test.early {
			w.due()
		}
		answer, err := w.takeOverWith("third", test.edit)
		w.ok(err)
		if answer.TakeoverRefused != test.want || (answer.Outcome == onced.OutcomeTakenOver) != (test.want == onced.TakeoverNotRefused) {
			t.Errorf("%s: %v/%v, want %v", test.name, answer.Outcome, answer.TakeoverRefused, test.want)
		}
	}
}

// TestTakeoverMeetsNoGuard: an operation that is taken over is counted already
// and is in its twin entry already; neither quota nor twin nor key birth has a
// say.
func TestTakeoverMeetsNoGuard(t *testing.T) {
	for _, rerun := range []bool{false, true} {
		w := newWorld(t)
		declared(w)
		twinClaims(w)
		w.due()
		c := request("third")
		c.QuotaFull, c.Guard = true, &onced.TwinGuard{Block: onced.BlockUnsettled}
		c.KeyTime = start.Add(-100 * day)
		if w.policy.SafeToRerun = rerun; !rerun {
			c.TakeOverAttempt = 2
		}
		if answer := w.wantOutcome(c, onced.OutcomeTakenOver); !answer.KeyTimeChanged {
			t.Error("another key_time was not flagged")
		}
	}
}

// TestSafeToRerun: a plain claim executes again at once, as a takeover that
// asks for none, with the former holder's progress; a takeover that is asked
// for still has to wait.
func TestSafeToRerun(t *testing.T) {
	for name, build := range map[string]func(*world){"LAPSED": nothing, "DECLARED": func(w *world) {
		w.fail("second", onced.Unknown)
	}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy.SafeToRerun = true
			live(w)
			_, err := w.renewWith(w.holder("second"), 30*time.Second, checkpoint(3, "half"))
			w.ok(err)
			build(w)
			w.lapse()
			if answer, err := w.takeOverWith("third", nil); err != nil || answer.TakeoverRefused != onced.TakeoverRefusedNotYet {
				t.Errorf("asked for: %v, %v", answer.TakeoverRefused, err)
			}
			fence := w.fence
			answer := w.claim("third", onced.OutcomeTakenOver)
			if op := answer.Operation; op.Attempt != 3 || op.Fence <= fence || !op.Doubt {
				t.Errorf("taken over as %+v", op)
			}
			if c := answer.Checkpoint; c == nil || c.Attempt != 2 || string(c.Payload.Bytes) != "half" {
				t.Errorf("handed over %+v", c)
			}
		})
	}
}

// TestUsedTokenStartsNothing: the present token of an attempt that is over never
// gets another one, whatever the claim and the policy say.
func TestUsedTokenStartsNothing(t *testing.T) {
	w := newWorld(t)
	w.policy.SafeToRerun = true
	live(w)
	w.due()
	for _, attempt := range []uint32{0, 2} {
		c := request("second")
		c.TakeOverAttempt = attempt
		if answer := w.wantOutcome(c, onced.OutcomeUnresolved); !answer.Yours || answer.TakeoverRefused != onced.TakeoverNotRefused {
			t.Errorf("take_over_attempt %d: %+v", attempt, answer)
		}
	}
	w.fail("second", onced.NotExecuted)
	w.claimRefused("second", onced.RefusedClaimLost)
	w.claimRefused("first", onced.RefusedClaimLost)
}

// TestAttemptsExhausted: 16 attempts, then an operator; each release by one
// allows 16 more, and every token stays known.
func TestAttemptsExhausted(t *testing.T) {
	w := newWorld(t)
	tokens := 0
	next := func() string {
		tokens++
		return fmt.Sprint("attempt ", tokens)
	}
	for round := range 3 {
		for range onced.MaxAttempts {
			name := next()
			w.claim(name, onced.OutcomeGranted)
			w.fail(name, onced.NotExecuted)
		}
		w.claimRefused("one too many", onced.RefusedAttempts)
		if round%2 == 0 {
			releaseByOperator(w)
		} else {
			w.resolve(onced.ResolveReopen)
		}
		if got := w.record().AttemptBase; got != uint32(tokens) {
			t.Fatalf("attempts are counted from %d, want %d", got, tokens)
		}
	}
	if got := len(w.record().Attempts); got != tokens {
		t.Errorf("%d tokens are known, of %d", got, tokens)
	}
	w.claimRefused("attempt 1", onced.RefusedClaimLost)
}

// TestTakeoversExhausted: the 17th attempt is no more let through as a takeover.
// Without one the answer stays UNRESOLVED, and so it does under safe_to_rerun.
func TestTakeoversExhausted(t *testing.T) {
	w := newWorld(t)
	w.claim("attempt 1", onced.OutcomeGranted)
	for n := 2; n <= onced.MaxAttempts; n++ {
		w.takeOver(fmt.Sprint("attempt ", n))
	}
	w.due()
	if _, err := w.takeOverWith("one too many", nil); reason(t, err) != onced.RefusedAttempts {
		t.Errorf("a takeover was answered %v", err)
	}
	w.policy.SafeToRerun = true
	w.claim("one too many", onced.OutcomeUnresolved)
	releaseByOperator(w)
	w.claim("one too many", onced.OutcomeGranted)
	w.takeOver("and a takeover")
}

// TestR58_LeaseBoundary: a lease of 1500 ms lapses after exactly 1500 ms.
func TestR58_LeaseBoundary(t *testing.T) {
	c := request("first")
	c.Lease = 1500 * time.Millisecond
	for after, lapsed := range map[time.Duration]bool{
		1499 * time.Millisecond: false, 1500*time.Millisecond - 1: false,
		1500 * time.Millisecond: true, 1501 * time.Millisecond: true,
	} {
		w := newWorld(t)
		w.wantOutcome(c, onced.OutcomeGranted)
		w.advance(after)
		want := onced.OutcomeInProgress
		if lapsed {
			want = onced.OutcomeUnresolved
		}
		answer := w.claim("second", want)
		if remains := max(0, 1500*time.Millisecond-after); answer.Operation.LeaseRemaining != remains {
			t.Errorf("after %v: %v remain, want %v", after, answer.Operation.LeaseRemaining, remains)
		}
		if !lapsed {
			w.claim("first", onced.OutcomeGranted)
		} else if !w.claim("first", onced.OutcomeUnresolved).Yours {
			t.Errorf("after %v the holder's own claim is not its own", after)
		}
	}
}

// TestRetryAfter: a caller that meets a running claim is told to come back when
// the lease ends, in 30 s at the latest and in 50 ms at the earliest.
func TestRetryAfter(t *testing.T) {
	for _, test := range []struct{ lease, passed, want time.Duration }{
		{time.Hour, 0, 30 * time.Second},
		{time.Hour, time.Hour - 30*time.Second, 30 * time.Second},
		{time.Hour, time.Hour - 29*time.Second, 29 * time.Second},
		{20 * time.Second, 0, 20 * time.Second},
		{20 * time.Second, 20*time.Second - 50*time.Millisecond, 50 * time.Millisecond},
		{20 * time.Second, 20*time.Second - 1, 50 * time.Millisecond},
	} {
		w := newWorld(t)
		c := request("first")
		c.Lease = test.lease
		w.wantOutcome(c, onced.OutcomeGranted)
		w.advance(test.passed)
		if got := w.claim("second", onced.OutcomeInProgress).RetryAfter; got != test.want {
			t.Errorf("lease %v, after %v: retry after %v, want %v", test.lease, test.passed, got, test.want)
		}
	}
}

// TestRestartGrace: onced's own outage lapses nobody: after a restart a claim is
// held for its lease, a minute at most, unless somebody has taken it over.
func TestRestartGrace(t *testing.T) {
	for lease, grace := range map[time.Duration]time.Duration{
		30 * time.Second: 30 * time.Second, time.Minute: time.Minute, time.Hour: time.Minute,
	} {
		w := newWorld(t)
		c := request("first")
		c.Lease = lease
		w.wantOutcome(c, onced.OutcomeGranted)
		end := w.now.Add(lease)
		w.advance(2 * lease)
		w.claim("second", onced.OutcomeUnresolved)
		w.restart()
		answer := w.claim("second", onced.OutcomeInProgress)
		if op := answer.Operation; op.LeaseRemaining != grace || !op.LeaseEnd.Equal(end) {
			t.Errorf("lease %v: %v remain of a lease to %v", lease, op.LeaseRemaining, op.LeaseEnd)
		}
		w.advance(grace - 1)
		w.claim("second", onced.OutcomeInProgress)
		w.advance(1)
		w.claim("second", onced.OutcomeUnresolved)
		if w.plan.Changes() {
			t.Error("a lapse was written")
		}
	}
	w := newWorld(t)
	liveTakenOver(w)
	w.fail("second", onced.Unknown)
	w.restart()
	w.claim("third", onced.OutcomeUnresolved)
}

// TestRenew: it never shortens, revives a lapsed claim, and shows that the grant
// has arrived.
func TestRenew(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.advance(10 * time.Second)
	for _, test := range []struct{ lease, remains time.Duration }{
		{time.Second, 20 * time.Second}, {20 * time.Second, 20 * time.Second}, {time.Hour, time.Hour}, {time.Second, time.Hour},
	} {
		op, err := w.renewWith(w.holder("second"), test.lease, nil)
		w.ok(err)
		if op.LeaseRemaining != test.remains || op.Lease != test.lease || !op.Heard {
			t.Errorf("renewed by %v: %v remain of %v", test.lease, op.LeaseRemaining, op.Lease)
		}
	}
	w.advance(2 * time.Hour)
	op, err := w.renewWith(w.holder("second"), time.Minute, nil)
	w.ok(err)
	if op.State != onced.StatePending || op.LeaseRemaining != time.Minute || op.Attempt != 2 {
		t.Errorf("revived as %+v", op)
	}
	if answer := w.claim("second", onced.OutcomeInProgress); !answer.Yours {
		t.Error("a restarted holder is not told that the claim is its own")
	}
	w.advance(time.Hour)
	w.takeOver("third")
	_, err = w.renewWith(w.holder("second"), time.Hour, nil)
	w.lost(err)
}

// TestFirstClaimBinds: no later claim, takeover, release or reopening adds to
// what the first claim brought, or changes it.
func TestFirstClaimBinds(t *testing.T) {
	first := request("first")
	first.KeyTime = time.Time{}
	later := func(name string) onced.ClaimRequest {
		c := request(name)
		c.Fingerprints = append(c.Fingerprints, fingerprint("raw1", "the same, raw"))
		c.KeyTime, c.Labels = start.Add(time.Minute), map[string]string{"team": "billing"}
		return c
	}
	w := newWorld(t)
	w.wantOutcome(first, onced.OutcomeGranted)
	w.due()
	taking := later("second")
	taking.TakeOverAttempt = 1
	if answer := w.wantOutcome(taking, onced.OutcomeTakenOver); answer.KeyTimeChanged {
		t.Error("a key time was flagged that was never bound")
	}
	w.fail("second", onced.DidNotHappen)
	w.wantOutcome(later("third"), onced.OutcomeGranted)
	w.complete("third")
	w.resolve(onced.ResolveReopen)
	w.wantOutcome(later("fourth"), onced.OutcomeGranted)
	r := w.record()
	if r.Subject != "alice" || len(r.Fingerprints) != 1 || !r.KeyTime.IsZero() || r.Labels["team"] != "crm" {
		t.Errorf("bound to %q, %v, %v, %v", r.Subject, r.Fingerprints, r.KeyTime, r.Labels)
	}
	if !r.FirstClaimTime.Equal(start) || r.Holder != "host of fourth" {
		t.Errorf("first claimed %v, held by %q", r.FirstClaimTime, r.Holder)
	}
	// Another key time than the bound one is flagged, and no claim is refused for it.
	w.id.Key = "order-2"
	w.claim("first", onced.OutcomeGranted)
	for minted, changed := range map[time.Time]bool{start: false, start.Add(1): true, {}: false} {
		if answer := w.claimKeyTime("second", minted); answer.KeyTimeChanged != changed {
			t.Errorf("key time %v: changed = %v", minted, answer.KeyTimeChanged)
		}
	}
}
