package storagetest

import (
	"slices"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testAudit: the trail is appended to with the change that it is of, keeps its
// order, and is never lost.
func testAudit(t *testing.T, newHarness newFunc) {
	subtests{"order": auditOrder, "alone": auditAlone, "grows": auditGrows, "concurrent": auditConcurrent}.run(t, newHarness)
}

func auditOrder(f *fixture) {
	var want []onced.AuditEntry
	for i := range 11 {
		// Times that run backwards: the order is that of the updates.
		entry := auditEntry(op("%d", 10-i), 10-i)
		f.apply(storage.Target{ID: entry.ID}, onced.Plan{Put: plain(entry.ID, 1), Audit: entry})
		want = append(want, *entry)
		if i%4 == 0 {
			f.Reopen(i%8 == 0)
		}
	}
	for _, limit := range []int{1, 2, 10, 11, 12} {
		if d := difference(want, f.audit(limit)); d != "" {
			f.t.Errorf("pages of %d: %s", limit, d)
		}
	}
	f.apply(storage.Target{ID: op("3")}, onced.Plan{Delete: true}) // the trail stays
	if got := f.audit(100); len(got) != len(want) {
		f.t.Errorf("%d entries are left of %d", len(got), len(want))
	}
}

func auditAlone(f *fixture) {
	f.apply(storage.Target{ID: op("k")}, onced.Plan{Audit: auditEntry(op("k"), 1)})
	f.Reopen(true)
	f.wantRecord(op("k"), nil)
	if d := difference([]onced.AuditEntry{*auditEntry(op("k"), 1)}, f.audit(10)); d != "" {
		f.t.Error(d)
	}
}

// auditGrows: a cursor goes on where it stopped, among entries made since.
func auditGrows(f *fixture) {
	add := func(n int) { f.apply(storage.Target{ID: op("k")}, onced.Plan{Audit: auditEntry(op("k"), n)}) }
	for n := range 3 {
		add(n)
	}
	first, err := f.Store().ScanAudit(f.t.Context(), nil, 2)
	if err != nil || len(first.Entries) != 2 || first.Next == nil {
		f.t.Fatalf("first page: %d entries, %v", len(first.Entries), err)
	}
	add(3)
	f.Reopen(false)
	second, err := f.Store().ScanAudit(f.t.Context(), first.Next, 10)
	want := []onced.AuditEntry{*auditEntry(op("k"), 2), *auditEntry(op("k"), 3)}
	if d := difference(want, second.Entries); err != nil || d != "" || second.Next != nil {
		f.t.Errorf("second page: %s, %v", d, err)
	}
}

// auditConcurrent: as many entries as updates, each once, in the order in which
// the updates of one identity were decided.
func auditConcurrent(f *fixture) {
	parallel(f.t, callers, func(int) error { return f.Store().Update(f.t.Context(), pair, next) })
	var order []int64
	for _, e := range f.audit(10) {
		order = append(order, int64(e.Time.Sub(epoch)))
	}
	if len(order) != callers || !slices.IsSorted(order) {
		f.t.Errorf("%d updates left the entries %v", callers, order)
	}
}
