package storagetest

import (
	"sync"
	"time"
)

// Clock is a clock that moves only when it is told to. It implements
// [storage.Clock] and is safe for concurrent use.
type Clock struct {
	mu      sync.Mutex
	wall    time.Time
	elapsed time.Duration
}

// NewClock returns a clock at a fixed moment, with nanoseconds that a backend
// must not lose and an elapsed time that does not begin at zero.
func NewClock() *Clock {
	return &Clock{wall: time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.UTC), elapsed: 42 * time.Hour}
}

// Wall returns the wall time.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Elapsed returns the elapsed time.
func (c *Clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Advance lets d pass, which must not be negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.elapsed = c.wall.Add(d), c.elapsed+d
}

// StepWall sets the wall time forward, or back for a negative d, while no time
// passes: somebody or something has set the machine's clock.
func (c *Clock) StepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}
