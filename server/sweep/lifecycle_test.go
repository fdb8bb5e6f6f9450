package sweep

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onced/onced/storage"
)

func TestStopWithoutStart(t *testing.T) {
	b := newBench(t)
	b.sweep.Stop()
	b.sweep.Stop()
	b.sweep.Start() // too late: does nothing
	b.sweep.Stop()
	if b.batches != nil {
		t.Errorf("a sweeper that was stopped has swept: %+v", b.batches)
	}
}

// TestSweepsAtEachInterval runs the loop for a while: a pass at once, and one
// after each interval.
func TestSweepsAtEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keys(3)
		b.clock.Advance(30 * day)
		b.sweep.Start()
		b.sweep.Start() // does nothing
		synctest.Wait()
		if got := b.sum(); got.Deleted != 3 {
			t.Fatalf("the first pass: %+v", got)
		}

		b.keys(2)
		b.clock.Advance(30 * day)
		<-time.After(Interval - 1)
		synctest.Wait()
		if got := b.sum(); got.Deleted != 3 {
			t.Fatalf("before the second pass: %+v", got)
		}
		<-time.After(1)
		synctest.Wait()
		if got := b.sum(); got.Deleted != 5 {
			t.Fatalf("the second pass: %+v", got)
		}
		b.sweep.Stop()
	})
}

// TestGoesOnAfterAnError: an error is the store's, not the sweeper's, until the
// store is gone.
func TestGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keys(1)
		b.clock.Advance(30 * day)
		var better atomic.Bool
		b.store.refuse = failing(func(string) bool { return !better.Load() })
		b.sweep.Start()
		synctest.Wait()
		better.Store(true)
		<-time.After(Interval)
		synctest.Wait()
		if got := b.sum(); got.Failed != 1 || got.Deleted != 1 {
			t.Fatalf("%+v", got)
		}

		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(Interval)
		b.sweep.running.Wait() // ends by itself: there is nothing left to sweep
	})
}

// TestStopWaitsForUpdates: a store may be closed as soon as Stop has returned.
func TestStopWaitsForUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keys(1)
		b.clock.Advance(30 * day)
		held, release := make(chan struct{}), make(chan struct{})
		b.store.refuse = func(storage.Target) error {
			close(held)
			<-release
			return nil
		}
		b.sweep.Start()
		<-held
		stopped := make(chan struct{})
		go func() {
			b.sweep.Stop()
			close(stopped)
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("Stop returned while an update was running")
		default:
		}
		close(release)
		<-stopped
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Meta(context.Background()); err == nil {
			t.Fatal("the store is not closed")
		}
	})
}

func TestStartStopStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 50 {
			b.restart()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(b.sweep.Start)
				wg.Go(b.sweep.Stop)
			}
			wg.Wait()
			b.sweep.Stop()
			if b.sweep.ctx.Err() == nil {
				t.Fatal("stopped, and not over")
			}
		}
	})
}
