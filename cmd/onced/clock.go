package main

import "time"

var started = time.Now()

// machineClock is the clock of the machine, as a store wants it.
type machineClock struct{}

// Wall returns the machine's clock.
func (machineClock) Wall() time.Time { return time.Now() }

// Elapsed returns the time since some fixed point.
func (machineClock) Elapsed() time.Duration { return elapsed() }
