package onced

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxAttempts is how many claims of one operation are granted between two
// releases by an operator.
const MaxAttempts = 16

// Record is everything that the store remembers of one operation. A zero time
// means "not set". Transitions copy a record before they change it.
type Record struct {
	ID     Identity
	State  State
	Reason Reason // why UNRESOLVED; never [ReasonLapsed], which is computed

	Attempt     uint32 // counts claims, from 1
	AttemptBase uint32 // Attempt at the last release by an operator
	Fence       uint64 // of the newest claim
	Generation  uint64 // of the last write; a sweep does not change it
	Revision    uint64 // counts writes; part of the etag

	Lease    time.Duration
	LeaseEnd time.Time
	Attempts []Attempt // those that had a token, oldest first

	Heard        bool // a report of the present holder was accepted; a refused one writes nothing
	ByTakeover   bool // the newest claim is a takeover
	Doubt        bool // an earlier attempt's outcome is not known
	Contradicted bool // a former holder reported an effect; implies Doubt
	ByOperator   bool // RELEASED by an operator

	// DoubtTime is the moment from which a takeover of an UNRESOLVED operation
	// is timed: the declaring Fail, the contradiction, or the creation of a
	// HISTORY_LOST record.
	DoubtTime time.Time

	Subject      string
	Holder       string // label of the newest claim, for people
	Fingerprints []Fingerprint
	KeyTime      time.Time
	Labels       map[string]string

	FirstClaimTime time.Time // of the first grant
	ClaimTime      time.Time // of the newest claim
	ReleaseTime    time.Time
	SettleTime     time.Time
	UpdateTime     time.Time // of the last write
	SettledBy      SettledBy

	Result        *Result  // COMPLETED
	Failure       *Failure // FAILED
	SettledDigest Digest   // identity of the result or failure, kept after its bytes are gone
	Checkpoint    *Checkpoint

	ResultExpire time.Time // stamped at settlement
	KeyExpire    time.Time // stamped at settlement and release

	Twin        *TwinID // the twin entry that this operation stands in
	LastResolve *LastResolve
}

// AttemptsLeft returns how many more claims are granted, or may take over, until an
// operator releases the operation.
func (r *Record) AttemptsLeft() uint32 {
	return MaxAttempts - min(r.Attempt-r.AttemptBase, MaxAttempts)
}

// Attempt is one claim of an operation that presented a token.
type Attempt struct {
	Number    uint32
	Token     Digest
	Fence     uint64
	Holder    string
	ClaimTime time.Time
	Reports   ReportSet // accepted reports that carry no content
	Facts     []Fact    // accepted reports that do
}

// ReportSet is the set of an attempt's accepted dispositions other than FINAL.
type ReportSet uint8

// Has reports whether d is in the set.
func (s ReportSet) Has(d Disposition) bool { return s&(1<<d) != 0 }

// With returns the set with d added.
func (s ReportSet) With(d Disposition) ReportSet { return s | 1<<d }

// Fact is an accepted report of an outcome: a Complete, or a Fail FINAL.
type Fact struct {
	Failed bool // FINAL rather than Complete
	Digest Digest
}

// Presence says whether the bytes of a payload are there.
type Presence uint8

// The presences.
const (
	Stored  Presence = iota + 1
	Omitted          // never stored: larger than the limit, or omitted by the holder
	Dropped          // no longer stored: result retention has ended, or an operator erased them
)

var presenceNames = [...]string{"", "STORED", "OMITTED", "DROPPED"}

// String returns the presence's name.
func (p Presence) String() string { return enumName(presenceNames[:], int(p)) }

// Result is a payload together with what is remembered of it after its bytes
// are gone. Empty bytes are a legitimate result; Presence, never the length,
// says whether the bytes are there.
type Result struct {
	ContentType string
	Text        bool // the bytes are UTF-8 text and are shown as such
	Presence    Presence
	Size        uint64
	SHA256      Digest
	Bytes       []byte
}

