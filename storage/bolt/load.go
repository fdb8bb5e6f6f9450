package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// edit is one change of the file: the value to stand under a key, or with a nil
// value none. bbolt keeps the slices until the commit: nothing else may hold them.
type edit struct{ bucket, key, value []byte }

// stored is an operation's record as it stands in the file.
type stored struct {
	id         onced.Identity
	key        []byte         // the encoded identity
	record     *onced.Record  // nil: absent or unreadable
	unreadable error          // why this build cannot read it; nil: it can
	apart      codec.Payloads // its payloads that are stored apart
	due        []byte         // key of its index entry; nil: none
}

// loadRecord reads the record of an operation. What it returns shares no memory
// with the file.
func loadRecord(tx *bbolt.Tx, id onced.Identity) stored {
	key := id.Encode()
	return parseRecord(id, key, tx.Bucket(bucketRecords).Get(key))
}

// payload reads the bytes of a payload of the record.
func (s stored) payload(tx *bbolt.Tx, digest onced.Digest) ([]byte, error) {
	if s.unreadable != nil {
		return nil, fmt.Errorf("%w: the record of %v: %w", storage.ErrDamaged, s.id, s.unreadable)
	}
	for p := codec.PartResult; p <= codec.Parts; p++ {
		if of := s.apart.Of(p); of != nil && of.SHA256 == digest {
			return s.loadApart(tx, p)
		}
	}
	if s.record != nil {
		for _, p := range s.record.Payloads() {
			if p.Presence == onced.Stored && p.SHA256 == digest {
				return p.Bytes, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %v", storage.ErrNoPayload, s.id)
}

// loadApart reads the bytes of a payload that stands apart.
func (s stored) loadApart(tx *bbolt.Tx, p codec.Part) ([]byte, error) {
	size := s.apart.Of(p).Size
	content := make([]byte, 0, min(size, onced.GreatestResult))
	c := tx.Bucket(bucketPayloads).Cursor()
	at := pieceKey(p, s.key, 0)
	k, v := c.Seek(at)
	for number := range pieces(size) {
		at = binary.BigEndian.AppendUint32(at[:len(at)-4], uint32(number))
		if !bytes.Equal(k, at) {
			return nil, fmt.Errorf("%w: piece %d of a payload of %v is gone", storage.ErrDamaged, number, s.id)
		}
		piece, err := codec.Unseal(k, v)
		if err != nil {
			return nil, fmt.Errorf("%w: piece %d of a payload of %v: %w", storage.ErrDamaged, number, s.id, err)
		}
		content = append(content, piece...)
		k, v = c.Next()
	}
	if uint64(len(content)) != size {
		return nil, fmt.Errorf("%w: a payload of %v has %d bytes and should have %d", storage.ErrDamaged, s.id, len(content), size)
	}
	return content, nil
}

// parseRecord reads a record from its value, which is nil if there is none.
func parseRecord(id onced.Identity, key, value []byte) stored {
	s := stored{id: id, key: key}
	if value == nil {
		return s
	}
	s.record, s.apart, s.unreadable = codec.DecodeRecord(id, key, value)
	s.due = recordDue(key, s.record)
	return s
}

// recordDue is the key of a record's index entry; nil for no record.
func recordDue(key []byte, r *onced.Record) []byte {
	if r == nil {
		return nil
	}
	kind, at := r.Due()
	return dueKey(kind, at, key)
}

// replace returns the edits that put another record, or none, in the place of
// this one.
func (s stored) replace(next *onced.Record) ([]edit, error) {
	var value []byte
	var apart codec.Payloads
	if next != nil {
		var err error
		if value, apart, err = codec.EncodeRecord(s.key, next); err != nil {
			return nil, err
		}
	}
	edits := []edit{{bucketRecords, s.key, value}}
	edits = append(edits, moveDue(s.due, recordDue(s.key, next))...)
	for p := codec.PartResult; p <= codec.Parts; p++ {
		changed, err := s.replacePayload(p, apart.Of(p))
		if err != nil {
			return nil, err
		}
		edits = append(edits, changed...)
	}
	return edits, nil
}

// replacePayload returns the edits that change a payload which is stored apart. One
// that stays the same is not written again.
func (s stored) replacePayload(p codec.Part, next *onced.Result) ([]edit, error) {
	old := s.apart.Of(p)
	if old != nil && next != nil && next.Size == old.Size && next.SHA256 == old.SHA256 {
		return nil, nil
	}
	var before, after int // pieces
	if old != nil {
		before = pieces(old.Size)
	}
	if next != nil {
		if after = pieces(next.Size); next.Bytes == nil {
			return nil, fmt.Errorf("a payload of %d bytes is put without them in another place than it stands in", next.Size)
		}
	}
	edits := make([]edit, 0, max(before, after))
	for number := range max(before, after) {
		e := edit{bucket: bucketPayloads, key: pieceKey(p, s.key, number)}
		if number < after {
			from := number * pieceSize
			e.value = codec.Seal(e.key, next.Bytes[from:min(from+pieceSize, len(next.Bytes))])
		}
		edits = append(edits, e)
	}
	return edits, nil
}

// moveDue returns the edits that change an index entry; nil is none.
func moveDue(from, to []byte) (edits []edit) {
	if bytes.Equal(from, to) {
		return nil
	}
	if from != nil {
		edits = append(edits, edit{bucketDue, from, nil})
	}
	if to != nil {
		edits = append(edits, edit{bucketDue, to, codec.Seal(to, nil)})
	}
	return edits
}

// storedTwin is a twin entry as it stands in the file.
type storedTwin struct {
	key        []byte
	entry      *onced.TwinEntry // nil: absent or unreadable
	unreadable error
	due        []byte // key of its index entry; nil: none
}

// loadTwin reads a twin entry.
func loadTwin(tx *bbolt.Tx, key []byte) storedTwin {
	t := storedTwin{key: key}
	value := tx.Bucket(bucketTwins).Get(key)
	if value == nil {
		return t
	}
	t.entry, t.unreadable = codec.DecodeTwin(key, value)
	if t.unreadable != nil {
		t.entry = nil
	}
	t.due = twinDue(key, t.entry)
	return t
}

// twinDue is the key of a twin entry's index entry; nil while it must stay, and
// for no entry.
func twinDue(key []byte, t *onced.TwinEntry) []byte {
	if t == nil {
		return nil
	}
	at, ok := t.Due()
	if !ok {
		return nil
	}
	return dueKey(onced.DueTwin, at, key)
}

// replace returns the edits that put another twin entry, or none, in the place of
// this one.
func (t storedTwin) replace(next *onced.TwinEntry) ([]edit, error) {
	var value []byte
	if next != nil {
		var err error
		if value, err = codec.EncodeTwin(t.key, next); err != nil {
			return nil, err
		}
	}
	return append([]edit{{bucketTwins, t.key, value}}, moveDue(t.due, twinDue(t.key, next))...), nil
}
