package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"

	"github.com/onced/onced"
)

// brokenStore is a store of which the next calls fail.
type brokenStore struct {
	storage.Store
	update, get, scan error
}

func (s *brokenStore) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	if s.update != nil {
		return s.update
	}
	return s.Store.Update(ctx, t, fn)
}

func (s *brokenStore) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	if s.get != nil {
		return onced.View{}, s.get
	}
	return s.Store.Get(ctx, id)
}

func (s *brokenStore) ScanIdentity(ctx context.Context, prefix []byte, cursor storage.Cursor, limit int) (storage.Page, error) {
	if s.scan != nil {
		return storage.Page{}, s.scan
	}
	return s.Store.ScanIdentity(ctx, prefix, cursor, limit)
}

// storeErrors are what a store may return, and what a client then gets.
var storeErrors = []struct {
	err     error
	code    codes.Code
	reason  string
	claimed string
	retry   bool
	logged  bool
}{
	{fmt.Errorf("disk 7 of secret-host: %w", storage.ErrFull), codes.ResourceExhausted, "STORAGE_FULL", "no", true, false},
	{fmt.Errorf("fsync of secret-host: %w", storage.ErrFailed), codes.Unavailable, "NOT_READY", "unknown", true, true},
	{fmt.Errorf("%w: %w", storage.ErrFailed, context.Canceled), codes.Unavailable, "NOT_READY", "unknown", true, true},
	{fmt.Errorf("%w: 2048 wait on secret-host", storage.ErrOverloaded), codes.Unavailable, "OVERLOADED", "no", true, false},
	{storage.ErrClosed, codes.Unavailable, "STOPPING", "no", true, false},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", "unknown", false, false},
	{context.Canceled, codes.Canceled, "CANCELLED", "unknown", false, false},
	{errors.New("secret-host is on fire"), codes.Internal, "INTERNAL", "unknown", false, true},
}

func TestStoreErrors(t *testing.T) {
	for _, c := range storeErrors {
		t.Run(c.err.Error(), func(t *testing.T) {
			clock := storagetest.NewClock()
			store := &brokenStore{Store: memory.New(clock)}
			w := newWireOver(t, store, clock)
			h := w.grant("k", "a")
			store.update, store.get, store.scan = c.err, c.err, c.err
			_, completeErr := h.complete("done")
			_, policyErr := w.client.GetPolicy(t.Context(), &oncedv1.GetPolicyRequest{Namespace: "n"})
			errs := []error{
				w.tryClaim("k", "b"), completeErr, policyErr,
				w.look(&oncedv1.LookupRequest{Ref: ref("k")}),
				w.look(&oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k"}}),
			}
			for _, err := range errs {
				st := wantError(t, err, c.code, c.reason, c.claimed)
				if retry := detail[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration() > 0; retry != c.retry {
					t.Errorf("RetryInfo %v: %v", retry, st.Details())
				}
				if strings.Contains(st.Message(), "secret-host") {
					t.Errorf("%s shows what is inside", st.Message())
				}
			}
			if logged := strings.Contains(w.logged.String(), "level=ERROR"); logged != c.logged {
				t.Errorf("logged:\n%s", w.logged)
			}
			if n := w.seen.count("refused n Claim " + c.reason); n != 1 {
				t.Errorf("counted %q", w.seen.events)
			}
		})
	}
}

// A twin that cannot be read because the store has failed is no answer.
func TestTwinOfABrokenStore(t *testing.T) {
	clock := storagetest.NewClock()
	store := &brokenStore{Store: memory.New(clock)}
	w := newWireOver(t, store, clock)
	w.grant("k1", "a", guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED, "x"))
	store.get = storage.ErrFailed
	err := w.tryClaim("k2", "b", guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED, "x"))
	wantError(t, err, codes.Unavailable, "NOT_READY", "unknown")
}

// Nothing is answered while the sync is held: neither the claim that writes nor,
// after it, anybody who would see it. When it fails, nothing ever was answered.
func TestNoAnswerBeforeTheSync(t *testing.T) {
	clock := storagetest.NewClock()
	var gate storagetest.Gate
	store := memory.New(clock)
	syncing := make(chan struct{}, 8)
	store.OnSync = func() error {
		syncing <- struct{}{}
		return gate.Sync()
	}
	w := newWireOver(t, store, clock)
	for len(syncing) > 0 { // of the start
		<-syncing
	}
	release := gate.HoldSync()
	answers := make(chan error, 1)
	go func() { answers <- w.tryClaim("k", "a") }()
	<-syncing
	err := w.look(&oncedv1.LookupRequest{Ref: ref("k")})
	wantError(t, err, codes.NotFound, "NOT_FOUND", "no")
	gate.FailSync()
	select {
	case err := <-answers:
		t.Fatalf("answered before the sync: %v", err)
	default:
	}
	release()
	wantError(t, <-answers, codes.Unavailable, "NOT_READY", "unknown")
	wantError(t, w.tryClaim("k", "a"), codes.Unavailable, "NOT_READY", "unknown")
}

// A call whose deadline has passed writes nothing.
func TestDeadlinePassed(t *testing.T) {
	w := newWire(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.svc.Claim(ctx, claimOf("k", "a")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if len(w.records()) > 0 {
		t.Error("something was stored")
	}
}

// An operation that changes its twin entry whenever it is looked at is not
// reported on for ever.
func TestRestlessTwin(t *testing.T) {
	clock := storagetest.NewClock()
	store := &restlessStore{Store: memory.New(clock)}
	w := newWireOver(t, store, clock)
	h := w.grant("k", "a")
	store.restless = true
	st := wantError(t, func() error { _, err := h.complete("done"); return err }(), codes.Unavailable, "OVERLOADED", "no")
	if d := detail[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration(); d <= 0 || d > time.Second {
		t.Errorf("retry delay %v", d)
	}
}

// restlessStore shows the record in another twin entry each time.
type restlessStore struct {
	storage.Store
	restless bool
	n        int
}

func (s *restlessStore) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	return s.Store.Update(ctx, t, func(v onced.View) onced.Plan {
		if s.restless {
			s.n++
			v.Record.Twin = &onced.TwinID{Namespace: "n", Method: fmt.Sprint(s.n)}
		}
		return fn(v)
	})
}

// Every answer of Claim is a message that can be sent, whatever is in it.
func TestErrorDetailsAreWellFormed(t *testing.T) {
	w := newWire(t)
	err := w.tryClaim("\u202e\u0085", "a")
	st := wantError(t, err, codes.InvalidArgument, "INVALID_ARGUMENT", "no")
	if _, err := proto.Marshal(st.Proto()); err != nil {
		t.Error(err)
	}
}
