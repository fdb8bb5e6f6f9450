package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testIdentities: identities are equal only when all their bytes are, and a
// scan by prefix finds what it names and nothing else.
func testIdentities(t *testing.T, newHarness newFunc) {
	subtests{
		"distinct": distinctIdentities, "lengths": keyLengths, "prefixes": prefixScans,
		"pages": identityPages, "pages under change": identityPagesUnderChange, "foreign cursor": foreignCursor,
	}.run(t, newHarness)
}

// lookalikes are identities that a backend would take for one another if it
// joined their parts, cut them, folded them or normalised them.
func lookalikes() []onced.Identity {
	ids := []onced.Identity{
		{Namespace: "", Key: "ab", Method: "m"},
		{Namespace: "a", Key: "b", Method: "m"},
		{Namespace: "ab", Key: "", Method: "m"},
		{Namespace: "a", Key: "bm", Method: ""},
		{Namespace: "abm"},
		{Key: "abm"},
		{Method: "abm"},
		{},
		{Namespace: "n", Key: "order-1", Method: "m"},
		{Namespace: "n", Key: "order-10", Method: "m"},
		{Namespace: "n", Key: "order-", Method: "m"},
		{Namespace: "n", Key: "Abc", Method: "m"},
		{Namespace: "n", Key: "abc", Method: "m"},
		{Namespace: "n", Key: " abc", Method: "m"},
		{Namespace: "n", Key: "abc ", Method: "m"},
		{Namespace: "n", Key: "abc", Method: "M"},
		{Namespace: "N", Key: "abc", Method: "m"},
		{Namespace: "n", Key: "caf\u00e9", Method: "m"},
		{Namespace: "n", Key: "cafe\u0301", Method: "m"}, // composed, decomposed
		{Namespace: "n", Key: "\x00", Method: "m"},
		{Namespace: "n", Key: "\x00\x00", Method: "m"},
		{Namespace: "n", Key: "a\x00", Method: "m"},
		{Namespace: "n", Key: "a", Method: "\x00m"},
		{Namespace: "n", Key: "\u00ff\U0010ffff", Method: "m"},
	}
	for _, separator := range []string{":", "/", "|", "\x00", "%3A", "%", ".", ",", "\x01", "\x02", "\n"} {
		ids = append(ids,
			onced.Identity{Namespace: "a", Key: "b" + separator + "c", Method: "m"},
			onced.Identity{Namespace: "a" + separator + "b", Key: "c", Method: "m"},
			onced.Identity{Namespace: "a", Key: "b", Method: "c" + separator + "m"})
	}
	return ids
}

func distinctIdentities(f *fixture) {
	ids := lookalikes()
	parallel(f.t, len(ids)-1, func(i int) error { return putPlain(f, f.Store(), ids[i], uint64(i)+1) })
	f.Reopen(false)
	for i, id := range ids[:len(ids)-1] {
		f.wantRecord(id, plain(id, uint64(i)+1))
	}
	f.wantRecord(ids[len(ids)-1], nil)
	f.apply(storage.Target{ID: ids[0]}, onced.Plan{Delete: true})
	f.wantRecord(ids[1], plain(ids[1], 2))
	if n := len(f.scan(nil, 1000)); n != len(ids)-2 {
		f.t.Errorf("%d records are left, want %d", n, len(ids)-2)
	}
}

func keyLengths(f *fixture) {
	long := strings.Repeat("k", onced.MaxKey)
	at := func(n int) onced.Identity { return onced.Identity{Namespace: "n", Key: long[:n+1], Method: "m"} }
	parallel(f.t, onced.MaxKey, func(i int) error { return putPlain(f, f.Store(), at(i), uint64(i)+1) })
	views := map[string]uint64{}
	for _, v := range f.scan(onced.NamespacePrefix("n"), 100) {
		views[v.ID.Key] = revision(v)
	}
	for i := range onced.MaxKey {
		if views[at(i).Key] != uint64(i)+1 {
			f.t.Errorf("the key of %d bytes holds record %d", i+1, views[at(i).Key])
		}
	}
	f.wantRecord(at(0), plain(at(0), 1))
	f.wantRecord(at(onced.MaxKey-1), plain(at(onced.MaxKey-1), onced.MaxKey))
}

