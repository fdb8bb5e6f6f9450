package server

import (
	"runtime"
	"sync/atomic"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Bounds on the calls that are worked on at once, held ones left out: what waits
// in the store's queue is answered within moments, or not let in. The last part
// is for reports of holders alone, so that what was begun can be ended however
// many claims come in.
const (
	greatestCalls      = 2048
	reservedForReports = 512
)

// greatestListings bounds the listings of operations that are worked on at once, on a
// machine of any size. Each reads far more than a claim does and keeps a processor
// busy; whoever lists can wait.
const greatestListings = 4

// listingsAtOnce returns how many listings are worked on at once: half of the
// processors are left to claims and reports.
func listingsAtOnce(processors int) int64 {
	return int64(min(max(processors/2, 1), greatestListings))
}

// greatestRequests bounds the bytes of the reports that are worked on, which bring
// results and checkpoints: what waits for the store stays in memory meanwhile.
const greatestRequests = 256 << 20

// admission bounds how many calls are worked on. It is safe for concurrent use.
type admission struct {
	claims, all int64 // bounds

	admitted atomic.Int64 // calls, held ones included
	held     atomic.Int64

	limit   int64        // bytes of reports
	carried atomic.Int64 // of the limit

	listingLimit int64
	listings     atomic.Int64
}

func newAdmission(all, reserved int64) *admission {
	return &admission{
		claims: all - reserved, all: all, limit: greatestRequests,
		listingLimit: listingsAtOnce(runtime.GOMAXPROCS(0)),
	}
}

// enter lets a call in, which must leave again, or reports that there are too
// many. Claims and reads are shed first.
func (a *admission) enter(fullMethod string) bool {
	bound := a.claims
	if isReport(fullMethod) {
		bound = a.all
	}
	if a.admitted.Add(1)-a.held.Load() > bound {
		a.leave()
		return false
	}
	return true
}

func (a *admission) leave() { a.admitted.Add(-1) }

// carry lets in what a report brings, which must be put down again, or reports that
// it is too much beside the others.
func (a *admission) carry(bytes int64) bool {
	if a.carried.Add(bytes) > a.limit {
		a.putDown(bytes)
		return false
	}
	return true
}

func (a *admission) putDown(bytes int64) { a.carried.Add(-bytes) }

// list lets a listing in, which must end again, or reports that there are too many.
func (a *admission) list() bool {
	if a.listings.Add(1) > a.listingLimit {
		a.endList()
		return false
	}
	return true
}

func (a *admission) endList() { a.listings.Add(-1) }

// hold changes the number of calls that wait for an operation to change. They
// have bounds of their own.
func (a *admission) hold(delta int) { a.held.Add(int64(delta)) }

// running returns how many calls are worked on now.
func (a *admission) running() int64 { return max(0, a.admitted.Load()-a.held.Load()) }

// isReport reports whether a call is of a holder and ends or prolongs what it
// holds.
func isReport(fullMethod string) bool {
	switch fullMethod {
	case oncedv1.IdempotencyService_Complete_FullMethodName,
		oncedv1.IdempotencyService_Fail_FullMethodName,
		oncedv1.IdempotencyService_Renew_FullMethodName:
		return true
	}
	return false
}
