package bolt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage/bolt/codec"
)

// Check looks for everything that can be wrong with the store in a folder, and
// returns a sentence for each kind of thing that it found; none means that the
// store is sound. It reads all of it and writes nothing. The error says why there
// was nothing to check: no store, no access, or a process that holds it.
func Check(dir string) ([]string, error) {
	var a audit
	err := visit(dir, time.Second, true, func(tx *bbolt.Tx, f facts) error {
		a.tx, a.facts = tx, f
		for err := range tx.Check() {
			a.find("pages that do not fit together", "%v", err)
		}
		a.records()
		a.payloads()
		a.twins()
		a.due()
		a.trail()
		return nil
	})
	var u unsound
	if errors.As(err, &u) {
		return []string{u.Error()}, nil
	}
	return a.sentences(), err
}

// audit is a check under way.
type audit struct {
	tx    *bbolt.Tx
	facts facts
	found []finding
}

// finding is a kind of thing that is wrong.
type finding struct {
	kind  string
	first string
	count int
}

func (a *audit) find(kind, format string, args ...any) {
	for i := range a.found {
		if a.found[i].kind == kind {
			a.found[i].count++
			return
		}
	}
	a.found = append(a.found, finding{kind: kind, first: fmt.Sprintf(format, args...), count: 1})
}

func (a *audit) sentences() (out []string) {
	for _, f := range a.found {
		out = append(out, fmt.Sprintf("%s: %d; the first: %s", f.kind, f.count, f.first))
	}
	return out
}

// each visits all entries of a bucket.
func (a *audit) each(bucket []byte, visit func(k, v []byte)) {
	c := a.tx.Bucket(bucket).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		visit(k, v)
	}
}

func (a *audit) records() {
	a.each(bucketRecords, func(k, v []byte) {
		id, err := onced.ParseIdentity(k)
		if err != nil {
			a.find("records under a damaged key", "%x: %v", k, err)
			return
		}
		s := parseRecord(id, k, v)
		if s.unreadable != nil {
			a.find("records that this build cannot read", "%v: %v", id, s.unreadable)
			return
		}
		a.indexed(s.due, "%v", id)
		if s.record.Fence > a.facts.progress.Fence {
			a.find("records with a fence that was never given", "%v", id)
		}
		a.digests(s)
	})
}

// digests holds the bytes of a record's payloads against their digests.
func (a *audit) digests(s stored) {
	for _, p := range s.record.Payloads() {
		if p.Presence != onced.Stored {
			continue
		}
		switch b, err := s.payload(a.tx, p.SHA256); {
		case err != nil:
			a.find("payloads that this build cannot read", "%v: %v", s.id, err)
		case sha256.Sum256(b) != p.SHA256:
			a.find("payloads that do not match their digest", "%v", s.id)
		}
	}
}

// indexed looks for an index entry.
func (a *audit) indexed(due []byte, format string, args ...any) {
	if due != nil && a.tx.Bucket(bucketDue).Get(due) == nil {
		a.find("entries that are missing in the time-ordered index", format, args...)
	}
}

func (a *audit) payloads() {
	var s stored // the owner of the piece before
	a.each(bucketPayloads, func(k, _ []byte) {
		p, identity, number, err := parsePieceKey(k)
		if err == nil && (s.key == nil || !bytes.Equal(identity, s.key)) {
			s = a.owner(bytes.Clone(identity))
		}
		known := err == nil && p >= codec.PartResult && p <= codec.Parts
		if s.unreadable == nil && (!known || s.apart.Of(p) == nil || number >= pieces(s.apart.Of(p).Size)) {
			a.find("payloads that belong to no record", "%x", k)
		}
	})
}

// owner loads the record that something stored elsewhere belongs to.
func (a *audit) owner(key []byte) stored {
	id, err := onced.ParseIdentity(key)
	if err != nil {
		return stored{}
	}
	return loadRecord(a.tx, id)
}

func (a *audit) twins() {
	a.each(bucketTwins, func(k, _ []byte) {
		t := loadTwin(a.tx, k)
		if t.unreadable != nil {
			a.find("twin entries that this build cannot read", "%x: %v", k, t.unreadable)
			return
		}
		a.indexed(t.due, "twin entry of method %q in namespace %q", t.entry.ID.Method, t.entry.ID.Namespace)
	})
}

func (a *audit) due() {
	a.each(bucketDue, func(k, _ []byte) {
		kind, _, identity, err := parseDueKey(k)
		if err != nil {
			a.find("damaged entries of the time-ordered index", "%x: %v", k, err)
			return
		}
		var due []byte
		var unreadable error
		if kind == onced.DueTwin {
			t := loadTwin(a.tx, identity)
			due, unreadable = t.due, t.unreadable
		} else {
			s := a.owner(identity)
			due, unreadable = s.due, s.unreadable
		}
		if unreadable == nil && !bytes.Equal(due, k) {
			a.find("entries of the time-ordered index that nothing stands behind", "%x", k)
		}
	})
}

func (a *audit) trail() {
	a.each(bucketAudit, func(k, v []byte) {
		if _, err := codec.DecodeAudit(k, v); err != nil {
			a.find("audit entries that cannot be read", "%x: %v", k, err)
		}
	})
}
