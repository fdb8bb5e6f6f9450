package bolt

import (
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// change is what one request asks of the file.
type change struct {
	edits []edit
	now   time.Time     // store time that it was decided at
	fence uint64        // that it uses; 0: none
	audit uint64        // number of the audit entry that it adds; 0: none
	meta  *storage.Meta // nil: unchanged
}

// batch is a number of requests in one transaction. Each sees what those before
// it changed.
type batch struct {
	store    *Store
	tx       *bbolt.Tx
	at       moment // at which all are decided: the transaction locks every record
	meta     storage.Meta
	progress codec.Progress
	records  map[string]struct{} // encoded identities of those that are changed
	edits    int
	bytes    int  // of the keys and values written
	claims   bool // some of it is a claim's
	room     room
}

// newBatch begins a batch over the newest commit.
func (s *Store) newBatch(tx *bbolt.Tx) *batch {
	tx.Bucket(bucketPayloads).FillPercent = payloadFill
	return &batch{
		store: s, tx: tx, at: s.moment(), meta: s.durable.Load().meta, progress: s.progress,
		records: map[string]struct{}{},
	}
}

// add carries out a request in the transaction. The error is the transaction's;
// that of the request stays with it.
func (b *batch) add(r *request) error {
	var c change
	if c, r.err = r.decide(b); r.err != nil {
		return nil
	}
	var err error
	if r.err, err = b.finds(r.class, c); r.err != nil || err != nil {
		return err
	}
	b.claims = b.claims || r.class == storage.ClassClaim && len(c.edits) > 0
	return b.apply(c)
}

// finds reports why a change finds no room. The error is the transaction's.
func (b *batch) finds(class storage.Class, c change) (scarce, err error) {
	switch {
	case len(c.edits) == 0:
		return nil, nil
	case class == storage.ClassClaim:
		return b.room.claims(), nil
	case class == storage.ClassSettlement:
		return b.room.settlement(c.bytes(), b.bytes)
	default:
		return nil, nil
	}
}

// bytes returns how many bytes of keys and values a change writes.
func (c change) bytes() (n int) {
	for _, e := range c.edits {
		if e.value != nil {
			n += len(e.key) + len(e.value)
		}
	}
	return n
}

// apply makes a change in the transaction.
func (b *batch) apply(c change) error {
	for _, e := range c.edits {
		bucket := b.tx.Bucket(e.bucket)
		var err error
		if e.value == nil {
			err = bucket.Delete(e.key)
		} else {
			err = bucket.Put(e.key, e.value)
		}
		if err != nil {
			return err
		}
		if string(e.bucket) == string(bucketRecords) {
			b.records[string(e.key)] = struct{}{}
		}
		b.edits++
	}
	b.bytes += c.bytes()
	b.progress.Fence = max(b.progress.Fence, c.fence)
	b.progress.Audit = max(b.progress.Audit, c.audit)
	if c.now.After(b.progress.Newest) {
		b.progress.Newest = c.now
	}
	if c.meta != nil {
		b.meta = *c.meta
	}
	return nil
}

// finish writes what every commit changes.
func (b *batch) finish() error {
	b.progress.Sequence++
	value, err := codec.EncodeProgress(keyProgress, b.progress)
	if err != nil {
		return err
	}
	return b.tx.Bucket(bucketMeta).Put(keyProgress, value)
}

// update is a call of Update.
type update struct {
	target   storage.Target
	key      []byte // the encoded identity
	twinKey  []byte // that of the twin entry; nil: none is named
	fn       storage.UpdateFunc
	panicked *onced.View // what fn panicked on; nil: it did not
}

// newUpdate returns a call, unless its identities do not fit the file's keys. It
// encodes them in its caller's time, and not in the committer's.
func newUpdate(t storage.Target, fn storage.UpdateFunc) (*update, error) {
	u := &update{target: t, key: t.ID.Encode(), fn: fn}
	if t.Twin != nil {
		u.twinKey = t.Twin.Encode()
	}
	if n := max(len(u.key), len(u.twinKey)); n > maxIdentity {
		return nil, fmt.Errorf("identity of %d bytes: at most %d can be stored", n, maxIdentity)
	}
	return u, nil
}

// decide runs the update function and returns what it asks for.
func (u *update) decide(b *batch) (change, error) {
	record := parseRecord(u.target.ID, u.key, b.tx.Bucket(bucketRecords).Get(u.key))
	v := b.at.view(b.meta, b.store.since, record)
	v.NextFence = b.progress.Fence + 1
	twin := storedTwin{}
	if u.target.Twin != nil {
		twin = loadTwin(b.tx, u.twinKey)
		id := *u.target.Twin
		v.TwinID, v.Twin, v.TwinUnreadable = &id, twin.entry, twin.unreadable != nil
	}
	// fn is not trusted to leave alone what it was shown: what the file holds was
	// taken from the record before.
	u.panicked = nil // in a batch before, which found no room
	plan, err := guarded(func() onced.Plan { return u.fn(v) })
	if err != nil {
		u.panicked = &v
		return change{}, fmt.Errorf("update of %v: %w", u.target.ID, err)
	}
	if !plan.Changes() {
		return change{}, nil
	}
	c := change{now: v.Now}
	if err := storage.CheckPlan(v, plan); err != nil {
		return change{}, err
	}
	if c.edits, err = u.edits(plan, record, twin); err != nil {
		return change{}, err
	}
	if plan.UsesFence {
		c.fence = v.NextFence
	}
	if plan.Audit != nil {
		c.audit = b.progress.Audit + 1
		key := auditKey(c.audit)
		value, err := codec.EncodeAudit(key, plan.Audit)
		if err != nil {
			return change{}, fmt.Errorf("audit entry of %v: %w", u.target.ID, err)
		}
		c.edits = append(c.edits, edit{bucketAudit, key, value})
	}
	return c, nil
}

// guarded calls a caller's function on the committer's goroutine. A panic in it
// must not take the other callers down.
func guarded[T any](fn func() T) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the caller's function panicked: %v", p)
		}
	}()
	return fn(), nil
}

