package oncetest

import (
	"context"
	"time"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Advance lets the store's clock jump forward: leases and retentions end. The clock of
// the process stands, so that holders go on, and one that renews a claim which has
// lapsed meanwhile revives it. Calls that are held notice at once.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if d < 0 {
		s.errorf("oncetest: Advance(%v): store time never goes back", d)
		return
	}
	s.clock.skip(d)
	s.askAgain()
}

// Lapse makes every claim that is held lapse now, as if its lease were over and
// nothing had been heard of its holder; nothing else expires. Holders do not notice:
// their renewals and checkpoints do not arrive from now on, and their functions go on
// until their own clock has counted the lease down. Their reports do arrive.
// Calls that are held notice at once. After [Server.Down] and [Server.Up] they are
// pending once more, as after every outage, until the new server has counted their lease,
// at most a minute.
func (s *Server) Lapse() {
	s.t.Helper()
	fences, err := s.store.lapse(context.Background())
	if err != nil {
		s.errorf("oncetest: lapse: %v", err)
	}
	s.mu.Lock()
	for _, f := range fences {
		s.cutOff[f] = struct{}{}
	}
	s.mu.Unlock()
	s.askAgain()
}

// LoseNextAnswer makes the next call be carried out and its answer be lost: its caller
// sees UNAVAILABLE. Whatever call begins next is meant, of whatever client, a renewal
// too; before a Do that is its Claim, and as the last thing in its function its
// report. Calls add up: two lose the next two.
func (s *Server) LoseNextAnswer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose++
}

// Full makes the store refuse new claims for want of room, STORAGE_FULL, or take them
// again. What was stored is still answered, and reports still find room.
func (s *Server) Full(full bool) { s.store.setFull(full) }

// Down stops the coordinator: calls under way break off, those that are held are
// answered that it stops, and further ones see UNAVAILABLE. The store stays. On a
// coordinator that is down it does nothing.
func (s *Server) Down() {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.errorf("oncetest: the server ended with: %v", err)
	}
}

// Up starts a new server over the same store. Its outage lapses nobody: holders have
// their lease, at most a minute, to be heard of again. On a coordinator that is up it
// does nothing.
func (s *Server) Up() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.errorf("oncetest: start the server: %v", err)
	}
}

// calm takes back what the test has switched on, but for Down.
func (s *Server) calm() {
	s.store.setFull(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = 0
}

// askAgain brings the calls that are held to the server again.
func (s *Server) askAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endTurn()
	s.turn, s.endTurn = context.WithCancel(context.Background())
}

// current returns the server that runs, nil while it is down, and the context that
// ends when calls which it holds are to be asked again.
func (s *Server) current() (*life, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life, s.turn
}

// depart decides what happens to a call: it does not arrive, or its answer is lost.
func (s *Server) depart(req any) (lost bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life == nil {
		return false, errDown
	}
	if r, ok := req.(*oncedv1.RenewRequest); ok {
		if _, cut := s.cutOff[r.GetFence()]; cut {
			return false, errCutOff
		}
	}
	if s.lose > 0 {
		s.lose--
		return true, nil
	}
	return false, nil
}

// arrive takes note of an answer that reaches its caller.
func (s *Server) arrive(req, reply any) {
	if claim, ok := req.(*oncedv1.ClaimRequest); ok {
		if answer, ok := reply.(*oncedv1.ClaimResponse); ok {
			s.tally.answered(claim, answer)
		}
	}
}
