//go:build !faults

package main

import "github.com/onced/onced/storage/bolt"

// withFaults adds nothing: the shipped server has no fault switches.
func withFaults(o bolt.Options) bolt.Options { return o }
