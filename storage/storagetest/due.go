package storagetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testDue: the time-ordered index has an entry for every record and for every
// twin entry that is due at all, and moves with them.
func testDue(t *testing.T, newHarness newFunc) {
	subtests{
		"kinds": dueKinds, "order": dueOrder, "same moment": dueAtOneMoment, "moves": dueMoves, "twins": dueTwins,
		"at once": dueAtOnce, "under change": duePagesUnderChange, "survives": dueSurvives,
	}.run(t, newHarness)
}

// names returns what the entries are of: keys, or subjects of twin entries.
func names(due []storage.Due) []string {
	var list []string
	for _, d := range due {
		if d.Twin != nil {
			list = append(list, "twin "+d.Twin.Subject)
		} else {
			list = append(list, d.ID.Key)
		}
	}
	return list
}

// wantDue checks what is due at or before a moment, in order.
func (f *fixture) wantDue(kind onced.DueKind, before time.Time, want ...string) {
	f.t.Helper()
	if got := names(f.due(kind, before, 100)); !slices.Equal(want, got) {
		f.t.Errorf("due at %v: want %q, got %q", before.Sub(epoch), want, got)
	}
}

func dueKinds(f *fixture) {
	f.put(specimens()...)
	f.put(plain(op("pending"), 30), completed(op("tombstone"), nil))
	tombstone := completed(op("tombstone"), nil)
	tombstone.Result.Presence = onced.Dropped
	f.put(tombstone)
	f.wantDue(onced.DueUnsettled, far, "unresolved", "pending")
	f.wantDue(onced.DueTwin, far)
	var expiry []string
	for _, d := range f.due(onced.DueExpiry, far, 100) {
		expiry = append(expiry, fmt.Sprintf("%s after %v", d.ID.Key, d.At.Sub(epoch)))
		if d.Twin != nil {
			f.t.Errorf("the entry of %v names a twin entry", d.ID)
		}
	}
	slices.Sort(expiry)
	want := []string{"completed after 168h0m0s", "failed after 168h0m0s", "released after 720h0m0s", "tombstone after 720h0m0s"}
	if !slices.Equal(want, expiry) {
		f.t.Errorf("due by expiry: want %q, got %q", want, expiry)
	}
	for _, d := range f.due(onced.DueUnsettled, far, 1) {
		kind, at := f.get(d.ID).Record.Due()
		if kind != onced.DueUnsettled || !at.Equal(d.At) {
			f.t.Errorf("the entry of %v is at %v, its record says %v", d.ID, d.At, at)
		}
	}
}

// dueOrder: by time to the nanosecond, over all of time, inclusive, by pages.
func dueOrder(f *fixture) {
	moments := []time.Time{
		time.Date(1, time.January, 1, 0, 0, 0, 1, time.UTC), time.Unix(0, 0).Add(-1), time.Unix(0, 0), time.Unix(0, 1),
		epoch.Add(-1), epoch, epoch.Add(1), epoch.Add(time.Second), time.Date(2262, time.May, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, time.December, 31, 23, 59, 59, 999999999, time.UTC),
	}
	want := make([]string, len(moments))
	for i, at := range moments {
		want[i] = fmt.Sprint(9 - i) // not in the order of identities
		r := plain(op("%s", want[i]), 1)
		r.LeaseEnd = at
		f.put(r)
	}
	for i, at := range moments {
		f.wantDue(onced.DueUnsettled, at, want[:i+1]...)
		f.wantDue(onced.DueUnsettled, at.Add(-1), want[:i]...)
	}
	for i, d := range f.due(onced.DueUnsettled, moments[9], 100) {
		if !d.At.Equal(moments[i]) {
			f.t.Errorf("the entry of %v is at %v, want %v", d.ID, d.At, moments[i])
		}
	}
	for _, limit := range []int{1, 2, 3, 9, 10, 11} {
		if got := names(f.due(onced.DueUnsettled, moments[9], limit)); !slices.Equal(want, got) {
			f.t.Errorf("pages of %d: want %q, got %q", limit, want, got)
		}
	}
}

func dueAtOneMoment(f *fixture) {
	var want []string
	for i := range 7 {
		r := plain(op("%d", i), 1)
		f.put(r)
		want = append(want, r.ID.Key)
	}
	for _, limit := range []int{1, 3, 7} {
		got := names(f.due(onced.DueUnsettled, epoch.Add(minutes(1)), limit))
		if slices.Sort(got); !slices.Equal(want, got) {
			f.t.Errorf("pages of %d: want %q, got %q", limit, want, got)
		}
	}
}

