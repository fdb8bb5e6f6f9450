package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// The bounds of a batch. They keep what a commit holds in memory, and how long
// its callers wait for each other, within reason; a batch goes over the last two
// by one request.
const (
	maxBatch      = 1024    // requests
	maxBatchBytes = 2 << 20 // of what they write
	maxBatchEdits = 8 << 10 // entries that they write or remove; usual requests need a few each
)

// hooks are called around each commit, by the committer. Any may be nil.
type hooks struct {
	// beforeCommit runs before anything of the batch is written. Its error takes
	// the place of the commit's.
	beforeCommit func() error
	// afterCommit runs when bbolt has committed, and before that counts as
	// durable. Its error is that of the last sync.
	afterCommit func() error
	// beforeAnswer runs when the commit counts as durable, and before any of its
	// answers leaves.
	beforeAnswer func()
}

// durable is the newest commit that has been synced.
type durable struct {
	txid int
	meta storage.Meta
	next chan struct{} // closed when there is a newer one
}

// unsynced is the commit that readers may see before it is durable. A payload that
// stands apart changes only with its record.
type unsynced struct {
	txid    int
	records map[string]struct{} // encoded identities of those that it changes
}

// leaves reports whether a record stands in a transaction as it did in the one
// before, which is durable.
func (u *unsynced) leaves(id onced.Identity, txid int) bool {
	if u == nil || u.txid != txid {
		return false
	}
	_, changed := u.records[string(id.Encode())]
	return !changed
}

// publish makes a commit the newest one that may be shown.
func (s *Store) publish(txid int, meta storage.Meta) {
	last := s.durable.Swap(&durable{txid: txid, meta: meta, next: make(chan struct{})})
	if last != nil {
		close(last.next)
	}
}

// loop is the committer. It ends when the queue is closed and empty, or with the
// store's failure.
func (s *Store) loop() {
	defer close(s.stopped)
	for {
		members := s.queue.next()
		if len(members) == 0 {
			return
		}
		members = slices.DeleteFunc(members, func(r *request) bool { return !r.take() })
		if len(members) > 0 {
			s.carryOut(members)
		}
		s.remark()
		// Those that were just answered are on their way back with their next request:
		// those that can be are let in first. A lone caller has nobody to share with.
		if len(members) > 1 {
			runtime.Gosched()
		}
	}
}

// carryOut carries out requests as one batch and answers them; what this had no
// place for is put back. When it finds no room its members are carried out again in
// smaller parts, so that each is refused for its own need only: without the claims
// first, then by halves.
func (s *Store) carryOut(members []*request) {
	n, err := s.attempt(members)
	s.queue.putBack(members, n)
	batch := members[:n]
	if !errors.Is(err, storage.ErrFull) {
		answer(batch, err)
		return
	}
	claims, others := split(batch)
	switch {
	case len(batch) == 1 || len(others) == 0:
		s.refuse(batch, err)
	case len(claims) > 0:
		s.refuse(claims, err)
		s.carryOut(others)
	default:
		s.carryOut(others[:n/2])
		s.carryOut(others[n/2:])
	}
}

// split parts claims from the others.
func split(batch []*request) (claims, others []*request) {
	for _, r := range batch {
		if r.class == storage.ClassClaim {
			claims = append(claims, r)
		} else {
			others = append(others, r)
		}
	}
	return claims, others
}

// answer answers the members of a batch: with the error of the commit, or with
// each one's own.
func answer(batch []*request, err error) {
	for _, r := range batch {
		if err != nil {
			r.err = err
		}
		r.answer <- r.err
	}
}

