// Package oncetest is an onced for the tests of those who use the client: a real
// server over a store in memory, in the process of the test, with a clock that can be
// moved and switches for what goes wrong between a caller and a coordinator.
//
//	func TestALostAnswerDoesNotChargeTwice(t *testing.T) {
//		s := oncetest.New(t)
//		shop := NewShop(s.Client(), fakePayments)
//		s.LoseNextAnswer()
//		shop.Buy(t.Context(), "order-1")
//		shop.Buy(t.Context(), "order-1")
//		if n := s.Executions("order-1"); n != 1 {
//			t.Errorf("charged %d times", n)
//		}
//	}
//
// Every [Server.Client] stands for a process, [Server.Conn] is for generated stubs.
// Everything that goes wrong is a call of a method, at the moment at which it is to go
// wrong: from the test, or from within the function that [client.Do] runs.
//
//	s.LoseNextAnswer()   the next call is carried out, and its caller never knows
//	s.Down(), s.Up()     the coordinator stops, and starts again over its store
//	s.Lapse()            whoever holds a claim is a zombie from now on
//	s.Full(true)         the store has no room for new claims
//	s.Advance(d)         the store's time jumps: leases and retentions end
//
// And two questions at the end: [Server.Executions], how often a key was executed, and
// [Server.Twins], whether one act was executed under several keys. They count what
// callers were told to do. A test that counts its own effects as well, in a fake of
// the outside system, finds those that bypass onced.
//
// # In real time
//
// Store time is the clock of the process and what the test has advanced. Nothing has
// to be waited for:
//
//	s := oncetest.New(t)
//	c := s.Client()
//	buy(c)                       // charged
//	s.Advance(8 * 24 * time.Hour)
//	buy(c)                       // ResultUnavailable: the key is remembered, the result is not
//	s.Advance(30 * 24 * time.Hour)
//	buy(c)                       // charged again: the key is forgotten
//
// [Server.Advance] moves the store's clock alone. A holder, whose clock stands, does
// not give its claim up, and the next renewal revives it.
//
// # In a bubble of testing/synctest
//
// There the clocks of the process and of the store are one, the bubble's, and move as
// soon as everybody waits. Pauses between tries, renewals and leases take no time, and
// a test of them does not depend on the machine:
//
//	synctest.Test(t, func(t *testing.T) {
//		s := oncetest.New(t) // inside, so that all of it is of the bubble
//		c := s.Client()
//		s.Down()
//		time.AfterFunc(time.Minute, s.Up)
//		buy(c) // asks until the coordinator is there, after a minute in the bubble
//	})
//
// New leaves nothing behind that would keep the bubble from ending. But while a server
// runs it looks after its store once a second: a test in which everybody waits for
// ever is ended by the time-out of go test, not by synctest's own message.
//
// # What it does not simulate
//
//   - The loss of what was acknowledged: power failures, restored backups, HISTORY_LOST
//     other than by key_time. The store survives Down.
//   - A network that delays, repeats or reorders. Calls arrive at once or not at all. A
//     client of one's own over a [grpc.ClientConnInterface] that wraps [Server.Conn]
//     can do that.
//   - The death of a caller. Claim by a generated stub over Conn and never report; or
//     return from the function of Do with an error, which leaves the operation
//     unresolved as well.
//   - Sweeps, which only reclaim space: what has expired is expired without them.
//   - TLS, access rights, and how fast anything is.
package oncetest
