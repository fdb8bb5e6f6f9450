package client

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Stage says what a pending operation waits for.
type Stage string

// The stages, in their order.
const (
	StageClaiming    Stage = "claiming"    // the claim is not answered yet, or somebody else executes
	StageReconciling Stage = "reconciling" // an earlier attempt is asked about
	StageExecuting   Stage = "executing"   // the function runs
	StageSettling    Stage = "settling"    // the function has returned, and its report is not answered yet
	StageWithdrawing Stage = "withdrawing" // nothing was executed, and the claim is being given back
)

// Pending is an operation that this client still has to do with.
type Pending struct {
	Namespace, Key, Method string
	Stage                  Stage
	Since                  time.Time // when its call began
}

// pendingSet holds what a client must not be closed over. It is safe for
// concurrent use; the zero value is ready.
type pendingSet struct {
	mu      sync.Mutex
	closed  bool
	entries []*pending // oldest call first
	changed chan struct{}
}

// pending is one entry: a call, and the work in the background that it leaves.
type pending struct {
	set *pendingSet
	Pending
	users int
}

// refusal is why no call can begin any more, or nil.
func (s *pendingSet) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

// begin adds a call, unless the client is closed.
func (s *pendingSet) begin(call *Call) (*pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	p := &pending{set: s, users: 1, Pending: Pending{
		Namespace: call.Namespace, Key: call.Key, Method: call.Method, Stage: StageClaiming, Since: time.Now(),
	}}
	s.entries = append(s.entries, p)
	return p, nil
}

// enter says what the operation waits for now.
func (p *pending) enter(stage Stage) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.Stage = stage
}

// retain keeps the entry for work in the background, until release.
func (p *pending) retain() {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.users++
}

// release ends one use of the entry; the last one removes it.
func (p *pending) release() {
	s := p.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.users--; p.users > 0 {
		return
	}
	s.entries = slices.DeleteFunc(s.entries, func(e *pending) bool { return e == p })
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// close refuses further calls and returns what is pending, with a channel that is
// closed when that has changed.
func (s *pendingSet) close() ([]Pending, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	var left []Pending
	for _, e := range s.entries {
		left = append(left, e.Pending)
	}
	return left, s.changed
}

// Close refuses further calls of [Do] with [ErrClosed] and waits until those that
// are under way have returned and everything is settled, or until ctx ends. It
// returns what is still pending then, oldest first, and logs it; nil means that
// all is done. What is left goes on in the background as long as the process and
// the connection live, and lapses after that: it is unresolved then, and not
// executed again. Close may be called more than once; the RPC methods stay usable.
func (c *Client) Close(ctx context.Context) []Pending {
	for {
		left, changed := c.pending.close()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, p := range left {
				c.log.Warn("closed over a pending operation", "namespace", p.Namespace, "key", p.Key, "method", p.Method, "stage", p.Stage, "since", p.Since)
			}
			return left
		}
	}
}
