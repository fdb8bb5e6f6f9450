package client

import (
	"context"
	"sync"
	"time"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// leaseClock is the holder's own count of its lease. It runs on the process's
// monotonic clock, from the moment at which the newest claim or renewal that was
// answered OK had been sent: so it ends before onced's own count does, however
// long the answer took and however the two machines' clocks differ.
type leaseClock struct {
	over func() // called once, when the lease has ended

	mu    sync.Mutex
	end   time.Time
	timer *time.Timer
}

// startLease starts the count; over runs in a goroutine of its own.
func startLease(end time.Time, over func()) *leaseClock {
	l := &leaseClock{over: over, end: end}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(end), l.due)
	return l
}

// due ends the lease, unless it was extended meanwhile.
func (l *leaseClock) due() {
	l.mu.Lock()
	left := time.Until(l.end)
	if left > 0 {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		l.over()
	}
}

// extend moves the end; it never comes nearer.
func (l *leaseClock) extend(end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end.After(l.end) {
		l.end = end
	}
}

func (l *leaseClock) stop() { l.timer.Stop() }

// term is what an answer grants: when the lease ends on this process's clock, and
// when it is to be renewed.
type term struct{ end, renewal time.Time }

// termOf reads a term from an answer to a request that was sent at a moment. The
// renewal is due after a third of the lease, or of what is left of it.
func termOf(op *oncedv1.Operation, sent time.Time) term {
	left := op.GetLeaseRemaining().AsDuration()
	third := left / 3
	if lease := op.GetLease().AsDuration(); lease > 0 {
		third = min(third, lease/3)
	}
	return term{end: sent.Add(left), renewal: sent.Add(max(third, firstPause))}
}

// keep renews the claim until ctx ends or onced says that it is lost. It goes on
// after the lease has ended by the holder's own clock: a renewal revives a claim
// that nobody has taken over, and keeps others away while the function, which may
// not heed its context, still runs.
func (cl *Claim) keep(ctx context.Context, t term) {
	for sleep(ctx, time.Until(t.renewal)) {
		next, err := cl.renew(ctx, whileHeld(cl.lease), nil)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			t = next
		case lostBy(err):
			return
		default:
			cl.c.log.WarnContext(ctx, "a claim could not be renewed", "namespace", cl.Namespace, "key", cl.Key, "method", cl.Method, "attempt", cl.Attempt, "error", err)
			t.renewal = time.Now().Add(cl.lease / 3)
		}
	}
}

// renew sends one renewal and moves the lease clock. A refusal that means that the
// claim is lost ends the function's context at once.
func (cl *Claim) renew(ctx context.Context, e effort, checkpoint *oncedv1.Checkpoint) (term, error) {
	req := &oncedv1.RenewRequest{
		Ref: cl.holding.ref, ClaimToken: cl.holding.token, Fence: cl.holding.fence,
		Lease: cl.asked, Checkpoint: checkpoint,
	}
	resp, s, err := exchange(ctx, cl.c, e, cl.c.stub.Renew, req)
	if err != nil {
		if lostBy(err) {
			cl.lose(err)
		}
		return term{}, err
	}
	t := termOf(resp.GetOperation(), s.at)
	cl.clock.extend(t.end)
	return t, nil
}