func prefixScans(f *fixture) {
	ids := lookalikes()
	for _, m := range []string{"a", "b", "c"} {
		ids = append(ids, onced.Identity{Namespace: "n", Key: "order-10", Method: m}, onced.Identity{Namespace: "n", Key: "\x00", Method: m})
	}
	parallel(f.t, len(ids), func(i int) error { return putPlain(f, f.Store(), ids[i], 1) })
	for _, of := range slices.Concat(ids, []onced.Identity{{Namespace: "n", Key: "order"}, {Namespace: "zz"}}) {
		f.wantScan(onced.KeyPrefix(of.Namespace, of.Key), ids, func(id onced.Identity) bool {
			return id.Namespace == of.Namespace && id.Key == of.Key
		})
		f.wantScan(onced.NamespacePrefix(of.Namespace), ids, func(id onced.Identity) bool { return id.Namespace == of.Namespace })
		f.wantScan(of.Encode(), ids, func(id onced.Identity) bool { return id == of })
	}
	f.wantScan(nil, ids, func(onced.Identity) bool { return true })
}

// wantScan checks that a scan finds those of ids that are in, in encoded order.
func (f *fixture) wantScan(prefix []byte, ids []onced.Identity, in func(onced.Identity) bool) {
	f.t.Helper()
	want := slices.DeleteFunc(slices.Clone(ids), func(id onced.Identity) bool { return !in(id) })
	slices.SortFunc(want, func(a, b onced.Identity) int { return bytes.Compare(a.Encode(), b.Encode()) })
	var got []onced.Identity
	for _, v := range f.scan(prefix, 1000) {
		got = append(got, v.ID)
	}
	if !slices.Equal(want, got) {
		f.t.Errorf("scan of %q:\nwant %v\ngot  %v", prefix, want, got)
	}
}

func identityPages(f *fixture) {
	var ids []onced.Identity
	for i := range 23 {
		ids = append(ids, op("%d", i))
		f.put(completed(ids[i], fmt.Append(nil, i)))
	}
	whole := f.scan(onced.NamespacePrefix("tools"), 1000)
	if len(whole) != len(ids) {
		f.t.Fatalf("a scan found %d of %d records", len(whole), len(ids))
	}
	for _, v := range whole {
		if d := difference(f.get(v.ID), v); d != "" {
			f.t.Errorf("a scan shows another view than Get: %s", d)
		}
	}
	for _, limit := range []int{1, 2, 22, 23, 24} {
		if d := difference(whole, f.scan(onced.NamespacePrefix("tools"), limit)); d != "" {
			f.t.Errorf("pages of %d: %s", limit, d)
		}
	}
}

// identityPagesUnderChange: a cursor is a place, not a record. What is deleted
// or put between two pages neither hides nor repeats anything else.
func identityPagesUnderChange(f *fixture) {
	for _, key := range []string{"b", "d", "f", "h"} {
		f.put(plain(op("%s", key), 1))
	}
	first, err := f.Store().ScanIdentity(f.t.Context(), nil, nil, 2)
	if err != nil || len(first.Views) != 2 || first.Next == nil {
		f.t.Fatalf("first page: %d records, %v", len(first.Views), err)
	}
	f.apply(storage.Target{ID: op("d")}, onced.Plan{Delete: true}) // where the page ended
	f.apply(storage.Target{ID: op("f")}, onced.Plan{Delete: true})
	f.put(plain(op("a"), 1), plain(op("e"), 1))
	f.Reopen(false)
	second, err := f.Store().ScanIdentity(f.t.Context(), nil, first.Next, 10)
	if err != nil || len(second.Views) != 2 || second.Views[0].ID != op("e") || second.Views[1].ID != op("h") || second.Next != nil {
		f.t.Errorf("second page: %v, %v", second.Views, err)
	}
}

// foreignCursor: a cursor comes back through a caller's hands. Whatever it is, a
// scan shows nothing that its prefix does not name.
func foreignCursor(f *fixture) {
	for _, namespace := range []string{"a", "b", "c"} {
		for i := range 3 {
			f.put(plain(onced.Identity{Namespace: namespace, Key: fmt.Sprint(i), Method: "m"}, 1))
		}
	}
	page, err := f.Store().ScanIdentity(f.t.Context(), onced.NamespacePrefix("a"), nil, 1)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range []storage.Cursor{page.Next, {}, {0}, {0xff, 0xff}, []byte("cursor"), bytes.Repeat([]byte{0xff}, 1<<16)} {
		page, err := f.Store().ScanIdentity(f.t.Context(), onced.NamespacePrefix("b"), c, 10)
		for _, v := range page.Views {
			if v.ID.Namespace != "b" {
				f.t.Errorf("cursor %.8q: a scan of one namespace shows %v (%v)", c, v.ID, err)
			}
		}
		// What these answer is theirs; they must come back.
		_, _ = f.Store().ScanDue(f.t.Context(), onced.DueUnsettled, epoch, c, 10)
		_, _ = f.Store().ScanAudit(f.t.Context(), c, 10)
	}
}
