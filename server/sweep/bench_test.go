package sweep

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// bench is a sweeper over a memory store, with a clock that the test moves.
type bench struct {
	t     *testing.T
	clock *storagetest.Clock
	store *spy
	log   strings.Builder
	sweep *Sweeper

	policy atomic.Pointer[onced.Policy]

	mu      sync.Mutex // guards batches
	batches []Batch
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, clock: storagetest.NewClock()}
	b.store = &spy{Store: memory.New(b.clock)}
	b.setPolicy(onced.DefaultPolicy())
	b.restart()
	return b
}

// restart puts a new sweeper in the place of the one before.
func (b *bench) restart() {
	b.sweep = New(Config{
		Store: b.store, Interval: Interval, Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
		Policy: func(string) onced.Policy { return *b.policy.Load() },
		Observe: func(batch Batch) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.batches = append(b.batches, batch)
		},
	})
	b.t.Cleanup(b.sweep.Stop)
}

func (b *bench) setPolicy(p onced.Policy) { b.policy.Store(&p) }

// pass runs one pass and returns the sum of its batches.
func (b *bench) pass() (Batch, error) {
	b.t.Helper()
	b.batches = nil
	err := b.sweep.pass()
	return b.sum(), err
}

// mustPass runs one pass and compares what it did; Kind and Lag are left out.
func (b *bench) mustPass(want Batch) {
	b.t.Helper()
	got, err := b.pass()
	if got.Lag = 0; err != nil || got != want {
		b.t.Fatalf("pass: %+v, %v; want %+v", got, err, want)
	}
}

func (b *bench) sum() Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum Batch
	for _, batch := range b.batches {
		sum.Deleted += batch.Deleted
		sum.Rewritten += batch.Rewritten
		sum.Kept += batch.Kept
		sum.Failed += batch.Failed
		sum.Lag = batch.Lag
	}
	return sum
}

func identity(key string) onced.Identity {
	return onced.Identity{Namespace: "n", Key: key, Method: "m"}
}

func token(s string) onced.Digest { return sha256.Sum256([]byte(s)) }

// claim claims a key in the store itself, past the spy.
func (b *bench) claim(key, tok string) onced.ClaimAnswer {
	b.t.Helper()
	return b.claimWith(key, onced.ClaimRequest{Token: token(tok), Lease: 30 * time.Second})
}

func (b *bench) claimWith(key string, c onced.ClaimRequest) (answer onced.ClaimAnswer) {
	b.t.Helper()
	b.update(key, c.TwinID(identity(key)), func(v onced.View) (plan onced.Plan, err error) {
		plan, answer, err = onced.Claim(v, *b.policy.Load(), c)
		return plan, err
	})
	return answer
}

// settle claims a key and completes it with a result of three bytes.
func (b *bench) settle(key string) {
	b.t.Helper()
	b.complete(key, b.claim(key, key))
}

func (b *bench) complete(key string, granted onced.ClaimAnswer) {
	b.t.Helper()
	if granted.Outcome != onced.OutcomeGranted {
		b.t.Fatalf("claim of %q: %v", key, granted.Outcome)
	}
	holder := onced.Holder{Token: token(key), Fence: granted.Operation.Fence}
	b.update(key, granted.Operation.Twin, func(v onced.View) (onced.Plan, error) {
		plan, _, err := onced.Complete(v, *b.policy.Load(), holder, onced.NewResult("text/plain", true, []byte("yes")))
		return plan, err
	})
}

func (b *bench) fail(key string, granted onced.ClaimAnswer, d onced.Disposition) {
	b.t.Helper()
	holder := onced.Holder{Token: token(key), Fence: granted.Operation.Fence}
	b.update(key, nil, func(v onced.View) (onced.Plan, error) {
		plan, _, err := onced.Fail(v, *b.policy.Load(), holder, onced.FailRequest{Disposition: d})
		return plan, err
	})
}

func (b *bench) update(key string, twin *onced.TwinID, decide func(onced.View) (onced.Plan, error)) {
	b.t.Helper()
	var refused error
	err := b.store.Store.Update(context.Background(), storage.Target{ID: identity(key), Twin: twin}, func(v onced.View) (plan onced.Plan) {
		plan, refused = decide(v)
		return plan
	})
	if err != nil || refused != nil {
		b.t.Fatalf("update of %q: %v, %v", key, err, refused)
	}
}

func (b *bench) view(key string) onced.View {
	b.t.Helper()
	v, err := b.store.Get(context.Background(), identity(key))
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// keys settles n operations, key000000 and so on.
func (b *bench) keys(n int) {
	b.t.Helper()
	for i := range n {
		b.settle(fmt.Sprintf("key%06d", i))
	}
}

// spy is a store that is watched, and that can be interfered with.
type spy struct {
	storage.Store
	scanned func(storage.DuePage) storage.DuePage // between a scan and its updates
	refuse  func(storage.Target) error            // before an update
	held    time.Duration                         // how far expiry time lies behind the store's time

	running, most atomic.Int64 // updates at once
	largest       atomic.Int64 // limit of a scan
}

func (s *spy) ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) (storage.DuePage, error) {
	s.largest.Store(max(s.largest.Load(), int64(limit)))
	page, err := s.Store.ScanDue(ctx, kind, before, cursor, limit)
	if s.scanned != nil && kind == onced.DueExpiry {
		page = s.scanned(page)
	}
	return page, err
}

// Update refuses what a sweep must not take: the turn and the room of claims and
// settlements.
func (s *spy) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	if t.Class != storage.ClassSweep {
		return fmt.Errorf("a sweep updates as a %s", t.Class)
	}
	now := s.running.Add(1)
	defer s.running.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	if s.refuse != nil {
		if err := s.refuse(t); err != nil {
			return err
		}
	}
	return s.Store.Update(ctx, t, func(v onced.View) onced.Plan {
		v.ExpiryTime = v.ExpiryTime.Add(-s.held)
		return fn(v)
	})
}

func (s *spy) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	v, err := s.Store.Get(ctx, id)
	v.ExpiryTime = v.ExpiryTime.Add(-s.held)
	return v, err
}
