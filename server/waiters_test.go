package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// bubbleClock is the clock of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Wall() time.Time        { return time.Now() }
func (c bubbleClock) Elapsed() time.Duration { return time.Since(c.start) }

// inBubble runs a test in a bubble, over a store that follows its time and has
// been up for longer than the grace after a start.
func inBubble(t *testing.T, test func(w *wire), change ...func(*onced.Policy)) {
	inBubbleOver(t, func(s *memory.Store) storage.Store { return s }, test, change...)
}

func inBubbleOver(t *testing.T, wrap func(*memory.Store) storage.Store, test func(w *wire), change ...func(*onced.Policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWireOver(t, wrap(memory.New(bubbleClock{time.Now()})), nil, change...)
		pass(2 * time.Minute)
		test(w)
		synctest.Wait()
		if n := w.seen.held(); n != 0 {
			t.Errorf("%d calls are still counted as held", n)
		}
	})
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// answer is what a call that waits was answered, and after how long.
type answer struct {
	claim  *oncedv1.ClaimResponse
	lookup *oncedv1.LookupResponse
	err    error
	after  time.Duration
}

// waitFor starts a claim that waits.
func (w *wire) waitFor(ctx context.Context, key, tok string, wait time.Duration, change ...func(*oncedv1.ClaimRequest)) <-chan answer {
	req := claimOf(key, tok, change...)
	req.Wait = durationpb.New(wait)
	return begin(func() (a answer) {
		a.claim, a.err = w.client.Claim(ctx, req)
		return a
	})
}

// lookFor starts a lookup that waits.
func (w *wire) lookFor(key string, wait time.Duration) <-chan answer {
	return begin(func() (a answer) {
		a.lookup, a.err = w.client.Lookup(w.Context(), &oncedv1.LookupRequest{Ref: ref(key), Wait: durationpb.New(wait)})
		return a
	})
}

func begin(call func() answer) <-chan answer {
	from, done := time.Now(), make(chan answer, 1)
	go func() {
		a := call()
		a.after = time.Since(from)
		done <- a
	}()
	synctest.Wait()
	return done
}

// want waits for the answer of a claim and checks its outcome and its time.
func (w *wire) want(answers <-chan answer, outcome oncedv1.Outcome, after time.Duration) *oncedv1.ClaimResponse {
	w.Helper()
	a := <-answers
	if a.err != nil || a.claim.GetOutcome() != outcome || a.after != after {
		w.Fatalf("%v after %v, want %v after %v (%v)", a.claim, a.after, outcome, after, a.err)
	}
	return a.claim
}

func (w *wire) still(answers <-chan answer) {
	w.Helper()
	synctest.Wait()
	select {
	case a := <-answers:
		w.Fatalf("answered: %+v", a)
	default:
	}
}

func TestWaitForCompletion(t *testing.T) {
	inBubble(t, func(w *wire) {
		h := w.grant("k", "a")
		claims, looks := w.waitFor(w.Context(), "k", "b", 20*time.Second), w.lookFor("k", 20*time.Second)
		if n := w.seen.held(); n != 2 {
			w.Errorf("%d calls held, want 2", n)
		}
		pass(7 * time.Second)
		w.still(claims)
		w.must(completed)(h.complete("done"))
		if op := w.want(claims, replayed, 7*time.Second).GetOperation(); op.GetResult().GetStored().GetText() != "done" {
			w.Errorf("%v", op)
		}
		if a := <-looks; a.err != nil || a.lookup.GetOperation().GetState() != completed || a.after != 7*time.Second {
			w.Errorf("%+v", a)
		}
	})
}

// The end of the lease is announced by no write.
func TestWaitForTheLapse(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.grant("k", "a", withLease(1500*time.Millisecond))
		claims, looks := w.waitFor(w.Context(), "k", "b", 20*time.Second), w.lookFor("k", 20*time.Second)
		if op := w.want(claims, unresolved, 1500*time.Millisecond).GetOperation(); op.GetReason() != lapsed {
			w.Errorf("%v", op)
		}
		if a := <-looks; a.lookup.GetOperation().GetState() != stateUnresolved || a.after != 1500*time.Millisecond {
			w.Errorf("%+v", a)
		}
	})
}

// Store time may stand still while the process runs: then a held call does not
// look again and again.
func TestWaitOverAStandingClock(t *testing.T) {
	clock := storagetest.NewClock()
	store := &countingStore{Store: memory.New(clock)}
	synctest.Test(t, func(t *testing.T) {
		w := newWireOver(t, store, clock)
		clock.Advance(2 * time.Minute)
		w.grant("k", "a")
		clock.Advance(30*time.Second - 1)
		before := store.updates
		w.want(w.waitFor(w.Context(), "k", "b", time.Second), inProgress, time.Second)
		if n := store.updates - before; n > 102 {
			t.Errorf("looked %d times in a second", n)
		}
	})
}