// NewResult returns a stored result over b, which it keeps.
func NewResult(contentType string, text bool, b []byte) *Result {
	return &Result{
		ContentType: contentType, Text: text, Presence: Stored,
		Size: uint64(len(b)), SHA256: sha256.Sum256(b), Bytes: b,
	}
}

// Payloads returns the payloads that a record has: its result, the details of its
// failure, its checkpoint. They are the record's own.
func (r *Record) Payloads() []*Result {
	var list []*Result
	if r.Result != nil {
		list = append(list, r.Result)
	}
	if r.Failure != nil && r.Failure.Details != nil {
		list = append(list, r.Failure.Details)
	}
	if r.Checkpoint != nil {
		list = append(list, &r.Checkpoint.Payload)
	}
	return list
}

// Identity is the digest by which a repeated report is recognised: content type,
// size and SHA-256 of the bytes, however they travelled.
func (r *Result) Identity() Digest {
	b := appendPart(nil, "onced result 1")
	b = appendPart(b, r.ContentType)
	b = binary.BigEndian.AppendUint64(b, r.Size)
	return sha256.Sum256(append(b, r.SHA256[:]...))
}

// without returns the result with its bytes gone and the given presence. What
// was omitted from the start stays omitted.
func (r *Result) without(p Presence) *Result {
	if r == nil || r.Presence != Stored {
		return r
	}
	c := *r
	c.Presence, c.Bytes = p, nil
	return &c
}

// Failure is the outcome of an operation that failed for good.
type Failure struct {
	Code    string
	Message string
	Details *Result // nil: none
	Erased  bool    // the message was erased by an operator
}

// Identity is the digest by which a repeated FINAL report is recognised.
func (f *Failure) Identity() Digest {
	b := appendPart(nil, "onced failure 1")
	b = appendPart(appendPart(b, f.Code), f.Message)
	if f.Details != nil {
		d := f.Details.Identity()
		b = append(b, d[:]...)
	}
	return sha256.Sum256(b)
}

// Checkpoint is progress that a holder left for the next one.
type Checkpoint struct {
	Attempt uint32 // that wrote it
	Seq     uint64 // orders the checkpoints of one attempt
	Payload Result
}

// LastResolve recognises a repeated Resolve.
type LastResolve struct {
	Resolution Resolution
	Content    Digest // of the result or failure; zero without one
	Evidence   string
}

// Etag names this version of the record in a store of the given generation. It is
// opaque; only equality counts. A restore changes it, though not the record: what
// was decided on before is to be looked at again.
func (r *Record) Etag(generation uint64) string {
	return fmt.Sprintf("%x-%x-%x", generation, r.Fence, r.Revision)
}

// clone returns a copy that shares no memory which a transition may change.
func (r *Record) clone() *Record {
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	c.Labels = maps.Clone(r.Labels)
	return &c
}

// DueKind says which time-ordered index a record stands in.
type DueKind uint8

// The kinds of due times.
const (
	DueUnsettled DueKind = iota + 1 // unsettled work, by lease end or moment of doubt
	DueExpiry                       // something expires: result bytes, or the key
	DueTwin                         // a twin entry that can be dropped
)

// Due returns the index entry of the record: unsettled work by the end of its
// lease or the moment of doubt, everything else by the stamp of its next expiry.
func (r *Record) Due() (DueKind, time.Time) {
	switch {
	case r.State == StatePending:
		return DueUnsettled, r.LeaseEnd
	case r.State == StateUnresolved:
		return DueUnsettled, r.DoubtTime
	case r.holdsBytes():
		return DueExpiry, r.ResultExpire
	default:
		return DueExpiry, r.KeyExpire
	}
}

// holdsBytes reports whether result retention has something to drop.
func (r *Record) holdsBytes() bool {
	return r.Result != nil && r.Result.Presence == Stored ||
		r.Failure != nil && r.Failure.Details != nil && r.Failure.Details.Presence == Stored
}
