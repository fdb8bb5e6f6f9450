package sweep

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

const day = 24 * time.Hour

// TestTombstoneThenAbsent follows one operation through both retentions.
func TestTombstoneThenAbsent(t *testing.T) {
	b := newBench(t)
	b.settle("k")
	b.mustPass(Batch{})

	b.clock.Advance(7 * day)
	b.mustPass(Batch{Rewritten: 1})
	if r := b.view("k").Record; r.Result.Presence != onced.Dropped || r.Result.Size != 3 || r.Result.Bytes != nil {
		t.Fatalf("after result retention: %+v", r.Result)
	}
	b.mustPass(Batch{}) // nothing is due again before the key

	b.clock.Advance(23 * day)
	b.mustPass(Batch{Deleted: 1})
	if v := b.view("k"); v.Record != nil {
		t.Fatalf("after key retention: %+v", v.Record)
	}
}

// TestAgreesWithClaim compares, a nanosecond around each boundary, what a claim
// answers on a record that was swept with what it answers on one that was not.
func TestAgreesWithClaim(t *testing.T) {
	p := onced.DefaultPolicy()
	for _, tt := range []struct {
		name    string
		after   time.Duration
		outcome onced.Outcome
		stored  onced.Presence
		swept   Batch
	}{
		{"before result retention", p.ResultRetention - 1, onced.OutcomeReplayed, onced.Stored, Batch{}},
		{"at result retention", p.ResultRetention, onced.OutcomeReplayed, onced.Dropped, Batch{Rewritten: 1}},
		{"after result retention", p.ResultRetention + 1, onced.OutcomeReplayed, onced.Dropped, Batch{Rewritten: 1}},
		{"before key retention", p.KeyRetention - 1, onced.OutcomeReplayed, onced.Dropped, Batch{Rewritten: 1}},
		{"at key retention", p.KeyRetention, onced.OutcomeGranted, 0, Batch{Deleted: 1}},
		{"after key retention", p.KeyRetention + 1, onced.OutcomeGranted, 0, Batch{Deleted: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, swept := range []bool{true, false} {
				b := newBench(t)
				b.settle("k")
				b.clock.Advance(tt.after)
				if swept {
					b.mustPass(tt.swept)
				}
				a := b.claim("k", "another token")
				if a.Outcome != tt.outcome || tt.stored != 0 && a.Operation.Result.Presence != tt.stored {
					t.Errorf("swept %v: %v, %+v; want %v, %v", swept, a.Outcome, a.Operation.Result, tt.outcome, tt.stored)
				}
			}
		})
	}
}

// TestExpiryIsHeld: while the store doubts a jump of its clock, what has expired
// by that clock alone is not even looked at.
func TestExpiryIsHeld(t *testing.T) {
	b := newBench(t)
	b.settle("k")
	b.clock.Advance(30*day + time.Hour/2)
	b.store.held = time.Hour
	b.mustPass(Batch{Rewritten: 1}) // its bytes have expired for days
	b.mustPass(Batch{})
	b.store.held = 0
	b.mustPass(Batch{Deleted: 1})
}

// TestReleased is forgotten at key retention from its release.
func TestReleased(t *testing.T) {
	b := newBench(t)
	b.fail("k", b.claim("k", "k"), onced.NotExecuted)
	b.clock.Advance(30*day - 1)
	b.mustPass(Batch{})
	b.clock.Advance(1)
	b.mustPass(Batch{Deleted: 1})
}

// TestLongerRetention: what a longer policy keeps is stamped anew, once.
func TestLongerRetention(t *testing.T) {
	b := newBench(t)
	b.settle("k")
	b.clock.Advance(7 * day)
	longer := onced.DefaultPolicy()
	longer.ResultRetention, longer.KeyRetention = 14*day, 60*day
	b.setPolicy(longer)

	b.mustPass(Batch{Rewritten: 1})
	b.mustPass(Batch{}) // the index has moved on: no second visit
	r := b.view("k").Record
	if r.Result.Presence != onced.Stored || !r.ResultExpire.Equal(r.SettleTime.Add(14*day)) || !r.KeyExpire.Equal(r.SettleTime.Add(60*day)) {
		t.Fatalf("re-stamped: %v, %v, %v", r.Result.Presence, r.ResultExpire, r.KeyExpire)
	}
	b.clock.Advance(7 * day)
	b.mustPass(Batch{Rewritten: 1})
	b.clock.Advance(46 * day)
	b.mustPass(Batch{Deleted: 1})
}

