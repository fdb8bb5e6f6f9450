package memory

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// identities returns the identities of a page of records, in encoded order. The
// cursor is the encoded identity that the page before ended with.
func (i *image) identities(prefix string, cursor storage.Cursor, limit int) (ids []onced.Identity, next storage.Cursor) {
	var keys []string
	for key := range i.Records {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	keys, next = page(keys, cursor, limit)
	for _, key := range keys {
		// Every key was made by Encode: there is nothing that ParseIdentity refuses.
		id, _ := onced.ParseIdentity([]byte(key))
		ids = append(ids, id)
	}
	return ids, next
}

// due returns a page of what is due at or before a moment, in time order. The
// cursor is the key, see dueKey, of the entry that the page before ended with.
func (i *image) due(kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) storage.DuePage {
	found := map[string]storage.Due{}
	for encoded, c := range i.Records {
		if !c.readable() {
			continue
		}
		if k, at := c.Record.Due(); k == kind && !at.After(before) {
			found[dueKey(at, encoded)] = storage.Due{At: at, ID: c.Record.ID}
		}
	}
	for encoded, c := range i.Twins {
		if kind != onced.DueTwin || c.Entry == nil {
			continue
		}
		if at, ok := c.Entry.Due(); ok && !at.After(before) {
			found[dueKey(at, encoded)] = storage.Due{At: at, Twin: clonePointer(&c.Entry.ID)}
		}
	}
	keys, next := page(slices.Collect(maps.Keys(found)), cursor, limit)
	p := storage.DuePage{Next: next}
	for _, key := range keys {
		p.Due = append(p.Due, found[key])
	}
	return p
}

// dueKey orders entries by time, and those of one moment by identity.
func dueKey(at time.Time, encoded string) string {
	// The sign bit is turned, so that moments before 1970 sort first.
	b := binary.BigEndian.AppendUint64(nil, uint64(at.Unix())^(1<<63))
	b = binary.BigEndian.AppendUint32(b, uint32(at.Nanosecond()))
	return string(b) + encoded
}

// page sorts keys and returns at most limit of those after the cursor, and the
// cursor of the next page, if there is one.
func page(keys []string, cursor storage.Cursor, limit int) (on []string, next storage.Cursor) {
	slices.Sort(keys)
	if cursor != nil {
		from, _ := slices.BinarySearch(keys, string(cursor)+"\x00") // the least string after it
		keys = keys[from:]
	}
	if len(keys) > limit {
		keys = keys[:limit]
		next = storage.Cursor(keys[limit-1])
	}
	return keys, next
}

// audit returns a page of the audit trail. The cursor is the number of entries
// on the pages before.
func (i *image) audit(cursor storage.Cursor, limit int) (storage.AuditPage, error) {
	var from uint64
	if cursor != nil {
		if len(cursor) != 8 {
			return storage.AuditPage{}, errors.New("memory: the cursor is not one of an audit scan")
		}
		from = min(binary.BigEndian.Uint64(cursor), uint64(len(i.Audit)))
	}
	rest := i.Audit[from:]
	n := min(len(rest), limit)
	p := storage.AuditPage{Entries: slices.Clone(rest[:n])}
	if n < len(rest) {
		p.Next = binary.BigEndian.AppendUint64(nil, from+uint64(n))
	}
	return p, nil
}
