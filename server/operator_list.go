package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// Sizes of a page of operations.
const (
	defaultPage  = 100
	greatestPage = 1000
	// greatestPageBytes bounds what the operations of a page take on the wire: with
	// the token a page has less than 4 MiB, which is what gRPC clients take unless
	// they are told to take more. One operation that is larger makes a page alone.
	greatestPageBytes = 4<<20 - 4<<10
)

// What one call may cost however little it finds; then the page ends. A last scan
// may go over.
const (
	greatestLooked = 10_000 // index entries
	greatestRead   = 1000   // records, those included that are not listed
)

// Bounds of one scan of a listing, which grows while nothing is found. A scan that
// finds more than still fits on the page is made again up to there, since only the
// store knows where a scan goes on.
const (
	leastScan    = 32
	greatestScan = 512
)

// listCall is a valid listing.
type listCall struct {
	namespace, key, method string // key and method may be empty: any
	states                 stateSet
	minAge                 time.Duration
	pageSize               int
	policy                 onced.Policy
	filters                filtersDigest
	from                   position
}

// stateSet is a set of states. The empty one of a listing stands for all.
type stateSet uint32

// unsettledStates are those of which there is an index, see [onced.State.Unsettled].
const unsettledStates = stateSet(1<<onced.StatePending | 1<<onced.StateUnresolved)

func setOf(s onced.State) stateSet { return 1 << s }

func (s stateSet) has(state onced.State) bool { return s&setOf(state) != 0 }

// ListOperations implements the RPC of this name.
func (o operators) ListOperations(ctx context.Context, req *oncedv1.ListOperationsRequest) (*oncedv1.ListOperationsResponse, error) {
	c, err := validateList(req, o.policies, o.pages)
	if err != nil {
		return nil, err
	}
	now, err := storeTime(ctx, o.store, c.namespace)
	if err != nil {
		return nil, err
	}
	l := &listing{listCall: c, store: o.store, now: now, at: c.from, stride: leastScan}
	if err := l.fill(ctx); err != nil {
		return nil, err
	}
	answer := &oncedv1.ListOperationsResponse{Operations: l.operations, AnswerTime: timeToWire(now.Now)}
	if !l.ended {
		answer.NextPageToken = o.pages.token(c.filters, l.at)
	}
	return answer, nil
}

// begin returns where the first page begins. The index of unsettled work is the
// shorter way where nothing else is asked for.
func (c *listCall) begin() position {
	if c.key == "" && c.states != 0 && c.states&^unsettledStates == 0 {
		return position{phase: phaseDue}
	}
	return position{phase: phaseIdentity}
}

// prefix returns the beginning of the identities that are listed.
func (c *listCall) prefix() []byte {
	switch {
	case c.key == "":
		return onced.NamespacePrefix(c.namespace)
	case c.method == "":
		return onced.KeyPrefix(c.namespace, c.key)
	default:
		return onced.Identity{Namespace: c.namespace, Key: c.key, Method: c.method}.Encode()
	}
}

// names reports whether an identity is one that is listed.
func (c *listCall) names(id onced.Identity) bool {
	return id.Namespace == c.namespace && (c.key == "" || id.Key == c.key) && (c.method == "" || id.Method == c.method)
}

// wants reports whether an operation, as it is shown, is one that is listed.
func (c *listCall) wants(op *onced.Operation, now time.Time) bool {
	if c.states != 0 && !c.states.has(op.State) {
		return false
	}
	return c.minAge <= 0 || now.Sub(lastClaimed(op)) >= c.minAge
}

// lastClaimed returns when the newest attempt was claimed. One that was lost with the
// store's memory was claimed by then, at the latest, when its record was written.
func lastClaimed(op *onced.Operation) time.Time {
	if op.ClaimTime.IsZero() {
		return op.UpdateTime
	}
	return op.ClaimTime
}

// listing is a page in the making.
type listing struct {
	*listCall
	store storage.Store
	now   onced.View // store time and epoch when the page was begun

	at           position // where the listing goes on
	ended        bool     // nowhere
	full         bool     // the next operation would not fit
	operations   []*oncedv1.OperationDetails
	bytes        int
	looked, read int
	stride       int // how far a scan looks at least
}

