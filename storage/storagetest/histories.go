package storagetest

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testHistories: random updates, restarts and scans, held against maps that do
// the same. A seed names a history; it fails again under the same name.
func testHistories(t *testing.T, newHarness newFunc) {
	tests := subtests{}
	for seed := range int64(4) {
		tests[fmt.Sprintf("seed %d", seed)] = func(f *fixture) {
			m := &model{
				fixture: f, random: rand.New(rand.NewSource(seed)),
				records: map[onced.Identity]*onced.Record{}, twins: map[onced.TwinID]*onced.TwinEntry{},
			}
			for range 150 {
				m.step()
			}
			m.check()
		}
	}
	tests.run(t, newHarness)
}

// model is a store as it should be.
type model struct {
	*fixture
	random  *rand.Rand
	records map[onced.Identity]*onced.Record
	twins   map[onced.TwinID]*onced.TwinEntry
	trail   []onced.AuditEntry
	fence   uint64
}

func (m *model) step() {
	m.t.Helper()
	switch n := m.random.Intn(100); {
	case n < 4:
		m.Reopen(n < 2)
	case n < 10:
		m.check()
	case n < 14:
		m.Clock().Advance(time.Duration(m.random.Int63n(int64(time.Hour))))
	default:
		m.updateOne()
	}
}

// updateOne runs one random update on the store and on the model.
func (m *model) updateOne() {
	m.t.Helper()
	target := storage.Target{ID: op("%d", m.random.Intn(10))}
	if m.random.Intn(2) == 0 {
		target.Twin = ptr(twinID(fmt.Sprint(m.random.Intn(4))))
	}
	plan := m.plan(target)
	saw := m.update(target, func(v onced.View) onced.Plan {
		p := plan
		if old := m.records[target.ID]; p.Put != nil && old != nil && p.Put.Result == old.Result {
			p.Put = shown(p.Put)
		}
		if p.UsesFence {
			p.Put = ptr(*p.Put)
			p.Put.Fence = v.NextFence
		}
		return p
	})
	if d := difference(shown(m.records[target.ID]), saw.Record); d != "" {
		m.t.Fatalf("an update of %v was decided on another record: %s", target.ID, d)
	}
	if target.Twin != nil {
		if d := difference(m.twins[*target.Twin], saw.Twin); d != "" {
			m.t.Fatalf("an update of %v was decided on another twin entry: %s", target.ID, d)
		}
	}
	if saw.NextFence <= m.fence {
		m.t.Fatalf("the next fence is %d, and %d is used", saw.NextFence, m.fence)
	}
	if plan.UsesFence {
		plan.Put.Fence, m.fence = saw.NextFence, saw.NextFence
	}
	m.apply(target, plan)
}

// apply carries out a plan on the model.
func (m *model) apply(target storage.Target, plan onced.Plan) {
	switch {
	case plan.Put != nil:
		m.records[target.ID] = plan.Put
	case plan.Delete:
		delete(m.records, target.ID)
	}
	switch {
	case plan.PutTwin != nil:
		m.twins[*target.Twin] = plan.PutTwin
	case plan.DeleteTwin:
		delete(m.twins, *target.Twin)
	}
	if plan.Audit != nil {
		m.trail = append(m.trail, *plan.Audit)
	}
}

// plan makes a random plan for a target.
func (m *model) plan(target storage.Target) (plan onced.Plan) {
	moment := epoch.Add(time.Duration(m.random.Int63n(int64(100 * time.Hour))))
	switch n := m.random.Intn(10); {
	case n < 2:
		plan.Delete = true
	case n < 5:
		plan.Put = completed(target.ID, noise(m.random.Int63(), m.random.Intn(20)<<uint(m.random.Intn(14))))
		plan.Put.ResultExpire = moment
	case n == 5 && m.records[target.ID] != nil: // its payloads stay
		plan.Put = ptr(*m.records[target.ID])
		plan.Put.Revision = m.random.Uint64()
	case n < 7:
		plan.Put = specimens()[m.random.Intn(4)]
		plan.Put.ID = target.ID
	case n < 9:
		plan.Put = plain(target.ID, m.random.Uint64())
		plan.Put.LeaseEnd, plan.UsesFence = moment, true
	}
	if target.Twin != nil {
		switch m.random.Intn(5) {
		case 0:
			plan.DeleteTwin = true
		case 1:
			plan.PutTwin = twinEntry(*target.Twin)
		case 2, 3:
			plan.PutTwin = settledTwin(*target.Twin, moment)
		}
	}
	if m.random.Intn(5) == 0 {
		plan.Audit = auditEntry(target.ID, m.random.Intn(1000))
	}
	return plan
}

// check holds every scan against the model.
func (m *model) check() {
	m.t.Helper()
	limit := 1 + m.random.Intn(12)
	var want, got []*onced.Record
	for _, r := range m.records {
		want = append(want, r)
	}
	slices.SortFunc(want, func(a, b *onced.Record) int { return bytes.Compare(a.ID.Encode(), b.ID.Encode()) })
	for _, v := range m.scan(nil, limit) {
		got = append(got, v.Record)
	}
	if d := difference(want, got); d != "" {
		m.t.Fatalf("scan by identity: %s", d)
	}
	if d := difference(m.trail, m.audit(limit)); d != "" {
		m.t.Fatalf("audit trail: %s", d)
	}
	before := epoch.Add(time.Duration(m.random.Int63n(int64(1000 * time.Hour))))
	for _, kind := range []onced.DueKind{onced.DueUnsettled, onced.DueExpiry, onced.DueTwin} {
		got := m.due(kind, before, limit)
		if !slices.IsSortedFunc(got, func(a, b storage.Due) int { return a.At.Compare(b.At) }) {
			m.t.Fatalf("due entries of kind %d are not in order of time: %v", kind, got)
		}
		// Those of one moment may come in any order.
		slices.SortFunc(got, byName)
		if d := difference(m.dueOf(kind, before), got); d != "" {
			m.t.Fatalf("due entries of kind %d: %s", kind, d)
		}
	}
}

// dueOf returns what should be due, in the order of names.
func (m *model) dueOf(kind onced.DueKind, before time.Time) []storage.Due {
	var want []storage.Due
	for id, r := range m.records {
		if k, at := r.Due(); k == kind && !at.After(before) {
			want = append(want, storage.Due{At: at, ID: id})
		}
	}
	for id, e := range m.twins {
		if at, ok := e.Due(); ok && kind == onced.DueTwin && !at.After(before) {
			want = append(want, storage.Due{At: at, Twin: &id})
		}
	}
	slices.SortFunc(want, byName)
	return want
}

func byName(a, b storage.Due) int {
	return slices.Compare(names([]storage.Due{a}), names([]storage.Due{b}))
}
