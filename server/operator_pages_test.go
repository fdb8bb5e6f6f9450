package server_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// cursorStore keeps the cursors of the index of unsettled work that it gave, and those
// that it got and never gave.
type cursorStore struct {
	storage.Store
	mu     sync.Mutex
	given  map[string]bool
	forged []storage.Cursor
}

func (s *cursorStore) ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) (storage.DuePage, error) {
	p, err := s.Store.ScanDue(ctx, kind, before, cursor, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	if cursor != nil && !s.given[string(cursor)] {
		s.forged = append(s.forged, cursor)
	}
	s.given[string(p.Next)] = true
	return p, err
}

// Whatever is written into a token: it is refused, or shows what is asked for and
// nothing of another namespace. The index, which is one for all namespaces, is looked
// at from where it said itself, and from nowhere else.
func TestListForgedTokens(t *testing.T) {
	clock := storagetest.NewClock()
	store := &cursorStore{Store: memory.New(clock), given: map[string]bool{}}
	w := newWireOver(t, store, clock)
	w.populate(120)
	lapse := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(clock.Wall().Unix())^1<<63), 0)
	for _, states := range [][]oncedv1.State{onlyUnresolved, nil} {
		req := &listRequest{Namespace: "n", States: states, PageSize: 5}
		page, err := w.listPage(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.RawURLEncoding.DecodeString(page.GetNextPageToken())
		if err != nil {
			t.Fatal(err)
		}
		foreign := onced.Identity{Namespace: "n2", Key: "key 0001", Method: "m"}.Encode()
		head := raw[:9]
		due := slices.Concat([]byte{2}, head[1:])
		forged := [][]byte{
			head, slices.Concat(head, foreign), slices.Concat(head, []byte{0}, foreign),
			due, slices.Concat(due, lapse), slices.Concat(due, lapse, foreign),
			slices.Concat(head, slices.Repeat([]byte{0xff}, 3000)), slices.Concat(raw, []byte{0}),
		}
		for i := 0; i < len(raw); i += 1 + i/32 { // fewer of what is sealed
			for _, b := range []byte{0, 1, 2, 3, 4, 0x81, 0x82, 0xff} {
				f := slices.Clone(raw)
				f[i] = b
				forged = append(forged, f)
			}
			forged = append(forged, raw[:i+1])
		}
		for _, f := range forged {
			if slices.Equal(f, raw) {
				continue
			}
			req.PageToken = base64.RawURLEncoding.EncodeToString(f)
			page, err := w.listPage(req)
			if err != nil {
				wantViolation(t, err, "page_token")
				continue
			}
			if first := f[0]; first != raw[0] && (states == nil || first != 3) {
				t.Fatalf("%x is taken: such a listing is never there", f)
			}
			for _, d := range page.GetOperations() {
				r := d.GetOperation().GetRef()
				if r.GetNamespace() != "n" || states != nil && d.GetOperation().GetState() != stateUnresolved {
					t.Fatalf("%x shows %v", f, d)
				}
			}
		}
	}
	for _, cursor := range store.forged {
		t.Errorf("the index was looked at from %q", cursor)
	}
}

// Tokens into the index are of one length, whatever is the key that they hold.
func TestListTokenLength(t *testing.T) {
	w := newWire(t)
	at := w.clock.Wall()
	for i, size := range []int{1, 50, onced.MaxKey, 1} {
		id := onced.Identity{Namespace: strings.Repeat("n", onced.MaxNamespace), Key: strings.Repeat("k", size), Method: strings.Repeat("m", min(i+size, onced.MaxMethod))}
		w.put(w.claimed(id.Namespace, id.Key, id.Method, at.Add(time.Duration(i)), time.Second))
	}
	w.clock.Advance(time.Hour)
	_, pages := w.list(&listRequest{Namespace: strings.Repeat("n", onced.MaxNamespace), States: onlyUnresolved, PageSize: 1})
	if len(pages) != 4 {
		t.Fatalf("%d pages", len(pages))
	}
	for _, p := range pages[:3] {
		if got, want := len(p.GetNextPageToken()), len(pages[0].GetNextPageToken()); got != want {
			t.Errorf("tokens have %d and %d bytes", got, want)
		}
	}
}

