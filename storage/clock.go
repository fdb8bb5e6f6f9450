package storage

import "time"

// Clock is where time comes from. Implementations must be safe for concurrent
// use.
type Clock interface {
	// Wall is the machine's clock. It may be stepped at any time.
	Wall() time.Time
	// Elapsed counts from any fixed point. It must go on while the machine
	// sleeps and must never go back (CLOCK_BOOTTIME).
	Elapsed() time.Duration
}

// gapTolerated is how far the wall clock may be ahead of the newest stored time
// at start before expiry is held back.
const gapTolerated = time.Hour

// expiryHold is how long expiry is held back after such a gap.
const expiryHold = time.Hour

// Time is store time: it never goes back and never jumps, whatever the wall
// clock does while the process runs. It is read-only after New and so safe for
// concurrent use.
type Time struct {
	clock  Clock
	wall   time.Time     // at start
	start  time.Duration // Elapsed at start
	newest time.Time     // stored before start; zero for a new store
}

// NewTime starts store time over the newest stamp that the store holds.
func NewTime(clock Clock, newest time.Time) *Time {
	return &Time{clock: clock, wall: clock.Wall().Round(0).UTC(), start: clock.Elapsed(), newest: newest}
}

// Now returns store time. While the wall clock at start lay behind the newest
// stored time, it stands still until it has caught up.
func (t *Time) Now() time.Time { return t.at(t.up()) }

// Expiry returns what expiry is measured against: store time, or, for the first
// hour after a start at which the wall clock was more than an hour ahead of the
// newest stored time, the time that has certainly passed. Lapses never wait.
func (t *Time) Expiry() time.Time {
	up := t.up()
	if !t.newest.IsZero() && t.wall.Sub(t.newest) > gapTolerated && up < expiryHold {
		return t.newest.Add(up)
	}
	return t.at(up)
}

// Behind returns how far the wall clock at start lay behind the newest stored
// time; zero when it did not.
func (t *Time) Behind() time.Duration { return max(0, t.newest.Sub(t.wall)) }

func (t *Time) up() time.Duration { return t.clock.Elapsed() - t.start }

func (t *Time) at(up time.Duration) time.Time {
	now := t.wall.Add(up)
	if now.Before(t.newest) {
		return t.newest
	}
	return now
}
