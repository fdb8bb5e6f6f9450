package onced_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onced/onced"
)

// act is the twin entry that all guarded claims of these tests share.
var act = onced.TwinID{Namespace: "acme", Method: "send_email", Subject: "alice", Fingerprint: fingerprint("cj1", "arguments")}

// guardedClaim claims a new key of the act under the guard, by a caller named
// after the key.
func (w *world) guardedClaim(key string, g onced.TwinGuard) onced.ClaimAnswer {
	w.t.Helper()
	w.id.Key = key
	c := request("caller of " + key)
	c.Guard, c.KeyTime = &g, w.now
	answer, err := w.claimWith(c)
	w.ok(err)
	return answer
}

var (
	unsettledOnly = onced.TwinGuard{Block: onced.BlockUnsettled}
	recentToo     = onced.TwinGuard{Block: onced.BlockUnsettledOrRecent, Window: time.Minute}
)

// wantTwin compares the act's entry: its unsettled keys, oldest first, and the
// last settled one.
func (w *world) wantTwin(last string, unsettled ...string) {
	w.t.Helper()
	e := w.twins[string(act.Encode())]
	if e == nil {
		e = &onced.TwinEntry{ID: act}
	}
	var keys []string
	for _, k := range e.Unsettled {
		keys = append(keys, k.Key)
	}
	settled := ""
	if e.Last != nil {
		settled = e.Last.Key
	}
	if e.ID != act || settled != last || fmt.Sprint(keys) != fmt.Sprint(unsettled) {
		w.t.Errorf("the entry of %+v holds %v and settled %q; want %v and %q", e.ID, keys, settled, unsettled, last)
	}
}

// TestTwinEntryFollows: each change of state moves the key in the entry, or
// leaves it.
func TestTwinEntryFollows(t *testing.T) {
	caller := "caller of k"
	fail := func(d onced.Disposition) func(*world) {
		return func(w *world) { w.fail(caller, d) }
	}
	var (
		complete = func(w *world) { w.complete(caller) }
		resolve  = func(as onced.Resolution) func(*world) { return func(w *world) { w.resolve(as) } }
		taken    = func(w *world) { w.takeOver("taker") }
		verdict  = func(w *world) { w.fail("taker", onced.DidNotHappen) }
		renewed  = func(w *world) { w.renew(caller) }
		again    = func(w *world) { w.claim("another", onced.OutcomeGranted) }
	)
	tests := []struct {
		name      string
		happen    func(*world)
		last      string
		unsettled []string
	}{
		{"grant", nothing, "", []string{"k"}},
		{"renew", renewed, "", []string{"k"}},
		{"lapse", lapse, "", []string{"k"}},
		{"UNKNOWN", fail(onced.Unknown), "", []string{"k"}},
		{"takeover", taken, "", []string{"k"}},
		{"takeover, verdict", then(taken, verdict), "", nil},
		{"NOT_EXECUTED", fail(onced.NotExecuted), "", nil},
		{"Complete", complete, "k", nil},
		{"FINAL", fail(onced.Final), "k", nil},
		{"Resolve completed", then(lapse, resolve(onced.ResolveCompleted)), "k", nil},
		{"Resolve failed", then(lapse, resolve(onced.ResolveFailed)), "k", nil},
		{"Resolve released", then(lapse, resolve(onced.ResolveReleased)), "", nil},
		{"reopen", then(complete, resolve(onced.ResolveReopen)), "", nil},
		{"NOT_EXECUTED, then UNKNOWN", then(fail(onced.NotExecuted), fail(onced.Unknown)), "", []string{"k"}},
		{"NOT_EXECUTED, then Complete", then(fail(onced.NotExecuted), complete), "k", nil},
		{"verdict contradicted", then(taken, verdict, func(w *world) { w.fencedComplete(caller) }), "", []string{"k"}},
		{"NOT_EXECUTED, claimed without the guard", then(fail(onced.NotExecuted), again), "", nil},
		{"erasure", then(complete, afterErasure), "k", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.guardedClaim("k", unsettledOnly)
			test.happen(w)
			w.wantTwin(test.last, test.unsettled...)
			if gone := test.last == "" && test.unsettled == nil; gone && len(w.twins) != 0 {
				t.Errorf("an empty entry is kept: %+v", w.twins)
			}
		})
	}
}

