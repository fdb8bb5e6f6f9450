package storagetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testContexts: a context that ends takes back an update that was not taken up,
// and does nothing to one that was.
func testContexts(t *testing.T, newHarness newFunc) {
	subtests{
		"ended before": endedBefore, "ended in the queue": endedInQueue, "ended after": endedAfter,
		"ended during the update function": endedDuring, "many": manyEnded,
	}.run(t, newHarness)
}

func endedBefore(f *fixture) {
	cancelled, cancel := context.WithCancel(f.t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(f.t.Context(), time.Unix(0, 0))
	defer cancelLate()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		if err := f.Store().Update(ctx, pair, next); !errors.Is(err, want) {
			f.t.Errorf("Update: %v, want %v", err, want)
		}
		err := f.Store().UpdateMeta(ctx, func(m storage.Meta) storage.Meta { m.ReplacesLost = true; return m })
		if !errors.Is(err, want) {
			f.t.Errorf("UpdateMeta: %v, want %v", err, want)
		}
	}
	f.Reopen(false)
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 0 || f.meta().ReplacesLost {
		f.t.Errorf("version %d was written for a caller that had left (%v)", n, err)
	}
}

// endedInQueue: a caller behind an update that takes its time leaves at once,
// and nothing of its own is written.
func endedInQueue(f *fixture) {
	ahead, unblock := f.startBlocked(pair)
	ctx, cancel := context.WithCancel(f.t.Context())
	store := f.Store()
	behind := start(func() error {
		return store.Update(ctx, pair, func(onced.View) onced.Plan { return version(99) })
	})
	linger(behind) // it may have begun to wait, or not
	cancel()
	if err := behind.wait(f.t); !errors.Is(err, context.Canceled) {
		f.t.Errorf("an update that left the queue: %v, want %v", err, context.Canceled)
	}
	unblock()
	if err := ahead.wait(f.t); err != nil {
		f.t.Error(err)
	}
	f.update(pair, next)
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 2 {
		f.t.Errorf("version %d, want 2 (%v)", n, err)
	}
}

// startBlocked starts an update whose function does not return before unblock is
// called, and returns when it is running.
func (f *fixture) startBlocked(target storage.Target) (c *call, unblock func()) {
	f.t.Helper()
	block, running, store := make(chan struct{}), make(chan struct{}), f.Store()
	unblock = sync.OnceFunc(func() { close(block) })
	f.t.Cleanup(unblock) // before the harness cleans up
	signal := sync.OnceFunc(func() { close(running) })
	c = start(func() error {
		return store.Update(f.t.Context(), target, func(v onced.View) onced.Plan {
			signal()
			<-block
			return next(v)
		})
	})
	await(f.t, running, "the update function to run")
	return c, unblock
}

// endedAfter: the update was taken up, and is carried through: not answered
// before it is durable, and then answered with success.
func endedAfter(f *fixture) {
	release := f.hold()
	ctx, cancel := context.WithCancel(f.t.Context())
	write := f.startUpdate(ctx, pair, next)
	cancel()
	linger(write)
	if write.answered() {
		f.t.Errorf("an update that was taken up was answered before its sync had ended: %v", write.err)
	}
	release()
	if err := write.wait(f.t); err != nil {
		f.t.Errorf("an update that was taken up: %v", err)
	}
	f.Reopen(true)
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 1 {
		f.t.Errorf("version %d, want 1 (%v)", n, err)
	}
}

func endedDuring(f *fixture) {
	ctx, cancel := context.WithCancel(f.t.Context())
	err := f.Store().Update(ctx, pair, func(v onced.View) onced.Plan {
		cancel()
		return next(v)
	})
	if err != nil {
		f.t.Errorf("an update that was taken up: %v", err)
	}
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 1 {
		f.t.Errorf("version %d, want 1 (%v)", n, err)
	}
}

// manyEnded: callers leave while the store is busy. Each answer is the truth.
func manyEnded(f *fixture) {
	var errs [callers]error
	parallel(f.t, callers, func(i int) error {
		ctx, cancel := context.WithCancel(f.t.Context())
		left := start(func() error { cancel(); return nil })
		errs[i] = f.Store().Update(ctx, storage.Target{ID: op("%d", i)}, increment)
		<-left.done
		return nil
	})
	f.Reopen(true)
	for i, err := range errs {
		switch got := revision(f.get(op("%d", i))); {
		case err == nil && got != 1:
			f.t.Errorf("update %d was answered with success and was not written", i)
		case err != nil && got != 0:
			f.t.Errorf("update %d was answered with %v and was written", i, err)
		case err != nil && !errors.Is(err, context.Canceled):
			f.t.Errorf("update %d: %v", i, err)
		}
	}
}
