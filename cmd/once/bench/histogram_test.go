package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestBuckets: every duration has a bucket, of which it is within 1 % of the
// middle, and a longer one never has an earlier bucket.
func TestBuckets(t *testing.T) {
	durations := []time.Duration{0, 1, 63, 64, 127, 128, 129, time.Hour, math.MaxInt64}
	for range 10_000 {
		durations = append(durations, time.Duration(rand.Uint64()>>(1+rand.N(63))))
	}
	slices.Sort(durations)
	last := 0
	for _, d := range durations {
		bucket := bucketOf(uint64(d))
		if bucket < last || bucket >= len(histogram{}.counts) {
			t.Fatalf("%d ns is in bucket %d, after %d of %d", d, bucket, last, len(histogram{}.counts))
		}
		last = bucket
		if off := math.Abs(middleOf(bucket) - float64(d)); off > 0.01*float64(d) {
			t.Errorf("%d ns is in the bucket of %.1f ns", d, middleOf(bucket))
		}
	}
}

func TestQuantile(t *testing.T) {
	var h histogram
	if q := h.quantile(0.5); q != nil {
		t.Errorf("the median of nothing is %v", *q)
	}
	const n = 1000
	for i := range n {
		h.observe(time.Duration(i+1) * time.Millisecond)
	}
	if h.total() != n {
		t.Errorf("%d were counted, not %d", h.total(), n)
	}
	for q, want := range map[float64]float64{0: 0.001, 0.5: 0.501, 0.99: 0.991, 1: 1} {
		if got := *h.quantile(q); math.Abs(got-want) > 0.01*want {
			t.Errorf("quantile %v is %v s, not %v s", q, got, want)
		}
	}
}
