//go:build !linux

package bolt

import (
	"errors"
	"math"
	"os"
)

// initialMap is how much address space the data file is given at once. There are
// systems on which the file is made as long.
const initialMap = 1 << 30

// disk returns how many bytes a disk has in all, and how many it has left, as far as
// known.
func disk(string) (size, left int64) { return math.MaxInt64, math.MaxInt64 }

// readAhead leaves it to the reads.
func readAhead(*os.File) {}

// allocate does not know how to have the disk give blocks in advance here.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
