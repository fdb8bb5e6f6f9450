package storagetest

import (
	"fmt"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testSemantics: what an update does to the records that it names, and that
// both are changed together or not at all.
func testSemantics(t *testing.T, newHarness newFunc) {
	subtests{
		"absent": absentRecord, "every field": everyField, "replace": replaceRecord,
		"delete": deleteRecord, "nothing": planNothing, "doubt": planDoubt,
		"twin": twinWithRecord, "twin identity": twinIdentity, "twin alone": twinAlone,
		"beyond the view": planBeyondView, "panic": updatePanics, "view": viewFacts,
	}.run(t, newHarness)
}

func absentRecord(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.wantRecord(target.ID, nil)
	f.wantTwin(target, nil)
	f.apply(target, onced.Plan{Delete: true, DeleteTwin: true}) // of nothing
	f.wantRecord(target.ID, nil)
	f.wantTwin(target, nil)
	if all := f.scan(nil, 10); len(all) != 0 {
		f.t.Errorf("a store in which nothing was put holds %d records", len(all))
	}
}

func everyField(f *fixture) {
	for _, r := range specimens() {
		f.put(r)
	}
	for range 2 {
		for _, r := range specimens() {
			f.wantRecord(r.ID, r)
		}
		f.Reopen(true)
	}
}

func replaceRecord(f *fixture) {
	// Each specimen in place of another: nothing of the former may stay.
	for _, r := range append(specimens(), plain(op("k"), 1), completed(op("k"), []byte("result")), plain(op("k"), 2)) {
		r.ID = op("k")
		f.put(r)
		f.wantRecord(r.ID, r)
	}
}

func deleteRecord(f *fixture) {
	f.put(plain(op("k"), 1), plain(op("l"), 2), completed(op("m"), []byte("result")))
	for _, id := range []onced.Identity{op("k"), op("m")} {
		f.apply(storage.Target{ID: id}, onced.Plan{Delete: true})
	}
	for range 2 {
		f.wantRecord(op("k"), nil)
		f.wantRecord(op("l"), plain(op("l"), 2))
		f.wantRecord(op("m"), nil)
		if all := f.scan(nil, 10); len(all) != 1 {
			f.t.Errorf("%d records are left of three, after two were deleted", len(all))
		}
		f.Reopen(true)
	}
	f.put(plain(op("k"), 7))
	f.wantRecord(op("k"), plain(op("k"), 7))
}

func planNothing(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.apply(target, onced.Plan{Put: plain(target.ID, 1), PutTwin: twinEntry(*target.Twin)})
	f.apply(target, onced.Plan{Alarm: onced.AlarmContradicted})
	f.wantRecord(target.ID, plain(target.ID, 1))
	f.wantTwin(target, twinEntry(*target.Twin))
}

// planDoubt: a refusal adds doubt and nothing else; its plan is a put.
func planDoubt(f *fixture) {
	f.put(plain(op("k"), 1))
	want := plain(op("k"), 1)
	want.Doubt, want.Contradicted, want.DoubtTime = true, true, epoch
	f.update(storage.Target{ID: op("k")}, func(v onced.View) onced.Plan {
		r := *v.Record
		r.Doubt, r.Contradicted, r.DoubtTime = true, true, epoch
		return onced.Plan{Put: &r, Alarm: onced.AlarmContradicted}
	})
	f.wantRecord(op("k"), want)
}

func twinWithRecord(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.apply(target, onced.Plan{Put: plain(target.ID, 1), PutTwin: twinEntry(*target.Twin)})
	f.Reopen(true)
	f.wantRecord(target.ID, plain(target.ID, 1))
	f.wantTwin(target, twinEntry(*target.Twin))

	// Another operation of the same act meets the same entry.
	f.wantTwin(storage.Target{ID: op("l"), Twin: target.Twin}, twinEntry(*target.Twin))

	settled := settledTwin(*target.Twin, epoch)
	f.apply(target, onced.Plan{Put: completed(target.ID, nil), PutTwin: settled})
	f.wantTwin(target, settled)
	f.apply(target, onced.Plan{Delete: true, DeleteTwin: true})
	f.Reopen(true)
	f.wantRecord(target.ID, nil)
	f.wantTwin(target, nil)
}

// twinIdentity: entries that differ in one part are different entries.
func twinIdentity(f *fixture) {
	base := twinID("s")
	ids := []onced.TwinID{base, base, base, base, base, base}
	ids[1].Namespace += "x"
	ids[2].Method = ""
	ids[3].Subject = ""
	ids[4].Fingerprint.Scheme = "raw1"
	ids[5].Fingerprint.Digest += "\x00"
	for i, id := range ids {
		f.apply(storage.Target{ID: op("k"), Twin: &id}, onced.Plan{PutTwin: settledTwin(id, epoch.Add(minutes(i)))})
	}
	for i, id := range ids {
		f.wantTwin(storage.Target{ID: op("k"), Twin: &id}, settledTwin(id, epoch.Add(minutes(i))))
	}
}

// twinAlone: an entry is kept and dropped without its operations, and an update
// that does not name it does not see it.
func twinAlone(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.apply(target, onced.Plan{PutTwin: twinEntry(*target.Twin)})
	f.wantRecord(target.ID, nil)
	f.put(plain(target.ID, 1))
	if v := f.look(storage.Target{ID: target.ID}); v.TwinID != nil || v.Twin != nil {
		f.t.Errorf("an update that names no twin entry sees %v", v.Twin)
	}
	f.apply(target, onced.Plan{Delete: true})
	f.wantTwin(target, twinEntry(*target.Twin))
	f.apply(target, onced.Plan{DeleteTwin: true})
	f.wantTwin(target, nil)
}

// planBeyondView: a plan for what the update did not name, or one that
// contradicts itself, is refused as a whole.
func planBeyondView(f *fixture) {
	one, other := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}, twinID("t")
	for name, c := range map[string]struct {
		target storage.Target
		plan   onced.Plan
	}{
		"another record":     {one, onced.Plan{Put: plain(op("l"), 1), Audit: auditEntry(one.ID, 1)}},
		"another twin entry": {one, onced.Plan{Put: plain(one.ID, 1), PutTwin: twinEntry(other)}},
		"put and delete":     {one, onced.Plan{Put: plain(one.ID, 1), Delete: true}},
		"both for the twin":  {one, onced.Plan{Put: plain(one.ID, 1), PutTwin: twinEntry(*one.Twin), DeleteTwin: true}},
		"no twin to put":     {storage.Target{ID: one.ID}, onced.Plan{Put: plain(one.ID, 1), PutTwin: twinEntry(other)}},
		"no twin to delete":  {storage.Target{ID: one.ID}, onced.Plan{Put: plain(one.ID, 1), DeleteTwin: true}},
	} {
		err := f.Store().Update(f.t.Context(), c.target, func(onced.View) onced.Plan { return c.plan })
		if err == nil {
			f.t.Errorf("%s: the plan was carried out", name)
		}
	}
	f.wantRecord(one.ID, nil)
	f.wantRecord(op("l"), nil)
	f.wantTwin(one, nil)
	f.wantTwin(storage.Target{ID: one.ID, Twin: &other}, nil)
	if len(f.audit(10)) != 0 {
		f.t.Error("a plan that was refused left an audit entry")
	}
}

