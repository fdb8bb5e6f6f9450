package bolt

import (
	"context"
	"fmt"
	"slices"
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
	if r.state.Load() == taken {
		return true // for a batch before, which had no place for it
	}
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
	begin  int           // place in order of the class that comes first in the next batch
	closed error         // why nothing more is taken; nil while it is
	wake   chan struct{} // holds one element while there is news
}

// lineBatches is how many batches may wait in each line. A claim beyond the next
// batches would wait longer than its caller gains by it. Settlements get more: what
// was begun is to be ended.
var lineBatches = [storage.Classes]int{
	storage.ClassClaim: 2, storage.ClassSettlement: 32, storage.ClassSweep: 1,
}

// order is that of the classes in a batch.
var order = [storage.Classes]storage.Class{storage.ClassSettlement, storage.ClassClaim, storage.ClassSweep}

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

// next takes out the members of a batch. It waits for the first, and returns none
// only when the queue is closed and empty.
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

// pick takes out the members of a batch, class by class, under mu.
func (q *queue) pick() (members []*request) {
	line := func(c storage.Class) int { return len(q.lines[c]) }
	var n [storage.Classes]int
	n[storage.ClassSweep] = min(line(storage.ClassSweep), max(q.limit/sweepPart, 1))
	least := min(line(storage.ClassClaim), max(q.limit/claimPart, 1))
	n[storage.ClassSettlement] = min(line(storage.ClassSettlement), max(q.limit-least-n[storage.ClassSweep], 1))
	n[storage.ClassClaim] = min(line(storage.ClassClaim), max(q.limit-n[storage.ClassSettlement]-n[storage.ClassSweep], least))
	for i := range order {
		c := order[(q.begin+i)%len(order)]
		out := q.lines[c][:n[c]]
		members = append(members, out...)
		clear(out) // the line does not hold what it gave away
		q.lines[c] = q.lines[c][n[c]:]
	}
	q.begin = 0
	return members
}

// putBack puts the members of a batch that it had no place for, those from n on, at
// the heads of their lines. A class of which it had none comes first in the next
// batch: what is large in one class does not keep the others out.
func (q *queue) putBack(members []*request, n int) {
	rest := members[n:]
	if len(rest) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range order {
		back := slices.DeleteFunc(slices.Clone(rest), func(r *request) bool { return r.class != c })
		q.lines[c] = append(back, q.lines[c]...)
	}
	if i := slices.IndexFunc(rest, func(r *request) bool { return r.class != members[n-1].class }); i >= 0 {
		q.begin = slices.Index(order[:], rest[i].class)
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
