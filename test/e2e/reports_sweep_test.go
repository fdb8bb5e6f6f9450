package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt"
)

const day = 24 * time.Hour

// Very many operations expire at one moment. They are swept a few in a commit, while
// claims go on; a kill in the midst of it loses nothing, and the next start goes on
// where the last one ended. What is claimed anew after the sweep has found it and
// before it comes to it stays, and so do the neighbours that have not expired.
func TestR54_ManyExpireAtOnce(t *testing.T) {
	const expired, between = 20_000, 20 // every 20th operation has not expired
	dir, f := newStore(t), newSwitches(t)
	key := func(i int) string { return fmt.Sprintf("expired-%05d", i) }
	live := func(i int) string { return key(i) + "-live" }
	storeSettled(t, dir, func(put func(key string, age time.Duration)) {
		for i := range expired {
			put(key(i), 31*day)
			if i%between == 0 {
				put(live(i), day)
			}
		}
	})

	f.on("slow-commit")
	s := f.serve(dir)
	c := s.caller()
	eventually(t, "the sweep to be under way", func() bool { return s.swept("deleted") > 0 })
	f.hold("a commit of the sweep")
	f.held("a commit of the sweep")
	f.off("slow-commit")
	// What the sweep has found, a page of 256, is among the first of these.
	begun := int(s.swept("deleted"))
	var calls flights
	var again []holding
	for i := begun; i < begun+600; i += 3 {
		req := leased(key(i), time.Hour)
		again = append(again, holding{req: req})
		calls = append(calls, c.sendClaim("the claim of "+key(i), req))
	}
	// Those of keys that the held commit deletes wait for it, and not in the queue.
	const together = 32 // at most in a commit of the sweep
	s.queued("claim", len(calls)-together)
	f.release() // the claims come before what the sweep does next
	for i, call := range calls {
		if got := call.outcome(t); got != grantedOutcome {
			t.Fatalf("%s was answered %v, want GRANTED", call.what, got)
		}
		again[i].granted = call.resp.(*oncedv1.ClaimResponse)
	}
	calls = nil
	for i := 0; i < len(again); i += 2 {
		calls = append(calls, c.sendComplete("the result of "+again[i].key(), completion(again[i].req, again[i].granted, "anew")))
	}
	for _, call := range calls {
		call.operation(t)
	}
	f.hold("the last commit")
	f.held("the last commit")
	s.kill()

	left := dueExpired(t, dir)
	t.Logf("expired=%d, of which %d were left by a kill, and %d were claimed anew", expired, left, len(again))
	if left == 0 || left >= expired-len(again) {
		t.Errorf("%d are left: the kill did not come in the midst of the sweep", left)
	}
	isSound(t, dir)
	s = serve(t, dir)
	claims := claimWhile(t, s, func() bool { return int(s.swept("deleted")) >= left })
	if got := int(s.swept("deleted")); got != left {
		t.Errorf("after the restart %d were swept, want the %d that were left", got, left)
	}
	commits, small := s.metric("onced_commit_batch_size_count"), s.metric(`onced_commit_batch_size_bucket{le="32"}`)
	if small != commits || commits < float64(left)/32 {
		t.Errorf("of %v commits %v were of 32 updates and fewer", commits, small)
	}
	t.Logf("claims during the sweep=%d commits=%v", claims, commits)

	c = s.caller()
	for i := 0; i < expired; i += between {
		c.answered(claimOf(live(i)), replayedOutcome)
	}
	for i, h := range again {
		op, err := c.stub.Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: h.req.GetRef()})
		want := oncedv1.State_STATE_PENDING
		if i%2 == 0 {
			want = oncedv1.State_STATE_COMPLETED
		}
		if fence := h.granted.GetOperation().GetFence(); err != nil || op.GetOperation().GetState() != want || op.GetOperation().GetFence() != fence {
			t.Errorf("%s, claimed anew under the fence %d, is %v, %v; want it %v", h.key(), fence, op, err, want)
		}
	}
	s.stop()
	if left := dueExpired(t, dir); left != 0 {
		t.Errorf("%d expired operations are left", left)
	}
	isSound(t, dir)
}

// holding is a claim and the answer that granted it.
type holding struct {
	req     *oncedv1.ClaimRequest
	granted *oncedv1.ClaimResponse
}

