package oncetest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// closeTimeout is how long the end of a test waits for calls that are under way and
// for reports that are not answered yet.
const closeTimeout = 10 * time.Second

// Server is an onced of a test: a real server over a store in memory, the way to it,
// and a clock. All of it is safe for concurrent use, in the goroutines of the test;
// several Servers of one test, and of tests that run in parallel, know nothing of each
// other. [New] makes one.
type Server struct {
	t      testing.TB
	policy onced.Policy
	clock  *clock
	store  *store
	conn   *conn
	log    *testLog
	tally  tally

	switching sync.Mutex // held while the server is started or stopped

	mu      sync.Mutex
	clients []*client.Client    // to be closed at the end
	life    *life               // nil while the server is down
	turn    context.Context     // ends when the store's clock jumps or claims lapse
	endTurn context.CancelFunc  // ends turn
	lose    int                 // answers to be lost
	cutOff  map[uint64]struct{} // fences whose renewals are lost
	ended   bool                // the test is over
}

// Option changes what [New] makes.
type Option func(*Server)

// WithPolicy changes the policy of all namespaces, which begins as
// [onced.DefaultPolicy]. A policy that is not valid fails the test.
func WithPolicy(change func(*onced.Policy)) Option {
	return func(s *Server) { change(&s.policy) }
}

// New starts a server with an empty store, whose memory reaches back for the key
// retention of the policy: a key_time within it is known not to have been used. Call
// New in the goroutine of the test, and inside the bubble of a test that uses
// testing/synctest.
//
// Everything ends with the test: faults are taken back, clients are closed, and the
// server is stopped. A call of [client.Do] that is then still under way after 10 s
// fails the test. Errors of the server and warnings of the clients go to the test's
// log. Of t, New and the Server use Helper, Log, Errorf, Fatalf and Cleanup alone.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{
		t: t, policy: onced.DefaultPolicy(), clock: &clock{start: time.Now()},
		log: &testLog{t: t}, cutOff: map[uint64]struct{}{},
	}
	s.conn = &conn{s}
	for _, o := range opts {
		o(s)
	}
	s.turn, s.endTurn = context.WithCancel(context.Background())
	s.store = newStore(s.clock, s.policy.KeyRetention)
	if err := s.start(); err != nil {
		t.Fatalf("oncetest: start the server: %v", err)
	}
	t.Cleanup(s.end)
	return s
}

// Client returns a client that stands for a process of its own. Its holder label is
// "process-1" and so on, and it is closed at the end of the test.
func (s *Server) Client(opts ...client.Option) *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := fmt.Sprintf("process-%d", len(s.clients)+1)
	c := client.New(s.conn, append([]client.Option{client.WithHolder(who), client.WithLogger(s.log.logger(who, slog.LevelWarn))}, opts...)...)
	s.clients = append(s.clients, c)
	return c
}

// Conn returns the connection of all clients, for generated stubs and for whatever
// else makes a client of its own. It works across [Server.Down] and [Server.Up].
func (s *Server) Conn() grpc.ClientConnInterface { return s.conn }

// Now returns store time: the time of the process, and what the test advanced.
func (s *Server) Now() time.Time {
	now, err := s.store.now(context.Background())
	if err != nil {
		s.errorf("oncetest: read store time: %v", err)
	}
	return now
}

// Executions returns how often operations under a key, of whatever namespace and
// method, were given to somebody to execute: the claims that were granted, or taken
// over without having asked for a takeover (safe_to_rerun), whose answer has reached
// a caller. Claims that are sent again count once. A claim does not count when its
// holder says that it did not execute, NOT_EXECUTED or DID_NOT_HAPPEN, and neither
// does a takeover that was asked for, in order to find out. An attempt that others
// found out not to have had its effect does count. Where safe_to_rerun and
// [client.WithReconcile] meet, a takeover in order to find out looks like one to
// execute, and counts unless it did not happen.
func (s *Server) Executions(key string) int { return s.tally.executions(key) }

// Twins returns the acts that were executed, as [Server.Executions] counts it, under
// more than one key, oldest first. That is what a caller does that mints a key for
// each try. Acts are told apart by fingerprint: calls without fingerprints are not
// seen.
func (s *Server) Twins() []Twin { return s.tally.twins() }

// end lets everything come to its end: nothing may be left in a bubble.
func (s *Server) end() {
	s.calm()
	s.Up()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.mu.Lock()
	clients := s.clients
	s.mu.Unlock()
	for _, c := range clients {
		for _, p := range c.Close(ctx) {
			s.t.Errorf("oncetest: the test has ended while key %q of method %q is %s; let its call return before the test does", p.Key, p.Method, p.Stage)
		}
	}
	s.Down()
	if err := s.store.Close(); err != nil {
		s.t.Errorf("oncetest: close the store: %v", err)
	}
	s.log.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endTurn()
	s.ended = true
}

// errorf fails the test, unless it is over: then it would end the process.
func (s *Server) errorf(format string, args ...any) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.t.Errorf(format, args...)
	}
}
