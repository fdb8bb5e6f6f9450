package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt"
)

// sweep lets very many records expire at once. A sweep begins with its server, so
// what claims cost before it is measured on a store with as many records of which
// none has expired.
//
// Among the expired records lie live ones: settled, claimed just now, and claimed
// long ago, which never expire. While the sweep runs, claims of new keys go on,
// some expired keys are claimed anew, and some old claims are renewed. Half way
// the server is killed.
type sweep struct {
	Expired int           `default:"300000" help:"Records that have expired."`
	Live    int           `default:"30000" help:"Live records among them."`
	Before  time.Duration `default:"15s" help:"How long claims are measured without a sweep, paced and saturating each."`
	Rate    float64       `default:"50" help:"Claims a second of the paced part."`
	Callers int           `default:"64" help:"Callers of the saturating part."`
}

const (
	longAgo     = 100 * 24 * time.Hour // beyond every retention
	sweepResult = 100                  // bytes
	sweepTimes  = 3                    // what p99 may grow by

	pacedCallers  = 200 // more than are ever busy
	sweepPatience = 30 * time.Minute

	deletedName = `onced_sweep_entries_total{action="deleted",index="operations"}`
	lagName     = `onced_sweep_lag_seconds{index="operations"}`
)

// kindOf says what the i-th record of a store is: most expire, the others are of
// three kinds in turn.
func (s *sweep) kindOf(i int) recordKind {
	every := (s.Expired + s.Live) / max(1, s.Live)
	if every == 0 || i%every != every-1 {
		return expiring
	}
	return recordKind(1 + i/every%3)
}

type recordKind int

const (
	expiring    recordKind = iota // settled long ago
	liveSettled                   // just now
	livePending                   // claimed just now
	liveLapsed                    // claimed long ago, and never heard of again
)

func (s *sweep) records() int { return s.Expired + s.Live }

func sweepKey(i int) string { return fmt.Sprintf("record-%08d", i) }

// measure implements scenario.
func (s *sweep) measure(ctx context.Context, r *rig, rep *report) error {
	run := &sweepRun{sweep: *s, ctx: ctx, rig: r, rep: rep, data: r.name("store"), ledger: newLedger()}
	if err := run.before(); err != nil {
		return err
	}
	if err := run.fill(run.data, longAgo); err != nil {
		return err
	}
	if err := run.paced(); err != nil {
		return err
	}
	if err := run.saturated(); err != nil {
		return err
	}
	return run.compare()
}

// sweepRun is a running sweep.
type sweepRun struct {
	sweep
	ctx    context.Context
	rig    *rig
	rep    *report
	data   string
	server *server
	stubs  stubs
	ledger *ledger

	mu      sync.Mutex
	strange []string // calls that were not answered as they should
	killing atomic.Bool
	anew    atomic.Int64
	renewed atomic.Int64

	pacedBefore, saturatedBefore *times
}

// fill makes a store whose expiring records were settled some time ago.
func (s *sweepRun) fill(dir string, ago time.Duration) error {
	s.rig.say("writing %d records, settled %v ago", s.records(), ago)
	clock := &shiftedClock{wall: time.Now().Add(-longAgo)}
	return fillStore(dir, clock, func(store *bolt.Store) error {
		if ago == 0 {
			clock.moveTo(time.Now())
		}
		if err := s.writeKinds(store, expiring, liveLapsed); err != nil {
			return err
		}
		clock.moveTo(time.Now())
		return s.writeKinds(store, liveSettled, livePending)
	})
}

// writeKinds writes the records of two kinds.
func (s *sweepRun) writeKinds(store *bolt.Store, a, b recordKind) error {
	var numbers []int
	for i := range s.records() {
		if k := s.kindOf(i); k == a || k == b {
			numbers = append(numbers, i)
		}
	}
	return write(store, len(numbers), func(n int) (onced.Identity, storage.UpdateFunc) {
		i := numbers[n]
		id := idOf("default", sweepKey(i))
		if k := s.kindOf(i); k == livePending || k == liveLapsed {
			return id, pending(id, longLease)
		}
		return id, settled(id, sweepResult)
	})
}

func (s *sweepRun) serve(dir string) (err error) {
	if s.server, err = s.rig.serve(s.ctx, dir, setup{}); err != nil {
		return err
	}
	s.stubs, err = s.rig.stubs(s.server, 4)
	return err
}

