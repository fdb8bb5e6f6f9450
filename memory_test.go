package onced_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
)

const day = 24 * time.Hour

// claimKeyTime makes a plain claim of a key that was minted at a moment; the
// zero time stands for an unknown one.
func (w *world) claimKeyTime(name string, minted time.Time) onced.ClaimAnswer {
	w.t.Helper()
	c := request(name)
	c.KeyTime = minted
	answer, err := w.claimWith(c)
	w.ok(err)
	return answer
}

// TestKeyBirth: a key that is not found is granted only if the store would
// remember it, to the nanosecond.
func TestKeyBirth(t *testing.T) {
	const skew, retention = 5 * time.Minute, 30 * day
	blind := func(w *world) { w.restore() }
	unblind := func(w *world) {
		w.restore()
		w.epoch.BlindUntil = time.Time{}
	}
	tests := []struct {
		name    string
		prepare func(*world)
		minted  func(*world) time.Time
		lost    bool
	}{
		{"at the horizon", nothing, func(w *world) time.Time { return w.now.Add(skew - retention) }, false},
		{"before the horizon", nothing, func(w *world) time.Time { return w.now.Add(skew - retention - 1) }, true},
		{"unknown age", nothing, func(*world) time.Time { return time.Time{} }, false},
		{"persisted memory, at it", forgotYesterday, func(w *world) time.Time { return w.policy.MemorySince.Add(skew) }, false},
		{"persisted memory, before it", forgotYesterday, func(w *world) time.Time { return w.policy.MemorySince.Add(skew - 1) }, true},
		{"blind, at its end", blind, func(w *world) time.Time { return w.epoch.BlindUntil.Add(skew) }, false},
		{"blind, before its end", blind, func(w *world) time.Time { return w.epoch.BlindUntil.Add(skew - 1) }, true},
		{"blind, unknown age", blind, func(*world) time.Time { return time.Time{} }, true},
		{"blind period ended, from before it", unblind, func(w *world) time.Time { return w.now.Add(-day) }, false},
		{"blind period ended, unknown age", unblind, func(*world) time.Time { return time.Time{} }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.prepare(w)
			answer := w.claimKeyTime("first", test.minted(w))
			want := onced.OutcomeGranted
			if test.lost {
				want = onced.OutcomeUnresolved
			}
			if answer.Outcome != want || (answer.Operation.Reason == onced.ReasonHistoryLost) != test.lost {
				t.Errorf("answered %v/%v, want %v", answer.Outcome, answer.Operation.Reason, want)
			}
		})
	}
}

func forgotYesterday(w *world) { w.policy.MemorySince = w.now.Add(-day) }

// TestKeyFromTheFuture: a key_time is believed up to the skew ahead, and is
// checked before anything is read.
func TestKeyFromTheFuture(t *testing.T) {
	for ahead, want := range map[time.Duration]onced.RefusalReason{
		5 * time.Minute: "", 5*time.Minute + 1: onced.RefusedInvalid,
	} {
		w := newWorld(t)
		c := request("first")
		c.KeyTime = w.now.Add(ahead)
		if _, err := w.claimWith(c); reason(t, err) != want {
			t.Errorf("a key from %v ahead: %v, want %q", ahead, err, want)
		}
		if stored := w.record() != nil; stored != (want == "") {
			t.Errorf("a key from %v ahead: stored = %v", ahead, stored)
		}
	}
}

// TestFreshStore: a store made by init forgets nothing that callers could have
// minted for it, and grants from its first second on. One that replaces a lost
// store has the callers' clocks to fear.
func TestFreshStore(t *testing.T) {
	const skew = 5 * time.Minute
	for name, test := range map[string]struct {
		replacesLost bool
		first        time.Duration // the first key_time after history_start that is granted
	}{"init": {false, 0}, "init that replaces a lost store": {true, skew}} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []time.Duration{-1, 0} {
				w := newWorld(t)
				w.begin(start)
				w.epoch.ReplacesLost = test.replacesLost
				w.advance(time.Second)
				want := onced.OutcomeGranted
				if late < 0 {
					want = onced.OutcomeUnresolved
				}
				if got := w.claimKeyTime("first", start.Add(test.first+late)).Outcome; got != want {
					t.Errorf("a key minted %v after init: %v, want %v", test.first+late, got, want)
				}
			}
		})
	}
}

