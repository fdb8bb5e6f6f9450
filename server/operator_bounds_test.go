package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// Requests that break the rules are refused, by field.
func TestListInvalid(t *testing.T) {
	w := newWire(t)
	for i := range 3 {
		w.grant(fmt.Sprint("k", i), "a")
	}
	valid := &listRequest{Namespace: "n", Method: "m", States: onlyUnsettled, MinAge: durationpb.New(0), PageSize: 1}
	page, err := w.listPage(valid)
	if err != nil || page.GetNextPageToken() == "" {
		t.Fatal(page, err)
	}
	token := page.GetNextPageToken()
	if strings.ContainsAny(token, "+/= ") {
		t.Errorf("%q is not for URLs", token)
	}
	for _, c := range []struct {
		field  string
		change func(*listRequest)
	}{
		{"namespace", func(r *listRequest) { r.Namespace = "" }},
		{"namespace", func(r *listRequest) { r.Namespace = "a b" }},
		{"key", func(r *listRequest) { r.Key = " k" }},
		{"key", func(r *listRequest) { r.Key = "null" }},
		{"method", func(r *listRequest) { r.Method = "m " }},
		{"states", func(r *listRequest) { r.States = []oncedv1.State{pending, 0} }},
		{"states", func(r *listRequest) { r.States = []oncedv1.State{99} }},
		{"states", func(r *listRequest) { r.States = []oncedv1.State{0, 98, 99} }},
		{"states", func(r *listRequest) { r.States = []oncedv1.State{-1} }},
		{"states", func(r *listRequest) { r.States = []oncedv1.State{257} }},
		{"states", func(r *listRequest) { r.States = slices.Repeat(onlyUnresolved, 17) }},
		{"states", func(r *listRequest) { r.States = slices.Repeat([]oncedv1.State{99}, 100_000) }},
		{"states", func(r *listRequest) { r.States = slices.Repeat(onlyUnsettled, 1_000_000) }},
		{"min_age", func(r *listRequest) { r.MinAge = durationpb.New(-1) }},
		{"min_age", func(r *listRequest) { r.MinAge = &durationpb.Duration{Seconds: 1, Nanos: -1} }},
		{"page_size", func(r *listRequest) { r.PageSize = -1 }},
		{"page_size", func(r *listRequest) { r.PageSize = 1001 }},
		{"page_token", func(r *listRequest) { r.Method = "" }},
		{"page_token", func(r *listRequest) { r.Namespace = "n2" }},
		{"page_token", func(r *listRequest) { r.Key = "k1" }},
		{"page_token", func(r *listRequest) { r.States = nil }},
		{"page_token", func(r *listRequest) { r.States = onlyUnresolved }},
		{"page_token", func(r *listRequest) { r.MinAge = durationpb.New(1) }},
		{"page_token", func(r *listRequest) { r.PageToken = "x" }},
		{"page_token", func(r *listRequest) { r.PageToken = "not base64!" }},
		{"page_token", func(r *listRequest) { r.PageToken += "=" }},
		{"page_token", func(r *listRequest) { r.PageToken = r.PageToken[:8] }},
	} {
		req := proto.CloneOf(valid)
		req.PageToken = token
		c.change(req)
		_, err := w.listPage(req)
		wantViolation(t, err, c.field)
		if text := err.Error(); c.field == "page_size" && (!strings.Contains(text, "1000") || !strings.Contains(text, "100")) {
			t.Errorf("it does not name the bounds: %v", err)
		}
	}
	w.wantKeys(&listRequest{Namespace: "n", States: slices.Repeat(onlyUnsettled, 8)}, "k0", "k1", "k2")
	for _, size := range []int32{0, 1000} { // the size of a page may change
		if page, err := w.listPage(&listRequest{Namespace: "n", Method: "m", States: onlyUnsettled, MinAge: durationpb.New(0), PageSize: size, PageToken: token}); err != nil || len(page.GetOperations()) != 2 {
			t.Errorf("%v %v", page, err)
		}
	}
}

