package e2e

import (
	"testing"

	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// diesAt turns a switch on that kills the server, sends a call, which must not be
// answered OK, and waits until the server is dead.
func (f switches) diesAt(s *process, name string, send func(caller) *flight) {
	f.t.Helper()
	f.on(name)
	call := send(s.caller())
	if <-call.over; call.err == nil {
		f.t.Errorf("%s: %s was answered %v", name, call.what, call.resp)
	}
	if status := s.wait(); status != -1 {
		f.t.Errorf("%s: the server ended with status %d, want its death by a signal", name, status)
	}
	f.off(name)
}

// A claim that died with the server before it was written has not been: the key
// is free, and the re-sent claim is granted.
func TestDeathBeforeTheClaimIsWritten(t *testing.T) {
	f, dir := newSwitches(t), newStore(t)
	req := claimOf("lost")
	f.diesAt(f.serve(dir), "die-before-commit", func(c caller) *flight { return c.sendClaim("the claim", req) })

	isSound(t, dir)
	c := serve(t, dir).caller()
	c.absent("lost")
	granted := c.granted(req)
	if attempt := granted.GetOperation().GetAttempt(); attempt != 1 {
		t.Errorf("the re-sent claim is attempt %d, want 1", attempt)
	}
	c.complete(completion(req, granted, "done"))
}

// A claim whose answer died with the server is there: nobody else is granted it,
// and the re-sent one gets the answer that was lost.
func TestDeathBeforeTheClaimIsAnswered(t *testing.T) {
	f, dir := newSwitches(t), newStore(t)
	req := claimOf("unheard")
	f.diesAt(f.serve(dir), "die-before-answer", func(c caller) *flight { return c.sendClaim("the claim", req) })

	isSound(t, dir)
	c := serve(t, dir).caller()
	stored := c.lookup("unheard")
	if stored.GetState() != oncedv1.State_STATE_PENDING || stored.GetAttempt() != 1 {
		t.Fatalf("after the restart the operation is %v, want PENDING at attempt 1", stored)
	}
	c.answered(claimOf("unheard"), inProgressOutcome)
	again := c.granted(req).GetOperation()
	if again.GetAttempt() != 1 || again.GetFence() != stored.GetFence() || !proto.Equal(again.GetLeaseEnd(), stored.GetLeaseEnd()) {
		t.Errorf("the re-sent claim answered\n%v\nand stored is\n%v", again, stored)
	}
	c.unchanged(stored)
}

// A report that died with the server before it was written has not been: the
// holder still holds the claim, and sends it again.
func TestDeathBeforeTheReportIsWritten(t *testing.T) {
	f, dir := newSwitches(t), newStore(t)
	s := f.serve(dir)
	req := claimOf("lost")
	granted := s.caller().granted(req)
	report := completion(req, granted, "41")
	f.diesAt(s, "die-before-commit", func(c caller) *flight { return c.sendComplete("the report", report) })

	isSound(t, dir)
	c := serve(t, dir).caller()
	c.answered(claimOf("lost"), inProgressOutcome)
	c.complete(report)
	c.replayed("lost", "41", granted)
}

// A report whose answer died with the server counts: it is replayed, repeated
// without a change, and no other one is taken.
func TestDeathBeforeTheReportIsAnswered(t *testing.T) {
	f, dir := newSwitches(t), newStore(t)
	s := f.serve(dir)
	req := claimOf("unheard")
	granted := s.caller().granted(req)
	report := completion(req, granted, "42")
	f.diesAt(s, "die-before-answer", func(c caller) *flight { return c.sendComplete("the report", report) })

	isSound(t, dir)
	c := serve(t, dir).caller()
	c.replayed("unheard", "42", granted)
	stored := c.lookup("unheard")
	c.complete(report)
	if _, err := c.stub.Complete(c.ctx(), completion(req, granted, "43")); err == nil {
		t.Error("another result was taken")
	}
	c.unchanged(stored)
}
