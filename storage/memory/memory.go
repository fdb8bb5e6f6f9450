// Package memory is the reference backend: maps under a lock, written to be
// obviously right. The other backends are measured against it, and tests that
// need a server but no disk use it.
//
// Nothing survives the process. "Durable" means what the last successful sync
// let through, and a change is not visible before: a sync here is the store's
// OnSync function, and does nothing without one.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// Store is a [storage.Store] in memory. The zero Store is not usable; see [New].
type Store struct {
	// OnSync, if it is set before the first call, is called for every change
	// before it counts as durable, and may take its time: the change waits. When it
	// returns an error, the change is lost and the store has failed.
	OnSync func() error

	time   *storage.Time
	since  time.Time     // when the store was opened, in store time
	writer chan struct{} // holds one element while an update runs
	failed chan struct{} // closed with the store's failure

	mu    sync.RWMutex // guards what follows; taken for writing by the holder of writer only
	image image
	down  error // why nothing more is answered; nil while the store is in use
}

var _ storage.Store = (*Store)(nil)

// New returns an empty store whose generation is the Unix second of the clock's
// wall time, and whose history starts there.
func New(clock storage.Clock) *Store {
	now := clock.Wall().Round(0).UTC()
	generation := uint64(now.Unix())
	return open(clock, image{
		Meta:   storage.Meta{Generation: generation, HistoryStart: now},
		Newest: now,
		Fence:  storage.FirstFence(generation),
	})
}

// open returns a store over an image, which becomes the store's own.
func open(clock storage.Clock, i image) *Store {
	t := storage.NewTime(clock, i.Newest)
	if i.Records == nil {
		i.Records = map[string]cell{}
	}
	if i.Twins == nil {
		i.Twins = map[string]twinCell{}
	}
	return &Store{
		time: t, since: t.Now(), image: i,
		writer: make(chan struct{}, 1), failed: make(chan struct{}),
	}
}

// Update implements [storage.Store].
func (s *Store) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	v := s.view(t)
	plan := fn(v)
	if err := storage.CheckPlan(s.view(t), plan); err != nil { // fn may have written to what it was shown
		return err
	}
	if !plan.Changes() {
		return nil // what fn decided on is durable, as is everything in the image
	}
	return s.commit(v.Now, func(i *image) { i.apply(v, plan) })
}

// Get implements [storage.Store].
func (s *Store) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	return read(ctx, s, func() (onced.View, error) { return s.view(storage.Target{ID: id}), nil })
}

// Payload implements [storage.Store].
func (s *Store) Payload(ctx context.Context, id onced.Identity, digest onced.Digest) ([]byte, error) {
	return read(ctx, s, func() ([]byte, error) { return s.image.payload(id, digest) })
}

// ScanIdentity implements [storage.Store].
func (s *Store) ScanIdentity(ctx context.Context, prefix []byte, cursor storage.Cursor, limit int) (storage.Page, error) {
	return read(ctx, s, func() (storage.Page, error) {
		ids, next := s.image.identities(string(prefix), cursor, limit)
		page := storage.Page{Next: next}
		for _, id := range ids {
			page.Views = append(page.Views, s.view(storage.Target{ID: id}))
		}
		return page, nil
	})
}

// ScanDue implements [storage.Store].
func (s *Store) ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) (storage.DuePage, error) {
	return read(ctx, s, func() (storage.DuePage, error) { return s.image.due(kind, before, cursor, limit), nil })
}

// Meta implements [storage.Store].
func (s *Store) Meta(ctx context.Context) (storage.Meta, error) {
	return read(ctx, s, func() (storage.Meta, error) { return cloneMeta(s.image.Meta), nil })
}

// UpdateMeta implements [storage.Store].
func (s *Store) UpdateMeta(ctx context.Context, fn func(storage.Meta) storage.Meta) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	old := s.image.Meta
	meta := cloneMeta(fn(cloneMeta(old)))
	if err := storage.CheckMeta(old, meta); err != nil {
		return err
	}
	return s.commit(s.time.Now(), func(i *image) { i.Meta = meta })
}

// ScanAudit implements [storage.Store].
func (s *Store) ScanAudit(ctx context.Context, cursor storage.Cursor, limit int) (storage.AuditPage, error) {
	return read(ctx, s, func() (storage.AuditPage, error) { return s.image.audit(cursor, limit) })
}

// Room implements [storage.Store]: there always is.
func (s *Store) Room(ctx context.Context) error {
	_, err := read(ctx, s, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

// Failed implements [storage.Store].
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Close implements [storage.Store].
func (s *Store) Close() error {
	s.writer <- struct{}{} // the running update ends first
	defer s.unlock()
	s.stop(storage.ErrClosed)
	return nil
}

// lock waits for the running update to end, for as long as ctx lets it.
func (s *Store) lock(ctx context.Context) error {
	select {
	case s.writer <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Both may have been ready, and the store may have gone down meanwhile.
	err := ctx.Err()
	if err == nil {
		err = s.down
	}
	if err != nil {
		s.unlock()
	}
	return err
}

func (s *Store) unlock() { <-s.writer }

// stop ends the store's use, unless it has ended already, by the holder of writer.
func (s *Store) stop(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down == nil {
		s.down = why
	}
}

// commit makes a change durable and only then visible, by the holder of writer.
func (s *Store) commit(now time.Time, change func(*image)) error {
	if s.OnSync != nil {
		if err := s.OnSync(); err != nil {
			s.stop(fmt.Errorf("%w: %w", storage.ErrFailed, err))
			close(s.failed)
			return s.down
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.image)
	s.image.stamp(now)
	return nil
}

// read runs fn on the durable state.
func read[T any](ctx context.Context, s *Store, fn func() (T, error)) (T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var none T
	if s.down != nil {
		return none, s.down
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return fn()
}

// view reads the records of a target, under mu or by the holder of writer.
func (s *Store) view(t storage.Target) onced.View {
	v := onced.View{
		ID: t.ID, Now: s.time.Now(), ExpiryTime: s.time.Expiry(),
		NextFence: s.image.Fence + 1, Epoch: s.image.Meta.Epoch(s.since),
	}
	s.image.load(&v, t)
	if v.Record != nil && v.Now.Before(v.Record.UpdateTime) {
		v.Now = v.Record.UpdateTime
	}
	return v
}