// TestTwinBlocks: unsettled twins block either guard; a settled one blocks only
// the guard that asks for recent ones, within its window.
func TestTwinBlocks(t *testing.T) {
	settle := func(after time.Duration) func(*world) {
		return func(w *world) {
			w.complete("caller of k")
			w.advance(after)
		}
	}
	tests := []struct {
		name              string
		happen            func(*world)
		unsettled, recent bool // whether the guards block
	}{
		{"running", nothing, true, true},
		{"lapsed", lapse, true, true},
		{"unresolved for a year", func(w *world) { w.fail("caller of k", onced.Unknown); w.advance(365 * day) }, true, true},
		{"released", func(w *world) { w.fail("caller of k", onced.NotExecuted) }, false, false},
		{"settled now", settle(0), false, true},
		{"settled, within the window", settle(time.Minute - 1), false, true},
		{"settled, window over", settle(time.Minute), false, false},
	}
	for _, test := range tests {
		for guard, blocks := range map[onced.TwinBlock]bool{onced.BlockUnsettled: test.unsettled, onced.BlockUnsettledOrRecent: test.recent} {
			w := newWorld(t)
			w.guardedClaim("k", unsettledOnly)
			test.happen(w)
			answer := w.guardedClaim("l", onced.TwinGuard{Block: guard, Window: time.Minute})
			if got := answer.Outcome == onced.OutcomeBlockedByTwin; got != blocks {
				t.Errorf("%s: guard %d answered %v", test.name, guard, answer.Outcome)
			}
			if blocks && (answer.Twin != "k" || answer.Operation != nil || w.record() != nil || w.plan.Changes()) {
				t.Errorf("%s: blocked by %q, stored %+v", test.name, answer.Twin, w.record())
			}
		}
	}
}

// TestTwinIsTheSameAct: another namespace, method, subject or first fingerprint
// is another act; a claim without the guard neither reads the entry nor writes it.
func TestTwinIsTheSameAct(t *testing.T) {
	others := map[string]func(*world, *onced.ClaimRequest){
		"namespace":   func(w *world, _ *onced.ClaimRequest) { w.id.Namespace = "other" },
		"method":      func(w *world, _ *onced.ClaimRequest) { w.id.Method = "send_sms" },
		"subject":     func(_ *world, c *onced.ClaimRequest) { c.Subject = "bob" },
		"no subject":  func(_ *world, c *onced.ClaimRequest) { c.Subject = "" },
		"fingerprint": func(_ *world, c *onced.ClaimRequest) { c.Fingerprints[0] = fingerprint("cj1", "others") },
		"scheme first": func(_ *world, c *onced.ClaimRequest) {
			c.Fingerprints = append([]onced.Fingerprint{fingerprint("raw1", "x")}, c.Fingerprints...)
		},
		"no guard": func(_ *world, c *onced.ClaimRequest) { c.Guard = nil },
	}
	for name, differ := range others {
		w := newWorld(t)
		w.guardedClaim("k", recentToo)
		w.id.Key = "l"
		c := request("caller of l")
		c.Guard = &recentToo
		differ(w, &c)
		if answer, err := w.claimWith(c); err != nil || answer.Outcome != onced.OutcomeGranted {
			t.Errorf("another %s: %v, %v", name, answer.Outcome, err)
		}
		w.wantTwin("", "k")
	}
}

// TestConfirmedTwin passes the named twin and all that were claimed before it;
// a newer one blocks again.
func TestConfirmedTwin(t *testing.T) {
	confirmed := func(key string) onced.TwinGuard {
		g := recentToo
		g.Confirmed = key
		return g
	}
	w := newWorld(t)
	for i, key := range []string{"a", "b", "c"} {
		w.advance(time.Second)
		g := unsettledOnly
		if i > 0 {
			g = confirmed(string(rune('a' + i - 1)))
		}
		if got := w.guardedClaim(key, g); got.Outcome != onced.OutcomeGranted {
			t.Fatalf("%s was answered %v by %q", key, got.Outcome, got.Twin)
		}
	}
	w.id.Key = "b"
	w.complete("caller of b") // settled last, claimed before c
	w.wantTwin("b", "a", "c")
	for key, blocker := range map[string]string{"": "c", "a": "c", "b": "c", "c": "", "unknown": "c"} {
		w.id.Key = "d"
		before := w.twins[string(act.Encode())]
		answer := w.guardedClaim("d", confirmed(key))
		if answer.Twin != blocker || (blocker == "") != (answer.Outcome == onced.OutcomeGranted) {
			t.Errorf("confirmed %q: %v by %q, want %q", key, answer.Outcome, answer.Twin, blocker)
		}
		delete(w.records, w.id)
		w.twins[string(act.Encode())] = before
	}
}

// TestTwinKeepsSixteen: the oldest claim falls out, also when a key comes back
// whose release was taken back.
func TestTwinKeepsSixteen(t *testing.T) {
	w := newWorld(t)
	var keys []string
	claimNext := func() {
		key := fmt.Sprintf("k%02d", len(keys))
		g := recentToo
		if len(keys) > 0 {
			g.Confirmed = keys[len(keys)-1]
		}
		w.advance(time.Second)
		if answer := w.guardedClaim(key, g); answer.Outcome != onced.OutcomeGranted {
			t.Fatalf("%s was answered %v", key, answer.Outcome)
		}
		keys = append(keys, key)
	}
	for range 16 {
		claimNext()
	}
	w.wantTwin("", keys...)
	claimNext()
	w.wantTwin("", keys[1:]...)

	// The second oldest is released, comes back, and is as old as before.
	w.id.Key = keys[2]
	w.fail("caller of "+keys[2], onced.NotExecuted)
	w.wantTwin("", append([]string{keys[1]}, keys[3:]...)...)
	w.fail("caller of "+keys[2], onced.Unknown)
	w.wantTwin("", keys[1:]...)
	// What has fallen out and settles is the last settled one all the same.
	w.id.Key = keys[0]
	w.complete("caller of " + keys[0])
	w.wantTwin(keys[0], keys[1:]...)
}

