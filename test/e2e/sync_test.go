package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Nothing is answered before the state that it was decided on is durable: while
// the sync of a commit is held open, nobody is told what it holds.
func TestHeldSync(t *testing.T) {
	f := newSwitches(t)
	s := f.serve(newStore(t))
	for name, held := range map[string]func(*testing.T, switches, *process, caller){
		"of a claim": heldClaim, "of claims in one batch": heldBatch, "of a settlement": heldSettlement,
	} {
		t.Run(name, func(t *testing.T) { held(t, switches{t: t, dir: f.dir}, s, caller{t: t, stub: s.stub()}) })
	}
}

// heldClaim: nobody learns of a claim whose sync is held, neither by a read, nor
// by a claim of its own or another token, nor by waiting.
func heldClaim(t *testing.T, f switches, s *process, c caller) {
	f.hold("a claim")
	first := claimOf("claimed")
	calls := flights{c.sendClaim("the claim", first)}
	f.held("a claim")

	waiting := claimOf("claimed")
	waiting.Wait = durationpb.New(20 * time.Second)
	calls = append(calls,
		c.sendClaim("the claim, re-sent", first),
		c.sendClaim("a claim that waits", waiting),
		c.sendLookup("a lookup", "claimed", 0),
		c.sendLookup("a lookup that waits", "claimed", 20*time.Second),
	)
	for i := range 4 {
		calls = append(calls, c.sendClaim(fmt.Sprintf("another claim %d", i), claimOf("claimed")))
	}
	s.unanswered(t, calls)
	f.release()

	for _, f := range calls[:2] {
		if got := f.outcome(t); got != grantedOutcome {
			t.Errorf("%s was answered %v, want GRANTED", f.what, got)
		}
	}
	if state := calls[3].operation(t).GetState(); state != oncedv1.State_STATE_PENDING {
		t.Errorf("the lookup shows %v, want PENDING", state)
	}
	for _, f := range calls[5:] {
		if got := f.outcome(t); got != inProgressOutcome {
			t.Errorf("%s was answered %v, want IN_PROGRESS", f.what, got)
		}
	}
	c.complete(completion(first, calls[0].resp.(*oncedv1.ClaimResponse), "1"))
	if got := calls[2].outcome(t); got != replayedOutcome {
		t.Errorf("%s was answered %v, want REPLAYED", calls[2].what, got)
	}
	if state := calls[4].operation(t).GetState(); state != oncedv1.State_STATE_COMPLETED {
		t.Errorf("%s shows %v, want COMPLETED", calls[4].what, state)
	}
}

// heldBatch: claims of one key meet in one batch; those that it refuses are not
// told so before the one that it grants is durable.
func heldBatch(t *testing.T, f switches, s *process, c caller) {
	f.hold("the batch before")
	before := c.sendClaim("the claim before", claimOf("before"))
	f.held("the batch before")
	var calls flights
	for i := range 16 {
		calls = append(calls, c.sendClaim(fmt.Sprintf("claim %d", i), claimOf("contended")))
	}
	s.unanswered(t, append(calls, before))

	f.hold("the batch")
	f.held("the batch")
	if got := before.outcome(t); got != grantedOutcome {
		t.Errorf("%s was answered %v, want GRANTED", before.what, got)
	}
	s.unanswered(t, calls)
	f.release()
	count := map[oncedv1.Outcome]int{}
	for _, f := range calls {
		count[f.outcome(t)]++
	}
	if count[grantedOutcome] != 1 || count[inProgressOutcome] != 15 {
		t.Errorf("the claims were answered %v, want one GRANTED and 15 IN_PROGRESS", count)
	}
}

// heldSettlement: those who wait for an operation are not told of a result whose
// sync is held, and no read shows it.
func heldSettlement(t *testing.T, f switches, s *process, c caller) {
	req := claimOf("settled")
	granted := c.granted(req)
	waiting := claimOf("settled")
	waiting.Wait = durationpb.New(20 * time.Second)
	waiter := c.sendClaim("the waiter", waiting)
	eventually(t, "the waiter to be held", func() bool { return s.metric("onced_waiters") == 1 })

	f.hold("a result")
	calls := flights{c.sendComplete("the report", completion(req, granted, "7"))}
	f.held("a result")
	calls = append(calls,
		c.sendLookup("a lookup", "settled", 0),
		c.sendClaim("another claim", claimOf("settled")),
		c.sendComplete("the report, repeated", completion(req, granted, "7")),
	)
	s.unanswered(t, calls)
	if got := (flights{waiter}).answered(); got != "" {
		t.Errorf("answered while the sync was held: %s", got)
	}
	f.release()
	for _, f := range append(calls, waiter) {
		if op := f.operation(t); op.GetState() != oncedv1.State_STATE_COMPLETED {
			t.Errorf("%s was answered %v, want COMPLETED", f.what, op)
		}
	}
	c.replayed("settled", "7", granted)
}

// unanswered waits until the server works on all the calls, and demands that it
// goes on doing so: none of them has an answer.
func (s *process) unanswered(t *testing.T, calls flights) {
	t.Helper()
	running := func() bool { return s.metric("onced_calls_running") == float64(len(calls)) }
	eventually(t, "the server to work on the calls", func() bool { return running() || calls.answered() != "" })
	if got := calls.answered(); got != "" {
		t.Fatalf("answered while the sync was held:\n%s", got)
	}
	if !running() {
		t.Fatalf("the server has done with calls whose sync was held; answered: %s", calls.answered())
	}
}

// A sync that fails leaves open what is stored: nothing is answered OK, the
// process stops by itself with a sentence, and what a new one finds is whole.
func TestFailedSync(t *testing.T) {
	f := newSwitches(t)
	dir := newStore(t)
	s := f.serve(dir)
	c := s.caller()
	before := claimOf("before")
	granted := c.granted(before)
	c.complete(completion(before, granted, "kept"))
	held := claimOf("held")
	heldGrant := c.granted(held)

	f.on("fail-sync")
	claims := map[string]*oncedv1.ClaimRequest{}
	calls := flights{
		c.sendComplete("a report", completion(held, heldGrant, "lost")),
		c.sendClaim("a claim of what is settled", claimOf("before")),
		c.sendLookup("a lookup of what is reported", "held", 0),
	}
	for i := range 4 {
		req := claimOf(fmt.Sprintf("new-%d", i))
		claims[req.GetRef().GetKey()] = req
		calls = append(calls, c.sendClaim("claim of "+req.GetRef().GetKey(), req))
	}
	if status := s.wait(); status != 1 {
		t.Errorf("the server ended with status %d, want 1", status)
	}
	if !strings.Contains(s.log.String(), "the store has failed") || !strings.Contains(s.log.String(), "start onced again") {
		t.Errorf("the server does not say that its store has failed and what to do:\n%s", s.log)
	}
	for _, call := range append(calls[:1], calls[3:]...) {
		if <-call.over; call.err == nil {
			t.Errorf("%s was answered %v although the sync had failed", call.what, call.resp)
		}
	}

	isSound(t, dir)
	c = serve(t, dir).caller()
	c.replayed("before", "kept", granted)
	for _, req := range claims {
		again := c.granted(req) // old: granted now; new: the first answer again
		if again.GetOperation().GetAttempt() != 1 {
			t.Errorf("the re-sent claim is attempt %d, want 1", again.GetOperation().GetAttempt())
		}
		c.complete(completion(req, again, "done"))
	}
	c.complete(completion(held, heldGrant, "lost"))
	c.replayed("held", "lost", heldGrant)
}
