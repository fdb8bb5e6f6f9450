//go:build !linux

package main

import "time"

// elapsed reads the monotonic clock. Where it stands still while the machine
// sleeps, leases last that much longer.
func elapsed() time.Duration { return time.Since(started) }