// TestTwins drops a twin entry a day after its last settlement, and none that
// has something unsettled.
func TestTwins(t *testing.T) {
	b := newBench(t)
	guarded := func(key string, digest byte) onced.ClaimAnswer {
		f := onced.Fingerprint{Scheme: "raw1", Digest: strings.Repeat(string(digest), 32)}
		return b.claimWith(key, onced.ClaimRequest{
			Token: token(key), Lease: 30 * time.Second, Fingerprints: []onced.Fingerprint{f},
			Guard: &onced.TwinGuard{Block: onced.BlockUnsettledOrRecent, Window: day},
		})
	}
	b.complete("settled", guarded("settled", 'a'))
	guarded("unsettled", 'b')

	b.clock.Advance(day - 1)
	b.mustPass(Batch{})
	if a := guarded("again", 'a'); a.Outcome != onced.OutcomeBlockedByTwin {
		t.Fatalf("a nanosecond before the end of the window: %v", a.Outcome)
	}
	b.clock.Advance(1)
	b.mustPass(Batch{Deleted: 1})
	if a := guarded("again", 'a'); a.Outcome != onced.OutcomeGranted {
		t.Fatalf("at the end of the window: %v", a.Outcome)
	}
	if a := guarded("also", 'b'); a.Outcome != onced.OutcomeBlockedByTwin {
		t.Fatalf("twin of an unsettled operation: %v", a.Outcome)
	}
}

// TestNeverUnsettledOrUnreadable hands the sweeper index entries that should not
// be there: what must never be swept is not, whatever the index says.
func TestNeverUnsettledOrUnreadable(t *testing.T) {
	b := newBench(t)
	b.claim("pending", "pending")
	b.fail("declared", b.claim("declared", "declared"), onced.Unknown)
	b.update("future", nil, func(v onced.View) (onced.Plan, error) {
		return onced.Plan{Put: &onced.Record{ID: v.ID, State: 99, SettleTime: v.Now, KeyExpire: v.Now}}, nil
	})
	b.clock.Advance(1000 * day)
	b.store.scanned = func(page storage.DuePage) storage.DuePage {
		for _, key := range []string{"pending", "declared", "future"} {
			page.Due = append(page.Due, storage.Due{ID: identity(key)})
		}
		return page
	}
	before := []onced.View{b.view("pending"), b.view("declared")}

	b.mustPass(Batch{Kept: 3})

	for _, v := range before {
		if now := b.view(v.ID.Key).Record; now == nil || now.Etag(0) != v.Record.Etag(0) {
			t.Errorf("%v was touched: %+v", v.ID, now)
		}
	}
	if v := b.view("future"); !v.Unreadable {
		t.Errorf("the unreadable record was touched: %+v", v)
	}
}

// TestClaimedAgainBetweenScanAndUpdate is report R54: the entry was due when it
// was read, and the key was claimed anew before the sweeper came to it.
func TestClaimedAgainBetweenScanAndUpdate(t *testing.T) {
	b := newBench(t)
	b.settle("k")
	b.settle("other")
	b.clock.Advance(30 * day)
	b.store.scanned = func(page storage.DuePage) storage.DuePage {
		b.store.scanned = nil
		if a := b.claim("k", "a new token"); a.Outcome != onced.OutcomeGranted {
			t.Fatalf("claim of the expired key: %v", a.Outcome)
		}
		return page
	}
	b.mustPass(Batch{Deleted: 1, Kept: 1})
	if r := b.view("k").Record; r == nil || r.State != onced.StatePending {
		t.Fatalf("the new claim did not survive the sweep: %+v", r)
	}
}

