package server

import (
	"context"
	"sync"
	"time"

	"github.com/onced/onced"
)

// greatestWaiters is how many calls one server holds at a time, in all
// namespaces. The bound of one operation is its policy's.
const greatestWaiters = 16384

// answerMargin is how long before the caller's deadline a held call is answered,
// so that the answer arrives in time.
const answerMargin = 250 * time.Millisecond

// leastLook is how often at most a held call looks again because its lease should
// have ended: store time may stand still, or be behind the timer by a hair.
const leastLook = 10 * time.Millisecond

// waiters are the calls that this process holds, by operation. They are woken by
// this process's own updates, after those are durable.
type waiters struct {
	limit    int
	observe  func(delta int)
	draining chan struct{} // closed by drain
	stop     func()

	mu          sync.Mutex
	held        int
	byOperation map[onced.Identity]*watched
}

// watched is an operation that somebody watches.
type watched struct {
	changed  chan struct{} // closed at the next change
	watchers int
	held     int
}

func newWaiters(limit int, observe func(delta int)) *waiters {
	draining := make(chan struct{})
	return &waiters{
		limit: limit, observe: observe,
		draining: draining, stop: sync.OnceFunc(func() { close(draining) }),
		byOperation: map[onced.Identity]*watched{},
	}
}

// drain ends all waiting, now and later.
func (w *waiters) drain() { w.stop() }

// notify wakes everybody who watches the operation.
func (w *waiters) notify(id onced.Identity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.byOperation[id]; o != nil {
		close(o.changed)
		o.changed = make(chan struct{})
	}
}

// watch is one call's eye on one operation. It is used by one goroutine, and
// ended with leave.
type watch struct {
	all  *waiters
	id   onced.Identity
	held bool // counts as a held call
}

// watch begins to watch an operation. Watching is free; being held is bounded.
func (w *waiters) watch(id onced.Identity) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.byOperation[id]
	if o == nil {
		o = &watched{changed: make(chan struct{})}
		w.byOperation[id] = o
	}
	o.watchers++
	return &watch{all: w, id: id}
}

// changed returns a channel that is closed at the next change. Whoever takes it
// before looking at the operation misses none.
func (x *watch) changed() <-chan struct{} {
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	return x.all.byOperation[x.id].changed
}

// hold counts the call among the held ones, once. It reports false when there
// are too many of the operation, or in all.
func (x *watch) hold(limit int) bool {
	w := x.all
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.byOperation[x.id]
	if x.held {
		return true
	}
	if o.held >= limit || w.held >= w.limit {
		return false
	}
	o.held++
	w.held++
	x.held = true
	w.observe(1)
	return true
}

// leave ends the watch.
func (x *watch) leave() {
	w := x.all
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.byOperation[x.id]
	if x.held {
		o.held--
		w.held--
		w.observe(-1)
	}
	if o.watchers--; o.watchers == 0 {
		delete(w.byOperation, x.id)
	}
}

// decision looks at an operation and says for how long it is worth waiting for a
// change: until the lease ends, which no write announces; zero or less when the
// answer is final.
type decision func() (time.Duration, error)

// hold runs a decision, and runs it again at every change of the operation and
// at the end of its lease, until the answer is final or the wait is over. The
// last answer is always one that was decided when it was given. Past the bounds
// on held calls it answers at once. A caller that goes away ends it, and then
// nothing more is decided.
func (s *Service) hold(ctx context.Context, id onced.Identity, wait time.Duration, p onced.Policy, decide decision) error {
	if wait <= 0 {
		_, err := decide()
		return err
	}
	waiting, cancel := waitContext(ctx, min(wait, p.MaxWait))
	defer cancel()
	watch := s.waiters.watch(id)
	defer watch.leave()
	for {
		changed := watch.changed()
		left, err := decide()
		if err != nil || left <= 0 || waiting.Err() != nil || !watch.hold(p.MaxWaiters) {
			return err
		}
		if err := s.waiters.await(ctx, waiting, changed, left); err != nil {
			return err
		}
	}
}

// waitContext ends when the wait is over, when the caller's deadline is near, or
// when the caller goes away.
func waitContext(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, wait)
	}
	outer, cancelOuter := context.WithDeadline(ctx, deadline.Add(-answerMargin))
	inner, cancel := context.WithTimeout(outer, wait)
	return inner, func() { cancel(); cancelOuter() }
}

// await returns nil when it is time to decide again: the operation has changed,
// its lease has ended, or the wait is over.
func (w *waiters) await(ctx, waiting context.Context, changed <-chan struct{}, lease time.Duration) error {
	end := time.NewTimer(max(lease, leastLook))
	defer end.Stop()
	select {
	case <-changed:
	case <-end.C:
	case <-waiting.Done():
		return ctx.Err()
	case <-w.draining:
		return refuseStopping()
	}
	return nil
}
