package server

import (
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

// admission bounds how many calls are worked on. It is safe for concurrent use.
type admission struct {
	claims, all int64 // bounds

	admitted atomic.Int64 // calls, held ones included
	held     atomic.Int64
}

func newAdmission(all, reserved int64) *admission {
	return &admission{claims: all - reserved, all: all}
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