type countingStore struct {
	storage.Store
	updates int
}

func (s *countingStore) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	s.updates++
	return s.Store.Update(ctx, t, fn)
}

// A renewal moves the lapse: the waiter goes on.
func TestWaitOverARenewal(t *testing.T) {
	inBubble(t, func(w *wire) {
		h := w.grant("k", "a", withLease(2*time.Second))
		claims := w.waitFor(w.Context(), "k", "b", 20*time.Second)
		pass(time.Second)
		w.must(pending)(h.renew(func(r *oncedv1.RenewRequest) { r.Lease = durationpb.New(5 * time.Second) }))
		w.want(claims, unresolved, 6*time.Second)
	})
}

// Released, the claim is run again under its token: one of those who wait is
// granted, the others go on waiting for it.
func TestWaitForTheRelease(t *testing.T) {
	inBubble(t, func(w *wire) {
		h := w.grant("k", "a")
		waiting := map[string]<-chan answer{}
		for _, tok := range []string{"b", "c", "d"} {
			waiting[tok] = w.waitFor(w.Context(), "k", tok, 20*time.Second)
		}
		pass(time.Second)
		w.must(released)(h.fail(notExecuted))
		synctest.Wait()
		var next held
		for tok, answers := range waiting {
			select {
			case a := <-answers:
				if a.claim.GetOutcome() != granted || next.w != nil {
					w.Fatalf("%s: %+v", tok, a)
				}
				next = held{w: w, key: "k", token: tok, fence: a.claim.GetOperation().GetFence()}
				delete(waiting, tok)
			default:
			}
		}
		if next.w == nil {
			w.Fatal("nobody was granted")
		}
		// The token that was granted gets its answer again.
		w.claim(granted, "k", next.token)
		pass(time.Second)
		w.must(completed)(next.complete("done"))
		for _, answers := range waiting {
			w.want(answers, replayed, 2*time.Second)
		}
	})
}

// The answer at the end of the wait is as fresh as any.
func TestWaitEnds(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.grant("k", "a", withLease(time.Hour))
		for asked, got := range map[time.Duration]time.Duration{
			0: 0, 1: 1, 3 * time.Second: 3 * time.Second, 20 * time.Second: 20 * time.Second, time.Hour: 20 * time.Second,
		} {
			w.want(w.waitFor(w.Context(), "k", "b", asked), inProgress, got)
		}
		w.grant("k2", "a", withLease(15*time.Second))
		resp := w.want(w.waitFor(w.Context(), "k2", "b", 10*time.Second), inProgress, 10*time.Second)
		if resp.GetRetryAfter().AsDuration() != 5*time.Second {
			w.Errorf("retry_after %v is that of the beginning", resp.GetRetryAfter().AsDuration())
		}
	})
}

func TestWaitIsCappedByThePolicy(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.grant("k", "a")
		w.want(w.waitFor(w.Context(), "k", "b", 20*time.Second), inProgress, 3*time.Second)
	}, func(p *onced.Policy) { p.MaxWait = 3 * time.Second })
}

// The answer comes 250 ms before the caller's deadline, or at once when that is
// nearer.
func TestWaitAndTheDeadline(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.grant("k", "a")
		for deadline, after := range map[time.Duration]time.Duration{
			2 * time.Second:        1750 * time.Millisecond,
			200 * time.Millisecond: 0,
			time.Minute:            10 * time.Second,
		} {
			ctx, cancel := context.WithTimeout(w.Context(), deadline)
			w.want(w.waitFor(ctx, "k", "b", 10*time.Second), inProgress, after)
			cancel()
		}
	})
}

// What is not IN_PROGRESS is answered at once, and so is what is not LIVE.
func TestWhatDoesNotWait(t *testing.T) {
	inBubble(t, func(w *wire) {
		const wait = 20 * time.Second
		w.want(w.waitFor(w.Context(), "new", "a", wait), granted, 0)
		w.want(w.waitFor(w.Context(), "new", "a", wait), granted, 0)
		w.must(completed)(w.grant("done", "a").complete("done"))
		w.want(w.waitFor(w.Context(), "done", "b", wait), replayed, 0)
		w.must(stateUnresolved)(w.grant("doubt", "a").fail(unknown))
		w.want(w.waitFor(w.Context(), "doubt", "b", wait), unresolved, 0)
		w.grant("twin", "a", guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED, "x"))
		w.want(w.waitFor(w.Context(), "other", "b", wait, guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED, "x")), blocked, 0)

		for _, key := range []string{"done", "doubt", "absent"} {
			if a := <-w.lookFor(key, wait); a.after != 0 || (status.Code(a.err) == codes.NotFound) != (key == "absent") {
				w.Errorf("%s: %+v", key, a)
			}
		}
		if a := <-w.waitFor(w.Context(), "new", "b", wait, withSubject("x")); a.after != 0 || status.Code(a.err) != codes.PermissionDenied {
			w.Errorf("%+v", a)
		}
		if n := w.seen.held(); n != 0 {
			w.Errorf("%d held", n)
		}
	})
}

