package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testDurability: while a sync is held, nothing that leaves the store depends on
// what is not durable. An answer may come at once when it rests on the state
// before, and waits otherwise.
func testDurability(t *testing.T, newHarness newFunc) {
	tests := subtests{
		"same batch": sameBatch, "meta": heldMeta, "backup": heldBackup,
		"acknowledged": acknowledgedSurvives, "waiting reader leaves": waitingReaderLeaves,
	}
	for name, see := range observers() {
		tests["change "+name] = func(f *fixture) { heldWrite(f, see, true) }
		tests["creation "+name] = func(f *fixture) { heldWrite(f, see, false) }
	}
	tests.run(t, newHarness)
}

// pair is the target that the tests of durability change as a whole: a record,
// its twin entry and the audit trail, all at the same version.
var pair = storage.Target{ID: op("pair"), Twin: ptr(twinID("pair"))}

// version returns a plan that puts everything of pair at version n.
func version(n uint64) onced.Plan {
	return onced.Plan{
		Put: plain(pair.ID, n), PutTwin: settledTwin(*pair.Twin, epoch.Add(minutes(int(n)))),
		Audit: auditEntry(pair.ID, int(n)),
	}
}

// next is the update that moves pair one version on.
func next(v onced.View) onced.Plan { return version(revision(v) + 1) }

// observer reads something of pair and returns the version that it saw.
type observer func(ctx context.Context, s storage.Store) (uint64, error)

// observers are all ways to learn of pair's version: by reads, by an update that
// changes nothing, and by one that changes something else.
func observers() map[string]observer {
	seenBy := func(target storage.Target, fn func(onced.View) (uint64, onced.Plan)) observer {
		return func(ctx context.Context, s storage.Store) (n uint64, err error) {
			err = s.Update(ctx, target, func(v onced.View) (plan onced.Plan) {
				n, plan = fn(v)
				return plan
			})
			return n, err
		}
	}
	return map[string]observer{
		"Get": func(ctx context.Context, s storage.Store) (uint64, error) {
			v, err := s.Get(ctx, pair.ID)
			return revision(v), err
		},
		"ScanIdentity": func(ctx context.Context, s storage.Store) (uint64, error) {
			page, err := s.ScanIdentity(ctx, pair.ID.Encode(), nil, 1)
			return greatest(page.Views, revision), err
		},
		"ScanDue": func(ctx context.Context, s storage.Store) (uint64, error) {
			page, err := s.ScanDue(ctx, onced.DueUnsettled, far, nil, 1)
			return greatest(page.Due, func(d storage.Due) uint64 { return uint64(d.At.Sub(epoch) / minutes(1)) }), err
		},
		"ScanDue of twins": func(ctx context.Context, s storage.Store) (uint64, error) {
			page, err := s.ScanDue(ctx, onced.DueTwin, far, nil, 1)
			return greatest(page.Due, func(d storage.Due) uint64 { return uint64(d.At.Sub(epoch)/minutes(1)) - 24*60 }), err
		},
		"ScanAudit": func(ctx context.Context, s storage.Store) (uint64, error) {
			page, err := s.ScanAudit(ctx, nil, 1<<20)
			return uint64(len(page.Entries)), err
		},
		"refusal": seenBy(pair, func(v onced.View) (uint64, onced.Plan) { return revision(v), onced.Plan{} }),
		"refusal by twin": seenBy(storage.Target{ID: op("other"), Twin: pair.Twin}, func(v onced.View) (uint64, onced.Plan) {
			if v.Twin == nil {
				return 0, onced.Plan{}
			}
			return uint64(v.Twin.Last.SettleTime.Sub(epoch) / minutes(1)), onced.Plan{}
		}),
		"update": seenBy(pair, func(v onced.View) (uint64, onced.Plan) { return revision(v), next(v) }),
	}
}

// greatest returns the greatest version in a page.
func greatest[T any](page []T, version func(T) uint64) (n uint64) {
	for _, e := range page {
		n = max(n, version(e))
	}
	return n
}

// heldWrite: an observer that comes while the write of a version is not durable
// is answered with the version before, or later.
func heldWrite(f *fixture, see observer, existing bool) {
	old := uint64(0)
	if existing {
		old = 1
		f.apply(pair, version(1))
	}
	release := f.hold()
	write := f.startUpdate(f.t.Context(), pair, next)
	store, saw := f.Store(), uint64(0)
	look := start(func() (err error) {
		saw, err = see(f.t.Context(), store)
		return err
	})
	linger(write, look)
	if write.answered() {
		f.t.Errorf("an update was answered before its sync had ended: %v", write.err)
	}
	if look.answered() && (look.err != nil || saw != old) {
		f.t.Errorf("version %d was shown while only %d was durable (%v)", saw, old, look.err)
	}
	release()
	for _, c := range []*call{write, look} {
		if err := c.wait(f.t); err != nil {
			f.t.Errorf("after the sync: %v", err)
		}
	}
	if saw > old+1 {
		f.t.Errorf("version %d was shown, and only %d was written", saw, old+1)
	}
	if n, err := see(f.t.Context(), f.Store()); err != nil || n < old+1 {
		f.t.Errorf("version %d is shown after %d was answered (%v)", n, old+1, err)
	}
}

