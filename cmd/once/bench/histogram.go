package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// precision is into how many buckets, as a power of two, a histogram divides the
// span from a duration to its double: 64, so a bucket is less than 1.6 % wide.
const precision = 6

// histogram counts durations from 1 ns to the greatest there is. It has the same
// size however many there are, and takes one addition for each, so callers share
// one. It is safe for concurrent use.
type histogram struct {
	counts [(64 - precision) << precision]atomic.Uint64
}

// observe counts a duration.
func (h *histogram) observe(d time.Duration) { h.counts[bucketOf(uint64(max(d, 0)))].Add(1) }

// bucketOf returns the bucket of a number of nanoseconds: below 64 each has its
// own, then 64 buckets for each doubling.
func bucketOf(ns uint64) int {
	shift := max(bits.Len64(ns)-precision-1, 0)
	return shift<<precision + int(ns>>shift)
}

// middleOf returns the middle of a bucket in nanoseconds.
func middleOf(bucket int) float64 {
	shift := max(bucket>>precision-1, 0)
	low := uint64(bucket-shift<<precision) << shift
	return float64(low) + float64(uint64(1)<<shift-1)/2
}

// total returns how many durations were counted.
func (h *histogram) total() uint64 {
	var n uint64
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// quantile returns the duration, in seconds, that a share q of all durations does
// not exceed; nil when there is none.
func (h *histogram) quantile(q float64) *float64 {
	total := h.total()
	if total == 0 {
		return nil
	}
	rank := min(uint64(q*float64(total))+1, total)
	for i := range h.counts {
		n := h.counts[i].Load()
		if rank <= n {
			return known(middleOf(i) / float64(time.Second))
		}
		rank -= n
	}
	return nil // not reached: the ranks go up to the total
}
