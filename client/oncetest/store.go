package oncetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
)

// dueAtOnce is how many unsettled operations are listed in one step.
const dueAtOnce = 1000

// store is the memory store with what a test may do to it: it outlives servers, its
// claims can be made to lapse, and it can be full.
type store struct {
	*memory.Store

	mu           sync.Mutex
	servingSince time.Time // when the server that runs was started, in store time
	full         bool
}

// newStore returns a store that remembers all of the key retention: what is told from
// the age of a key must not depend on how long the test has been running.
func newStore(c *clock, keyRetention time.Duration) *store {
	back := min(keyRetention, time.Since(time.Unix(1, 0))) // a generation is a Unix second
	c.skip(-back)
	s := &store{Store: memory.New(c)}
	c.skip(back)
	return s
}

// now returns store time.
func (s *store) now(ctx context.Context) (time.Time, error) {
	v, err := s.Store.Get(ctx, onced.Identity{}) // holds no record: no operation has an empty key
	return v.Now, err
}

// serve says that a server begins to serve the store now.
func (s *store) serve(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servingSince = now
	return nil
}

func (s *store) setFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *store) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// lapse ends the lease of every claim that is held, and returns their fences. Leases
// also run for up to a minute after a server's start, whatever their end: nobody who
// has that minute is left, so the start is forgotten with them.
func (s *store) lapse(ctx context.Context) (fences []uint64, err error) {
	s.mu.Lock()
	s.servingSince = time.Time{}
	s.mu.Unlock()
	unsettled, err := s.unsettled(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range unsettled {
		var held *onced.Record
		err := s.Store.Update(ctx, storage.Target{ID: id, Class: storage.ClassSettlement}, func(v onced.View) onced.Plan {
			if held = v.Record; held == nil || held.State != onced.StatePending {
				held = nil
				return onced.Plan{}
			}
			if v.Now.Before(held.LeaseEnd) {
				held.LeaseEnd = v.Now
			}
			return onced.Plan{Put: held}
		})
		if err != nil {
			return nil, err
		}
		if held != nil {
			fences = append(fences, held.Fence)
		}
	}
	return fences, nil
}

// unsettled lists what is claimed and not settled.
func (s *store) unsettled(ctx context.Context) (ids []onced.Identity, err error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	var page storage.DuePage
	for more := true; more; more = page.Next != nil {
		if page, err = s.ScanDue(ctx, onced.DueUnsettled, now.Add(2*onced.GreatestLease), page.Next, dueAtOnce); err != nil {
			return nil, err
		}
		for _, d := range page.Due {
			ids = append(ids, d.ID)
		}
	}
	return ids, nil
}

// Update implements [storage.Store]. A full store still decides what changes nothing.
func (s *store) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	refuse := t.Class == storage.ClassClaim && s.isFull()
	refused := false
	err := s.Store.Update(ctx, t, func(v onced.View) onced.Plan {
		plan := fn(s.shown(v))
		if refused = refuse && plan.Changes(); refused {
			return onced.Plan{}
		}
		return plan
	})
	if err == nil && refused {
		return fmt.Errorf("oncetest: %w, as the test asked for", storage.ErrFull)
	}
	return err
}

// Get implements [storage.Store].
func (s *store) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	v, err := s.Store.Get(ctx, id)
	return s.shown(v), err
}

// ScanIdentity implements [storage.Store].
func (s *store) ScanIdentity(ctx context.Context, prefix []byte, cursor storage.Cursor, limit int) (storage.Page, error) {
	page, err := s.Store.ScanIdentity(ctx, prefix, cursor, limit)
	for i, v := range page.Views {
		page.Views[i] = s.shown(v)
	}
	return page, err
}

// Room implements [storage.Store].
func (s *store) Room(ctx context.Context) error {
	if s.isFull() {
		return storage.ErrFull
	}
	return s.Store.Room(ctx)
}

// shown is a view of a store that a server has opened when it was started: the memory
// store itself stays open all the time.
func (s *store) shown(v onced.View) onced.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Epoch.ServingSince = s.servingSince
	return v
}