func dueMoves(f *fixture) {
	id := op("k")
	f.put(plain(id, 5))
	f.put(plain(id, 3))
	f.wantDue(onced.DueUnsettled, epoch.Add(minutes(3)), "k")
	f.put(plain(id, 8))
	f.wantDue(onced.DueUnsettled, epoch.Add(minutes(8)-1))
	f.wantDue(onced.DueUnsettled, far, "k")
	f.put(completed(id, []byte("result")))
	f.wantDue(onced.DueUnsettled, far)
	f.wantDue(onced.DueExpiry, epoch.Add(168*time.Hour), "k")
	tombstone := completed(id, nil)
	tombstone.Result.Presence = onced.Dropped
	f.put(tombstone)
	f.wantDue(onced.DueExpiry, epoch.Add(168*time.Hour))
	f.wantDue(onced.DueExpiry, epoch.Add(720*time.Hour), "k")
	f.apply(storage.Target{ID: id}, onced.Plan{}) // nothing moves
	f.wantDue(onced.DueExpiry, far, "k")
	f.apply(storage.Target{ID: id}, onced.Plan{Delete: true})
	for _, kind := range []onced.DueKind{onced.DueUnsettled, onced.DueExpiry, onced.DueTwin} {
		f.wantDue(kind, far)
	}
}

func dueTwins(f *fixture) {
	a, b := twinID("a"), twinID("b")
	at := func(id onced.TwinID) storage.Target { return storage.Target{ID: op("k"), Twin: &id} }
	f.apply(at(a), onced.Plan{PutTwin: settledTwin(a, epoch.Add(2))})
	f.apply(at(b), onced.Plan{PutTwin: settledTwin(b, epoch.Add(1))})
	f.wantDue(onced.DueTwin, epoch.Add(24*time.Hour+1), "twin b")
	f.wantDue(onced.DueTwin, far, "twin b", "twin a")
	for _, d := range f.due(onced.DueTwin, far, 1) {
		if *d.Twin != a && *d.Twin != b || d.ID != (onced.Identity{}) {
			f.t.Errorf("the entry of a twin entry names %v and %v", d.Twin, d.ID)
		}
	}
	f.apply(at(a), onced.Plan{PutTwin: twinEntry(a)}) // something is unsettled: it stays
	f.wantDue(onced.DueTwin, far, "twin b")
	f.wantDue(onced.DueUnsettled, far)
	f.wantDue(onced.DueExpiry, far)
	f.apply(at(b), onced.Plan{DeleteTwin: true})
	f.wantDue(onced.DueTwin, far)
}

// dueAtOnce: a twin entry that holds nothing is due at the zero time, before all
// else.
func dueAtOnce(f *fixture) {
	a, b := twinID("a"), twinID("b")
	f.apply(storage.Target{ID: op("k"), Twin: &a}, onced.Plan{PutTwin: settledTwin(a, time.Unix(0, 0))})
	f.apply(storage.Target{ID: op("k"), Twin: &b}, onced.Plan{PutTwin: &onced.TwinEntry{ID: b}})
	f.wantDue(onced.DueTwin, epoch, "twin b", "twin a")
	if due := f.due(onced.DueTwin, time.Time{}, 10); len(due) != 1 || !due[0].At.IsZero() {
		f.t.Errorf("due at the zero time: %v", due)
	}
	f.apply(storage.Target{ID: op("k"), Twin: &b}, onced.Plan{DeleteTwin: true})
	f.wantDue(onced.DueTwin, epoch, "twin a")
}

// duePagesUnderChange: a sweep deletes what a page listed before it reads the
// next one, while others move.
func duePagesUnderChange(f *fixture) {
	for i := range 8 {
		f.put(plain(op("%d", i), uint64(i)+1))
	}
	var cursor storage.Cursor
	var seen []string
	for range 8 {
		page, err := f.Store().ScanDue(f.t.Context(), onced.DueUnsettled, epoch.Add(minutes(100)), cursor, 2)
		if err != nil {
			f.t.Fatal(err)
		}
		seen = append(seen, names(page.Due)...)
		for _, d := range page.Due {
			f.apply(storage.Target{ID: d.ID}, onced.Plan{Delete: true})
		}
		f.put(plain(op("late"), 99)) // moved to the end, as long as it is not reached
		if cursor = page.Next; cursor == nil {
			break
		}
		f.Reopen(false)
	}
	if want := []string{"0", "1", "2", "3", "4", "5", "6", "7", "late"}; !slices.Equal(want, seen) {
		f.t.Errorf("a sweep saw %q, want %q", seen, want)
	}
}

func dueSurvives(f *fixture) {
	for _, crash := range []bool{true, false} {
		f.apply(pair, version(3))
		f.put(plain(op("z"), 2))
		f.Reopen(crash)
		f.wantDue(onced.DueUnsettled, epoch.Add(minutes(3)), "z", "pair")
		f.wantDue(onced.DueTwin, epoch.Add(24*time.Hour+minutes(3)), "twin pair")
		f.wantDue(onced.DueUnsettled, epoch.Add(minutes(3)-1), "z")
	}
}