// attempt decides the first of some requests as one batch and makes it durable. It
// returns how many they were, one at least. Each has the error of its own; the error
// is that of the commit.
func (s *Store) attempt(members []*request) (n int, err error) {
	if err := s.failure(); err != nil {
		return len(members), err
	}
	begun := s.queue.clock.Elapsed()
	err = s.shielded(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return s.fail(err)
		}
		defer tx.Rollback() // of a commit does nothing
		b := s.newBatch(tx)
		if b.room, err = s.reserve.forBatch(tx.Size(), s.free()); err != nil {
			return s.fail(err)
		}
		for n < len(members) && b.bytes < maxBatchBytes && b.edits < maxBatchEdits {
			r := members[n]
			n++
			if err := b.add(r); err != nil {
				return s.fail(err)
			}
		}
		if b.edits == 0 {
			s.observe(members[:n], b, begun)
			return nil
		}
		if err := s.write(b); err != nil {
			return err
		}
		s.observe(members[:n], b, begun)
		if s.hooks.beforeAnswer != nil {
			s.hooks.beforeAnswer()
		}
		return nil
	})
	return max(n, 1), err
}

// write commits a batch, and returns when it is durable.
func (s *Store) write(b *batch) error {
	txid := b.tx.ID()
	err := b.finish()
	if err == nil {
		err = run(s.hooks.beforeCommit)
	}
	if err == nil {
		s.unsynced.Store(&unsynced{txid: txid, records: b.records})
		err = b.tx.Commit()
	}
	if err != nil {
		s.full = true
		return s.aftermath(err)
	}
	s.full = s.full && !b.claims
	if err := run(s.hooks.afterCommit); err != nil {
		return s.fail(err)
	}
	s.progress = b.progress
	s.publish(txid, b.meta)
	return nil
}

func run(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

// aftermath tells what a commit that failed has left. One that found no room
// before its meta page was written has changed nothing that counts: its pages
// were free, and bbolt has taken the transaction back. Whatever a sync reports
// is another matter: the kernel may have dropped what it could not write.
func (s *Store) aftermath(err error) error {
	if noRoom(err) && s.visible() == s.durable.Load().txid {
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	}
	return s.fail(err)
}

// noRoom reports whether a write, not a sync, failed for want of room, or the file
// could not be made longer, for whatever reason: bbolt does that before it writes
// anything, and does not say why it failed but in words. It writes through the os
// package, and syncs by a bare system call.
func noRoom(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Op == "write" && wantsRoom(err) ||
		err != nil && strings.HasPrefix(err.Error(), "file resize error: ")
}

// wantsRoom reports whether something failed for want of room.
func wantsRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// visible is the transaction that a reader would see now.
func (s *Store) visible() int {
	tx, err := s.db.Begin(false)
	if err != nil {
		return -1
	}
	defer tx.Rollback()
	return tx.ID()
}

// refuse answers requests that found no room, those aside that need none: a disk
// that is full stops writes, and not what is known already.
func (s *Store) refuse(batch []*request, full error) {
	for _, r := range batch {
		r.err = s.shielded(func() error {
			tx, err := s.db.Begin(false)
			if err != nil {
				return s.fail(err)
			}
			defer tx.Rollback()
			c, err := r.decide(s.newBatch(tx))
			if err == nil && len(c.edits) > 0 {
				return full
			}
			return err
		})
		r.answer <- r.err
	}
}

// observe tells of a batch that is answered now.
func (s *Store) observe(members []*request, b *batch, begun time.Duration) {
	if s.observer == nil {
		return
	}
	c := storage.Commit{Bytes: b.bytes}
	for _, r := range members {
		c.Requests[r.class]++
		c.Waited[r.class] = max(c.Waited[r.class], begun-r.queued)
	}
	if b.edits > 0 {
		c.Took = s.queue.clock.Elapsed() - begun
	}
	s.observer(c)
}

// shielded calls fn, which uses bbolt. bbolt panics when it meets damage: then
// the store has failed, and what the panic left locked stays so.
func (s *Store) shielded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.stuck.Store(true)
			err = s.fail(fmt.Errorf("the file is damaged: %v", p))
		}
	}()
	return fn()
}

// fail ends the store's use for good and returns the reason, the first one.
func (s *Store) fail(cause error) error {
	s.failOnce.Do(func() {
		s.failedWith = fmt.Errorf("%w: %s: %w", storage.ErrFailed, s.path, cause)
		close(s.failed)
		s.queue.close(s.failedWith)
	})
	return s.failedWith
}

// failure is why the store has failed; nil if it has not.
func (s *Store) failure() error {
	select {
	case <-s.failed:
		return s.failedWith
	default:
		return nil
	}
}
