//go:build !linux

package bolt

import (
	"errors"
	"math"
	"os"
)

// diskSize returns how many bytes the disk of a file has in all, as far as known.
func diskSize(string) int64 { return math.MaxInt64 }

// diskRoom returns how many bytes the disk of a file has left, as far as known.
func diskRoom(string) int64 { return math.MaxInt64 }

// readAhead leaves it to the reads.
func readAhead(*os.File) {}

// allocate does not know how to have the disk give blocks in advance here.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// cannotAllocate reports that the disk never gives blocks in advance.
func cannotAllocate(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
