package main

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimes(t *testing.T) {
	var some times
	if !math.IsNaN(some.ms(0.99)) {
		t.Errorf("the p99 of nothing is %v", some.ms(0.99))
	}
	for i := range 200 {
		some.add(time.Duration(200-i) * time.Millisecond)
	}
	for share, want := range map[float64]float64{0: 1, 0.5: 100, 0.99: 198, 1: 200} {
		if got := some.ms(share); got != want {
			t.Errorf("of 1 to 200 ms a share of %v lies within %v ms, want %v", share, got, want)
		}
	}
}

func TestMarks(t *testing.T) {
	var m marks
	for i := range 100 { // 10 a second in the first 5 s, 50 a second in the next
		m.times.add(time.Duration(i) * 100 * time.Millisecond)
		if i >= 50 {
			for range 4 {
				m.times.add(time.Duration(i) * 100 * time.Millisecond)
			}
		}
	}
	if got := m.rate(0, 5*time.Second); got != 10 {
		t.Errorf("%v a second, want 10", got)
	}
	for rate, want := range map[float64]float64{10: 1, 46: 5.9, 50: 6} {
		if got := m.reaches(rate, time.Second, 10*time.Second); got != want {
			t.Errorf("%v a second are reached after %v s, want %v", rate, got, want)
		}
	}
	if got := m.reaches(51, time.Second, 10*time.Second); !math.IsNaN(got) {
		t.Errorf("51 a second are never reached, and here after %v s", got)
	}
}

// An open loop sends at its rate however long calls take, as long as a caller is
// free, and numbers what it sends.
func TestOpenLoop(t *testing.T) {
	for _, test := range []struct {
		name         string
		callers      int
		takes        time.Duration
		sent, unfree int
	}{
		{"callers enough", 1000, 500 * time.Millisecond, 2000, 0},
		{"too few callers", 100, time.Hour, 100, 1900},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				var sum atomic.Int64
				o := newOpenLoop(test.callers)
				o.run(ctx, 1000, func(caller, n int) {
					sum.Add(int64(n))
					<-time.After(test.takes)
				})
				o.running.Wait()
				// The last tick and the end of the time come at one moment, in any order.
				if o.sent+o.unfree < 1999 || o.sent < test.sent-1 || o.unfree < test.unfree-1 || o.sent > test.sent || o.unfree > test.unfree {
					t.Errorf("%d sent, %d not for want of a caller; want %d and %d", o.sent, o.unfree, test.sent, test.unfree)
				}
				if want := int64(o.sent) * int64(o.sent-1) / 2; sum.Load() != want {
					t.Errorf("the numbers of the calls add up to %d, want %d", sum.Load(), want)
				}
				if o.tooLate != 0 {
					t.Errorf("%d were late on a clock that is never late", o.tooLate)
				}
			})
		})
	}
}

func TestClosedLoopAndEach(t *testing.T) {
	var n, sum atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	closedLoop(ctx, 4, func(_, _ int) {
		if n.Add(1) == 100 {
			cancel()
		}
	})
	if n.Load() < 100 || n.Load() > 103 {
		t.Errorf("four callers ended after %d rounds in all, want 100 and what was begun", n.Load())
	}
	each(1000, 7, func(i int) { sum.Add(int64(i)) })
	if sum.Load() != 499_500 {
		t.Errorf("the numbers below 1000 add up to %d", sum.Load())
	}
}
