package storagetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testBackup: a backup is the store at one moment.
func testBackup(t *testing.T, newHarness newFunc) {
	subtests{
		"everything": backupHoldsAll, "one moment": backupIsConsistent, "own": backupIsOwn, "empty": backupOfNothing, "time": backupTime,
		"broken writer": brokenWriter, "context": backupContext,
	}.run(t, newHarness)
}

// backupHoldsAll: a store over a backup answers as the first one does.
func backupHoldsAll(f *fixture) {
	f.put(specimens()...)
	f.put(completed(op("large"), noise(1, 3<<20)))
	f.apply(pair, version(4))
	if err := f.Store().UpdateMeta(f.t.Context(), someMeta); err != nil {
		f.t.Fatal(err)
	}
	copied := &fixture{Harness: restored{f.Harness, f.Restore(f.backup())}, t: f.t}
	for _, r := range append(specimens(), completed(op("large"), noise(1, 3<<20)), plain(pair.ID, 4)) {
		copied.wantRecord(r.ID, r)
	}
	copied.wantMeta(f.meta())
	copied.wantTwin(pair, version(4).PutTwin)
	for _, kind := range []onced.DueKind{onced.DueUnsettled, onced.DueExpiry, onced.DueTwin} {
		if d := difference(f.due(kind, far, 100), copied.due(kind, far, 100)); d != "" {
			f.t.Errorf("due in the backup's store: %s", d)
		}
	}
	if d := difference(f.audit(100), copied.audit(100)); d != "" {
		f.t.Errorf("audit trail of the backup's store: %s", d)
	}
	// It can be backed up in turn.
	again := f.Restore(copied.backup())
	if v, err := again.Get(f.t.Context(), pair.ID); err != nil || revision(v) != 4 {
		f.t.Errorf("a backup of the backup's store has version %d (%v)", revision(v), err)
	}
}

// restored is a harness whose store is one over a backup.
type restored struct {
	Harness
	store storage.Store
}

func (r restored) Store() storage.Store { return r.store }

// backupIsConsistent: while pair is written again and again, every backup holds
// it whole, and at least as new as the last answer before the backup began.
func backupIsConsistent(f *fixture) {
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	store, written := f.Store(), make(chan struct{}, 1)
	writer := start(func() error {
		for ctx.Err() == nil {
			if err := store.Update(f.t.Context(), pair, next); err != nil {
				return err
			}
			select {
			case written <- struct{}{}:
			default:
			}
		}
		return nil
	})
	for range 8 {
		await(f.t, written, "an update")
		v := f.get(pair.ID)
		copied := f.Restore(f.backup())
		if n, err := wholeVersion(f.t.Context(), copied); err != nil || n < revision(v) {
			f.t.Errorf("a backup that began at version %d holds version %d: %v", revision(v), n, err)
		}
	}
	cancel()
	if err := writer.wait(f.t); err != nil {
		f.t.Error(err)
	}
}

// backupIsOwn: neither store sees the other's later writes.
func backupIsOwn(f *fixture) {
	f.apply(pair, version(1))
	copied := f.Restore(f.backup())
	f.update(pair, next)
	if n, err := wholeVersion(f.t.Context(), copied); err != nil || n != 1 {
		f.t.Errorf("the backup's store follows the first one to version %d: %v", n, err)
	}
	for range 2 {
		if err := copied.Update(f.t.Context(), pair, next); err != nil {
			f.t.Fatal(err)
		}
	}
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 2 {
		f.t.Errorf("the store follows its backup to version %d: %v", n, err)
	}
}

func backupOfNothing(f *fixture) {
	copied := f.Restore(f.backup())
	m, err := copied.Meta(f.t.Context())
	if d := difference(f.meta(), m); err != nil || d != "" {
		f.t.Errorf("Meta of an empty store's backup: %s, %v", d, err)
	}
	if err := putPlain(f, copied, op("k"), 1); err != nil {
		f.t.Error(err)
	}
}

// backupTime: a machine whose clock is behind opens the backup, and store time
// still does not go back.
func backupTime(f *fixture) {
	f.Clock().Advance(time.Minute)
	f.put(plain(op("k"), 1))
	backup := f.backup()
	f.Clock().StepWall(-time.Hour)
	v, err := f.Restore(backup).Get(f.t.Context(), op("l"))
	if got := v.Now.Sub(epoch); err != nil || got != time.Minute {
		f.t.Errorf("the backup's newest stamp is 1m after the epoch, its store is at %v (%v)", got, err)
	}
}

var errWriter = errors.New("no room for the backup")

// failingWriter fails after n bytes.
type failingWriter struct{ n int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, errWriter
	}
	return len(p), nil
}

// brokenWriter: a backup that cannot be written says so and harms nothing.
func brokenWriter(f *fixture) {
	f.apply(pair, version(1))
	f.put(completed(op("k"), noise(1, 64<<10)))
	for _, n := range []int{0, 1, 4096, len(f.backup()) - 1} {
		if err := f.Store().Backup(f.t.Context(), &failingWriter{n}); !errors.Is(err, errWriter) {
			f.t.Errorf("a backup whose writer failed after %d bytes: %v", n, err)
		}
	}
	f.update(pair, next)
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 2 {
		f.t.Errorf("after failed backups: version %d, %v", n, err)
	}
}

func backupContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.t.Context())
	cancel()
	var b bytes.Buffer
	if err := f.Store().Backup(ctx, &b); !errors.Is(err, context.Canceled) {
		f.t.Errorf("a backup that nobody wants any more: %v", err)
	}
}
