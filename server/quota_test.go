package server_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func two(p *onced.Policy) { p.MaxUnsettled = 2 }

// full fails the test unless a new claim is refused for the quota.
func (w *wire) full() {
	w.Helper()
	w.unchanged(func() {
		st := wantError(w.T, w.tryClaim("one too many", "z"), codes.ResourceExhausted, "UNSETTLED_QUOTA", "no")
		if detail[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration() <= 0 {
			w.Error("no RetryInfo")
		}
		// HISTORY_LOST would be an unsettled record too.
		wantError(w.T, w.tryClaim("one too many", "z", takeOver(1)), codes.ResourceExhausted, "UNSETTLED_QUOTA", "no")
	})
}

// The count of unsettled operations follows every change of state.
func TestQuota(t *testing.T) {
	w := newWire(t, two)
	a, b := w.grant("a", "a"), w.grant("b", "b")
	w.full()
	w.claim(granted, "a", "a") // a claim that is sent again is no new one
	w.claim(inProgress, "a", "z")

	w.must(completed)(a.complete("done"))
	a2 := w.grant("a2", "a")
	w.full()
	w.must(released)(b.fail(notExecuted))
	w.grant("b", "b2")
	w.full()
	w.must(stateFailed)(a2.fail(final))
	c := w.grant("c", "c")
	w.must(stateUnresolved)(c.fail(unknown)) // still unsettled
	w.full()

	w.takeOver("c", "taker", 1) // is not stopped, and counts once
	w.full()
	elsewhere := func(r *oncedv1.ClaimRequest) { r.Ref = &oncedv1.OperationRef{Namespace: "n2", Key: "k", Method: "m"} }
	w.claim(granted, "", "z", elsewhere) // another namespace has a count of its own
}

// What takes RELEASED back makes it count again, and HISTORY_LOST counts.
func TestQuotaCountsDoubt(t *testing.T) {
	w := newWire(t, two)
	h := w.grant("a", "a")
	w.must(released)(w.takeOver("a", "b", 1).fail(didNotHappen))
	w.claim(unresolved, "lost", "a", takeOver(1))
	w.refused(precondition, "CLAIM_LOST")(h.complete("done"))
	w.full()
}

// The count is taken from the store at start.
func TestQuotaAfterRestart(t *testing.T) {
	const many = 2500 // more than a page of the index
	w := newWire(t, func(p *onced.Policy) { p.MaxUnsettled = many })
	for i := range many {
		w.put(&onced.Record{ID: identity(fmt.Sprint(i)), State: onced.StatePending, LeaseEnd: start.Add(onced.GreatestLease)})
	}
	for i := range 10 {
		w.put(&onced.Record{ID: identity(fmt.Sprint("settled ", i)), State: onced.StateCompleted, KeyExpire: start.Add(time.Hour)})
	}
	again := newWireOver(t, w.store, w.clock, func(p *onced.Policy) { p.MaxUnsettled = many })
	again.full()
	more := newWireOver(t, w.store, w.clock, func(p *onced.Policy) { p.MaxUnsettled = many + 1 })
	more.grant("k", "a")
	more.full()
}