// before measures claims on a store of which nothing has expired.
func (s *sweepRun) before() error {
	dir := s.rig.name("store")
	if err := s.fill(dir, 0); err != nil {
		return err
	}
	if err := s.serve(dir); err != nil {
		return err
	}
	s.rig.say("claims without a sweep")
	ctx, cancel := context.WithTimeout(s.ctx, s.Before)
	defer cancel()
	s.pacedBefore = s.pace(ctx, newLedger(), "paced", false)
	ctx, cancel = context.WithTimeout(s.ctx, s.Before)
	defer cancel()
	s.saturatedBefore = s.saturate(ctx, newLedger(), "saturating")
	return s.server.stop()
}

// claimed claims a key, measures that, and settles most of what it is granted.
func (s *sweepRun) claimed(l *ledger, took *times, caller int, key string, settle bool) {
	req := claimOf("default", key)
	stub := s.stubs.of(caller)
	sent := time.Now()
	fence, err := claim(s.ctx, stub, req)
	took.add(time.Since(sent))
	if err == nil {
		e := l.granted(req, fence, sweepResult)
		if settle {
			err = l.settle(s.ctx, stub, e)
		}
	}
	s.note(err)
}

// note keeps an error, unless it is of a server that is killed on purpose.
func (s *sweepRun) note(err error) {
	if err == nil || s.killing.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strange = append(s.strange, err.Error())
}

// pace claims at the scenario's rate until ctx ends. During a sweep every fourth
// claim is of a key that has expired, swept or not, beginning with those that the
// sweep comes to last; and for every fourth an old claim is renewed.
func (s *sweepRun) pace(ctx context.Context, l *ledger, name string, during bool) *times {
	took, loop := &times{}, newOpenLoop(pacedCallers)
	loop.run(ctx, s.Rate, func(caller, n int) {
		key := fmt.Sprintf("%s-%d", name, n)
		switch i := s.records() - 1 - n; {
		case during && n%4 == 0 && i >= 0 && s.kindOf(i) == expiring:
			key = sweepKey(i)
			s.anew.Add(1)
		case during && n%4 == 1:
			s.renewLapsed(n)
		}
		s.claimed(l, took, caller, key, n%8 != 0)
	})
	loop.running.Wait()
	s.rep.figure(name+"_claims_late_p99_ms", loop.late.ms(0.99))
	s.rep.figure(name+"_claims_not_sent", loop.tooLate+loop.unfree)
	return took
}

// renewLapsed renews a claim that was made long ago: it revives.
func (s *sweepRun) renewLapsed(n int) {
	for i := n * s.records() / 10_000 % s.records(); i < s.records(); i++ {
		if s.kindOf(i) == liveLapsed {
			s.note(s.renew(sweepKey(i)))
			return
		}
	}
}

func (s *sweepRun) renew(key string) error {
	ctx, cancel := context.WithTimeout(s.ctx, callTime)
	defer cancel()
	seen, err := s.stubs.of(0).Lookup(ctx, &oncedv1.LookupRequest{Ref: refOf("default", key)})
	if err == nil {
		_, err = s.stubs.of(0).Renew(ctx, &oncedv1.RenewRequest{
			Ref: refOf("default", key), ClaimToken: tokenOf(key), Fence: seen.GetOperation().GetFence(), Lease: durationpb.New(longLease),
		})
	}
	if err == nil {
		s.renewed.Add(1)
	}
	return err
}

// saturate claims in a closed loop until ctx ends.
func (s *sweepRun) saturate(ctx context.Context, l *ledger, name string) *times {
	took := &times{}
	start := time.Now()
	closedLoop(ctx, s.Callers, func(caller, round int) {
		s.claimed(l, took, caller, fmt.Sprintf("%s-%d-%d", name, caller, round), round%8 != 0)
	})
	s.rep.figure(name+"_claims_per_s", float64(took.count())/time.Since(start).Seconds())
	return took
}

// swept waits until the sweep has deleted a number of records, or, with none, until
// it has come to its end.
func (s *sweepRun) swept(n float64) error {
	// A scrape of the metrics is work too: of a long sweep they are read less often.
	every := max(5*time.Millisecond, time.Duration(s.Expired)*time.Microsecond)
	return poll(s.ctx, every, sweepPatience, "the sweep", func() (bool, error) {
		deleted, err := s.server.metric(deletedName)
		if err != nil || n > 0 || deleted == 0 {
			return deleted >= n && n > 0, err
		}
		lag, err := s.server.metric(lagName)
		return lag == 0, err
	})
}

