package bolt

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// moment is store time as one decision sees it.
type moment struct{ now, expiry time.Time }

func (s *Store) moment() moment { return moment{now: s.time.Now(), expiry: s.time.Expiry()} }

// view shows a record. A record is never newer than the moment it is seen at.
func (m moment) view(facts storage.Meta, since time.Time, r stored) onced.View {
	v := onced.View{
		ID: r.id, Now: m.now, ExpiryTime: m.expiry, Epoch: facts.Epoch(since),
		Record: r.record, Unreadable: r.unreadable != nil,
	}
	if r.record != nil && v.Now.Before(r.record.UpdateTime) {
		v.Now = r.record.UpdateTime
	}
	return v
}

// read runs fn in a read transaction and returns when what it saw is durable,
// with the facts about the store. fn must copy what it keeps.
func read[T any](ctx context.Context, s *Store, fn func(*bbolt.Tx) (T, error)) (T, storage.Meta, error) {
	out, txid, err := snapshot(ctx, s, fn)
	if err != nil {
		return out, storage.Meta{}, err
	}
	facts, err := s.await(ctx, txid)
	if err != nil {
		var none T
		return none, storage.Meta{}, err
	}
	return out, facts, nil
}

// readRecord is read for what belongs to one record. It waits for a commit only if that
// one changes the record: a read must not be as slow as what others write.
func readRecord[T any](ctx context.Context, s *Store, id onced.Identity, fn func(*bbolt.Tx) (T, error)) (T, storage.Meta, error) {
	var none T
	out, txid, err := snapshot(ctx, s, fn)
	if err != nil {
		return none, storage.Meta{}, err
	}
	facts := s.durable.Load().meta
	if s.unsynced.Load().leaves(id, txid) {
		return out, facts, nil
	}
	if facts, err = s.await(ctx, txid); err != nil {
		return none, storage.Meta{}, err
	}
	return out, facts, nil
}

// snapshot runs fn in a read transaction and returns that transaction's number.
func snapshot[T any](ctx context.Context, s *Store, fn func(*bbolt.Tx) (T, error)) (out T, txid int, err error) {
	if err := s.usable(ctx); err != nil {
		return out, 0, err
	}
	err = s.shielded(func() error {
		tx, err := s.db.Begin(false)
		if errors.Is(err, berrors.ErrDatabaseNotOpen) {
			return storage.ErrClosed
		}
		if err != nil {
			return s.fail(err)
		}
		defer tx.Rollback()
		txid = tx.ID()
		out, err = fn(tx)
		return err
	})
	return out, txid, err
}

// usable reports why a call is not to be answered.
func (s *Store) usable(ctx context.Context) error {
	if err := s.failure(); err != nil {
		return err
	}
	if s.closed.Load() {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// await returns the facts about the store when a transaction is durable.
func (s *Store) await(ctx context.Context, txid int) (storage.Meta, error) {
	for {
		d := s.durable.Load()
		if d.txid >= txid {
			return d.meta, nil
		}
		select {
		case <-d.next:
		case <-s.failed:
			return storage.Meta{}, s.failedWith
		case <-ctx.Done():
			return storage.Meta{}, ctx.Err()
		}
	}
}

// seen is a record and the moment at which it was read.
type seen struct {
	at     moment
	record stored
}

// Get implements [storage.Store].
func (s *Store) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	got, facts, err := readRecord(ctx, s, id, func(tx *bbolt.Tx) (seen, error) {
		return seen{at: s.moment(), record: loadRecord(tx, id)}, nil
	})
	if err != nil {
		return onced.View{}, err
	}
	return got.at.view(facts, s.since, got.record), nil
}

// Payload implements [storage.Store].
func (s *Store) Payload(ctx context.Context, id onced.Identity, digest onced.Digest) ([]byte, error) {
	b, _, err := readRecord(ctx, s, id, func(tx *bbolt.Tx) ([]byte, error) {
		return loadRecord(tx, id).payload(tx, digest)
	})
	return b, err
}

// Meta implements [storage.Store].
func (s *Store) Meta(ctx context.Context) (storage.Meta, error) {
	if err := s.usable(ctx); err != nil {
		return storage.Meta{}, err
	}
	return cloneMeta(s.durable.Load().meta), nil
}

// cloneMeta returns facts that share no memory with m.
func cloneMeta(m storage.Meta) storage.Meta {
	m.Memories = maps.Clone(m.Memories)
	return m
}