// TestRetentionMadeLonger: key retention 1 d; done half a day before T, stamped
// to expire half a day after T; at T the policy becomes 30 d. A retry two days
// after T must still find the key.
func TestRetentionMadeLonger(t *testing.T) {
	for _, swept := range []bool{false, true} {
		w := newWorld(t)
		w.policy.KeyRetention, w.policy.ResultRetention = day, day
		memory := onced.Memory{Since: w.epoch.HistoryStart, Retention: day}
		w.claim("first", onced.OutcomeGranted)
		w.complete("first")
		w.advance(day / 2)
		changed := w.now

		w.policy.KeyRetention = 30 * day
		memory = memory.WithRetention(30*day, w.now)
		w.policy.MemorySince = memory.Since
		if want := changed.Add(-day); !memory.Since.Equal(want) {
			t.Errorf("memory since %v, want %v", memory.Since, want)
		}
		longer := start.Add(30 * day)
		if got := w.show().KeyExpire; !got.Equal(longer) {
			t.Errorf("shown to expire %v, want %v", got, longer)
		}
		if swept {
			before := copyRecord(w.record())
			w.sweep()
			before.KeyExpire = longer
			w.wantRecord(before) // re-stamped, and no new version
		}
		w.advance(2 * day)
		w.sweep()
		if answer := w.claimKeyTime("second", start); answer.Outcome != onced.OutcomeReplayed {
			t.Errorf("swept %v: answered %v, want REPLAYED", swept, answer.Outcome)
		}
		// What the former retention has let go stays forgotten.
		w.id.Key = "order-2"
		if answer := w.claimKeyTime("third", changed.Add(-day)); answer.Outcome != onced.OutcomeUnresolved {
			t.Errorf("a key from before the memory was answered %v", answer.Outcome)
		}
	}
}

// TestRetentionMadeShorter: what was promised at settlement is kept.
func TestRetentionMadeShorter(t *testing.T) {
	w := newWorld(t)
	completed(w)
	w.policy.KeyRetention, w.policy.ResultRetention = 2*day, day
	w.advance(7*day - 1)
	w.sweep()
	if op := w.show(); op == nil || op.Result.Presence != onced.Stored {
		t.Fatalf("the bytes went before their time: %+v", op)
	}
	w.advance(23 * day)
	w.sweep()
	if op := w.show(); op == nil || op.Result.Presence != onced.Dropped {
		t.Fatalf("the key went before its time: %+v", op)
	}
	w.advance(1)
	if op := w.show(); op != nil {
		t.Errorf("the key stayed: %+v", op)
	}
}

// TestMemory: what was forgotten under one retention stays forgotten under the
// next; memory only moves forward.
func TestMemory(t *testing.T) {
	since := start.Add(-10 * day)
	tests := []struct {
		name       string
		memory     onced.Memory
		configured time.Duration
		want       time.Time
	}{
		{"first configuration", onced.Memory{}, 30 * day, time.Time{}},
		{"unchanged", onced.Memory{Since: since, Retention: 30 * day}, 30 * day, since},
		{"longer", onced.Memory{Since: since, Retention: day}, 30 * day, start.Add(-day)},
		{"shorter", onced.Memory{Since: start.Add(-40 * day), Retention: 30 * day}, day, start.Add(-30 * day)},
		{"longer, forgotten before", onced.Memory{Since: since, Retention: 30 * day}, 60 * day, since},
	}
	for _, test := range tests {
		want := onced.Memory{Since: test.want, Retention: test.configured}
		if got := test.memory.WithRetention(test.configured, start); got != want {
			t.Errorf("%s: %+v, want %+v", test.name, got, want)
		}
	}
}