// A long way through records that are not asked for is gone in bounded steps too.
func TestListBoundedReads(t *testing.T) {
	clock := storagetest.NewClock()
	w := newWireOver(t, memory.New(clock), clock)
	for i := range 2100 {
		w.put(w.claimed("n", fmt.Sprintf("key %04d", i), "m", clock.Wall(), time.Hour))
	}
	for _, req := range []*listRequest{
		{Namespace: "n", States: []oncedv1.State{completed}},
		{Namespace: "n", Method: "other"},
		{Namespace: "n", States: onlyUnsettled, MinAge: durationpb.New(time.Hour)},
	} {
		seen, pages := w.list(req)
		if len(seen) != 0 || len(pages) < 2 || len(pages) > 4 {
			t.Errorf("%v: %d operations on %d pages", req, len(seen), len(pages))
		}
	}
	if seen, pages := w.list(&listRequest{Namespace: "n", States: onlyUnresolved}); len(seen) != 0 || len(pages) != 1 {
		t.Errorf("leases that run are looked at: %d pages", len(pages))
	}
}

// readCounter counts the records that are read one by one.
type readCounter struct {
	storage.Store
	mu   sync.Mutex
	n    int
	view func(*onced.View) // changes what Get shows
}

func (s *readCounter) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
	v, err := s.Store.Get(ctx, id)
	if s.view != nil {
		s.view(&v)
	}
	return v, err
}

func (s *readCounter) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// A page is bounded in bytes, also where single operations are large.
func TestListBytes(t *testing.T) {
	w := newWire(t)
	labels := map[string]string{}
	for i := range onced.MaxLabels {
		labels[fmt.Sprintf("%02d%s", i, strings.Repeat("n", onced.MaxLabelName-2))] = strings.Repeat("v", onced.MaxLabelValue)
	}
	for i := range 900 {
		r := w.claimed("n", fmt.Sprintf("key %04d", i), "m", w.clock.Wall(), time.Hour)
		r.Labels = labels
		if i == 400 { // larger than a page
			r.Attempts = slices.Repeat([]onced.Attempt{{Number: 1, Holder: strings.Repeat("h", onced.MaxHolder), ClaimTime: w.clock.Wall()}}, 20_000)
		}
		w.put(r)
	}
	for _, states := range [][]oncedv1.State{nil, onlyUnsettled} {
		seen, pages := w.list(&listRequest{Namespace: "n", States: states, PageSize: 1000})
		if len(seen) != 900 {
			t.Errorf("%d of 900", len(seen))
		}
		for _, p := range pages {
			if size := proto.Size(p); size >= 4<<20 && len(p.GetOperations()) > 1 {
				t.Errorf("a page of %d operations has %d bytes", len(p.GetOperations()), size)
			}
		}
		if len(pages) > 5 {
			t.Errorf("%d pages", len(pages))
		}
	}
}

// What this build cannot read is listed by its name, where nothing is asked of its
// content; it fails no listing.
func TestListUnreadable(t *testing.T) {
	clock := storagetest.NewClock()
	store := &readCounter{Store: memory.New(clock)}
	w := newWireOver(t, store, clock)
	w.grant("a", "a")
	w.put(&onced.Record{ID: identity("b"), State: 99, Holder: "secret"})
	w.grant("c", "a")
	_, pages := w.list(&listRequest{Namespace: "n", MinAge: durationpb.New(0)})
	ops := pages[0].GetOperations()
	if len(ops) != 3 || !proto.Equal(ops[1], &oncedv1.OperationDetails{Operation: &oncedv1.Operation{Ref: ref("b")}}) {
		t.Errorf("%v", ops)
	}
	w.wantKeys(&listRequest{Namespace: "n", Key: "b"}, "b")
	w.wantKeys(&listRequest{Namespace: "n", States: []oncedv1.State{pending, completed}}, "a", "c")
	w.clock.Advance(time.Second)
	w.wantKeys(&listRequest{Namespace: "n", MinAge: durationpb.New(1)}, "a", "c")
	store.view = func(v *onced.View) { // an entry of the index whose record is damaged
		if v.ID.Key == "a" {
			v.Record, v.Unreadable = nil, true
		}
	}
	w.wantKeys(&listRequest{Namespace: "n", States: onlyUnsettled}, "c")
}

// restoredStore is a store that was restored into a later generation.
type restoredStore struct{ storage.Store }

func (s restoredStore) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	v, err := s.Store.Get(ctx, id)
	v.Epoch.Generation++
	return v, err
}

func (s restoredStore) ScanIdentity(ctx context.Context, prefix []byte, cursor storage.Cursor, limit int) (storage.Page, error) {
	p, err := s.Store.ScanIdentity(ctx, prefix, cursor, limit)
	for i := range p.Views {
		p.Views[i].Epoch.Generation++
	}
	return p, err
}

