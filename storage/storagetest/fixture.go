package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// newFunc makes a harness; see [Run].
type newFunc = func(t *testing.T) Harness

// patience is how long a call may take before the test gives it up for hanging.
const patience = 20 * time.Second

// grace is how long a test looks for an answer that must not come. It decides
// only how surely a wrong backend is caught: a right one passes whatever it is.
const grace = 30 * time.Millisecond

// fixture is a harness with what most tests do on it. Its methods fail the test
// at once and so belong to the test's goroutine.
type fixture struct {
	Harness
	t *testing.T
}

// subtests are the tests of a topic, by name; each gets a fresh store.
type subtests map[string]func(*fixture)

func (s subtests) run(t *testing.T, newHarness newFunc) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		t.Run(name, func(t *testing.T) { s[name](&fixture{Harness: newHarness(t), t: t}) })
	}
}

// hold holds the syncs, until release is called or the test ends.
func (f *fixture) hold() (release func()) {
	release = f.HoldSync()
	f.t.Cleanup(release) // before the harness cleans up
	return release
}

// update runs fn on a target and returns the view that its last run saw.
func (f *fixture) update(target storage.Target, fn storage.UpdateFunc) onced.View {
	f.t.Helper()
	var seen onced.View
	err := f.Store().Update(f.t.Context(), target, func(v onced.View) onced.Plan {
		seen = v
		return fn(v)
	})
	if err != nil {
		f.t.Fatalf("Update of %v: %v", target.ID, err)
	}
	return seen
}

// apply carries out a plan on a target whatever its state is.
func (f *fixture) apply(target storage.Target, plan onced.Plan) {
	f.t.Helper()
	f.update(target, func(onced.View) onced.Plan { return plan })
}

// put stores records.
func (f *fixture) put(records ...*onced.Record) {
	f.t.Helper()
	for _, r := range records {
		f.apply(storage.Target{ID: r.ID}, onced.Plan{Put: r})
	}
}

// look returns what an update sees of a target, and changes nothing.
func (f *fixture) look(target storage.Target) onced.View {
	f.t.Helper()
	return f.whole(f.update(target, func(onced.View) onced.Plan { return onced.Plan{} }))
}

// whole returns a view with the bytes of its large payloads, which it must have
// come without.
func (f *fixture) whole(v onced.View) onced.View {
	f.t.Helper()
	if v.Record == nil {
		return v
	}
	for _, p := range v.Record.Payloads() {
		if !storage.Large(p) {
			continue
		}
		if p.Bytes != nil {
			f.t.Fatalf("%v is shown with the %d bytes of a large payload", v.ID, len(p.Bytes))
		}
		var err error
		if p.Bytes, err = f.Store().Payload(f.t.Context(), v.ID, p.SHA256); err != nil {
			f.t.Fatalf("Payload of %v: %v", v.ID, err)
		}
	}
	return v
}

func (f *fixture) get(id onced.Identity) onced.View {
	f.t.Helper()
	v, err := f.Store().Get(f.t.Context(), id)
	if err != nil {
		f.t.Fatalf("Get of %v: %v", id, err)
	}
	if v.ID != id {
		f.t.Fatalf("Get of %v answered with %v", id, v.ID)
	}
	return f.whole(v)
}

// wantRecord checks that Get and Update both show a record; nil: that it is absent.
func (f *fixture) wantRecord(id onced.Identity, want *onced.Record) {
	f.t.Helper()
	for by, v := range map[string]onced.View{"Get": f.get(id), "Update": f.look(storage.Target{ID: id})} {
		if d := difference(want, v.Record); d != "" || v.Unreadable {
			f.t.Fatalf("%s shows another record of %v: %s (unreadable: %t)", by, id, d, v.Unreadable)
		}
	}
}

// wantTwin checks that Update shows a twin entry; nil: that it is absent.
func (f *fixture) wantTwin(target storage.Target, want *onced.TwinEntry) {
	f.t.Helper()
	v := f.look(target)
	if d := difference(want, v.Twin); d != "" || v.TwinUnreadable {
		f.t.Fatalf("Update shows another twin entry: %s (unreadable: %t)", d, v.TwinUnreadable)
	}
}

