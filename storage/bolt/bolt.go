package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// Options say how a store is made and opened.
type Options struct {
	// Clock is where the store's time comes from. Required.
	Clock storage.Clock
	// LockTimeout is how long to wait for another process to let go of the store.
	// Zero means one second.
	LockTimeout time.Duration
	// ReplacesLostStore says to Init that the store takes the place of one that was
	// lost: what that one's marker left is then no reason to refuse, and callers
	// with older keys are told that their history is lost.
	ReplacesLostStore bool
	// Observe is told of every batch of updates, by one goroutine, before they are
	// answered. It must not block. Nil: nobody is told.
	Observe func(storage.Commit)

	hooks      hooks
	batchLimit int                  // of requests; by tests; 0: maxBatch
	tune       func(*bbolt.Options) // by tests, before the data file is opened
}

func (o Options) lockTimeout() time.Duration {
	if o.LockTimeout == 0 {
		return time.Second
	}
	return o.LockTimeout
}

// growthPastReserve is by how much bbolt makes the file longer at once, where the
// reserve was not kept.
const growthPastReserve = 1 << 20

// remarkEvery is how far the marker may lie behind while there are commits.
const remarkEvery = time.Minute

// Store is a [storage.Store] in one bbolt file.
type Store struct {
	path     string // of the data file
	db       *bbolt.DB
	pageSize int64 // bytes
	hooks    hooks
	observer func(storage.Commit)
	time     *storage.Time
	since    time.Time // when the store became ready, in store time

	queue    queue
	durable  atomic.Pointer[durable]
	unsynced atomic.Pointer[unsynced]
	reserve  reserve        // the committer's
	full     bool           // a commit found no room, and none of a claim has since; the committer's
	progress codec.Progress // as of the newest commit; the committer's
	marked   time.Time      // when the marker was written last; the committer's

	stopped   chan struct{} // closed when the committer has ended
	closeOnce sync.Once
	closed    atomic.Bool
	stuck     atomic.Bool // bbolt's locks may be held for ever

	failOnce   sync.Once
	failed     chan struct{}
	failedWith error // set before failed is closed
}

var _ storage.Store = (*Store)(nil)

// Open opens the store in a folder, and takes it for this process until Close.
// Anything there that is not a whole store in its newest state is refused by an
// error that names the file and says what to do, and is left as it is; it is
// [ErrNoStore] if there is nothing at all. Each start makes one commit; on a disk
// that has no room for it the store is opened nevertheless.
//
// The file is checked before anything is read from it: all of it, with the seals
// of all values, while its pages take up to 64 MiB, so that start does not wait for
// the disk; of a larger one the way to its buckets. There a value that was damaged
// is found when it is used, and its operation is refused as unreadable. [Check]
// reads all of any file.
func Open(dir string, o Options) (*Store, error) {
	w, err := examine(dir, examination{
		write: true, timeout: o.lockTimeout(), deepUpTo: deepAtOpen, visit: sealed, database: o.database,
	})
	if err != nil {
		return nil, err
	}
	db, file := w.db, w.file
	db.AllocSize = growthPastReserve
	s := &Store{
		path: w.path, db: db, pageSize: int64(db.Info().PageSize),
		hooks: o.hooks, observer: o.Observe,
		queue:   queue{clock: o.Clock, limit: cmp.Or(o.batchLimit, maxBatch), wake: make(chan struct{}, 1)},
		reserve: newReserve(file),
		stopped: make(chan struct{}), failed: make(chan struct{}),
	}
	if err := s.start(o.Clock); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	go s.loop()
	return s, nil
}

// deepAtOpen is up to which size, in bytes of its pages, Open checks all of a file.
const deepAtOpen = 64 << 20

// database says what bbolt is told about a data file that is written to.
func (o Options) database(b *bbolt.Options) {
	b.FreelistType, b.InitialMmapSize = bbolt.FreelistMapType, initialMap
	if o.tune != nil {
		o.tune(b)
	}
}

// start makes the first commit, if there is room for one. It makes sure that
// everything that is visible is durable, also what a killed process had written and
// not yet synced; and by its number a copy of the file that was made before can be
// told.
func (s *Store) start(clock storage.Clock) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	txid := tx.ID()
	defer tx.Rollback() // of a commit does nothing
	f, err := readFacts(tx)
	if err != nil {
		return damage(s.path, err)
	}
	b := &batch{store: s, tx: tx, meta: f.meta, progress: f.progress}
	if err = b.finish(); err == nil {
		err = tx.Commit()
	}
	if noRoom(err) && s.visible() == txid-1 {
		// What there is can be read nevertheless: it is synced as it is.
		txid, b.progress, s.full = txid-1, f.progress, true
		err = s.db.Sync()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	s.progress = b.progress
	s.publish(txid, b.meta)
	s.time = storage.NewTime(clock, s.progress.Newest)
	s.since = s.time.Now()
	s.marked = s.time.Now()
	return s.mark()
}

// mark brings the marker up to the newest commit.
func (s *Store) mark() error {
	m := marker{format: format, generation: s.durable.Load().meta.Generation, sequence: s.progress.Sequence}
	return m.write(filepath.Dir(s.path))
}

// remark brings the marker up once a minute while there are commits, so that a
// copy of the file from before that minute is told from the newest one after a
// kill too. It runs when answers have left. A marker that cannot be written is
// tried again in a minute: it is a second lock on a door that has one.
func (s *Store) remark() {
	now := s.time.Now()
	if now.Sub(s.marked) < remarkEvery || s.failure() != nil {
		return
	}
	s.marked = now
	_ = s.mark()
}

// Update implements [storage.Store]. A panic of fn is raised in the caller, by
// calling fn there once more.
func (s *Store) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	u, err := newUpdate(t, fn)
	if err != nil {
		return err
	}
	err = s.queue.do(ctx, t.Class, u.decide)
	if u.panicked != nil {
		fn(*u.panicked)
	}
	return err
}

// UpdateMeta implements [storage.Store].
func (s *Store) UpdateMeta(ctx context.Context, fn func(storage.Meta) storage.Meta) error {
	return s.queue.do(ctx, storage.ClassSettlement, decideMeta(fn))
}

// Room implements [storage.Store].
func (s *Store) Room(ctx context.Context) error {
	return s.queue.do(ctx, storage.ClassClaim, decideRoom)
}

// Stats returns how large the store is and how much waits; what cannot be told is
// zero. It may be called concurrently.
func (s *Store) Stats() storage.Stats {
	stats := storage.Stats{Free: s.free(), Queued: s.queue.depths()}
	if info, err := os.Stat(s.path); err == nil {
		stats.Size = info.Size()
	}
	if used, _, err := snapshot(context.Background(), s, func(tx *bbolt.Tx) (int64, error) { return tx.Size(), nil }); err == nil {
		stats.Used = used
	}
	return stats
}

// free returns how many bytes in use once may be used again.
func (s *Store) free() int64 {
	return int64(s.db.Stats().FreePageN) * s.pageSize
}

// Failed implements [storage.Store].
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Close implements [storage.Store]. What had queued before is carried out. If
// the store has failed, the error says so.
func (s *Store) Close() (err error) {
	s.closeOnce.Do(func() {
		s.queue.close(storage.ErrClosed)
		<-s.stopped
		s.closed.Store(true)
		if err = s.failure(); err == nil {
			err = s.mark()
		}
		if !s.stuck.Load() {
			err = errors.Join(err, s.db.Close())
		}
	})
	return err
}