// Past the bound of an operation the answer comes at once; other operations have
// a bound of their own.
func TestWaitersOfOneOperation(t *testing.T) {
	inBubble(t, func(w *wire) {
		h := w.grant("k", "a")
		w.grant("k2", "a")
		first, second := w.waitFor(w.Context(), "k", "b", 5*time.Second), w.lookFor("k", 5*time.Second)
		w.want(w.waitFor(w.Context(), "k", "c", 5*time.Second), inProgress, 0)
		if a := <-w.lookFor("k", 5*time.Second); a.after != 0 || a.lookup.GetOperation().GetState() != pending {
			w.Errorf("%+v", a)
		}
		w.want(w.waitFor(w.Context(), "k2", "c", time.Second), inProgress, time.Second)
		w.must(completed)(h.complete("done"))
		w.want(first, replayed, time.Second)
		<-second
	}, func(p *onced.Policy) { p.MaxWaiters = 2 })
}

// A waiter that goes away makes room, and writes nothing: the operation is
// released right after it, and is not granted to it.
func TestCancelledWaiter(t *testing.T) {
	inBubble(t, func(w *wire) {
		h := w.grant("k", "a")
		ctx, cancel := context.WithCancel(w.Context())
		gone := w.waitFor(ctx, "k", "b", 20*time.Second)
		w.unchanged(func() {
			cancel()
			if a := <-gone; status.Code(a.err) != codes.Canceled {
				w.Errorf("%+v", a)
			}
			synctest.Wait()
		})
		if n := w.seen.held(); n != 0 {
			w.Errorf("%d held", n)
		}
		w.must(released)(h.fail(notExecuted))
		synctest.Wait()
		w.lookup(released, "k")
	})
}

// On stop whoever waits is told to go elsewhere; what needs no wait is answered.
func TestDrain(t *testing.T) {
	inBubble(t, func(w *wire) {
		h := w.grant("k", "a")
		claims, looks := w.waitFor(w.Context(), "k", "b", 20*time.Second), w.lookFor("k", 20*time.Second)
		pass(time.Second)
		w.svc.Drain()
		w.svc.Drain()
		for _, answers := range []<-chan answer{claims, looks, w.waitFor(w.Context(), "k", "c", 20*time.Second)} {
			a := <-answers
			st := wantError(w.T, a.err, codes.Unavailable, "STOPPING", "no")
			if detail[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration() <= 0 || a.after > time.Second {
				w.Errorf("%+v", a)
			}
		}
		w.claim(inProgress, "k", "d")
		w.must(completed)(h.complete("done"))
		w.want(w.waitFor(w.Context(), "k", "b", 20*time.Second), replayed, 0)
	})
}

// interposed lets something happen between a decision and its answer.
type interposed struct {
	storage.Store
	after func()
}

func (s *interposed) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	v, err := s.Store.Get(ctx, id)
	if after := s.after; after != nil {
		s.after = nil
		after()
	}
	return v, err
}

// A change between the decision to wait and the waiting itself is not missed.
func TestNoLostWakeUp(t *testing.T) {
	store := &interposed{}
	wrap := func(s *memory.Store) storage.Store { store.Store = s; return store }
	inBubbleOver(t, wrap, func(w *wire) {
		h := w.grant("k", "a")
		store.after = func() {
			if _, err := w.svc.Complete(w.Context(), h.completion("done")); err != nil {
				w.Error(err)
			}
		}
		w.want(w.waitFor(w.Context(), "k", "b", 20*time.Second), replayed, 0)
	})
}

// Waiters are not told of what is not durable.
func TestWaitersAndTheSync(t *testing.T) {
	var gate storagetest.Gate
	wrap := func(s *memory.Store) storage.Store { s.OnSync = gate.Sync; return s }
	inBubbleOver(t, wrap, func(w *wire) {
		h := w.grant("k", "a")
		claims, looks := w.waitFor(w.Context(), "k", "b", 20*time.Second), w.lookFor("k", 20*time.Second)
		release := gate.HoldSync()
		settled := make(chan error, 1)
		go func() {
			_, err := h.complete("done")
			settled <- err
		}()
		w.still(claims)
		w.still(looks)
		pass(time.Second)
		w.still(claims)
		release()
		w.want(claims, replayed, time.Second)
		if a := <-looks; a.lookup.GetOperation().GetState() != completed {
			w.Errorf("%+v", a)
		}
		if err := <-settled; err != nil {
			w.Error(err)
		}
	})
}