// TestMemorySince: what a namespace publishes is the latest of all that can
// have made the store forget.
func TestMemorySince(t *testing.T) {
	p := onced.DefaultPolicy()
	horizon := start.Add(-p.KeyRetention)
	before, after := horizon.Add(-time.Hour), horizon.Add(time.Hour)
	for name, test := range map[string]struct {
		epoch  onced.Epoch
		memory time.Time
		want   time.Time
	}{
		"retention":     {onced.Epoch{HistoryStart: before}, before, horizon},
		"persisted":     {onced.Epoch{HistoryStart: before}, after, after},
		"history start": {onced.Epoch{HistoryStart: after}, before, after},
		"blind":         {onced.Epoch{HistoryStart: before, BlindUntil: after}, before, after},
	} {
		p.MemorySince = test.memory
		if got := onced.MemorySince(test.epoch, p, start); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestR48_R58_RetentionBoundary: at each moment around the end of both
// retentions, claim, lookup, listing and sweep say the same, swept or not.
func TestR48_R58_RetentionBoundary(t *testing.T) {
	const resultRetention, keyRetention = 86400 * time.Second, 2 * 86400 * time.Second
	type want struct {
		absent  bool
		dropped bool
	}
	offsets := map[time.Duration]bool{ // and whether the end has come
		-time.Second: false, -1: false, 0: true, 1: true, time.Second: true,
	}
	for offset, over := range offsets {
		for _, swept := range []bool{false, true} {
			for retention, want := range map[time.Duration]want{
				resultRetention: {dropped: over}, keyRetention: {absent: over, dropped: true},
			} {
				w := newWorld(t)
				w.policy.ResultRetention, w.policy.KeyRetention = resultRetention, keyRetention
				completed(w)
				w.advance(retention + offset)
				if swept {
					w.sweep()
					w.wantSweptLike(want.absent, want.dropped)
				}
				at := retention.String() + offset.String()
				if op := w.show(); (op == nil) != want.absent {
					t.Errorf("%s: listed as %+v", at, op)
				}
				op, err := w.lookup(onced.LookupRequest{Subject: "alice"})
				if want.absent != (reason(t, err) == onced.RefusedNotFound) {
					t.Errorf("%s: lookup found %+v, %v", at, op, err)
				}
				answer := w.claimKeyTime("third", w.now)
				switch {
				case want.absent && answer.Outcome != onced.OutcomeGranted,
					!want.absent && answer.Outcome != onced.OutcomeReplayed:
					t.Errorf("%s: claim answered %v", at, answer.Outcome)
				case !want.absent && want.dropped != (answer.Operation.Result.Presence == onced.Dropped && answer.Operation.Result.Bytes == nil):
					t.Errorf("%s: replayed %+v", at, answer.Operation.Result)
				}
			}
		}
	}
}

func (w *world) wantSweptLike(absent, dropped bool) {
	w.t.Helper()
	r := w.record()
	if (r == nil) != absent || r != nil && (r.Result.Bytes == nil) != dropped {
		w.t.Errorf("the sweep left %+v", r)
	}
}

// TestReleasedExpires: RELEASED is remembered for the key retention after the
// release, and its subject, fingerprints and tokens with it.
func TestReleasedExpires(t *testing.T) {
	w := newWorld(t)
	live(w)
	w.advance(20 * time.Second)
	w.fail("second", onced.NotExecuted)
	w.advance(w.policy.KeyRetention - 1)
	c := request("third")
	c.Subject = "bob"
	if _, err := w.claimWith(c); reason(t, err) != onced.RefusedSubject {
		t.Errorf("before the end another subject got %v", err)
	}
	w.claimRefused("first", onced.RefusedClaimLost)
	w.advance(1)
	c.KeyTime, c.Token = w.now, token("first") // forgotten: the token is a new one
	if answer := w.wantOutcome(c, onced.OutcomeGranted); answer.Operation.Attempt != 1 || answer.Operation.Subject != "bob" {
		t.Errorf("granted %+v", answer.Operation)
	}
}

func (w *world) claimRefused(name string, want onced.RefusalReason) {
	w.t.Helper()
	if _, err := w.claimWith(request(name)); reason(w.t, err) != want {
		w.t.Errorf("the claim of %s was answered %v, want %s", name, err, want)
	}
}

// TestFastKeyTime: a key time ahead of its settlement, by a caller's fast clock,
// keeps the key that much longer, so that a key that is forgotten is always older
// than memory, whatever skew is configured by then.
func TestFastKeyTime(t *testing.T) {
	ahead := 4 * time.Minute
	for name, end := range map[string]func(*world){
		"settled": func(w *world) { w.complete("first") }, "released": func(w *world) { w.fail("first", onced.NotExecuted) },
	} {
		w := newWorld(t)
		w.claimKeyTime("first", start.Add(ahead))
		end(w)
		if got, want := w.record().KeyExpire, start.Add(ahead+w.policy.KeyRetention); !got.Equal(want) {
			t.Errorf("%s: stamped to expire %v, want %v", name, got, want)
		}
		w.policy.Skew = 0
		w.advance(w.policy.KeyRetention + ahead - 1)
		if w.show() == nil {
			t.Errorf("%s: forgotten too early", name)
		}
		w.advance(2)
		if answer := w.claimKeyTime("second", start.Add(ahead)); answer.Operation.Reason != onced.ReasonHistoryLost {
			t.Errorf("%s: answered %v when it is forgotten", name, answer.Outcome)
		}
	}
}

// TestExpiryHeldBack: while the store doubts a jump of its clock, nothing
// expires and memory reaches back further; leases lapse as ever.
func TestExpiryHeldBack(t *testing.T) {
	w := newWorld(t)
	completed(w)
	w.expiryHeld = 40 * day
	w.advance(w.policy.KeyRetention + day)
	w.sweep()
	if answer := w.claimKeyTime("third", start); answer.Outcome != onced.OutcomeReplayed || answer.Operation.Result.Presence != onced.Stored {
		t.Errorf("answered %v with %+v", answer.Outcome, answer.Operation.Result)
	}
	w.id.Key = "order-2"
	live(w)
	w.lapse()
	if op := w.show(); op.Reason != onced.ReasonLapsed {
		t.Errorf("a lease was held back: %+v", op)
	}
}

// TestHistoryLostRecord: it has a fence and no holder; it is counted, bound and
// in no twin entry; only a takeover or an operator moves it.
func TestHistoryLostRecord(t *testing.T) {
	old := request("first")
	old.KeyTime = start.Add(-31 * day)
	old.Guard = &onced.TwinGuard{Block: onced.BlockUnsettled}

	w := newWorld(t)
	full := old
	full.QuotaFull = true
	_, err := w.claimWith(full)
	if reason(t, err) != onced.RefusedQuota || w.plan.Changes() {
		t.Fatalf("with a full quota: %v, %+v", err, w.plan)
	}
	w.wantOutcome(old, onced.OutcomeUnresolved)
	if len(w.twins) != 0 || w.record().Twin != nil {
		t.Errorf("it stands in a twin entry: %+v", w.twins)
	}
	if w.record().Fence != w.fence || len(w.record().Attempts) != 0 {
		t.Errorf("fence %d of %d, attempts %+v", w.record().Fence, w.fence, w.record().Attempts)
	}
	// The token that brought it about holds nothing, and is not used up.
	w.advance(time.Minute)
	old.Guard, old.TakeOverAttempt = nil, 1
	answer := w.wantOutcome(old, onced.OutcomeTakenOver)
	if op := answer.Operation; op.Attempt != 2 || !op.Doubt || !op.FirstClaimTime.IsZero() {
		t.Errorf("taken over as %+v", op)
	}
	w.fail("first", onced.DidNotHappen)
	if op := w.claim("second", onced.OutcomeGranted).Operation; !op.FirstClaimTime.Equal(w.now) || op.Attempt != 3 {
		t.Errorf("granted as %+v", op)
	}
}

// TestRestoredReleased: what was released before a restore may have been granted
// after the backup. The end of the blind period does not free it, and it never
// expires.
func TestRestoredReleased(t *testing.T) {
	w := newWorld(t)
	released(w)
	w.restore()
	w.epoch.BlindUntil = time.Time{}
	w.advance(2 * w.policy.KeyRetention)
	w.sweep()
	answer := w.claim("third", onced.OutcomeUnresolved)
	if op := answer.Operation; op.Reason != onced.ReasonHistoryLost || !op.KeyExpire.IsZero() || !op.ReleaseTime.IsZero() {
		t.Fatalf("shown as %+v", op)
	}
	_, err := w.failWith(w.holder("second"), failReport(onced.DidNotHappen))
	if reason(t, err) != onced.RefusedReport || !strings.Contains(err.Error(), "UNRESOLVED") {
		t.Errorf("a verdict was answered %v", err)
	}
	w.resolve(onced.ResolveReleased)
	if op := w.claim("third", onced.OutcomeGranted).Operation; op.Generation != w.epoch.Generation || op.Attempt != 3 {
		t.Errorf("granted as %+v", op)
	}
}

// TestFencesGrow: over grants, takeovers, lost histories, a restore, and the
// expiry of a key.
func TestFencesGrow(t *testing.T) {
	w := newWorld(t)
	var last uint64
	grows := func(fence uint64) {
		t.Helper()
		if fence <= last {
			t.Errorf("fence %d after %d", fence, last)
		}
		last = fence
	}
	grows(w.claim("first", onced.OutcomeGranted).Operation.Fence)
	grows(w.takeOver("second").Operation.Fence)
	w.restore()
	grows(w.takeOver("third").Operation.Fence)
	if w.record().Fence>>32 != w.epoch.Generation {
		t.Errorf("fence %x is not of generation %x", w.record().Fence, w.epoch.Generation)
	}
	w.complete("third")
	w.advance(w.policy.KeyRetention)
	grows(w.claimKeyTime("fourth", start).Operation.Fence)
	w.claim("fifth", onced.OutcomeUnresolved)
	if w.fence != last {
		t.Error("an answer without a grant used a fence up")
	}
}

// TestSkewMadeShorter: a key time ahead of the settlement keeps its key for as
// long as it is ahead, so that no skew that is configured later brings the key to
// life a second time.
func TestSkewMadeShorter(t *testing.T) {
	w := newWorld(t)
	w.policy.Skew = time.Hour
	c := request("first")
	c.KeyTime = w.now.Add(50 * time.Minute)
	w.wantOutcome(c, onced.OutcomeGranted)
	w.complete("first")
	settled := w.now
	w.policy.Skew = 5 * time.Minute
	for _, at := range []time.Duration{w.policy.KeyRetention, w.policy.KeyRetention + 50*time.Minute} {
		w.now = settled.Add(at)
		again := request("second")
		again.KeyTime = c.KeyTime
		answer, err := w.claimWith(again)
		if err != nil || answer.Outcome == onced.OutcomeGranted {
			t.Errorf("%v after the settlement the key was claimed again: %v, %v", at, answer.Outcome, err)
		}
	}
}