// scan reads all pages of a scan by identity, limit views a page.
func (f *fixture) scan(prefix []byte, limit int) []onced.View {
	f.t.Helper()
	all := pages(f.t, limit, func(c storage.Cursor) ([]onced.View, storage.Cursor, error) {
		p, err := f.Store().ScanIdentity(f.t.Context(), prefix, c, limit)
		return p.Views, p.Next, err
	})
	for i := range all {
		all[i] = f.whole(all[i])
	}
	return all
}

// first returns the first view of a scan over everything.
func (f *fixture) first() onced.View {
	f.t.Helper()
	all := f.scan(nil, 1)
	if len(all) == 0 {
		f.t.Fatal("a scan finds nothing")
	}
	return all[0]
}

// due reads all pages of a scan by due time, limit entries a page.
func (f *fixture) due(kind onced.DueKind, before time.Time, limit int) []storage.Due {
	f.t.Helper()
	return pages(f.t, limit, func(c storage.Cursor) ([]storage.Due, storage.Cursor, error) {
		p, err := f.Store().ScanDue(f.t.Context(), kind, before, c, limit)
		return p.Due, p.Next, err
	})
}

// audit reads the whole audit trail, limit entries a page.
func (f *fixture) audit(limit int) []onced.AuditEntry {
	f.t.Helper()
	return pages(f.t, limit, func(c storage.Cursor) ([]onced.AuditEntry, storage.Cursor, error) {
		p, err := f.Store().ScanAudit(f.t.Context(), c, limit)
		return p.Entries, p.Next, err
	})
}

func (f *fixture) meta() storage.Meta {
	f.t.Helper()
	m, err := f.Store().Meta(f.t.Context())
	if err != nil {
		f.t.Fatalf("Meta: %v", err)
	}
	return m
}

func (f *fixture) backup() []byte {
	f.t.Helper()
	var b bytes.Buffer
	if err := f.Store().Backup(f.t.Context(), &b); err != nil {
		f.t.Fatalf("Backup: %v", err)
	}
	return b.Bytes()
}

// pages reads a scan to its end and holds every page against the limit.
func pages[T any](t *testing.T, limit int, read func(storage.Cursor) ([]T, storage.Cursor, error)) []T {
	t.Helper()
	var all []T
	var cursor storage.Cursor
	for {
		page, next, err := read(cursor)
		if err != nil {
			t.Fatalf("scan after %d: %v", len(all), err)
		}
		if len(page) > limit || len(page) == 0 && next != nil {
			t.Fatalf("scan: a page of %d with limit %d, the end: %t", len(page), limit, next == nil)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		if bytes.Equal(next, cursor) {
			t.Fatalf("scan: the page after %d ends where it began", len(all))
		}
		cursor = next
	}
}

// call is a call of the store that runs on a goroutine of its own.
type call struct {
	done chan struct{}
	err  error // readable when done is closed
}

func start(fn func() error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = fn()
	}()
	return c
}

// startUpdate runs an update in the background, and returns when fn has run.
func (f *fixture) startUpdate(ctx context.Context, target storage.Target, fn storage.UpdateFunc) *call {
	f.t.Helper()
	ran := make(chan struct{})
	once := sync.OnceFunc(func() { close(ran) })
	store := f.Store()
	c := start(func() error {
		return store.Update(ctx, target, func(v onced.View) onced.Plan {
			defer once()
			return fn(v)
		})
	})
	await(f.t, ran, "the update function to run")
	return c
}

// answered reports whether the call has come back.
func (c *call) answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait returns what the call answered.
func (c *call) wait(t *testing.T) error {
	t.Helper()
	await(t, c.done, "a call of the store")
	return c.err
}

// await waits for a signal that must come.
func await(t *testing.T, signal <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
		t.Fatalf("waited %v for %s", patience, what)
	}
}

// linger gives calls that must not come back yet the time to do so.
func linger(calls ...*call) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, c := range calls {
		select {
		case <-c.done:
		case <-timer.C:
			return
		}
	}
}

// parallel runs fn for 0 to n-1 at once and fails the test with each error.
func parallel(t *testing.T, n int, fn func(i int) error) {
	t.Helper()
	calls := make([]*call, n)
	for i := range calls {
		calls[i] = start(func() error { return fn(i) })
	}
	for i, c := range calls {
		if err := c.wait(t); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// op returns an identity for tests in which only the key matters.
func op(format string, args ...any) onced.Identity {
	return onced.Identity{Namespace: "tools", Key: fmt.Sprintf(format, args...), Method: "crm.v1.Tickets/Create"}
}

func ptr[T any](v T) *T { return &v }

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }
