package bolt

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// pageBytes bounds the values of one page of a scan; a page goes over it by one.
const pageBytes = 4 << 20

// span is a range of keys: from low on, and below high, which is nil for no end.
type span struct{ low, high []byte }

// withPrefix is the span of the keys that begin with prefix.
func withPrefix(prefix []byte) span {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			high := bytes.Clone(prefix[:i+1])
			high[i]++
			return span{prefix, high}
		}
	}
	return span{low: prefix}
}

// scan visits the entries of a bucket in a span, in order, after the cursor, until
// a visit says that the page is full. It returns the key of the last entry that a
// visit took, if there are more; nil at the end.
func scan(tx *bbolt.Tx, bucket []byte, in span, cursor storage.Cursor, visit func(k, v []byte) (took, full bool)) storage.Cursor {
	at := in.low
	if cursor != nil {
		if next := append(bytes.Clone(cursor), 0); bytes.Compare(next, at) > 0 {
			at = next // the least key after the cursor
		}
	}
	var last []byte
	took, full := false, false
	c := tx.Bucket(bucket).Cursor()
	for k, v := c.Seek(at); k != nil && (in.high == nil || bytes.Compare(k, in.high) < 0); k, v = c.Next() {
		if full {
			return last
		}
		if took, full = visit(k, v); took {
			last = bytes.Clone(k)
		}
	}
	return nil
}

// ScanIdentity implements [storage.Store]. A page also ends when its records take
// more than 4 MiB. Entries whose key is damaged are left out; [Check] reports
// them.
func (s *Store) ScanIdentity(ctx context.Context, prefix []byte, cursor storage.Cursor, limit int) (storage.Page, error) {
	var at moment
	var records []stored
	next, facts, err := read(ctx, s, func(tx *bbolt.Tx) (storage.Cursor, error) {
		at = s.moment()
		size := 0
		return scan(tx, bucketRecords, withPrefix(prefix), cursor, func(k, v []byte) (took, full bool) {
			id, err := onced.ParseIdentity(k)
			if err != nil {
				return false, false
			}
			records = append(records, parseRecord(id, bytes.Clone(k), v))
			size += len(v)
			return true, len(records) >= limit || size > pageBytes
		}), nil
	})
	if err != nil {
		return storage.Page{}, err
	}
	page := storage.Page{Next: next}
	for _, r := range records {
		page.Views = append(page.Views, at.view(facts, s.since, r))
	}
	return page, nil
}

// ScanDue implements [storage.Store]. Twin entries that this build cannot read
// are left out.
func (s *Store) ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) (storage.DuePage, error) {
	page, _, err := read(ctx, s, func(tx *bbolt.Tx) (p storage.DuePage, err error) {
		due := span{[]byte{byte(kind)}, duePrefix(kind, before.Add(1))} // a nanosecond on
		p.Next = scan(tx, bucketDue, due, cursor, func(k, _ []byte) (took, full bool) {
			d, ok := loadDue(tx, k)
			if ok {
				p.Due = append(p.Due, d)
			}
			return ok, len(p.Due) >= limit
		})
		return p, nil
	})
	return page, err
}

// loadDue reads an index entry.
func loadDue(tx *bbolt.Tx, key []byte) (d storage.Due, ok bool) {
	kind, at, identity, err := parseDueKey(key)
	if err != nil {
		return storage.Due{}, false
	}
	d.At = at
	if kind == onced.DueTwin {
		t := loadTwin(tx, identity)
		if t.entry == nil {
			return storage.Due{}, false
		}
		d.Twin = &t.entry.ID
		return d, true
	}
	d.ID, err = onced.ParseIdentity(identity)
	return d, err == nil
}

// ScanAudit implements [storage.Store].
func (s *Store) ScanAudit(ctx context.Context, cursor storage.Cursor, limit int) (storage.AuditPage, error) {
	page, _, err := read(ctx, s, func(tx *bbolt.Tx) (p storage.AuditPage, err error) {
		p.Next = scan(tx, bucketAudit, span{}, cursor, func(k, v []byte) (took, full bool) {
			entry, damage := codec.DecodeAudit(k, v)
			if damage != nil {
				err = fmt.Errorf("audit entry %x: %w", k, damage)
				return false, true
			}
			p.Entries = append(p.Entries, entry)
			return true, len(p.Entries) >= limit
		})
		return p, err
	})
	return page, err
}
