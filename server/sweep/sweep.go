// Package sweep reclaims the space of what has expired: results whose retention
// has ended, keys that are no longer remembered, and twin entries that can stop
// nobody any more.
//
// It affects disk usage only and changes nothing that a caller can see: a claim
// and a lookup decide expiry by the same function, swept or not. An entry of the
// store's time-ordered index is a hint; whether anything has expired is decided
// again inside the update that removes it, so that a record which was claimed
// again since the scan survives.
package sweep

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// Interval is how long a sweeper of a server rests between two passes.
const Interval = time.Minute

const (
	// batchSize is how many entries are swept between two breaths.
	batchSize = 256
	// parallel is how many updates of a batch run at once: enough to share the
	// commits of a store that commits in groups, and never more than this many
	// before a claim in the store's queue.
	parallel = 8
	// breath is the pause between two batches, in which claims have the store to
	// themselves.
	breath = 10 * time.Millisecond
)

// kinds are the indexes that a pass goes through, in this order.
var kinds = [...]onced.DueKind{onced.DueExpiry, onced.DueTwin}

// Config is what a [Sweeper] needs. Every field must be set.
type Config struct {
	Store storage.Store
	// Policy returns the policy in force in a namespace. It must be safe for
	// concurrent use.
	Policy func(namespace string) onced.Policy
	// Interval is the rest between the end of a pass and the beginning of the next.
	Interval time.Duration
	Logger   *slog.Logger
	// Observe is told of every batch, one at a time.
	Observe func(Batch)
}

// Batch is what became of one page of due entries.
type Batch struct {
	Kind onced.DueKind
	// Deleted entries are gone.
	Deleted int
	// Rewritten records have lost their bytes and are remembered as tombstones, or
	// were stamped anew because a longer retention keeps them.
	Rewritten int
	// Kept entries were not due after all, or cannot be read by this build.
	Kept int
	// Failed entries could not be swept because of the store; a later pass tries
	// them again. A page that could not be read counts as one.
	Failed int
	// Lag is how long the next entry, at least, has been due; zero when nothing
	// that was due at the beginning of the pass is left.
	Lag time.Duration
}

// Sweeper sweeps a store in the background, from Start to Stop. It keeps no
// state that a restart would miss: the index is the work that is left.
type Sweeper struct {
	cfg    Config
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc

	mu      sync.Mutex // guards started, and run's start against Stop
	started bool
	running sync.WaitGroup

	// resume is where the next pass goes on in each index when the pass before gave
	// up. Only the goroutine of a pass uses it.
	resume map[onced.DueKind]storage.Cursor
}

// New returns a sweeper that has not started.
func New(cfg Config) *Sweeper {
	ctx, cancel := context.WithCancel(context.Background())
	return &Sweeper{cfg: cfg, ctx: ctx, cancel: cancel, resume: map[onced.DueKind]storage.Cursor{}}
}

// Start begins with a pass at once, in the background. A second call, and a call
// after Stop, does nothing.
func (s *Sweeper) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ctx.Err() != nil {
		return
	}
	s.started = true
	s.running.Go(s.run)
}

// Stop ends the sweeping and returns when no update of it runs any more. It may
// be called more than once, and on a sweeper that was never started.
func (s *Sweeper) Stop() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Sweeper) run() {
	for {
		if err := s.pass(); s.over(err) {
			return
		}
		if !s.pause(s.cfg.Interval) {
			return
		}
	}
}

// over reports whether there is nothing left to sweep for: the sweeper was
// stopped, or the store is closed or has failed.
func (s *Sweeper) over(err error) bool {
	return s.ctx.Err() != nil || errors.Is(err, storage.ErrClosed) || errors.Is(err, storage.ErrFailed)
}

// pause waits, and reports whether the sweeper goes on.
func (s *Sweeper) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// pass goes once through everything that is due as it begins. Its error is the
// store's; it was logged.
func (s *Sweeper) pass() error {
	var errs []error
	for _, kind := range kinds {
		err := s.passKind(kind)
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Logger.Error("sweep: not everything could be swept; the next pass tries again", "index", Name(kind), "error", err)
		}
		errs = append(errs, err)
		if s.over(err) {
			break
		}
	}
	return errors.Join(errs...)
}

// passKind sweeps one index and returns the first error of the store. It gives up
// when a page cannot be read, or when nothing of a batch succeeded; the next pass
// then goes on behind that batch, so that entries which cannot be swept never
// stand in the way of others.
func (s *Sweeper) passKind(kind onced.DueKind) error {
	// The identity names nothing: its view tells the store's time.
	v, err := s.cfg.Store.Get(s.ctx, onced.Identity{})
	if err != nil {
		return s.unread(kind, err)
	}
	var first error
	cursor := s.resume[kind]
	delete(s.resume, kind)
	for {
		page, err := s.cfg.Store.ScanDue(s.ctx, kind, v.ExpiryTime, cursor, batchSize)
		if err != nil {
			return s.unread(kind, err)
		}
		b, err := s.sweep(kind, page.Due)
		if first == nil {
			first = err
		}
		if n := len(page.Due); n > 0 && page.Next != nil {
			b.Lag = v.ExpiryTime.Sub(page.Due[n-1].At)
		}
		s.cfg.Observe(b)
		if b.Failed > 0 && b.Failed == len(page.Due) {
			s.resume[kind] = page.Next
			return first
		}
		if cursor = page.Next; cursor == nil || !s.pause(breath) {
			return first
		}
	}
}

func (s *Sweeper) unread(kind onced.DueKind, err error) error {
	if s.ctx.Err() == nil {
		s.cfg.Observe(Batch{Kind: kind, Failed: 1})
	}
	return err
}

// Name returns the name of an index in logs and metrics.
func Name(kind onced.DueKind) string {
	if kind == onced.DueTwin {
		return "twins"
	}
	return "operations"
}
