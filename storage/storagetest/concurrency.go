package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// callers is how many goroutines the tests of this file run at once.
const callers = 64

// testConcurrency: updates of one identity happen one after another, and what
// happens to one update does not happen to its neighbours.
func testConcurrency(t *testing.T, newHarness newFunc) {
	subtests{
		"one identity": oneIdentity, "many identities": manyIdentities, "fences": concurrentFences,
		"one twin entry": oneTwinEntry, "crossed": crossedTargets, "neighbours": neighbours, "reads": readsFollow,
	}.run(t, newHarness)
}

// increment puts the record one revision further.
func increment(v onced.View) onced.Plan { return onced.Plan{Put: plain(v.ID, revision(v)+1)} }

// putPlain stores a plain record from any goroutine.
func putPlain(f *fixture, s storage.Store, id onced.Identity, revision uint64) error {
	return s.Update(f.t.Context(), storage.Target{ID: id}, func(onced.View) onced.Plan {
		return onced.Plan{Put: plain(id, revision)}
	})
}

func oneIdentity(f *fixture) {
	const rounds = 4
	var saw [callers][rounds]uint64
	parallel(f.t, callers, func(i int) error {
		for round := range rounds {
			err := f.Store().Update(f.t.Context(), storage.Target{ID: op("k")}, func(v onced.View) onced.Plan {
				saw[i][round] = revision(v)
				return increment(v)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.wantRecord(op("k"), plain(op("k"), callers*rounds))
	var all []uint64
	for i := range saw {
		if !slices.IsSorted(saw[i][:]) {
			f.t.Errorf("caller %d saw the revisions %v, one after another", i, saw[i])
		}
		all = append(all, saw[i][:]...)
	}
	slices.Sort(all)
	for i, n := range all {
		if n != uint64(i) {
			f.t.Fatalf("two updates were decided on one state, or none on another: revision %d at place %d", n, i)
		}
	}
}

func manyIdentities(f *fixture) {
	parallel(f.t, callers, func(i int) error { return putPlain(f, f.Store(), op("%d", i), uint64(i)+1) })
	f.Reopen(true)
	for i := range callers {
		f.wantRecord(op("%d", i), plain(op("%d", i), uint64(i)+1))
	}
}

func concurrentFences(f *fixture) {
	const rounds = 4
	var fences [callers][rounds]uint64
	parallel(f.t, callers, func(i int) error {
		for round := range rounds {
			err := f.Store().Update(f.t.Context(), storage.Target{ID: op("%d", i%8)}, func(v onced.View) onced.Plan {
				fences[i][round] = v.NextFence
				return useFence(v)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	holder := map[uint64]int{}
	for i := range fences {
		for round, fence := range fences[i] {
			if other, taken := holder[fence]; taken {
				f.t.Errorf("fence %d was given to caller %d and to caller %d", fence, other, i)
			}
			if holder[fence] = i; round > 0 && fence <= fences[i][round-1] {
				f.t.Errorf("caller %d got fence %d after %d", i, fence, fences[i][round-1])
			}
		}
	}
}

// oneTwinEntry: operations that share a twin entry are decided one after
// another on it.
func oneTwinEntry(f *fixture) {
	const n = 16
	id := twinID("s")
	parallel(f.t, n, func(i int) error {
		target := storage.Target{ID: op("%02d", i), Twin: &id}
		return f.Store().Update(f.t.Context(), target, func(v onced.View) onced.Plan {
			entry := onced.TwinEntry{ID: id}
			if v.Twin != nil {
				entry = *v.Twin
			}
			entry.Unsettled = append(slices.Clone(entry.Unsettled), onced.TwinKey{Key: target.ID.Key, ClaimTime: epoch})
			return onced.Plan{Put: plain(target.ID, 1), PutTwin: &entry}
		})
	})
	entry := f.look(storage.Target{ID: op("00"), Twin: &id}).Twin
	keys := map[string]bool{}
	for _, k := range entry.Unsettled {
		keys[k.Key] = true
	}
	if len(keys) != n || len(entry.Unsettled) != n {
		f.t.Errorf("of %d operations, %d stand in their twin entry", n, len(keys))
	}
}

// crossedTargets: updates that need the same records in another order do not
// wait for each other forever.
func crossedTargets(f *fixture) {
	ids, twins := []onced.Identity{op("a"), op("b")}, []onced.TwinID{twinID("a"), twinID("b")}
	parallel(f.t, callers, func(i int) error {
		target := storage.Target{ID: ids[i%2], Twin: &twins[i/2%2]}
		return f.Store().Update(f.t.Context(), target, func(v onced.View) onced.Plan {
			entry := settledTwin(*target.Twin, epoch)
			if v.Twin != nil {
				entry.Last.SettleTime = v.Twin.Last.SettleTime.Add(1)
			}
			return onced.Plan{Put: plain(v.ID, revision(v)+1), PutTwin: entry}
		})
	})
	for i, id := range ids {
		f.wantRecord(id, plain(id, callers/2))
		f.wantTwin(storage.Target{ID: id, Twin: &twins[i]}, settledTwin(twins[i], epoch.Add(callers/2-1)))
	}
}

// neighbours: among updates that succeed are some that panic, refuse, plan what
// is not theirs, or are not wanted any more. Each gets its own answer.
func neighbours(f *fixture) {
	gone, cancel := context.WithCancel(f.t.Context())
	cancel()
	parallel(f.t, callers, func(i int) error {
		id, ctx := op("%d", i), f.t.Context()
		var plan onced.Plan
		switch i % 8 {
		case 1:
			if panicking(f.t, f.Store(), id) == nil {
				return errors.New("an update whose function panicked was answered as if it had been carried out")
			}
			return nil
		case 3: // refuses
		case 5:
			plan.Put = plain(op("%d", i-1), 99)
		case 7:
			plan.Put, ctx = plain(id, 99), gone
		default:
			plan.Put = plain(id, 1)
		}
		err := f.Store().Update(ctx, storage.Target{ID: id}, func(onced.View) onced.Plan { return plan })
		if wrong := i%8 == 5 || i%8 == 7; wrong != (err != nil) {
			return fmt.Errorf("update of kind %d: %w", i%8, err)
		}
		return nil
	})
	for i := range callers {
		var want *onced.Record
		if i%2 == 0 {
			want = plain(op("%d", i), 1)
		}
		f.wantRecord(op("%d", i), want)
	}
}

// readsFollow: a read shows every update that was answered before it began, and
// reads one after another never go back.
func readsFollow(f *fixture) {
	var acknowledged atomic.Uint64
	f.put(plain(op("k"), 1))
	acknowledged.Store(1)
	parallel(f.t, 9, func(i int) error {
		for seen := uint64(0); seen < 32; {
			if i == 0 {
				if err := f.Store().Update(f.t.Context(), storage.Target{ID: op("k")}, increment); err != nil {
					return err
				}
				seen = acknowledged.Add(1)
				continue
			}
			least := acknowledged.Load()
			got, err := readRevision(f, i%2 == 0)
			if err != nil || got < max(least, seen) {
				return fmt.Errorf("a read shows revision %d, after %d was answered and %d was shown: %w", got, least, seen, err)
			}
			seen = got
		}
		return nil
	})
}

// readRevision reads the record of "k" by Get or by a scan.
func readRevision(f *fixture, scan bool) (uint64, error) {
	if !scan {
		v, err := f.Store().Get(f.t.Context(), op("k"))
		return revision(v), err
	}
	page, err := f.Store().ScanIdentity(f.t.Context(), op("k").Encode(), nil, 1)
	if err != nil || len(page.Views) != 1 {
		return 0, fmt.Errorf("scan: %d records: %w", len(page.Views), err)
	}
	return revision(page.Views[0]), nil
}
