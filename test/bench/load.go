package main

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// times collects how long things took. It is safe for concurrent use.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

func (t *times) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// ms returns the duration, in milliseconds, that a share of all did not exceed;
// not a number if there are none.
func (t *times) ms(share float64) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return math.NaN()
	}
	slices.Sort(t.all)
	i := int(math.Ceil(share*float64(len(t.all)))) - 1
	return millis(t.all[max(0, i)])
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// marks collects when things happened, since one moment. It is safe for
// concurrent use.
type marks struct {
	start time.Time
	times times
}

func newMarks() *marks { return &marks{start: time.Now()} }

func (m *marks) add() { m.times.add(time.Since(m.start)) }

// rate returns how many happened a second between two moments.
func (m *marks) rate(from, to time.Duration) float64 {
	m.times.mu.Lock()
	defer m.times.mu.Unlock()
	n := 0
	for _, at := range m.times.all {
		if at >= from && at < to {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}

// reaches returns the end, in seconds, of the first window in which a rate was
// reached, looking at one window each tenth of its length; not a number if there is
// none before until.
func (m *marks) reaches(rate float64, window, until time.Duration) float64 {
	for end := window; end <= until; end += window / 10 {
		if m.rate(end-window, end) >= rate {
			return end.Seconds()
		}
	}
	return math.NaN()
}

// closedLoop lets callers do something again and again, each as soon as it is done
// with the time before, until ctx ends.
func closedLoop(ctx context.Context, callers int, do func(caller, round int)) {
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				do(c, round)
			}
		})
	}
	all.Wait()
}

// each does something for every number below n, a few at once.
func each(n, parallel int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, parallel) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

const (
	// paceTick is how often an open loop looks what has come due. What is due within
	// one tick is sent at once.
	paceTick = time.Millisecond
	// paceBehind is how late a call may be sent. Where the callers do not come to run
	// in time, what is overdue is left out: sent all at once it would be another load
	// than was asked for.
	paceBehind = 200 * time.Millisecond
)

// openLoop is callers who call when their time has come, and not when others were
// answered. Each has one call at a time; what is due is sent by any that is free.
type openLoop struct {
	free    chan int
	running sync.WaitGroup

	sent    int
	tooLate int   // calls that were not sent in time
	unfree  int   // calls that were not sent because no caller was free
	late    times // by how much the others were sent after they were due
}

func newOpenLoop(callers int) *openLoop {
	o := &openLoop{free: make(chan int, callers)}
	for c := range callers {
		o.free <- c
	}
	return o
}

// run sends calls, numbered from 0, at a rate until ctx ends. Wait for running
// before looking at what they did.
func (o *openLoop) run(ctx context.Context, rate float64, call func(caller, n int)) {
	start := time.Now()
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	for due := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Since(start)
		for ; float64(due) < rate*now.Seconds(); due++ {
			behind := now - time.Duration(float64(due)/rate*float64(time.Second))
			if behind > paceBehind {
				o.tooLate++
				continue
			}
			o.late.add(behind)
			o.send(due, call)
		}
	}
}

func (o *openLoop) send(n int, call func(caller, n int)) {
	select {
	case caller := <-o.free:
		o.sent++
		o.running.Go(func() {
			call(caller, n)
			o.free <- caller
		})
	default:
		o.unfree++
	}
}
