package storagetest

import (
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testMeta: the facts about the store are changed as a whole and survive.
func testMeta(t *testing.T, newHarness newFunc) {
	subtests{
		"fresh": freshMeta, "update": updateMeta, "fixed": fixedMeta, "concurrent": concurrentMeta, "copies": metaCopies,
	}.run(t, newHarness)
}

// wantMeta checks what the store says of itself.
func (f *fixture) wantMeta(want storage.Meta) {
	f.t.Helper()
	if d := difference(want, f.meta()); d != "" {
		f.t.Fatalf("Meta: %s", d)
	}
	since := f.get(op("k")).Epoch.ServingSince
	if d := difference(want.Epoch(since), f.get(op("k")).Epoch); d != "" {
		f.t.Fatalf("a view's epoch is not Meta's: %s", d)
	}
}

func freshMeta(f *fixture) {
	want := storage.Meta{Generation: uint64(epoch.Unix()), HistoryStart: epoch}
	f.wantMeta(want)
	f.Clock().Advance(time.Hour)
	f.Reopen(false)
	f.wantMeta(want)
}

// someMeta sets every fact that may change.
func someMeta(m storage.Meta) storage.Meta {
	m.ReplacesLost, m.BlindUntil = true, epoch.Add(time.Hour+1)
	m.Memories = map[string]onced.Memory{
		"": {Since: epoch.Add(1), Retention: 720 * time.Hour}, "crm/eu": {Retention: time.Hour + 1}, "b": {},
	}
	return m
}

func updateMeta(f *fixture) {
	want := f.meta()
	for _, change := range []func(storage.Meta) storage.Meta{
		someMeta,
		func(m storage.Meta) storage.Meta { return m },
		func(m storage.Meta) storage.Meta { delete(m.Memories, "b"); return m },
		func(m storage.Meta) storage.Meta { m.BlindUntil = time.Time{}; return m },
		func(m storage.Meta) storage.Meta { m.ReplacesLost, m.Memories = false, nil; return m },
	} {
		want = change(want)
		if err := f.Store().UpdateMeta(f.t.Context(), change); err != nil {
			f.t.Fatal(err)
		}
		f.wantMeta(want)
		f.put(plain(op("k"), 1)) // other writes leave it alone
		f.Reopen(true)
		f.wantMeta(want)
	}
}

// fixedMeta: nothing changes which generation a store is of, and when it began.
func fixedMeta(f *fixture) {
	want := f.meta()
	for name, change := range map[string]func(*storage.Meta){
		"generation": func(m *storage.Meta) { m.Generation++ }, "history start": func(m *storage.Meta) { m.HistoryStart = epoch.Add(1) },
	} {
		err := f.Store().UpdateMeta(f.t.Context(), func(m storage.Meta) storage.Meta {
			m = someMeta(m)
			change(&m)
			return m
		})
		if err == nil {
			f.t.Errorf("%s: the change was carried out", name)
		}
		f.wantMeta(want)
	}
	f.Reopen(false)
	f.wantMeta(want)
}

func concurrentMeta(f *fixture) {
	parallel(f.t, 16, func(i int) error {
		return f.Store().UpdateMeta(f.t.Context(), func(m storage.Meta) storage.Meta {
			if m.Memories == nil {
				m.Memories = map[string]onced.Memory{}
			}
			m.Memories[op("%d", i).Key] = onced.Memory{Retention: minutes(i)}
			return m
		})
	})
	m := f.meta()
	for i := range 16 {
		if got, ok := m.Memories[op("%d", i).Key]; !ok || got.Retention != minutes(i) {
			f.t.Errorf("of 16 concurrent changes, number %d is lost", i)
		}
	}
}

// metaCopies: the maps that go in and out belong to the caller.
func metaCopies(f *fixture) {
	var given storage.Meta
	err := f.Store().UpdateMeta(f.t.Context(), func(m storage.Meta) storage.Meta {
		given = someMeta(m)
		return given
	})
	if err != nil {
		f.t.Fatal(err)
	}
	want := someMeta(f.meta())
	clear(given.Memories)
	f.wantMeta(want)
	clear(f.meta().Memories)
	f.wantMeta(want)
}