// edits returns the changes of the record and the twin entry that a plan asks for.
func (u *update) edits(plan onced.Plan, record stored, twin storedTwin) ([]edit, error) {
	var edits []edit
	if plan.Put != nil || plan.Delete {
		changed, err := record.replace(plan.Put)
		if err != nil {
			return nil, fmt.Errorf("record of %v: %w", u.target.ID, err)
		}
		edits = append(edits, changed...)
	}
	if plan.PutTwin != nil || plan.DeleteTwin {
		changed, err := twin.replace(plan.PutTwin)
		if err != nil {
			return nil, fmt.Errorf("twin entry of %v: %w", u.target.ID, err)
		}
		edits = append(edits, changed...)
	}
	return edits, nil
}

// decideRoom is the request that asks whether claims find room. It changes nothing:
// after a commit that found none it tries one with the facts as they are.
func decideRoom(b *batch) (change, error) {
	if !b.store.full {
		return change{}, b.room.claims()
	}
	return decideMeta(func(m storage.Meta) storage.Meta { return m })(b)
}

// decideMeta returns the request that changes the facts about the store.
func decideMeta(fn func(storage.Meta) storage.Meta) func(*batch) (change, error) {
	return func(b *batch) (change, error) {
		next, err := guarded(func() storage.Meta { return cloneMeta(fn(cloneMeta(b.meta))) })
		if err != nil {
			return change{}, err
		}
		if err := storage.CheckMeta(b.meta, next); err != nil {
			return change{}, err
		}
		value, err := codec.EncodeMeta(keyMeta, next)
		if err != nil {
			return change{}, fmt.Errorf("facts about the store: %w", err)
		}
		return change{edits: []edit{{bucketMeta, keyMeta, value}}, now: b.at.now, meta: &next}, nil
	}
}
