package bolt

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onced/onced/storage"
)

// request is one call that waits for the committer.
type request struct {
	ctx    context.Context
	class  storage.Class
	decide func(*batch) (change, error)
	queued time.Duration // when, on the store's clock
	state  atomic.Int32
	answer chan error // one element is sent, unless the caller has withdrawn
	err    error      // what will be answered; the committer's
}

// The states of a request. Whoever changes it from waiting decides its fate.
const (
	waiting   = iota
	taken     // by the committer, which answers it
	withdrawn // by its caller, whose context ended
)

// take reports whether the request is still wanted, and is the committer's now.
func (r *request) take() bool {
	if r.ctx.Err() != nil {
		r.state.CompareAndSwap(waiting, withdrawn)
		return false // the caller sees its context end as well
	}
	return r.state.CompareAndSwap(waiting, taken)
}

// queue is what waits for the committer: a line for each class, each in the order
// in which it came.
type queue struct {
	clock storage.Clock
	limit int // of requests in a batch

	mu     sync.Mutex
	lines  [storage.Classes][]*request
	closed error         // why nothing more is taken; nil while it is
	wake   chan struct{} // holds one element while there is news
}

// lineBatches is how many batches may wait in each line. A claim beyond the next
// batches would wait longer than its caller gains by it. Settlements get more: what
// was begun is to be ended.
var lineBatches = [storage.Classes]int{
	storage.ClassClaim: 2, storage.ClassSettlement: 8, storage.ClassSweep: 1,
}

// Parts of a batch, of the limit, that a class is left by those before it.
const (
	claimPart = 4 // settlements leave claims a quarter
	sweepPart = 8 // both leave sweeps an eighth, and get no more when there is more
)

// do has a request carried out and returns its answer. Until the committer has
// taken it up, the end of ctx takes it back.
func (q *queue) do(ctx context.Context, class storage.Class, decide func(*batch) (change, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{ctx: ctx, class: class, decide: decide, queued: q.clock.Elapsed(), answer: make(chan error, 1)}
	if err := q.add(r); err != nil {
		return err
	}
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(waiting, withdrawn) || r.state.Load() == withdrawn {
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
	if n := len(q.lines[r.class]); n >= lineBatches[r.class]*q.limit {
		return fmt.Errorf("%w: %d %ss wait", storage.ErrOverloaded, n, r.class)
	}
	q.lines[r.class] = append(q.lines[r.class], r)
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

// next takes out the members of a batch: settlements, then claims, then sweeps. It
// waits for the first, and returns none only when the queue is closed and empty.
func (q *queue) next() []*request {
	for {
		q.mu.Lock()
		members, closed := q.pick(), q.closed
		q.mu.Unlock()
		if len(members) > 0 || closed != nil {
			return members
		}
		<-q.wake
	}
}

// pick takes out the members of a batch, under mu.
func (q *queue) pick() []*request {
	claims := min(len(q.lines[storage.ClassClaim]), max(q.limit/claimPart, 1))
	sweeps := min(len(q.lines[storage.ClassSweep]), max(q.limit/sweepPart, 1))
	var members []*request
	take := func(c storage.Class, n int) {
		n = min(max(n, 0), len(q.lines[c]))
		members = append(members, q.lines[c][:n]...)
		rest := q.lines[c][n:]
		if len(rest) == 0 {
			rest = nil // let go of what was taken
		}
		q.lines[c] = rest
	}
	take(storage.ClassSettlement, max(q.limit-claims-sweeps, 1))
	take(storage.ClassClaim, max(q.limit-len(members)-sweeps, claims))
	take(storage.ClassSweep, sweeps)
	return members
}

// gather gives way to callers for as long as that brings requests in. Those that
// were just answered are on their way back with their next request: without it
// half of them would meet the next batch, and the others the one after, for ever.
// It waits for nobody: with nothing else to run it returns at once.
func (q *queue) gather() {
	for n := -1; n < q.limit; {
		runtime.Gosched()
		before := n
		if n = q.len(); n == before {
			return
		}
	}
}

// depths returns how many requests wait in each line.
func (q *queue) depths() (n [storage.Classes]int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c, line := range q.lines {
		n[c] = len(line)
	}
	return n
}

func (q *queue) len() (n int) {
	for _, waits := range q.depths() {
		n += waits
	}
	return n
}
