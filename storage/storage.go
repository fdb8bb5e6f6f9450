// Package storage is the contract between the server and the engines that keep
// its records: a durable map with an atomic update of one record and one twin
// entry by a pure function, reads that see only durable state, a time-ordered
// scan, and a few facts about the store itself.
//
// The state machine runs inside the update function. A backend knows nothing of
// claims: it loads, runs, writes and syncs.
//
// Every "must" below is a test in package storagetest, which each backend passes.
package storage

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/onced/onced"
)

// Errors of a store. Backends wrap them with what happened; callers use
// [errors.Is]. A domain refusal is never an error of the store.
var (
	// ErrFull: there is no room for an update of this class. Nothing was written,
	// and the store goes on.
	ErrFull = errors.New("storage full")
	// ErrOverloaded: as many updates of this class wait as may. Nothing was written.
	ErrOverloaded = errors.New("storage overloaded")
	// ErrFailed: a write or sync failed in a way that leaves its outcome unknown.
	// Nothing more is answered; the process must stop.
	ErrFailed = errors.New("storage failed, the outcome of the last writes is unknown")
	// ErrNoPayload: the operation has no such payload, or no longer.
	ErrNoPayload = errors.New("storage: no such payload")
	// ErrDamaged: what was asked for is there and cannot be read.
	ErrDamaged = errors.New("storage: damaged")
	// ErrClosed: the store is closing or closed. Nothing was written.
	ErrClosed = errors.New("storage closed")
)

// Target names what one update locks, loads and may change, and what it is for.
type Target struct {
	ID    onced.Identity
	Twin  *onced.TwinID // nil: no twin entry
	Class Class
}

// Class says what an update is for, which decides what it is given where queue
// and disk have not room for all. A store may treat all classes alike.
type Class uint8

// The classes.
const (
	// ClassClaim is for what may begin something. It is shed first.
	ClassClaim Class = iota
	// ClassSettlement is for what ends or prolongs what was begun: reports of
	// holders, decisions of operators, facts about the store. Room is kept for it.
	ClassSettlement
	// ClassSweep is for what reclaims space. It gives way to the others, and has the
	// room that is kept for settlements, since it makes more.
	ClassSweep

	Classes = iota // how many there are
)

// String returns the class's name as it stands in metrics.
func (c Class) String() string { return [...]string{"claim", "settlement", "sweep"}[c] }

// LargePayload is the size, in bytes, from which a payload is large. Records are
// shown without the bytes of their large payloads (nil), so that decisions, lists
// and refusals cost the same whatever was stored; [Store.Payload] reads them.
const LargePayload = 4096

// Large reports whether a record is shown without the bytes of a payload.
func Large(p *onced.Result) bool { return p.Presence == onced.Stored && p.Size >= LargePayload }

// UpdateFunc decides an update. It must be pure, and may be run more than once;
// only the plan of its last run is applied. A panic reaches the caller of
// Update, as a panic or as an error; nothing is written, and the store goes on.
type UpdateFunc func(onced.View) onced.Plan

