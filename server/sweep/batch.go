package sweep

import (
	"context"
	"errors"
	"sync"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// sweep decides every entry of a page again, each in an update of its own, and
// returns with the first error of the store when all have been decided.
func (s *Sweeper) sweep(kind onced.DueKind, due []storage.Due) (Batch, error) {
	var (
		mu    sync.Mutex
		b     = Batch{Kind: kind}
		first error
		group sync.WaitGroup
		slots = make(chan struct{}, parallel)
	)
	for _, d := range due {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			plan, err := s.sweepOne(d)
			mu.Lock()
			defer mu.Unlock()
			b.count(plan, err)
			if first == nil {
				first = err
			}
		})
	}
	group.Wait()
	return b, first
}

// sweepOne decides one entry by the rules of the state machine and applies what
// they say.
func (s *Sweeper) sweepOne(d storage.Due) (plan onced.Plan, err error) {
	decide := func(v onced.View) onced.Plan { return onced.Sweep(v, s.cfg.Policy(v.ID.Namespace)) }
	if d.Twin != nil {
		decide = onced.SweepTwin
	}
	err = s.cfg.Store.Update(s.ctx, storage.Target{ID: d.ID, Twin: d.Twin, Class: storage.ClassSweep}, func(v onced.View) onced.Plan {
		plan = decide(v) // the last run counts
		return plan
	})
	return plan, err
}

func (b *Batch) count(plan onced.Plan, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		// Stopped before the update was taken up: nothing became of the entry.
	case err != nil:
		b.Failed++
	case plan.Delete, plan.DeleteTwin:
		b.Deleted++
	case plan.Put != nil:
		b.Rewritten++
	default:
		b.Kept++
	}
}
