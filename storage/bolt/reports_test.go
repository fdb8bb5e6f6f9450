package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// The tests of this file are the parts of field reports that lie in this backend.

// inFile tells whether some memory that a value leads to is the mapped file's, and
// names the first that is.
func (h *harness) inFile(v any) string {
	info, err := os.Stat(h.store.path)
	if err != nil {
		h.t.Fatal(err)
	}
	low := h.store.db.Info().Data
	high := low + uintptr(info.Size())
	return walkMemory(reflect.ValueOf(v), fmt.Sprintf("%T", v), func(at unsafe.Pointer) bool { return uintptr(at) >= low && uintptr(at) < high })
}

// walkMemory names the first string or slice of bytes that a value leads to and for
// which found is true.
func walkMemory(v reflect.Value, name string, found func(unsafe.Pointer) bool) string {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); s != "" && found(unsafe.Pointer(unsafe.StringData(s))) {
			return name
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return walkMemory(v.Elem(), name, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if at := walkMemory(v.Field(i), name+"."+v.Type().Field(i).Name, found); at != "" {
				return at
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			for _, part := range []reflect.Value{key, v.MapIndex(key)} {
				if at := walkMemory(part, name+"[]", found); at != "" {
					return at
				}
			}
		}
	case reflect.Slice:
		if v.Len() > 0 && found(v.UnsafePointer()) {
			return name
		}
		for i := range v.Len() {
			if at := walkMemory(v.Index(i), name+"[]", found); at != "" {
				return at
			}
		}
	}
	return ""
}

// rich is a record that leads to memory of every kind, with a twin entry and an
// audit entry.
func rich(i int, now time.Time) onced.Plan {
	r := grant(benchmarkID(i), now)
	r.State, r.Result = onced.StateCompleted, onced.NewResult("text/plain", true, []byte("a small result"))
	r.Labels = map[string]string{"team": "crm"}
	r.Failure = &onced.Failure{Code: "ABORTED", Message: "no more", Details: onced.NewResult("text/plain", false, bytes.Repeat([]byte("details"), 2000))}
	r.Checkpoint = &onced.Checkpoint{Attempt: 1, Seq: 1, Payload: *onced.NewResult("text/plain", true, []byte("step 4"))}
	twin := twinOf(i)
	r.Twin = &twin
	return onced.Plan{
		Put:     r,
		PutTwin: &onced.TwinEntry{ID: twin, Unsettled: []onced.TwinKey{{Key: "another"}}, Last: &onced.TwinKey{Key: r.ID.Key}},
		Audit:   &onced.AuditEntry{Who: "operator", Verb: "resolve", ID: r.ID, Evidence: "seen"},
	}
}

func twinOf(i int) onced.TwinID {
	return onced.TwinID{Namespace: "tools", Method: "m", Subject: fmt.Sprint("user ", i), Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: "0123456789abcdef"}}
}