// crowdedStore is a store whose index of unsettled work is of another namespace for the
// most part: these entries come behind the third of its own.
type crowdedStore struct {
	*readCounter
	crowd int
}

// ScanDue makes cursors that hold the key of the last entry, as those of stores do.
func (s crowdedStore) ScanDue(ctx context.Context, kind onced.DueKind, before time.Time, cursor storage.Cursor, limit int) (storage.DuePage, error) {
	own, err := s.Store.ScanDue(ctx, kind, before, nil, 100)
	if err != nil {
		return storage.DuePage{}, err
	}
	first, from := min(3, len(own.Due)), 0
	if cursor != nil {
		from = int(binary.BigEndian.Uint32(cursor)) + 1
	}
	var p storage.DuePage
	for i := from; len(p.Due) < limit && i < s.crowd+len(own.Due); i++ {
		d := storage.Due{ID: onced.Identity{Namespace: "foreign", Key: fmt.Sprint("the key ", i), Method: "m"}}
		switch {
		case i < first:
			d = own.Due[i]
		case i >= first+s.crowd:
			d = own.Due[i-s.crowd]
		}
		p.Due = append(p.Due, d)
		p.Next = append(binary.BigEndian.AppendUint32(nil, uint32(i)), d.ID.Encode()...)
	}
	if from+len(p.Due) == s.crowd+len(own.Due) {
		p.Next = nil
	}
	return p, nil
}

// An index of unsettled work that is of others for the most part is looked through in
// bounded steps, of which nothing can be read in the tokens. These do not outlast the
// server; tokens by identity do.
func TestListAmongOthers(t *testing.T) {
	clock := storagetest.NewClock()
	store := crowdedStore{&readCounter{Store: memory.New(clock)}, 25_000}
	w := newWireOver(t, store, clock)
	for i := range 4 {
		w.put(w.claimed("n", fmt.Sprint("own ", i), "m", clock.Wall().Add(time.Duration(i)), time.Second))
	}
	clock.Advance(time.Hour)
	req := &listRequest{Namespace: "n", States: onlyUnresolved}
	seen, pages := w.list(req)
	if len(seen) != 4 || len(pages) != 3 || len(pages[0].GetOperations()) != 3 || len(pages[1].GetOperations()) != 0 {
		t.Fatalf("%d operations on %d pages, the first with %d", len(seen), len(pages), len(pages[0].GetOperations()))
	}
	if reads := store.reads(); reads > 20 {
		t.Errorf("%d records were read to list 4", reads)
	}
	for _, p := range pages[:2] {
		raw, err := base64.RawURLEncoding.DecodeString(p.GetNextPageToken())
		if text := string(raw); err != nil || strings.Contains(text, "foreign") || strings.Contains(text, "the key") {
			t.Errorf("the token shows another namespace: %q %v", raw, err)
		}
	}

	if _, pages := w.list(&listRequest{Namespace: "n", Key: "own 3", States: onlyUnresolved}); len(pages) != 1 || len(pages[0].GetOperations()) != 1 {
		t.Errorf("what is unsettled of one key is looked for among all: %d pages", len(pages))
	}

	all := &listRequest{Namespace: "n", PageSize: 3}
	page, err := w.listPage(all)
	if err != nil || len(page.GetOperations()) != 3 {
		t.Fatal(page, err)
	}
	again := newWireOver(t, store, clock)
	all.PageToken = page.GetNextPageToken()
	if page, err := again.listPage(all); err != nil || len(page.GetOperations()) != 1 {
		t.Errorf("after a restart: %v %v", page, err)
	}
	req.PageToken = pages[0].GetNextPageToken()
	_, err = again.listPage(req)
	wantViolation(t, err, "page_token")
	if !strings.Contains(err.Error(), "first page") {
		t.Errorf("it does not say what to do: %v", err)
	}
}
