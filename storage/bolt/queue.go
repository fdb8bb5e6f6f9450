package bolt

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// request is one call that waits for the committer.
type request struct {
	ctx    context.Context
	decide func(*batch) (change, error)
	state  atomic.Int32
	answer chan error // one element is sent, unless the caller has withdrawn
	err    error      // what will be answered; the committer's
}

// The states of a request. Whoever changes it from queued decides its fate.
const (
	queued    = iota
	taken     // by the committer, which answers it
	withdrawn // by its caller, whose context ended
)

// take reports whether the request is still wanted, and is the committer's now.
func (r *request) take() bool {
	if r.ctx.Err() != nil {
		r.state.CompareAndSwap(queued, withdrawn)
		return false // the caller sees its context end as well
	}
	return r.state.CompareAndSwap(queued, taken)
}

// queue is what waits for the committer, in the order in which it came.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	closed  error         // why nothing more is taken; nil while it is
	wake    chan struct{} // holds one element while there is news
}

// do has a request carried out and returns its answer. Until the committer has
// taken it up, the end of ctx takes it back.
func (q *queue) do(ctx context.Context, decide func(*batch) (change, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{ctx: ctx, decide: decide, answer: make(chan error, 1)}
	if err := q.add(r); err != nil {
		return err
	}
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(queued, withdrawn) || r.state.Load() == withdrawn {
		return ctx.Err()
	}
	return <-r.answer
}

func (q *queue) add(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return q.closed
	}
	q.waiting = append(q.waiting, r)
	q.notify()
	return nil
}

// close lets nothing more in; why is what is answered instead.
func (q *queue) close(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = why
	}
	q.notify()
}

func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// gather gives way to callers for as long as that brings requests in. Those that
// were just answered are on their way back with their next request: without it
// half of them would meet the next batch, and the others the one after, for ever.
// It waits for nobody: with nothing else to run it returns at once.
func (q *queue) gather() {
	for n := -1; n < maxBatch; {
		runtime.Gosched()
		before := n
		if n = q.len(); n == before {
			return
		}
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// drain takes out everything that waits. With wait it returns nothing only when
// the queue is closed and empty.
func (q *queue) drain(wait bool) []*request {
	for {
		q.mu.Lock()
		all, closed := q.waiting, q.closed
		q.waiting = nil
		q.mu.Unlock()
		if len(all) > 0 || closed != nil || !wait {
			return all
		}
		<-q.wake
	}
}
