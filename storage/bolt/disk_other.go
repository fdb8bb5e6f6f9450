//go:build !linux

package bolt

import "math"

// Room returns how many bytes the store's disk has left for this process. Where
// that cannot be told, it is as much as there can be.
func (s *Store) Room() int64 { return math.MaxInt64 }