// paced measures paced claims during the first half of the sweep, and kills the
// server in the middle of it.
func (s *sweepRun) paced() error {
	if err := s.serve(s.data); err != nil {
		return err
	}
	s.rig.say("the sweep begins; %g claims a second go on", s.Rate)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	began := time.Now()
	waited := make(chan error, 1)
	go func() {
		waited <- s.swept(float64(s.Expired) / 2)
		s.killing.Store(true)
		s.server.kill()
		cancel()
	}()
	took := s.pace(ctx, s.ledger, "swept_paced", true)
	if err := <-waited; err != nil {
		return err
	}
	s.rep.figure("first_half_s", time.Since(began).Seconds())
	s.compareTimes("paced", s.pacedBefore, took)
	return nil
}

// saturated starts the server again and measures claims of a closed loop until the
// sweep is done.
func (s *sweepRun) saturated() error {
	s.killing.Store(false)
	if err := s.serve(s.data); err != nil {
		return err
	}
	s.rig.say("killed and started again; %d callers saturate it while the sweep goes on", s.Callers)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	began := time.Now()
	waited := make(chan error, 1)
	go func() {
		waited <- s.swept(0)
		cancel()
	}()
	took := s.saturate(ctx, s.ledger, "swept_saturating")
	if err := <-waited; err != nil {
		return err
	}
	deleted, err := s.server.metric(deletedName)
	s.rep.figure("second_half_s", time.Since(began).Seconds())
	s.rep.figure("deleted_after_kill", deleted)
	s.rep.atLeast("records that were left when the server was killed", deleted, 1)
	s.compareTimes("saturating", s.saturatedBefore, took)
	return err
}

func (s *sweepRun) compareTimes(name string, before, during *times) {
	s.rep.figure(name+"_before_p99_ms", before.ms(0.99))
	s.rep.figure(name+"_during_p50_ms", during.ms(0.5))
	s.rep.figure(name+"_during_p99_ms", during.ms(0.99))
	s.rep.figure(name+"_during_claims", during.count())
	s.rep.atMost(name+" claims: p99 during the sweep, in units of before", during.ms(0.99)/before.ms(0.99), sweepTimes)
}

// compare looks whether the store holds what it should, and nothing else.
func (s *sweepRun) compare() error {
	s.rep.figure("claimed_anew", s.anew.Load())
	s.rep.figure("renewed", s.renewed.Load())
	s.rep.holds("all calls were answered as they should", len(s.strange) == 0, "%d were not: %.300v", len(s.strange), s.strange)
	looked, lost := s.ledger.lost(s.ctx, s.stubs, "")
	s.rep.keeps("what was acknowledged during the sweep", looked, lost)
	if err := s.rig.soundAfter(s.server, s.data, s.rep, "the store is sound"); err != nil {
		return err
	}
	return s.scan()
}

// scan reads the whole store.
func (s *sweepRun) scan() error {
	found := map[string]*onced.Record{}
	err := inStore(s.data, realClock{}, func(store *bolt.Store) error {
		for cursor := storage.Cursor(nil); ; {
			page, err := store.ScanIdentity(s.ctx, nil, cursor, 1000)
			if err != nil {
				return err
			}
			for _, v := range page.Views {
				found[v.ID.Key] = v.Record
			}
			if cursor = page.Next; cursor == nil {
				return nil
			}
		}
	})
	if err != nil {
		return err
	}
	// A key may have been claimed anew without an answer: the server was killed. What
	// is left is told by its time, not by what was acknowledged.
	expired := time.Now().Add(-longAgo / 2)
	var missing, left []string
	live := 0
	for i := range s.records() {
		key := sweepKey(i)
		r := found[key]
		if kind := s.kindOf(i); kind != expiring {
			live++
			if err := kind.check(key, r); err != nil {
				missing = append(missing, fmt.Sprintf("%s: %v", key, err))
			}
		} else if r != nil && r.FirstClaimTime.Before(expired) {
			left = append(left, key)
		}
	}
	s.rep.holds("every expired record is gone", len(left) == 0, "%d of %d are left: %.100v", len(left), s.Expired, left)
	s.rep.keeps("every live neighbour", live, missing)
	return nil
}

// check reports what is wrong with a live record.
func (k recordKind) check(key string, r *onced.Record) error {
	switch {
	case r == nil:
		return errors.New("is gone")
	case k != liveSettled && r.State != onced.StatePending, k == liveSettled && r.State != onced.StateCompleted:
		return fmt.Errorf("is %v", r.State)
	case k == liveSettled && string(r.Result.Bytes) != contentOf(key, sweepResult):
		return errors.New("has other bytes")
	}
	return nil
}
