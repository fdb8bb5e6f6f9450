package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// outside is a system with the effects of operations in it. It takes its time to be
// asked, and counts how it is asked.
type outside struct {
	takes  time.Duration
	heeds  bool                                                 // ctx, while it is asked
	answer func(context.Context, *client.Claim) *client.Verdict // nil, or one that gives nil: by the effects

	mu      sync.Mutex
	effects map[string]int
	asked   map[string][]time.Time // by key
	asking  map[string]bool
	total   int
	most    int      // at the same time
	wrong   []string // keys that two asked about at once
}

func newOutside() *outside {
	return &outside{effects: map[string]int{}, asked: map[string][]time.Time{}, asking: map[string]bool{}}
}

// ask is a ReconcileFunc.
func (o *outside) ask(ctx context.Context, cl *client.Claim) client.Verdict {
	o.begin(cl.Key)
	defer o.end(cl.Key)
	t := time.NewTimer(o.takes)
	defer t.Stop()
	if o.heeds {
		select {
		case <-t.C:
		case <-ctx.Done():
			return client.StillUnknown(context.Cause(ctx))
		}
	} else {
		<-t.C
	}
	if o.answer != nil {
		if v := o.answer(ctx, cl); v != nil {
			return *v
		}
	}
	if o.count(cl.Key) == 0 {
		return client.DidNotHappen()
	}
	return client.Happened("found " + cl.Key)
}

func (o *outside) begin(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking[key] {
		o.wrong = append(o.wrong, key)
	}
	o.asking[key] = true
	o.asked[key] = append(o.asked[key], time.Now())
	o.total++
	o.most = max(o.most, len(o.asking))
}

func (o *outside) end(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.asking, key)
}

// act makes an effect.
func (o *outside) act(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.effects[key]++
}

func (o *outside) count(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.effects[key]
}

// times returns when it was asked about a key.
func (o *outside) times(key string) []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked[key])
}

// until lets time pass until it was asked n times about whatever keys.
func (o *outside) until(t testing.TB, n int) {
	t.Helper()
	for range 100_000 {
		o.mu.Lock()
		total := o.total
		o.mu.Unlock()
		if total >= n {
			return
		}
		pass(time.Second)
	}
	t.Fatalf("it was never asked %d times", n)
}

// eachOnce fails the test unless it was asked about n keys, once each.
func (o *outside) eachOnce(t testing.TB, n int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.asked) != n || len(o.wrong) > 0 {
		t.Errorf("it was asked about %d keys, want %d, and by two at once about %v", len(o.asked), n, o.wrong)
	}
	if o.total != len(o.asked) {
		t.Errorf("it was asked %d times about %d keys", o.total, len(o.asked))
	}
}

// reconciler asks o about the operations of method m.
func reconciler(c *client.Client, o *outside) *client.Reconciler {
	return &client.Reconciler{Client: c, Interval: 10 * time.Second, Methods: map[string]client.Reconciliation{"m": {Ask: o.ask}}}
}

// inBackground runs a reconciler. The function that it returns ends it, and demands
// that it stops within a second and without an error.
func (r *rig) inBackground(rec *client.Reconciler) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- rec.Run(ctx) }()
	return func() {
		r.Helper()
		cancel()
		at := time.Now()
		err := <-stopped
		if took := time.Since(at); err != nil || took > time.Second {
			r.Errorf("it stopped after %v with %v", took, err)
		}
	}
}

// backlog makes n operations unresolved: of every second one there is an effect.
func (r *rig) backlog(n int, o *outside) (keys []string) {
	r.Helper()
	for i := range n {
		key := fmt.Sprintf("k%04d", i)
		r.dies(key, func() {
			if i%2 == 0 {
				o.act(key)
			}
		})
		keys = append(keys, key)
	}
	return keys
}

// isReconciled fails the test unless a backlog has become what it should, and the
// next calls execute what had no effect, and nothing else.
func (r *rig) isReconciled(keys []string, o *outside) {
	r.Helper()
	for i, key := range keys {
		op, want := r.operation(key), "found "+key
		switch happened := i%2 == 0; {
		case o.count(key) != (i+1)%2:
			r.Fatalf("%d effects of %s after its reconciliation", o.count(key), key)
		case happened && (op.GetState() != oncedv1.State_STATE_COMPLETED || op.GetResult().GetStored().GetText() != want):
			r.Fatalf("what happened is %v", op)
		case !happened && op.GetState() != oncedv1.State_STATE_RELEASED:
			r.Fatalf("what did not happen is %v", op)
		}
	}
	for i, key := range keys {
		out, err := client.Do(r.Context(), r.Client, call(key), func(_ context.Context, cl *client.Claim) (string, error) {
			r.runs.Add(1)
			o.act(key)
			return "found " + key, nil
		})
		if err != nil || out.Value != "found "+key || out.Replayed != (i%2 == 0) || o.count(key) != 1 {
			r.Fatalf("%s: got %+v, %v and %d effects", key, out, err, o.count(key))
		}
	}
	r.ran(int32(len(keys) / 2))
}

// warnings returns the lines of the log that say all of this.
func (r *rig) warnings(words ...string) (lines []string) {
	for line := range strings.Lines(r.log.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// isQuiet fails the test if anybody was warned.
func (r *rig) isQuiet() {
	r.Helper()
	if w := r.warnings("level=WARN"); len(w) > 0 {
		r.Errorf("%d warnings, the first: %s", len(w), w[0])
	}
}

// claims are the claims that were sent.
func (r *rig) claims() (claims []sent) {
	for _, s := range r.faults.all() {
		if s.rpc == "Claim" {
			claims = append(claims, s)
		}
	}
	return claims
}

// reports counts the reports that were sent.
func (r *rig) reports() (n int) {
	for _, s := range r.faults.all() {
		if s.rpc == "Complete" || s.rpc == "Fail" {
			n++
		}
	}
	return n
}
