package bolt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// Progress is told how far a long work over a store has come: what is being done,
// and how many entries of how many have been. It is called from the goroutine that
// works, every thousand entries. Nil is allowed.
type Progress func(step string, done, total uint64)

// tellEvery is how many entries lie between two calls of a Progress.
const tellEvery = 1000

// offlineTimeout is how long Check and Compact wait for a store's lock.
const offlineTimeout = time.Second

// Check looks for everything that can be wrong with the store in a folder, and
// returns a sentence for each kind of thing that it found, which says what to do;
// none means that the store is sound. It reads all of it and writes nothing. The
// error says why there was nothing to check: no store, no access, or a process that
// holds it.
func Check(dir string, tell Progress) ([]string, error) {
	if tell == nil {
		tell = func(string, uint64, uint64) {}
	}
	w, err := examine(dir, examination{timeout: offlineTimeout, deepUpTo: math.MaxInt64})
	var u unsound
	if errors.As(err, &u) {
		return []string{u.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := w.audit(context.Background(), tell)
	if w.pages.Lost > 0 {
		found = append(found, fmt.Sprintf("pages that are neither in use nor free: %d; they only cost room, which `onced compact` gives back", w.pages.Lost))
	}
	return found, errors.Join(err, w.close())
}

// audit looks at all that the pages of a store hold, and returns a sentence for
// each kind of thing that it finds. The error is that of ctx.
func (w *whole) audit(ctx context.Context, tell Progress) ([]string, error) {
	a := audit{ctx: ctx, total: w.pages.Entries, tell: tell}
	err := warily(w.path, func() error {
		return w.db.View(func(tx *bbolt.Tx) (err error) {
			a.tx, a.index = tx, tx.Bucket(bucketDue)
			if a.facts, err = readFacts(tx); err != nil {
				return err
			}
			a.records()
			a.payloads()
			a.twins()
			a.due()
			a.trail()
			return nil
		})
	})
	found := a.sentences()
	if err != nil {
		found = append(found, err.Error())
	}
	return found, ctx.Err()
}

// audit is a check under way.
type audit struct {
	ctx   context.Context
	tx    *bbolt.Tx
	facts facts
	found []finding

	index   *bbolt.Bucket // the time-ordered one
	inIndex int           // records and twin entries that were found in it
	pieces  int           // of payloads that belong to a record

	done, total uint64
	tell        Progress
}

// kind is a kind of thing that is wrong, and what to do about it.
type kind struct{ what, remedy string }

const (
	restore = "put back the newest intact copy of the folder"
	upgrade = "use the build that wrote them, or a later one"
	report  = "no disk does that, it is a fault of onced: report it, and go on from the newest sound copy of the folder"
	useless = "they only cost room, and it is a fault of onced: report it"
)

// The kinds of things that can be wrong inside a file whose pages are in order.
var (
	badKeys         = kind{"records under a damaged key", restore}
	damagedRecords  = kind{"records that are damaged", restore}
	unknownRecords  = kind{"records that this build cannot read", upgrade}
	wrongFences     = kind{"records with a fence that was never given", report}
	damagedPayloads = kind{"payloads that are damaged", restore}
	lostPayloads    = kind{"payloads that are missing", report}
	otherPayloads   = kind{"payloads that do not match their digest", report}
	loosePayloads   = kind{"payloads that belong to no record", useless}
	damagedTwins    = kind{"twin entries that are damaged", restore}
	unknownTwins    = kind{"twin entries that this build cannot read", upgrade}
	damagedDue      = kind{"entries of the time-ordered index that are damaged", restore}
	missingDue      = kind{"entries that are missing in the time-ordered index", report}
	looseDue        = kind{"entries of the time-ordered index that nothing stands behind", useless}
	damagedAudits   = kind{"audit entries that are damaged", restore}
	unknownAudits   = kind{"audit entries that this build cannot read", upgrade}
)

// finding is a kind of thing that was found.
type finding struct {
	kind  kind
	first string
	count int
}

func (a *audit) find(k kind, format string, args ...any) {
	for i := range a.found {
		if a.found[i].kind == k {
			a.found[i].count++
			return
		}
	}
	a.found = append(a.found, finding{kind: k, first: fmt.Sprintf(format, args...), count: 1})
}

func (a *audit) sentences() (out []string) {
	for _, f := range a.found {
		out = append(out, fmt.Sprintf("%s: %d; the first: %s; %s", f.kind.what, f.count, f.first, f.kind.remedy))
	}
	return out
}

// each visits the entries of a bucket whose seal is intact.
func (a *audit) each(bucket []byte, damaged kind, visit func(k, v []byte)) {
	c := a.tx.Bucket(bucket).Cursor()
	for k, v := c.First(); k != nil && a.ctx.Err() == nil; k, v = c.Next() {
		if err := sealed(bucket, k, v); err != nil {
			a.find(damaged, "%v", err)
		} else {
			visit(k, v)
		}
		if a.done++; a.done%tellEvery == 0 {
			a.tell("checking", a.done, a.total)
		}
	}
}

func (a *audit) records() {
	a.each(bucketRecords, damagedRecords, func(k, v []byte) {
		id, err := onced.ParseIdentity(k)
		if err != nil {
			a.find(badKeys, "%x: %v", k, err)
			return
		}
		s := parseRecord(id, k, v)
		if s.unreadable != nil {
			a.find(unknownRecords, "%v: %v", id, s.unreadable)
			return
		}
		a.indexed(s.due, "%v", id)
		if s.record.Fence > a.facts.progress.Fence {
			a.find(wrongFences, "%v", id)
		}
		a.digests(s)
	})
}

// digests holds the bytes of a record's payloads against their digests.
func (a *audit) digests(s stored) {
	for _, p := range s.record.Payloads() {
		if p.Presence == onced.Stored && !storage.Large(p) && sha256.Sum256(p.Bytes) != p.SHA256 {
			a.find(otherPayloads, "%v", s.id)
		}
	}
	for p := codec.PartResult; p <= codec.Parts; p++ {
		if of := s.apart.Of(p); of != nil {
			a.apart(s, p, of)
		}
	}
}

// apart looks for the pieces of a payload that stands apart.
func (a *audit) apart(s stored, p codec.Part, of *onced.Result) {
	sum := sha256.New()
	for number := range pieces(of.Size) {
		at := pieceKey(p, s.key, number)
		value := a.tx.Bucket(bucketPayloads).Get(at)
		if value == nil {
			a.find(lostPayloads, "%v: piece %d", s.id, number)
			return
		}
		content, err := codec.Unseal(at, value)
		if err != nil {
			return // it is found where it stands
		}
		sum.Write(content)
		a.pieces++
	}
	if onced.Digest(sum.Sum(nil)) != of.SHA256 {
		a.find(otherPayloads, "%v", s.id)
	}
}

// indexed looks for an index entry.
func (a *audit) indexed(due []byte, format string, args ...any) {
	if due == nil {
		return
	}
	switch value := a.index.Get(due); {
	case value == nil:
		a.find(missingDue, format, args...)
	case sealed(bucketDue, due, value) == nil: // a broken seal is found where it stands
		a.inIndex++
	}
}

// payloads checks the pieces of payloads. Each record has looked for its own before:
// only if there are more is it looked for what belongs to none.
func (a *audit) payloads() {
	entries := 0
	a.each(bucketPayloads, damagedPayloads, func([]byte, []byte) { entries++ })
	if entries <= a.pieces {
		return
	}
	var s stored // the owner of the piece before
	a.search(bucketPayloads, loosePayloads, func(k []byte) bool {
		p, identity, number, err := parsePieceKey(k)
		if err == nil && (s.key == nil || !bytes.Equal(identity, s.key)) {
			s = a.owner(bytes.Clone(identity))
		}
		known := err == nil && p >= codec.PartResult && p <= codec.Parts
		return s.unreadable == nil && (!known || s.apart.Of(p) == nil || number >= pieces(s.apart.Of(p).Size))
	})
}

// search finds the entries of a bucket whose seal is intact and that are loose.
func (a *audit) search(bucket []byte, k kind, loose func(key []byte) bool) {
	c := a.tx.Bucket(bucket).Cursor()
	for key, value := c.First(); key != nil && a.ctx.Err() == nil; key, value = c.Next() {
		if sealed(bucket, key, value) == nil && loose(key) {
			a.find(k, "%s", entryName(bucket, key))
		}
	}
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
	a.each(bucketTwins, damagedTwins, func(k, _ []byte) {
		t := loadTwin(a.tx, k)
		if t.unreadable != nil {
			a.find(unknownTwins, "%x: %v", k, t.unreadable)
			return
		}
		a.indexed(t.due, "twin entry of method %q in namespace %q", t.entry.ID.Method, t.entry.ID.Namespace)
	})
}

// due checks the time-ordered index. Each record and twin entry was looked up in it
// before: only if it holds more than those is it looked for what nothing stands behind.
func (a *audit) due() {
	entries := 0
	a.each(bucketDue, damagedDue, func(k, _ []byte) {
		if _, _, _, err := parseDueKey(k); err != nil {
			a.find(damagedDue, "%x: %v", k, err)
			return
		}
		entries++
	})
	if entries > a.inIndex {
		a.search(bucketDue, looseDue, a.loose)
	}
}

// loose reports whether nothing stands behind an entry of the index.
func (a *audit) loose(key []byte) bool {
	kind, _, identity, err := parseDueKey(key)
	if err != nil {
		return false
	}
	if kind == onced.DueTwin {
		t := loadTwin(a.tx, identity)
		return t.unreadable == nil && !bytes.Equal(t.due, key)
	}
	s := a.owner(identity)
	return s.unreadable == nil && !bytes.Equal(s.due, key)
}

func (a *audit) trail() {
	a.each(bucketAudit, damagedAudits, func(k, v []byte) {
		if _, err := codec.DecodeAudit(k, v); err != nil {
			a.find(unknownAudits, "%x: %v", k, err)
		}
	})
}
