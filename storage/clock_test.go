package storage_test

import (
	"sync"
	"testing"
	"time"

	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// start is the wall time at which the stores of these tests are opened.
var start = storagetest.NewClock().Wall()

// opened returns store time opened with the newest stamp that far from the wall
// clock; nil: nothing is stored.
func opened(newest *time.Duration) (*storage.Time, *storagetest.Clock) {
	clock := storagetest.NewClock()
	if newest == nil {
		return storage.NewTime(clock, time.Time{}), clock
	}
	return storage.NewTime(clock, start.Add(*newest)), clock
}

func after(d time.Duration) *time.Duration { return &d }

// TestTimeAtStart is every relation of the wall clock and the newest stamp at
// start, and what store time and expiry time are then and later, counted from
// the wall clock at start.
func TestTimeAtStart(t *testing.T) {
	type at struct{ up, now, expiry time.Duration }
	const hour = time.Hour
	for name, c := range map[string]struct {
		newest *time.Duration
		behind time.Duration
		at     []at
	}{
		"fresh store":          {nil, 0, []at{{0, 0, 0}, {1, 1, 1}, {3 * hour, 3 * hour, 3 * hour}}},
		"stamp at start":       {after(0), 0, []at{{0, 0, 0}, {1, 1, 1}}},
		"stamp a second ago":   {after(-time.Second), 0, []at{{0, 0, 0}, {hour, hour, hour}}},
		"gap of an hour":       {after(-hour), 0, []at{{0, 0, 0}, {1, 1, 1}}},
		"gap above an hour":    {after(-hour - 1), 0, []at{{0, 0, -hour - 1}, {hour - 1, hour - 1, -2}, {hour, hour, hour}}},
		"gap of a year":        {after(-8760 * hour), 0, []at{{0, 0, -8760 * hour}, {hour - 1, hour - 1, -8759*hour - 1}, {hour, hour, hour}, {2 * hour, 2 * hour, 2 * hour}}},
		"clock behind":         {after(hour), hour, []at{{0, hour, hour}, {hour - 1, hour, hour}, {hour, hour, hour}, {hour + 1, hour + 1, hour + 1}}},
		"clock a year behind":  {after(8760 * hour), 8760 * hour, []at{{0, 8760 * hour, 8760 * hour}, {hour, 8760 * hour, 8760 * hour}}},
		"clock behind by 1 ns": {after(1), 1, []at{{0, 1, 1}, {1, 1, 1}, {2, 2, 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			st, clock := opened(c.newest)
			if got := st.Behind(); got != c.behind {
				t.Errorf("Behind: %v, want %v", got, c.behind)
			}
			up := time.Duration(0)
			for _, want := range c.at {
				clock.Advance(want.up - up)
				up = want.up
				if now, expiry := st.Now().Sub(start), st.Expiry().Sub(start); now != want.now || expiry != want.expiry {
					t.Errorf("%v after the start: now %v, expiry %v; want %v, %v", up, now, expiry, want.now, want.expiry)
				}
			}
			if got := st.Behind(); got != c.behind {
				t.Errorf("Behind, later: %v, want %v", got, c.behind)
			}
		})
	}
}

// TestTimeIgnoresSteps: a step of the wall clock while the store is open is
// nothing to store time.
func TestTimeIgnoresSteps(t *testing.T) {
	for _, newest := range []*time.Duration{nil, after(-2 * time.Hour), after(time.Minute)} {
		st, clock := opened(newest)
		for _, step := range []time.Duration{-1000 * time.Hour, 1, 2000 * time.Hour} {
			now, expiry := st.Now(), st.Expiry()
			clock.StepWall(step)
			if !st.Now().Equal(now) || !st.Expiry().Equal(expiry) {
				t.Errorf("a step of %v moved store time by %v and expiry by %v", step, st.Now().Sub(now), st.Expiry().Sub(expiry))
			}
		}
	}
}

// TestTimeNeverGoesBack: in small steps over the end of every hold, store time
// and expiry time only grow, and expiry time is never ahead.
func TestTimeNeverGoesBack(t *testing.T) {
	for _, newest := range []*time.Duration{nil, after(-90 * time.Minute), after(0), after(90 * time.Minute)} {
		st, clock := opened(newest)
		now, expiry := st.Now(), st.Expiry()
		for range 300 {
			clock.Advance(time.Minute / 2)
			n, e := st.Now(), st.Expiry()
			if n.Before(now) || e.Before(expiry) || e.After(n) {
				t.Fatalf("newest %v: from %v, %v to %v, %v", newest, now, expiry, n, e)
			}
			now, expiry = n, e
		}
	}
}

// TestTimeIsPlain: what store time gives out can be stored and compared: UTC,
// and without the reading of a monotonic clock.
func TestTimeIsPlain(t *testing.T) {
	st := storage.NewTime(zoned{storagetest.NewClock()}, time.Time{})
	if now := st.Now(); now != start || now.Location() != time.UTC {
		t.Errorf("store time is %v, want %v", now, start)
	}
}

// zoned is a clock in another time zone, as the machine's may be.
type zoned struct{ *storagetest.Clock }

func (z zoned) Wall() time.Time { return z.Clock.Wall().In(time.FixedZone("east", 3600)) }

// TestTimeConcurrently is for the race detector.
func TestTimeConcurrently(t *testing.T) {
	st, clock := opened(after(-2 * time.Hour))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for last := st.Now(); last.Before(start.Add(100 * time.Millisecond)); {
				clock.Advance(time.Millisecond)
				now := st.Now()
				if now.Before(last) {
					t.Errorf("store time went from %v to %v", last, now)
				}
				last = now
				_, _ = st.Expiry(), st.Behind()
			}
		})
	}
	wait.Wait()
}