// Store is a durable keyspace. All methods may be called concurrently.
type Store interface {
	// Update locks what the target names, runs fn on it and applies its plan
	// atomically. It must return only after the state that fn decided on, and
	// what it changed, is durable, also when the plan changes nothing: a refusal
	// must not leave before the state it was decided on cannot be lost.
	// View.Now must be read after the lock was taken, and must not be before the
	// record's UpdateTime. View.NextFence must be
	// greater than every fence that any plan of any generation has used; it is
	// used up only by a plan that says so, and gaps are allowed.
	// A large payload that a plan puts without its bytes stays as it stands.
	// A plan for what the target does not name, over what this build cannot read,
	// or that both puts and deletes is refused with an error, and nothing of it is
	// written.
	// When ctx ends before the update was taken up, nothing is written and the
	// context's error is returned; after that the update is carried through.
	// ErrFull and ErrOverloaded concern the update's class: a claim is refused with
	// them while settlements still find room. An update that changes nothing needs
	// none.
	Update(ctx context.Context, t Target, fn UpdateFunc) error

	// Get reads the record of one operation. It must see every update that
	// returned before Get was called, must never see one that is not yet durable,
	// and costs no sync. An absent record gives a view without one.
	Get(ctx context.Context, id onced.Identity) (onced.View, error)

	// Payload reads the bytes of a payload of an operation by the SHA-256 that its
	// record has of them. Like Get it sees only durable state. ErrNoPayload says that
	// the record has changed since it was read: decide again.
	Payload(ctx context.Context, id onced.Identity, digest onced.Digest) ([]byte, error)

	// ScanIdentity reads up to limit records whose encoded identity begins with
	// prefix, in encoded order, after the cursor. Like Get it sees only durable
	// state; no read transaction outlives the call. What this build cannot read
	// is shown as unreadable, and the scan goes on past it.
	ScanIdentity(ctx context.Context, prefix []byte, cursor Cursor, limit int) (Page, error)

	// ScanDue lists up to limit index entries of one kind that are due at or
	// before a moment, in time order, after the cursor; those of one moment in any
	// fixed order. The entries are hints: the
	// caller decides again inside an Update.
	ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor Cursor, limit int) (DuePage, error)

	// Meta reads the facts about the store.
	Meta(ctx context.Context) (Meta, error)

	// UpdateMeta changes the facts about the store atomically and durably.
	// A change of Generation or HistoryStart is refused with an error. It counts as
	// a settlement.
	UpdateMeta(ctx context.Context, fn func(Meta) Meta) error

	// ScanAudit reads up to limit audit entries in the order in which they were
	// made, after the cursor.
	ScanAudit(ctx context.Context, cursor Cursor, limit int) (AuditPage, error)

	// Backup writes a consistent copy of the store's durable state, what this
	// build cannot read included.
	Backup(ctx context.Context, w io.Writer) error

	// Room returns nil when claims find room, and otherwise ErrFull. It tries to make
	// room, and changes nothing that can be seen.
	Room(ctx context.Context) error

	// Failed is closed when the store has failed (ErrFailed) and the process must
	// stop. It is never closed by Close.
	Failed() <-chan struct{}

	// Close lets running updates end, syncs, and frees the store. A second call
	// does nothing.
	Close() error
}

// Cursor is where a scan goes on; nil is the beginning. It is opaque and may be
// given back to any later call of the same scan, whatever was written since. One
// that no scan gave must not show anything that the scan would not have shown.
type Cursor []byte

// Page is a bounded part of a scan by identity. Next is nil at the end, and only
// there is a page empty.
type Page struct {
	Views []onced.View
	Next  Cursor
}

// Due is an index entry: the operation, or the twin entry, that is due.
type Due struct {
	At   time.Time
	ID   onced.Identity
	Twin *onced.TwinID // for [onced.DueTwin]
}

// DuePage is a bounded part of a scan by due time. Next is nil at the end.
type DuePage struct {
	Due  []Due
	Next Cursor
}

// AuditPage is a bounded part of the audit trail. Next is nil at the end.
type AuditPage struct {
	Entries []onced.AuditEntry
	Next    Cursor
}

// Meta is what a store knows of itself, as it is persisted.
type Meta struct {
	Generation uint64
	// HistoryStart is when the store was made. A restore must keep it as it stands in
	// the backup and change Generation alone: listings tell by the two whether there
	// may be released records of an earlier generation, which count as unresolved.
	HistoryStart time.Time
	ReplacesLost bool
	// BlindUntil is the end of what a restore forgot; zero when nothing is blind.
	BlindUntil time.Time
	// Memories are the persisted memories of namespaces; "" stands for all that
	// are not configured.
	Memories map[string]onced.Memory
}

// Epoch returns the facts as transitions see them.
func (m Meta) Epoch(servingSince time.Time) onced.Epoch {
	return onced.Epoch{
		Generation: m.Generation, HistoryStart: m.HistoryStart, ReplacesLost: m.ReplacesLost,
		BlindUntil: m.BlindUntil, ServingSince: servingSince,
	}
}

// FirstFence returns the fence below all fences of a generation: the generation
// in the high bits, so that a restore's fences are above all earlier ones.
func FirstFence(generation uint64) uint64 { return generation << 32 }

// Commit is what a store that commits in groups tells of one commit.
type Commit struct {
	// Requests are those that were answered by it, by class; those that changed
	// nothing among them.
	Requests [Classes]int
	// Waited is how long the first of each class had waited to be taken up.
	Waited [Classes]time.Duration
	// Took is how long it took from the first decision until all was durable; zero
	// when nothing had to be written.
	Took time.Duration
	// Bytes are those of the keys and values that were written.
	Bytes int
}

// Stats is what a store tells of its size and its queue at a moment.
type Stats struct {
	Size   int64        // bytes on the disk, room that is kept included
	Used   int64        // bytes of these that have ever been used
	Free   int64        // bytes of those used that are free to be used again
	Queued [Classes]int // updates that wait
}
