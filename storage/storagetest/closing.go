package storagetest

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/onced/onced/storage"
)

// testClosing: Close loses nothing that was answered and answers nothing after.
func testClosing(t *testing.T, newHarness newFunc) {
	subtests{"use after close": useAfterClose, "twice": closeTwice, "running": closeWhileRunning, "waits": closeWaits}.run(t, newHarness)
}

func useAfterClose(f *fixture) {
	f.put(plain(op("k"), 1))
	if err := f.Store().Close(); err != nil {
		f.t.Fatal(err)
	}
	for name, err := range everyCall(f.t.Context(), f.Store()) {
		if !errors.Is(err, storage.ErrClosed) {
			f.t.Errorf("%s of a closed store: %v, want ErrClosed", name, err)
		}
	}
	f.Reopen(false)
	f.wantRecord(op("k"), plain(op("k"), 1))
}

func closeTwice(f *fixture) {
	parallel(f.t, 4, func(int) error { return f.Store().Close() })
	if err := f.Store().Close(); err != nil {
		f.t.Errorf("Close of a closed store: %v", err)
	}
}

// closeWhileRunning: each update is answered with success and there, or with
// ErrClosed and not there.
func closeWhileRunning(f *fixture) {
	for round := range 4 {
		store, acknowledged, begun := f.Store(), [16]uint64{}, make(chan struct{})
		var answers atomic.Int64
		calls := [16]*call{}
		for i := range calls {
			calls[i] = start(func() error {
				for n := uint64(1); ; n++ {
					if err := putPlain(f, store, op("%d/%d", round, i), n); err != nil {
						return err
					}
					acknowledged[i] = n
					if answers.Add(1) == 32 {
						close(begun)
					}
				}
			})
		}
		await(f.t, begun, "updates to be answered")
		if err := store.Close(); err != nil {
			f.t.Errorf("Close under load: %v", err)
		}
		for _, c := range calls {
			if err := c.wait(f.t); !errors.Is(err, storage.ErrClosed) {
				f.t.Errorf("an update of a store that was closed: %v, want ErrClosed", err)
			}
		}
		f.Reopen(round%2 == 0)
		for i, n := range acknowledged {
			if got := revision(f.get(op("%d/%d", round, i))); got != n {
				f.t.Errorf("version %d was the last one answered before Close; after it: %d", n, got)
			}
		}
	}
}

// closeWaits: Close does not take the store from under an update that was taken up.
func closeWaits(f *fixture) {
	running, unblock := f.startBlocked(pair)
	store := f.Store()
	closing := start(store.Close)
	linger(closing)
	if closing.answered() {
		f.t.Errorf("Close was answered while an update was running: %v", closing.err)
	}
	unblock()
	for _, c := range []*call{running, closing} {
		if err := c.wait(f.t); err != nil {
			f.t.Error(err)
		}
	}
	f.Reopen(true)
	if n, err := wholeVersion(f.t.Context(), f.Store()); err != nil || n != 1 {
		f.t.Errorf("version %d, want 1 (%v)", n, err)
	}
}
