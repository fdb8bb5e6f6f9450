package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A server that is killed again and again, in the midst of its callers' calls,
// loses nothing that it has acknowledged: every result is replayed with its
// bytes, every grant is still its holder's under its fence, and no fence is given
// twice. What it did not acknowledge is sent again and comes out right.
func TestKillStorm(t *testing.T) {
	const (
		rounds, workers = 20, 8
		seed            = 20260301
	)
	dir := newStore(t)
	all := &stormLedger{t: t, fences: map[uint64]string{}}
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		s := serve(t, dir)
		storm := &storm{stub: s.stub(), ledger: all, kill: s.kill, left: 20 + random.IntN(200)}
		from := len(all.entries)
		var done sync.WaitGroup
		for w := range workers {
			of := rand.New(rand.NewPCG(random.Uint64(), uint64(w)))
			done.Go(func() { storm.work(fmt.Sprintf("round-%d-worker-%d", round, w), of) })
		}
		done.Wait()
		s.kill()
		isSound(t, dir)

		s = serve(t, dir)
		c := s.caller()
		for _, e := range all.entries[from:] {
			all.settle(c, e)
		}
		s.kill()
	}
	c := serve(t, dir).caller()
	for _, e := range all.entries {
		all.verify(c, e)
	}
	newest := c.granted(claimOf("after the storm")).GetOperation().GetFence()
	for fence, key := range all.fences {
		if fence >= newest {
			t.Errorf("the fence %d of %s is not below %d, which was given later", fence, key, newest)
		}
	}
	t.Logf("kills=%d operations=%d fences=%d", 2*rounds, len(all.entries), len(all.fences))
}

// storm is one round: workers that claim and complete until the server dies.
type storm struct {
	stub   oncedv1.IdempotencyServiceClient
	ledger *stormLedger

	mu   sync.Mutex
	left int // answers until the server is killed
	kill func()
}

// work claims and completes keys, and leaves some claims open, until the server
// does not answer any more.
func (s *storm) work(name string, random *rand.Rand) {
	ctx := context.Background()
	for i := 0; ; i++ {
		e := s.ledger.begin(fmt.Sprintf("%s-%d", name, i))
		granted, err := s.stub.Claim(ctx, e.req)
		if err != nil {
			return
		}
		s.ledger.granted(e, granted)
		s.answered()
		if random.IntN(4) == 0 {
			continue
		}
		e.result = strconv.Itoa(random.Int())
		if _, err := s.stub.Complete(ctx, completion(e.req, granted, e.result)); err != nil {
			return
		}
		e.acknowledged = true
		s.answered()
	}
}

// answered counts an answer, and kills the server at the last one that it may
// give. The other workers' calls are under way then.
func (s *storm) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == 0 {
		go s.kill()
	}
}

// stormLedger is what the callers of all rounds know.
type stormLedger struct {
	t testing.TB

	mu      sync.Mutex
	entries []*stormEntry
	fences  map[uint64]string // to the key that each was given for
}

// stormEntry is one operation. It belongs to its worker, and to the test when the
// round is over.
type stormEntry struct {
	req          *oncedv1.ClaimRequest
	granted      *oncedv1.ClaimResponse // nil: the claim was not answered
	result       string                 // "": not reported
	acknowledged bool                   // the report was answered
}

func (l *stormLedger) begin(key string) *stormEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &stormEntry{req: leased(key, time.Hour)}
	l.entries = append(l.entries, e)
	return e
}

// granted keeps an answer to a claim of a new key.
func (l *stormLedger) granted(e *stormEntry, answer *oncedv1.ClaimResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.granted = answer
	key, fence := e.req.GetRef().GetKey(), answer.GetOperation().GetFence()
	if answer.GetOutcome() != grantedOutcome || answer.GetOperation().GetAttempt() != 1 {
		l.t.Errorf("the claim of %s was answered %v, want GRANTED at attempt 1", key, answer)
	}
	if other, taken := l.fences[fence]; taken {
		l.t.Errorf("%s was given the fence %d of %s", key, fence, other)
	}
	l.fences[fence] = key
}

// settle demands what was acknowledged, and sends again what was not.
func (l *stormLedger) settle(c caller, e *stormEntry) {
	if e.granted == nil {
		l.granted(e, c.claim(e.req))
	}
	if e.result != "" && !e.acknowledged {
		c.complete(completion(e.req, e.granted, e.result))
	}
	l.verify(c, e)
}

// verify demands that an operation stands as its holder left it.
func (l *stormLedger) verify(c caller, e *stormEntry) {
	key := e.req.GetRef().GetKey()
	if e.result != "" {
		c.replayed(key, e.result, e.granted)
		return
	}
	again := c.granted(e.req)
	if again.GetOperation().GetFence() != e.granted.GetOperation().GetFence() {
		l.t.Errorf("%s is held under the fence %d, and was granted %d", key, again.GetOperation().GetFence(), e.granted.GetOperation().GetFence())
	}
}
