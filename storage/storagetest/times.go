package storagetest

import (
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testTimes: store time goes with elapsed time, never back, and over a restart
// never behind what was stored.
func testTimes(t *testing.T, newHarness newFunc) {
	subtests{
		"elapsed": timeElapses, "after the lock": timeAfterLock, "newest stamp": newestStamp,
		"stepped back": steppedBack, "gap": forwardGap, "serving since": servingSince,
	}.run(t, newHarness)
}

// now returns store time as Get and Update show it, which must agree.
func (f *fixture) now() (now, expiry time.Time) {
	f.t.Helper()
	got, saw := f.get(op("nothing")), f.look(storage.Target{ID: op("nothing")})
	if !got.Now.Equal(saw.Now) || !got.ExpiryTime.Equal(saw.ExpiryTime) {
		f.t.Fatalf("Get is at %v, expiry %v; Update at %v, expiry %v", got.Now, got.ExpiryTime, saw.Now, saw.ExpiryTime)
	}
	return got.Now, got.ExpiryTime
}

// wantTime checks store time and expiry time, counted from the epoch.
func (f *fixture) wantTime(now, expiry time.Duration) {
	f.t.Helper()
	n, e := f.now()
	if n.Sub(epoch) != now || e.Sub(epoch) != expiry {
		f.t.Errorf("store time is %v and expiry time %v after the epoch, want %v and %v", n.Sub(epoch), e.Sub(epoch), now, expiry)
	}
}

func timeElapses(f *fixture) {
	f.wantTime(0, 0)
	f.Clock().Advance(time.Minute + 1)
	f.wantTime(time.Minute+1, time.Minute+1)
	for _, step := range []time.Duration{-2 * time.Hour, 26 * time.Hour} {
		f.Clock().StepWall(step)
		f.wantTime(time.Minute+1, time.Minute+1)
	}
}

// timeAfterLock: an update that waited for another is decided at a time after
// its wait.
func timeAfterLock(f *fixture) {
	ahead, unblock := f.startBlocked(pair)
	store, now := f.Store(), time.Time{}
	behind := start(func() error {
		return store.Update(f.t.Context(), pair, func(v onced.View) onced.Plan {
			now = v.Now
			return onced.Plan{}
		})
	})
	linger(behind) // it may have begun to wait, or not
	f.Clock().Advance(time.Hour)
	unblock()
	for _, c := range []*call{ahead, behind} {
		if err := c.wait(f.t); err != nil {
			f.t.Error(err)
		}
	}
	if now.Before(epoch.Add(time.Hour)) {
		f.t.Errorf("an update that waited for one that ended an hour after the epoch was decided at %v", now.Sub(epoch))
	}
}

// newestStamp: whatever the clock says, no view is before the record's last write.
func newestStamp(f *fixture) {
	r := plain(op("k"), 1)
	r.UpdateTime = epoch.Add(time.Hour)
	f.put(r)
	for by, v := range map[string]onced.View{"Get": f.get(r.ID), "Update": f.look(storage.Target{ID: r.ID}), "scan": f.first()} {
		if v.Now.Before(r.UpdateTime) {
			f.t.Errorf("%s: the view is at %v, the record was written at %v", by, v.Now, r.UpdateTime)
		}
	}
}

func steppedBack(f *fixture) {
	for _, crash := range []bool{true, false} {
		f.Clock().Advance(time.Minute)
		f.put(plain(op("k"), 1))
		before, _ := f.now()
		f.Clock().StepWall(-time.Hour)
		f.Reopen(crash)
		stood := before.Sub(epoch)
		f.wantTime(stood, stood)
		f.Clock().Advance(59 * time.Minute)
		f.wantTime(stood, stood) // the wall clock has not caught up
		f.Clock().Advance(2 * time.Minute)
		f.wantTime(stood+time.Minute, stood+time.Minute)
	}
}

// forwardGap: a wall clock far ahead of all that is stored may be wrong; nothing
// expires by it in the first hour.
func forwardGap(f *fixture) {
	f.put(plain(op("k"), 1))
	f.Clock().StepWall(2 * time.Hour)
	f.Reopen(true)
	f.wantTime(2*time.Hour, 0)
	f.Clock().Advance(59 * time.Minute)
	f.wantTime(2*time.Hour+59*time.Minute, 59*time.Minute)
	f.Clock().Advance(time.Minute)
	f.wantTime(3*time.Hour, 3*time.Hour)
	f.put(plain(op("k"), 2))
	f.Clock().StepWall(time.Hour) // not more than is tolerated
	f.Reopen(true)
	f.wantTime(4*time.Hour, 4*time.Hour)
}

func servingSince(f *fixture) {
	since := func() time.Duration {
		v := f.look(storage.Target{ID: op("k")})
		if d := difference(v.Epoch, f.get(op("k")).Epoch); d != "" {
			f.t.Errorf("Update and Get show different epochs: %s", d)
		}
		return v.Epoch.ServingSince.Sub(epoch)
	}
	if got := since(); got != 0 {
		f.t.Errorf("a fresh store serves since %v after the epoch", got)
	}
	f.Clock().Advance(minutes(10))
	f.put(plain(op("k"), 1))
	if got := since(); got != 0 {
		f.t.Errorf("ServingSince moved to %v after the epoch while the store was open", got)
	}
	f.Reopen(true)
	if got := since(); got != minutes(10) {
		f.t.Errorf("opened 10 minutes after the epoch, the store serves since %v", got)
	}
	f.Clock().StepWall(-time.Hour)
	f.Reopen(true) // store time stands still at the newest stamp
	if got := since(); got != minutes(10) {
		f.t.Errorf("opened with a clock behind, the store serves since %v after the epoch", got)
	}
}