// fill fills the page.
func (l *listing) fill(ctx context.Context) error {
	for !l.ended && !l.full && len(l.operations) < l.pageSize && l.looked < greatestLooked && l.read < greatestRead {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.advance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// found is what a scan found: entries of an index, or records.
type found struct {
	ids   []onced.Identity
	views []onced.View // of a scan by identity; the index has none
	next  storage.Cursor
}

// advance takes the findings of one scan onto the page.
func (l *listing) advance(ctx context.Context) error {
	limit := min(max(l.pageSize-len(l.operations), l.stride), greatestScan)
	for {
		f, err := l.scan(ctx, limit)
		if err != nil {
			return err
		}
		n, operations, bytes, err := l.take(ctx, f)
		switch {
		case err != nil:
			return err
		case n < len(f.ids):
			if n == 0 {
				return nil
			}
			limit = n
			continue
		}
		l.operations, l.bytes = append(l.operations, operations...), l.bytes+bytes
		if l.stride = leastScan; len(operations) == 0 {
			l.stride = 2 * limit
		}
		l.goOn(f)
		return nil
	}
}

// goOn moves on behind what a scan found.
func (l *listing) goOn(f found) {
	switch {
	case f.next != nil:
		l.at.cursor = f.next
	case l.at.phase == phaseDue && l.states.has(onced.StateUnresolved) && l.restored():
		l.at = position{phase: phaseRestored}
	default:
		l.ended = true
	}
}

// scan looks for what comes next. The index of unsettled work is one for all
// namespaces: how many pages without an operation a listing has tells its reader how
// much is unsettled in the others together, and by when it lapses, but not whose it
// is, nor any key or method.
func (l *listing) scan(ctx context.Context, limit int) (f found, err error) {
	if l.at.phase != phaseDue {
		page, err := l.store.ScanIdentity(ctx, l.prefix(), l.at.cursor, limit)
		for _, v := range page.Views {
			f.ids = append(f.ids, v.ID)
		}
		f.views, f.next = page.Views, page.Next
		l.read += len(page.Views)
		return f, err
	}
	page, err := l.store.ScanDue(ctx, onced.DueUnsettled, l.dueUntil(), l.at.cursor, limit)
	for _, due := range page.Due {
		f.ids = append(f.ids, due.ID)
	}
	f.next = page.Next
	l.looked += len(page.Due)
	return f, err
}

// take returns the operations among the findings that fit on the page, and how many
// findings it has come by: all, or those before which the page is full.
func (l *listing) take(ctx context.Context, f found) (n int, operations []*oncedv1.OperationDetails, bytes int, err error) {
	for i, id := range f.ids {
		details, err := l.details(ctx, f, i, id)
		if err != nil {
			return 0, nil, 0, err
		}
		if details == nil {
			continue
		}
		onPage := len(l.operations) + len(operations)
		size := 1 + protowire.SizeBytes(proto.Size(details))
		if l.bytes+bytes+size > greatestPageBytes && onPage > 0 {
			l.full = true
			return i, operations, bytes, nil
		}
		operations, bytes = append(operations, details), bytes+size
		if onPage+1 == l.pageSize {
			return i + 1, operations, bytes, nil
		}
	}
	return len(f.ids), operations, bytes, nil
}

// details returns what is shown of a finding; nil when it is not one that is listed.
// Entries of the index are those of all namespaces: what is not listed is not read.
func (l *listing) details(ctx context.Context, f found, i int, id onced.Identity) (*oncedv1.OperationDetails, error) {
	if !l.names(id) {
		return nil, nil
	}
	var v onced.View
	if f.views != nil {
		v = f.views[i]
	} else {
		var err error
		l.read++
		if v, err = l.store.Get(ctx, id); err != nil {
			return nil, err
		}
	}
	if l.at.phase == phaseRestored && !restoredReleased(v) {
		return nil, nil // the index has it, if it is unsettled
	}
	op, ok, err := onced.Show(v, l.policy)
	switch {
	case refusedFor(err, onced.RefusedUnreadable):
		return l.unreadable(id), nil
	case err != nil || !ok || !l.wants(op, v.Now):
		return nil, err
	}
	return detailsToWire(op), nil
}

// unreadable returns what is shown of a record that this build cannot read, which
// has no state and no age.
func (l *listing) unreadable(id onced.Identity) *oncedv1.OperationDetails {
	if l.states != 0 || l.minAge > 0 {
		return nil
	}
	return &oncedv1.OperationDetails{Operation: &oncedv1.Operation{Ref: refToWire(id)}}
}

func restoredReleased(v onced.View) bool {
	return v.Record != nil && v.Record.State == onced.StateReleased && v.Record.Generation != v.Epoch.Generation
}

// restored reports whether the store may have been restored, so that there may be
// records of an earlier generation. The first generation is the second in which the
// store was made; a restore changes the one and not the other.
func (l *listing) restored() bool {
	e := l.now.Epoch
	return e.Generation != uint64(max(e.HistoryStart.Unix(), 1))
}

// dueUntil returns up to when an entry of the index may be that of an operation
// which is listed. A running lease ends later than now; a restored one is over
// already.
func (l *listing) dueUntil() time.Time {
	if l.states.has(onced.StatePending) || l.restored() {
		return l.now.Now.Add(onced.GreatestLease)
	}
	return l.now.Now
}
