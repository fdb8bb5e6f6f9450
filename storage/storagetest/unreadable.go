package storagetest

import (
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testUnreadable: what this build cannot read is shown as unreadable, and is
// neither rewritten nor removed, whatever a plan says.
func testUnreadable(t *testing.T, newHarness newFunc) {
	subtests{
		"bad bytes":    func(f *fixture) { unreadableRecord(f, f.Corrupt) },
		"future state": func(f *fixture) { unreadableRecord(f, f.FutureState) },
		"twin entry":   unreadableTwin, "backup": unreadableInBackup,
	}.run(t, newHarness)
}

func unreadableRecord(f *fixture, spoil func(onced.Identity)) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.apply(target, onced.Plan{Put: completed(target.ID, noise(1, 1<<20)), PutTwin: twinEntry(*target.Twin)})
	f.put(plain(op("j"), 1), plain(op("l"), 2))
	spoil(target.ID)
	f.wantUnreadable(target.ID)
	for name, plan := range map[string]onced.Plan{
		"put":    {Put: plain(target.ID, 7), UsesFence: true},
		"delete": {Delete: true},
		"both":   {Put: plain(target.ID, 7), DeleteTwin: true, Audit: auditEntry(target.ID, 1)},
	} {
		if err := f.Store().Update(f.t.Context(), target, func(onced.View) onced.Plan { return plan }); err == nil {
			f.t.Errorf("%s: the plan over an unreadable record was carried out", name)
		}
		f.wantUnreadable(target.ID)
	}
	f.Reopen(false)
	f.wantUnreadable(target.ID)
	f.Reopen(true)
	f.wantUnreadable(target.ID)
	f.wantTwin(target, twinEntry(*target.Twin))
	if len(f.audit(10)) != 0 {
		f.t.Error("a plan that was refused left an audit entry")
	}
	for _, r := range []*onced.Record{plain(op("j"), 1), plain(op("l"), 2)} {
		f.wantRecord(r.ID, r)
	}
}

// wantUnreadable checks that every read shows a record as unreadable, and that
// the scans go on past it.
func (f *fixture) wantUnreadable(id onced.Identity) {
	f.t.Helper()
	views := map[string]onced.View{"Get": f.get(id), "Update": f.look(storage.Target{ID: id})}
	all := f.scan(nil, 1)
	if len(all) != 3 {
		f.t.Fatalf("a scan over an unreadable record shows %d of 3 records", len(all))
	}
	views["scan"] = all[1]
	for by, v := range views {
		if !v.Unreadable || v.Record != nil || v.ID != id {
			f.t.Fatalf("%s shows the unreadable record of %v as unreadable: %t, record of %v: %v", by, id, v.Unreadable, v.ID, v.Record)
		}
	}
	if due := f.due(onced.DueUnsettled, epoch.Add(minutes(9)), 1); len(due) < 2 {
		f.t.Fatalf("a scan by due time beside an unreadable record lists %d of 2 others", len(due))
	}
}

func unreadableTwin(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.apply(target, onced.Plan{Put: plain(target.ID, 1), PutTwin: twinEntry(*target.Twin)})
	f.CorruptTwin(*target.Twin)
	for _, crash := range []bool{false, true} {
		if v := f.look(target); !v.TwinUnreadable || v.Twin != nil || v.Unreadable || revision(v) != 1 {
			f.t.Fatalf("an unreadable twin entry is shown as unreadable: %t, entry: %v; record: %v", v.TwinUnreadable, v.Twin, v.Record)
		}
		for name, plan := range map[string]onced.Plan{
			"put":    {Put: plain(target.ID, 7), PutTwin: twinEntry(*target.Twin)},
			"delete": {Put: plain(target.ID, 7), DeleteTwin: true},
		} {
			if err := f.Store().Update(f.t.Context(), target, func(onced.View) onced.Plan { return plan }); err == nil {
				f.t.Errorf("%s: the plan over an unreadable twin entry was carried out", name)
			}
		}
		f.wantRecord(target.ID, plain(target.ID, 1))
		f.Reopen(crash)
	}
	// The operation itself goes on.
	f.apply(target, onced.Plan{Put: plain(target.ID, 2)})
	f.wantRecord(target.ID, plain(target.ID, 2))
}

// unreadableInBackup: a backup carries what this build cannot read, for the
// build that can.
func unreadableInBackup(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.apply(target, onced.Plan{Put: plain(target.ID, 1), PutTwin: twinEntry(*target.Twin)})
	f.put(plain(op("l"), 1))
	f.Corrupt(target.ID)
	f.CorruptTwin(*target.Twin)
	f.FutureState(op("l"))
	restored := f.Restore(f.backup())
	for _, id := range []onced.Identity{target.ID, op("l")} {
		if v, err := restored.Get(f.t.Context(), id); err != nil || !v.Unreadable {
			f.t.Errorf("the backup's store shows %v as unreadable: %t, %v", id, v.Unreadable, err)
		}
	}
	var seen onced.View
	err := restored.Update(f.t.Context(), target, func(v onced.View) onced.Plan { seen = v; return onced.Plan{} })
	if err != nil || !seen.TwinUnreadable {
		f.t.Errorf("the backup's store shows the twin entry as unreadable: %t, %v", seen.TwinUnreadable, err)
	}
}