// updatePanics: a panic of an update function reaches its caller, as a panic or
// as an error, changes nothing and leaves the store in use.
func updatePanics(f *fixture) {
	if err := panicking(f.t, f.Store(), op("k")); err == nil {
		f.t.Error("an update whose function panicked was answered as if it had been carried out")
	}
	f.wantRecord(op("k"), nil)
	f.put(plain(op("k"), 1))
	f.wantRecord(op("k"), plain(op("k"), 1))
}

// panicking runs an update of an absent record whose function panics, as a
// transition with a fault would.
func panicking(t *testing.T, s storage.Store, id onced.Identity) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.Update(t.Context(), storage.Target{ID: id}, func(v onced.View) onced.Plan {
		return onced.Plan{Put: plain(id, v.Record.Revision+1)} // there is no record
	})
}

func viewFacts(f *fixture) {
	target := storage.Target{ID: op("k"), Twin: ptr(twinID("s"))}
	f.put(plain(target.ID, 1))
	want := f.meta().Epoch(f.Clock().Wall())
	for by, v := range map[string]onced.View{"Update": f.look(target), "Get": f.get(target.ID), "scan": f.first()} {
		if d := difference(want, v.Epoch); d != "" {
			f.t.Errorf("%s: the view's epoch is not the store's: %s", by, d)
		}
		if v.ID != target.ID || !v.Now.Equal(f.Clock().Wall()) || !v.ExpiryTime.Equal(v.Now) {
			f.t.Errorf("%s: the view is of %v at %v, expiry at %v", by, v.ID, v.Now, v.ExpiryTime)
		}
	}
	if v := f.look(target); v.TwinID == nil || *v.TwinID != *target.Twin {
		f.t.Errorf("the view names the twin entry %v", v.TwinID)
	}
}
