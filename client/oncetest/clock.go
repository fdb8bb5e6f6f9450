package oncetest

import (
	"sync"
	"time"
)

// clock is the process's clock, which a synctest bubble fakes, and what the test let
// the store skip. It implements [storage.Clock].
type clock struct {
	start time.Time

	mu      sync.Mutex
	skipped time.Duration
}

// Wall returns the time of the process and what was skipped.
func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skipped)
}

// Elapsed counts from the clock's start.
func (c *clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.start) + c.skipped
}

func (c *clock) skip(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped += d
}