// TestTwinOnReleased: a twin stops the claim of a released operation, which is
// shown and stays released.
func TestTwinOnReleased(t *testing.T) {
	w := newWorld(t)
	w.guardedClaim("k", unsettledOnly)
	w.fail("caller of k", onced.NotExecuted)
	w.guardedClaim("l", unsettledOnly)
	w.id.Key = "k"
	c := request("another")
	c.Guard = &recentToo
	answer := w.wantOutcome(c, onced.OutcomeBlockedByTwin)
	if op := answer.Operation; answer.Twin != "l" || op == nil || op.State != onced.StateReleased || w.plan.Changes() {
		t.Errorf("blocked by %q, showing %+v", answer.Twin, op)
	}
	// Its own key is no twin.
	w.id.Key = "l"
	if got := w.wantOutcome(request("caller of l"), onced.OutcomeGranted); !got.Yours {
		t.Error("a re-sent claim was not its own")
	}
}

// TestTwinUnreadable: an entry that this build cannot read lets no new claim
// through, and is not rewritten by a report.
func TestTwinUnreadable(t *testing.T) {
	w := newWorld(t)
	w.guardedClaim("k", unsettledOnly)
	hidden := func(transition func(onced.View) onced.Plan) onced.Plan {
		v := w.view(w.id, &act)
		v.Twin, v.TwinUnreadable = nil, true
		return transition(v)
	}
	plan := hidden(func(v onced.View) onced.Plan {
		p, _, err := onced.Complete(v, w.policy, w.holder("caller of k"), result())
		w.ok(err)
		return p
	})
	if plan.Put == nil || plan.PutTwin != nil || plan.DeleteTwin {
		t.Errorf("a report made %+v of it", plan)
	}
	w.id.Key = "l"
	plan = hidden(func(v onced.View) onced.Plan {
		c := request("caller of l")
		c.Guard = &unsettledOnly
		p, _, err := onced.Claim(v, w.policy, c)
		if reason(t, err) != onced.RefusedUnreadable {
			t.Errorf("a claim was answered %v", err)
		}
		return p
	})
	if plan.Changes() {
		t.Errorf("a claim made %+v of it", plan)
	}
	if plan := hidden(onced.SweepTwin); plan.Changes() {
		t.Errorf("the sweep made %+v of it", plan)
	}
}

// TestMissingTwin: a view that lacks the entry of its record is asked for again.
func TestMissingTwin(t *testing.T) {
	w := newWorld(t)
	w.guardedClaim("k", unsettledOnly)
	other := act
	other.Subject = "bob"
	if got := onced.MissingTwin(w.view(w.id, nil)); got == nil || *got != act {
		t.Errorf("without an entry: %+v", got)
	}
	if got := onced.MissingTwin(w.view(w.id, &other)); got == nil || *got != act {
		t.Errorf("with another entry: %+v", got)
	}
	if got := onced.MissingTwin(w.view(w.id, &act)); got != nil {
		t.Errorf("with the entry: %+v", got)
	}
	w.id.Key = "absent"
	if got := onced.MissingTwin(w.view(w.id, nil)); got != nil {
		t.Errorf("without a record: %+v", got)
	}
	w.claim("first", onced.OutcomeGranted)
	if got := onced.MissingTwin(w.view(w.id, nil)); got != nil {
		t.Errorf("without the guard: %+v", got)
	}
}

// TestSweepTwin: an entry goes when nothing in it is unsettled and its last
// settlement is a day old.
func TestSweepTwin(t *testing.T) {
	sweep := func(w *world) bool { return onced.SweepTwin(w.view(w.id, &act)).DeleteTwin }
	w := newWorld(t)
	if sweep(w) {
		t.Error("an absent entry is deleted")
	}
	w.guardedClaim("k", unsettledOnly)
	w.advance(1000 * day)
	if _, ok := w.twins[string(act.Encode())].Due(); ok || sweep(w) {
		t.Error("an entry with unsettled keys is due")
	}
	w.complete("caller of k")
	settled := w.now
	if due, ok := w.twins[string(act.Encode())].Due(); !ok || !due.Equal(settled.Add(day)) {
		t.Errorf("due %v, want a day after %v", due, settled)
	}
	for offset, want := range map[time.Duration]bool{-1: false, 0: true, 1: true} {
		w.now = settled.Add(day + offset)
		if sweep(w) != want {
			t.Errorf("%v after a day: deleted = %v", offset, !want)
		}
	}
	empty := &onced.TwinEntry{ID: act}
	if _, ok := empty.Due(); !ok {
		t.Error("an empty entry is not due")
	}
}