// What a read returns, and what an update function is shown, is no memory of the
// file: that is mapped elsewhere when the file grows, and written over before.
func TestR26_NothingPointsIntoTheFile(t *testing.T) {
	h := newHarness(t)
	for i := range 20 {
		twin := twinOf(i)
		plan := rich(i, h.clock.Wall())
		if err := h.store.Update(t.Context(), storage.Target{ID: plan.Put.ID, Twin: &twin}, func(onced.View) onced.Plan { return plan }); err != nil {
			t.Fatal(err)
		}
	}
	ctx, twin, large := t.Context(), twinOf(3), rich(3, h.clock.Wall()).Put.Failure.Details.SHA256
	small := onced.NewResult("text/plain", true, []byte("a small result")).SHA256
	for name, read := range map[string]func() (any, error){
		"get":           func() (any, error) { return h.store.Get(ctx, benchmarkID(3)) },
		"large payload": func() (any, error) { return h.store.Payload(ctx, benchmarkID(3), large) },
		"small payload": func() (any, error) { return h.store.Payload(ctx, benchmarkID(3), small) },
		"scan":          func() (any, error) { return h.store.ScanIdentity(ctx, nil, nil, 7) },
		"due": func() (any, error) {
			return h.store.ScanDue(ctx, onced.DueExpiry, h.clock.Wall().Add(time.Hour), nil, 7)
		},
		"due twins": func() (any, error) { return h.store.ScanDue(ctx, onced.DueTwin, h.clock.Wall().Add(time.Hour), nil, 7) },
		"audit":     func() (any, error) { return h.store.ScanAudit(ctx, nil, 7) },
		"meta":      func() (any, error) { return h.store.Meta(ctx) },
		"update": func() (seen any, err error) {
			err = h.store.Update(ctx, storage.Target{ID: benchmarkID(3), Twin: &twin}, func(v onced.View) onced.Plan {
				seen = v
				return onced.Plan{}
			})
			return seen, err
		},
	} {
		got, err := read()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if at := h.inFile(got); at != "" {
			t.Errorf("%s: %s is memory of the file", name, at)
		}
	}
	err := h.store.db.View(func(tx *bbolt.Tx) error {
		if h.inFile(tx.Bucket(bucketRecords).Get(benchmarkID(3).Encode())) == "" {
			t.Error("memory of the file is not told from other memory")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Ten thousand reads, while the file grows under them and is mapped anew again and
// again, see what was stored to the last byte, and what was read before them stays
// as it was.
func TestR26_ReadsWhileTheFileIsMappedAnew(t *testing.T) {
	const writers, each, readers, compares, size = 4, 60, 4, 10_000, 64 << 10
	h := newHarness(t)
	stored := grant(benchmarkID(0), h.clock.Wall())
	stored.State, stored.Result = onced.StateCompleted, onced.NewResult("text/plain", true, bytes.Repeat([]byte("0123456789abcdef"), size/16))
	stored.Holder = strings.Repeat("holder", 40)
	h.put(stored)
	before := h.store.Stats().Used
	var all sync.WaitGroup
	var writing, compared atomic.Int32
	writing.Store(writers)
	for w := range writers {
		all.Go(func() {
			defer writing.Add(-1)
			for i := range each {
				r := grant(benchmarkID(1+w*each+i), h.clock.Wall())
				r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, bytes.Repeat([]byte{byte(w)}, size))
				if err := h.tryPut(r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range readers {
		all.Go(func() {
			var held [][]byte
			for compared.Add(1) <= compares || writing.Load() > 0 {
				b, err := h.store.Payload(context.Background(), stored.ID, stored.Result.SHA256)
				v, errGet := h.store.Get(context.Background(), stored.ID)
				if err := errors.Join(err, errGet); err != nil || !bytes.Equal(b, stored.Result.Bytes) || v.Record.Holder != stored.Holder {
					t.Errorf("%d bytes were read, and a record that may be another (%v)", len(b), err)
					return
				}
				if len(held) < 8 {
					held = append(held, b)
				}
			}
			for i, b := range held {
				if !bytes.Equal(b, stored.Result.Bytes) {
					t.Errorf("what was read as number %d has changed since", i)
				}
			}
		})
	}
	all.Wait()
	after := h.store.Stats().Used
	if before > 1<<20 || after < 16<<20 { // the first time it is mapped for what is kept as well, 16 MiB
		t.Errorf("what is used of the file grew from %d to %d bytes: it was not mapped anew often enough", before, after)
	}
	t.Logf("compares=%d, file grown from %d to %d bytes", compared.Load(), before, after)
}

// What bbolt is given is the store's own until the commit: a caller that writes over
// all that its plan leads to, before anything is written, changes nothing.
func TestR26_NothingIsSharedUntilTheCommit(t *testing.T) {
	h := newHarness(t)
	twin := twinOf(0)
	var plan onced.Plan
	h.store.hooks.beforeCommit = func() error { scribble(reflect.ValueOf(&plan).Elem()); return nil }
	err := h.store.Update(t.Context(), storage.Target{ID: benchmarkID(0), Twin: &twin}, func(v onced.View) onced.Plan {
		plan = rich(0, h.clock.Wall())
		return plan
	})
	if err != nil {
		t.Fatal(err)
	}
	h.store.hooks.beforeCommit = nil
	want := rich(0, h.clock.Wall())
	if reflect.DeepEqual(plan, want) {
		t.Fatal("nothing was written over")
	}
	details := want.Put.Failure.Details
	b, err := h.store.Payload(t.Context(), want.Put.ID, details.SHA256)
	if err != nil || !bytes.Equal(b, details.Bytes) {
		t.Errorf("the large payload: %d bytes, %v", len(b), err)
	}
	details.Bytes = nil // is shown without them
	err = h.store.Update(t.Context(), storage.Target{ID: benchmarkID(0), Twin: &twin}, func(v onced.View) onced.Plan {
		if !reflect.DeepEqual(v.Record, want.Put) || !reflect.DeepEqual(v.Twin, want.PutTwin) {
			t.Errorf("stored are\n%+v\n%+v", v.Record, v.Twin)
		}
		return onced.Plan{}
	})
	page, errAudit := h.store.ScanAudit(t.Context(), nil, 10)
	if err := errors.Join(err, errAudit); err != nil || !slices.Equal(page.Entries, []onced.AuditEntry{*want.Audit}) {
		t.Errorf("audit trail: %+v, %v", page.Entries, err)
	}
}

// scribble writes over all bytes and numbers that a value leads to.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				scribble(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf("scribble"))
		}
	case reflect.String:
		v.SetString("scribble")
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() ^ 1)
	}
}
