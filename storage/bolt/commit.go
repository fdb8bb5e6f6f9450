package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/onced/onced/storage"
)

// The bounds of a batch. They keep what a commit holds in memory, and how long
// its callers wait for each other, within reason; a batch goes over the second
// by one request.
const (
	maxBatch      = 1024    // requests
	maxBatchBytes = 8 << 20 // of what they write
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
	var backlog []*request
	for {
		backlog = append(backlog, s.queue.drain(len(backlog) == 0)...)
		if len(backlog) == 0 {
			return
		}
		backlog = s.commit(backlog)
		s.remark()
		s.queue.gather()
	}
}

// commit carries out the first requests of a backlog as one batch, answers them,
// and returns the rest.
func (s *Store) commit(backlog []*request) (rest []*request) {
	members, rest, err := s.attempt(backlog)
	for _, r := range members {
		switch {
		case errors.Is(err, storage.ErrFailed):
			r.err = err
		case err != nil && r.err == nil:
			r.err = s.withoutWriting(r, err)
		}
		r.answer <- r.err
	}
	return rest
}

// attempt decides a batch and makes it durable. Its members have the errors of
// their own; the error is that of the commit.
func (s *Store) attempt(backlog []*request) (members, rest []*request, err error) {
	if err := s.failure(); err != nil {
		return slices.DeleteFunc(backlog, func(r *request) bool { return !r.take() }), nil, err
	}
	rest = backlog
	err = s.shielded(func() error {
		tx, err := s.db.Begin(true)
		if err != nil {
			return s.fail(err)
		}
		defer tx.Rollback() // of a commit does nothing
		b := s.newBatch(tx)
		for len(rest) > 0 && len(members) < maxBatch && b.bytes < maxBatchBytes {
			r := rest[0]
			rest = rest[1:]
			if !r.take() {
				continue
			}
			members = append(members, r)
			if err := b.add(r); err != nil {
				return s.fail(err)
			}
		}
		if b.edits == 0 {
			return nil
		}
		return s.write(b)
	})
	return members, rest, err
}

// write commits a batch, and returns when it is durable.
func (s *Store) write(b *batch) error {
	txid := b.tx.ID()
	err := b.finish()
	if err == nil {
		err = run(s.hooks.beforeCommit)
	}
	if err == nil {
		err = b.tx.Commit()
	}
	if err != nil {
		return s.aftermath(err)
	}
	if err := run(s.hooks.afterCommit); err != nil {
		return s.fail(err)
	}
	s.progress = b.progress
	s.publish(txid, b.meta)
	if s.hooks.beforeAnswer != nil {
		s.hooks.beforeAnswer()
	}
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

// noRoom reports whether a write, not a sync, failed for want of room. bbolt
// writes through the os package, and syncs by a bare system call.
func noRoom(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Op == "write" && wantsRoom(err)
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

// withoutWriting answers a request of a batch that found no room, if that needs
// none: a disk that is full stops writes, and not what is known already.
func (s *Store) withoutWriting(r *request, full error) error {
	return s.shielded(func() error {
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
