package storagetest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testFailures: after a failed sync nobody is told that anything happened, and
// what is found after the power loss is a whole state, old or new.
func testFailures(t *testing.T, newHarness newFunc) {
	subtests{
		"update": failedUpdate, "held update": failedHeldUpdate, "meta": failedMeta,
		"batch": failedBatch, "signal": failureSignal, "fences": fencesAfterFailure,
	}.run(t, newHarness)
}

// everyCall is one call of every method that can fail.
func everyCall(ctx context.Context, s storage.Store) map[string]error {
	errs := map[string]error{
		"Update":     s.Update(ctx, storage.Target{ID: op("k")}, increment),
		"refusal":    s.Update(ctx, storage.Target{ID: op("k")}, func(onced.View) onced.Plan { return onced.Plan{} }),
		"UpdateMeta": s.UpdateMeta(ctx, func(m storage.Meta) storage.Meta { return m }),
		"Backup":     s.Backup(ctx, io.Discard),
	}
	_, errs["Get"] = s.Get(ctx, op("k"))
	_, errs["ScanIdentity"] = s.ScanIdentity(ctx, nil, nil, 1)
	_, errs["ScanDue"] = s.ScanDue(ctx, onced.DueUnsettled, epoch, nil, 1)
	_, errs["ScanAudit"] = s.ScanAudit(ctx, nil, 1)
	_, errs["Meta"] = s.Meta(ctx)
	return errs
}

// wantFailed checks that the store says that it has failed, and answers nothing.
func (f *fixture) wantFailed() {
	f.t.Helper()
	await(f.t, f.Store().Failed(), "Failed to be closed")
	for name, err := range everyCall(f.t.Context(), f.Store()) {
		if !errors.Is(err, storage.ErrFailed) {
			f.t.Errorf("%s of a store that has failed: %v, want ErrFailed", name, err)
		}
	}
}

// wantWhole reopens after a power loss and checks that pair is whole, at one of
// the versions low to high, and that the store is in use again.
func (f *fixture) wantWhole(low, high uint64) {
	f.t.Helper()
	f.Reopen(true)
	n, err := wholeVersion(f.t.Context(), f.Store())
	if err != nil || n < low || n > high {
		f.t.Fatalf("after the power loss: version %d, want %d to %d: %v", n, low, high, err)
	}
	f.update(pair, next)
	if again, err := wholeVersion(f.t.Context(), f.Store()); err != nil || again != n+1 {
		f.t.Errorf("after the power loss and an update: version %d, %v", again, err)
	}
}

func failedUpdate(f *fixture) {
	f.apply(pair, version(1))
	f.FailSync()
	if err := f.Store().Update(f.t.Context(), pair, next); !errors.Is(err, storage.ErrFailed) {
		f.t.Errorf("an update whose sync failed: %v, want ErrFailed", err)
	}
	f.wantFailed()
	f.wantWhole(1, 2)
}

// failedHeldUpdate: those who wait for a sync that then fails get no answer either.
func failedHeldUpdate(f *fixture) {
	f.apply(pair, version(1))
	release := f.hold()
	write := f.startUpdate(f.t.Context(), pair, next)
	store, calls, saw := f.Store(), []*call{write}, make([]uint64, len(observers()))
	for name, see := range observers() {
		i := len(calls) - 1
		calls = append(calls, start(func() (err error) {
			if saw[i], err = see(f.t.Context(), store); err == nil && (name == "update" || saw[i] != 1) {
				f.t.Errorf("%s was answered with version %d, and only 1 was ever durable", name, saw[i])
			}
			return err
		}))
	}
	linger(calls...)
	f.FailSync()
	release()
	for _, c := range calls {
		if err := c.wait(f.t); err != nil && !errors.Is(err, storage.ErrFailed) {
			f.t.Errorf("a call that waited for a sync that failed: %v, want ErrFailed", err)
		}
	}
	if !errors.Is(write.err, storage.ErrFailed) {
		f.t.Errorf("the update whose sync failed: %v, want ErrFailed", write.err)
	}
	f.wantFailed()
	f.wantWhole(1, 3)
}

func failedMeta(f *fixture) {
	f.FailSync()
	err := f.Store().UpdateMeta(f.t.Context(), func(m storage.Meta) storage.Meta {
		m.BlindUntil = epoch
		return m
	})
	if !errors.Is(err, storage.ErrFailed) {
		f.t.Errorf("an UpdateMeta whose sync failed: %v, want ErrFailed", err)
	}
	f.wantFailed()
	f.wantWhole(0, 0)
}

// failedBatch: of many updates at once, with the first sync failing, none may be
// answered after the failure, and all that were answered are there.
func failedBatch(f *fixture) {
	for range 4 {
		from, err := wholeVersion(f.t.Context(), f.Store())
		if err != nil {
			f.t.Fatal(err)
		}
		f.FailSync()
		store, calls := f.Store(), [16]*call{}
		for i := range calls {
			calls[i] = start(func() error { return store.Update(f.t.Context(), pair, next) })
		}
		for _, c := range calls {
			if err := c.wait(f.t); !errors.Is(err, storage.ErrFailed) {
				f.t.Errorf("an update behind a failed sync: %v, want ErrFailed", err)
			}
		}
		f.wantFailed()
		f.wantWhole(from, from+uint64(len(calls)))
	}
}

// failureSignal: Failed is closed by a failure and by nothing else.
func failureSignal(f *fixture) {
	f.apply(pair, version(1))
	first := f.Store()
	f.Reopen(false)
	select {
	case <-first.Failed():
		f.t.Error("Close closed Failed")
	case <-f.Store().Failed():
		f.t.Error("Failed of a fresh store is closed")
	default:
	}
}

// fencesAfterFailure: a fence that may have become durable is not given again.
func fencesAfterFailure(f *fixture) {
	last := f.grant(op("k"))
	f.FailSync()
	if err := f.Store().Update(f.t.Context(), storage.Target{ID: op("k")}, useFence); !errors.Is(err, storage.ErrFailed) {
		f.t.Fatalf("an update whose sync failed: %v, want ErrFailed", err)
	}
	f.Reopen(true)
	last = max(last, f.get(op("k")).Record.Fence)
	if fence := f.grant(op("l")); fence <= last {
		f.t.Errorf("fence %d after %d", fence, last)
	}
}