// sameBatch: updates that queued behind a sync are decided together and written
// together. Those that change nothing wait as well, if what they saw was written
// by one that waits.
func sameBatch(f *fixture) {
	f.apply(pair, version(1))
	release := f.hold()
	first := f.startUpdate(f.t.Context(), pair, next) // to version 2

	const n = 8
	store, calls, saw := f.Store(), [2 * n]*call{}, [2 * n]uint64{}
	for i := range calls {
		calls[i] = start(func() error {
			return store.Update(f.t.Context(), pair, func(v onced.View) onced.Plan {
				saw[i] = revision(v)
				if i < n {
					return next(v)
				}
				return onced.Plan{}
			})
		})
	}
	check := func(durable uint64) {
		linger(calls[:]...)
		for i, c := range calls {
			if c.answered() && (i < n || c.err != nil || saw[i] > durable) {
				f.t.Errorf("update %d, which saw version %d, was answered while only %d was surely durable (%v)", i, saw[i], durable, c.err)
			}
		}
	}
	check(1)
	releaseSecond := f.hold()
	release() // the first update's sync; the one of those behind it is held
	linger(first)
	check(2)
	releaseSecond()
	for _, c := range append(calls[:], first) {
		if err := c.wait(f.t); err != nil {
			f.t.Errorf("after the sync: %v", err)
		}
	}
	f.wantRecord(pair.ID, plain(pair.ID, 2+n))
}

func heldMeta(f *fixture) {
	release := f.hold()
	store := f.Store()
	write := start(func() error {
		return store.UpdateMeta(f.t.Context(), func(m storage.Meta) storage.Meta {
			m.ReplacesLost = true
			return m
		})
	})
	linger(write)
	var meta storage.Meta
	var view onced.View
	reads := []*call{
		start(func() (err error) { meta, err = store.Meta(f.t.Context()); return err }),
		start(func() (err error) { view, err = store.Get(f.t.Context(), op("k")); return err }),
	}
	linger(append(reads, write)...)
	if write.answered() {
		f.t.Errorf("UpdateMeta was answered before its sync had ended: %v", write.err)
	}
	if reads[0].answered() && (reads[0].err != nil || meta.ReplacesLost) {
		f.t.Errorf("Meta shows what is not durable (%v)", reads[0].err)
	}
	if reads[1].answered() && (reads[1].err != nil || view.Epoch.ReplacesLost) {
		f.t.Errorf("a view shows an epoch that is not durable (%v)", reads[1].err)
	}
	release()
	for _, c := range append(reads, write) {
		if err := c.wait(f.t); err != nil {
			f.t.Errorf("after the sync: %v", err)
		}
	}
	if !f.meta().ReplacesLost {
		f.t.Error("Meta does not show what UpdateMeta was answered for")
	}
}

// heldBackup: a backup that is finished while a write is not durable is without it.
func heldBackup(f *fixture) {
	f.apply(pair, version(1))
	release := f.hold()
	write := f.startUpdate(f.t.Context(), pair, next)
	var b bytes.Buffer
	store := f.Store()
	backup := start(func() error { return store.Backup(f.t.Context(), &b) })
	linger(write, backup)
	early := backup.answered()
	release()
	for _, c := range []*call{write, backup} {
		if err := c.wait(f.t); err != nil {
			f.t.Fatalf("after the sync: %v", err)
		}
	}
	n, err := wholeVersion(f.t.Context(), f.Restore(b.Bytes()))
	if err != nil || n < 1 || n > 2 || early && n != 1 {
		f.t.Errorf("the backup holds version %d, finished before the sync: %t (%v)", n, early, err)
	}
}

// waitingReaderLeaves: a reader that waits for a sync stops when its context ends.
func waitingReaderLeaves(f *fixture) {
	f.apply(pair, version(1))
	release := f.hold()
	write := f.startUpdate(f.t.Context(), pair, next)
	ctx, cancel := context.WithCancel(f.t.Context())
	store, saw := f.Store(), uint64(0)
	read := start(func() error {
		v, err := store.Get(ctx, pair.ID)
		saw = revision(v)
		return err
	})
	linger(read)
	cancel()
	if err := read.wait(f.t); err == nil && saw != 1 {
		f.t.Errorf("version %d was shown while only 1 was durable", saw)
	}
	release()
	if err := write.wait(f.t); err != nil {
		f.t.Error(err)
	}
}

// acknowledgedSurvives: what was answered is there after a power loss.
func acknowledgedSurvives(f *fixture) {
	for n := range uint64(6) {
		f.update(pair, next)
		f.Reopen(true)
		if got, err := wholeVersion(f.t.Context(), f.Store()); err != nil || got != n+1 {
			f.t.Fatalf("version %d was answered; after the power loss: %d, %v", n+1, got, err)
		}
	}
	f.apply(pair, onced.Plan{Delete: true})
	f.Reopen(true)
	f.wantRecord(pair.ID, nil)
}

// wholeVersion returns the version of pair, and an error if its parts do not
// have the same one.
func wholeVersion(ctx context.Context, s storage.Store) (n uint64, err error) {
	saw := map[string]uint64{}
	for name, see := range observers() {
		if name == "update" {
			continue
		}
		if n, err = see(ctx, s); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		saw[name] = n
	}
	for _, other := range saw {
		if other != n {
			return 0, fmt.Errorf("the parts have different versions: %v", saw)
		}
	}
	return n, nil
}