// key is the claim's key.
func (h holding) key() string { return h.req.GetRef().GetKey() }

// swept returns how many entries a server's sweep has dealt with in some way.
func (s *process) swept(action string) float64 {
	s.t.Helper()
	return s.metric(fmt.Sprintf(`onced_sweep_entries_total{action="%s",index="operations"}`, action))
}

// queued waits until so many updates of a class, at least, wait for the store.
func (s *process) queued(class string, n int) {
	s.t.Helper()
	series := fmt.Sprintf(`onced_store_queued{class="%s"}`, class)
	eventually(s.t, "the updates to queue", func() bool { return s.metric(series) >= float64(n) })
}

// claimWhile claims and completes new keys, several at a time, until it is over, and
// returns how many.
func claimWhile(t *testing.T, s *process, over func() bool) int32 {
	t.Helper()
	var n atomic.Int32
	var stop atomic.Bool
	var all sync.WaitGroup
	for w := range 4 {
		c := s.caller()
		all.Go(func() {
			for i := 0; !stop.Load(); i++ {
				req := claimOf(fmt.Sprintf("claimed-%d-%d", w, i))
				resp, err := c.stub.Claim(c.ctx(), req)
				if err == nil && resp.GetOutcome() == grantedOutcome {
					_, err = c.stub.Complete(c.ctx(), completion(req, resp, "done"))
				}
				if err != nil || resp.GetOutcome() != grantedOutcome {
					t.Errorf("claim of %s: %v, %v", req.GetRef().GetKey(), resp, err)
					return
				}
				n.Add(1)
			}
		})
	}
	eventually(t, "the sweep to end", over)
	stop.Store(true)
	all.Wait()
	return n.Load()
}

// openStore opens a store in this process, as long as f runs.
func openStore(t *testing.T, dir string, f func(*bolt.Store) error) {
	t.Helper()
	store, err := bolt.Open(dir, bolt.Options{Clock: bubbleClock{time.Now()}})
	if err == nil {
		err = errors.Join(f(store), store.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// storeSettled puts operations into a store that were completed some time ago.
func storeSettled(t *testing.T, dir string, each func(put func(key string, age time.Duration))) {
	t.Helper()
	p := onced.DefaultPolicy()
	now := time.Now().Round(0).UTC()
	put := func(store *bolt.Store, key string, age time.Duration) error {
		target := storage.Target{ID: identityOf(key), Class: storage.ClassSettlement}
		return store.Update(context.Background(), target, func(v onced.View) onced.Plan {
			at := now.Add(-age)
			return onced.Plan{UsesFence: true, Put: &onced.Record{
				ID: v.ID, State: onced.StateCompleted, Attempt: 1, Fence: v.NextFence, Generation: v.Epoch.Generation, Revision: 2,
				Lease: time.Minute, LeaseEnd: at.Add(time.Minute), FirstClaimTime: at, ClaimTime: at, SettleTime: at, UpdateTime: at,
				SettledBy: onced.SettledByHolder, Result: onced.NewResult("text/plain", true, []byte("old")),
				ResultExpire: at.Add(p.ResultRetention), KeyExpire: at.Add(p.KeyRetention),
			}}
		})
	}
	openStore(t, dir, func(store *bolt.Store) (failed error) {
		var all sync.WaitGroup
		var once sync.Once
		slots := make(chan struct{}, 512)
		each(func(key string, age time.Duration) {
			slots <- struct{}{}
			all.Go(func() {
				if err := put(store, key, age); err != nil {
					once.Do(func() { failed = err })
				}
				<-slots
			})
		})
		all.Wait()
		return failed
	})
}

// dueExpired counts what has expired in a store that nobody serves.
func dueExpired(t *testing.T, dir string) (n int) {
	t.Helper()
	openStore(t, dir, func(store *bolt.Store) error {
		for cursor := storage.Cursor(nil); ; {
			page, err := store.ScanDue(context.Background(), onced.DueExpiry, time.Now(), cursor, 1000)
			if err != nil {
				return err
			}
			n += len(page.Due)
			if cursor = page.Next; cursor == nil {
				return nil
			}
		}
	})
	return n
}