// TestManyExpire is report R54: very much expires in the same second. Pages and
// updates at once stay bounded, and claims get their turn between batches.
func TestManyExpire(t *testing.T) {
	const expired = 10_000
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.keys(expired)
		b.clock.Advance(30 * day)

		done := make(chan struct{})
		var claims int
		var wg sync.WaitGroup
		wg.Go(func() {
			// Fake time passes only while the sweeper rests: each of these claims
			// falls between two of its batches.
			for ticker := time.NewTicker(breath); ; claims++ {
				select {
				case <-ticker.C:
					b.claim(fmt.Sprintf("live%d", claims), "t")
				case <-done:
					ticker.Stop()
					return
				}
			}
		})
		b.mustPass(Batch{Deleted: expired})
		close(done)
		wg.Wait()

		// The last tick may come together with the end, and lose to it.
		if batches := expired/batchSize + 1; claims < batches-2 {
			t.Errorf("%d claims came between %d batches", claims, batches)
		}
		if got := b.store.largest.Load(); got != batchSize {
			t.Errorf("pages of %d", got)
		}
		if got := b.store.most.Load(); got > parallel {
			t.Errorf("%d updates at once", got)
		}
		for i := range claims {
			if r := b.view(fmt.Sprintf("live%d", i)).Record; r == nil || r.State != onced.StatePending {
				t.Fatalf("claim %d: %+v", i, r)
			}
		}
	})
}

// TestResumesAfterRestart stops a sweep in the middle; a new sweeper finds what
// is left in the index.
func TestResumesAfterRestart(t *testing.T) {
	const expired = 3*batchSize + 1
	b := newBench(t)
	b.keys(expired)
	b.clock.Advance(30 * day)
	b.store.scanned = func(page storage.DuePage) storage.DuePage {
		b.store.scanned = func(page storage.DuePage) storage.DuePage {
			b.sweep.cancel() // with the second page in hand
			return page
		}
		return page
	}
	got, _ := b.pass()
	if got.Deleted != batchSize || got.Failed != 0 {
		t.Fatalf("the pass that was stopped: %+v", got)
	}
	b.store.scanned = nil
	b.restart()
	b.mustPass(Batch{Deleted: expired - batchSize})
}

// TestLag tells how long the next entry has been due.
func TestLag(t *testing.T) {
	b := newBench(t)
	b.keys(batchSize + 1)
	b.clock.Advance(7*day + time.Hour)
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	if len(b.batches) != 3 || b.batches[0].Lag != time.Hour || b.batches[1].Lag != 0 || b.batches[2].Kind != onced.DueTwin {
		t.Fatalf("%+v", b.batches)
	}
}

var errOdd = errors.New("the disk said no")

// TestFailuresStallNothing: entries that the store cannot sweep, one among many
// or a whole page of them, leave the rest to be swept, and are tried again.
func TestFailuresStallNothing(t *testing.T) {
	b := newBench(t)
	b.keys(2 * batchSize)
	b.clock.Advance(30 * day)

	b.store.refuse = failing(func(key string) bool { return key == "key000000" })
	got, err := b.pass()
	if got.Deleted != 2*batchSize-1 || got.Failed != 1 || !errors.Is(err, errOdd) {
		t.Fatalf("one that fails: %+v, %v", got, err)
	}

	b = newBench(t)
	b.keys(2 * batchSize)
	b.clock.Advance(30 * day)
	first := fmt.Sprintf("key%06d", batchSize)
	b.store.refuse = failing(func(key string) bool { return key < first })
	if got, err = b.pass(); got.Deleted != 0 || got.Failed != batchSize || !errors.Is(err, errOdd) {
		t.Fatalf("a page that fails: %+v, %v", got, err)
	}
	if !strings.Contains(b.log.String(), errOdd.Error()) || strings.Count(b.log.String(), "\n") != 1 {
		t.Errorf("log: %s", b.log.String())
	}
	b.mustPass(Batch{Deleted: batchSize}) // behind the page that fails
	b.store.refuse = nil
	b.mustPass(Batch{Deleted: batchSize})
}

func failing(which func(key string) bool) func(storage.Target) error {
	return func(t storage.Target) error {
		if which(t.ID.Key) {
			return errOdd
		}
		return nil
	}
}