// What a restore made unresolved is listed as such: what was released, and what is
// held by a lease that would run still.
func TestListRestored(t *testing.T) {
	clock := storagetest.NewClock()
	w := newWireOver(t, restoredStore{memory.New(clock)}, clock)
	before, at := w.svc.Generation(), clock.Wall()
	for i := range 40 {
		r := w.claimed("n", fmt.Sprintf("released %d", i), "m", at, time.Second)
		r.State, r.ReleaseTime, r.Generation = onced.StateReleased, at, before
		w.put(r)
	}
	r := w.claimed("n", "released later", "m", at, time.Second)
	r.State, r.ReleaseTime, r.Generation = onced.StateReleased, at, before+1
	w.put(r)
	r = w.claimed("n", "held", "m", at, time.Hour)
	r.Generation = before
	w.put(r)
	r = w.claimed("n", "live", "m", at, time.Hour)
	r.Generation = before + 1
	w.put(r)
	clock.Advance(time.Minute)

	for _, states := range [][]oncedv1.State{onlyUnresolved, {completed, stateUnresolved}} {
		for _, size := range []int32{0, 1, 7, 41, 1000} {
			seen, pages := w.list(&listRequest{Namespace: "n", Method: "m", States: states, PageSize: size})
			if len(seen) != 41 || seen["n held m"] != 1 || seen["n released 7 m"] != 1 {
				t.Errorf("pages of %d: %v", size, seen)
			}
			for _, p := range pages {
				for _, d := range p.GetOperations() {
					op := d.GetOperation()
					history := strings.HasPrefix(op.GetRef().GetKey(), "released")
					if op.GetState() != stateUnresolved || history != (op.GetReason() == oncedv1.Reason_REASON_HISTORY_LOST) {
						t.Errorf("%v", op)
					}
				}
			}
		}
	}
	w.wantKeys(&listRequest{Namespace: "n", States: []oncedv1.State{pending}}, "live")
	w.wantKeys(&listRequest{Namespace: "n", States: []oncedv1.State{released}}, "released later")
}

// A fault of the store is answered as one, and not told to clients.
func TestListOverAFault(t *testing.T) {
	clock := storagetest.NewClock()
	w := newWireOver(t, faultyStore{memory.New(clock)}, clock)
	for _, states := range [][]oncedv1.State{nil, onlyUnresolved} {
		_, err := w.listPage(&listRequest{Namespace: "n", States: states})
		if st := wantError(t, err, codes.Internal, "INTERNAL", "unknown"); strings.Contains(st.Message(), "nobody") {
			t.Error(st.Message())
		}
	}
}

// faultyStore is a store of which nothing can be listed once it is open.
type faultyStore struct{ storage.Store }

func (s faultyStore) ScanIdentity(context.Context, []byte, storage.Cursor, int) (storage.Page, error) {
	return storage.Page{}, errors.New("a text that nobody may see")
}

func (s faultyStore) ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) (storage.DuePage, error) {
	if limit < 1000 { // not the count at start
		return storage.DuePage{}, errors.New("a text that nobody may see")
	}
	return s.Store.ScanDue(ctx, kind, before, cursor, limit)
}

// The RPCs that are not there yet say so.
func TestOperatorsUnimplemented(t *testing.T) {
	w := newWire(t)
	c := oncedv1.NewOperatorServiceClient(w.conn)
	for name, call := range map[string]func() error{
		"ResolveOperation": func() error {
			_, err := c.ResolveOperation(t.Context(), &oncedv1.ResolveOperationRequest{Ref: ref("k")})
			return err
		},
		"EraseResult": func() error {
			_, err := c.EraseResult(t.Context(), &oncedv1.EraseResultRequest{Ref: ref("k")})
			return err
		},
		"ListAudit": func() error {
			_, err := c.ListAudit(t.Context(), &oncedv1.ListAuditRequest{Namespace: "n"})
			return err
		},
		"EndBlindPeriod": func() error {
			_, err := c.EndBlindPeriod(t.Context(), &oncedv1.EndBlindPeriodRequest{})
			return err
		},
		"Backup": func() error {
			stream, err := c.Backup(t.Context(), &oncedv1.BackupRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		wantError(t, call(), codes.Unimplemented, "UNIMPLEMENTED", "no")
		counted := w.seen.count("refused n "+name+" UNIMPLEMENTED") + w.seen.count("refused other "+name+" UNIMPLEMENTED")
		if counted != 1 {
			t.Errorf("%s was counted %d times", name, counted)
		}
	}
}
