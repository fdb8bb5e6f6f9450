package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// large asks for very large results: bursts of replays and lookups of them, and
// claims that are refused because of their fingerprint and should never touch the
// bytes. What such claims cost their neighbours is compared with what claims that
// are refused on an operation with a small result cost them.
type large struct {
	MiB        int           `name:"mib" default:"16" help:"Size of a large result."`
	Operations int           `default:"8" help:"Operations with such a result."`
	Burst      int           `default:"64" help:"Replays and lookups at once."`
	Rounds     int           `default:"3" help:"Bursts."`
	Mismatches int           `default:"16" help:"Callers whose claims are refused."`
	Neighbours int           `default:"32" help:"Callers of other operations meanwhile."`
	Phase      time.Duration `default:"8s" help:"How long the neighbours are measured, alone and beside each kind of refused claims."`
}

// largeConfig lets results be as large as the server has them at most.
const largeConfig = "default: {max_result_bytes: 16777216}\n"

const (
	firstFingerprint = "raw1:0000000000000000000000000000000000000000000000000000000000000001"
	otherFingerprint = "raw1:0000000000000000000000000000000000000000000000000000000000000002"
)

// largeRun is a running scenario.
type largeRun struct {
	large
	ctx    context.Context
	rep    *report
	server *server
	stubs  stubs
	size   int // of a large result
}

// measure implements scenario.
func (l *large) measure(ctx context.Context, r *rig, rep *report) error {
	run := &largeRun{large: *l, ctx: ctx, rep: rep, size: l.MiB * mib}
	dir := r.name("store")
	if err := r.newStore(dir); err != nil {
		return err
	}
	config, err := r.writeFile("config", largeConfig)
	if err != nil {
		return err
	}
	if run.server, err = r.serve(ctx, dir, setup{config: config}); err != nil {
		return err
	}
	if run.stubs, err = r.stubs(run.server, 16); err != nil {
		return err
	}
	r.say("storing %d results of %d MiB", l.Operations, l.MiB)
	if err := run.store(); err != nil {
		return err
	}
	r.say("%d bursts of %d replays and lookups", l.Rounds, l.Burst)
	if err := run.bursts(); err != nil {
		return err
	}
	r.say("neighbours of %d callers whose claims are refused", l.Mismatches)
	return run.neighbours()
}

func largeKey(i int) string { return fmt.Sprintf("large-%d", i) }

// store settles operations with large results, and one with a small one.
func (l *largeRun) store() error {
	for i := range l.Operations + 1 {
		key, size := largeKey(i), l.size
		if i == l.Operations {
			key, size = "small", 1
		}
		req := claimOf("default", key)
		req.Fingerprints = []string{firstFingerprint}
		fence, err := claim(l.ctx, l.stubs.of(0), req)
		if err == nil {
			err = complete(l.ctx, l.stubs.of(0), completion(req, fence, contentOf(key, size)))
		}
		if err != nil {
			return fmt.Errorf("store the result of %s: %w", key, err)
		}
	}
	return nil
}

// bursts asks for large results, many at once, and watches the server's memory.
func (l *largeRun) bursts() error {
	digests := make([][sha256.Size]byte, l.Operations)
	for i := range digests {
		digests[i] = sha256.Sum256([]byte(contentOf(largeKey(i), l.size)))
	}
	var (
		answered, refused atomic.Int64
		mu                sync.Mutex
		strange           []string
	)
	stop := peakRSS(l.server)
	for range l.Rounds {
		each(l.Burst, l.Burst, func(n int) {
			i := n % l.Operations
			result, err := l.ask(n, largeKey(i))
			switch {
			case err == nil && sha256.Sum256([]byte(result)) == digests[i]:
				answered.Add(1)
				return
			case err == nil:
				err = errors.New("other bytes than were stored")
			case reasonOf(err) == overloaded:
				refused.Add(1)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			strange = append(strange, err.Error())
		})
	}
	rss, err := stop()
	l.rep.figure("burst_rss_anon_mib", inMiB(rss))
	l.rep.figure("burst_answered", answered.Load())
	l.rep.figure("burst_refused_overloaded", refused.Load())
	l.rep.holds("large results come whole or are refused as overload", len(strange) == 0, "%d did not: %.300v", len(strange), strange)
	l.rep.holds("some large results come", answered.Load() > 0, "%d of %d did", answered.Load(), l.Rounds*l.Burst)
	return err
}

// ask claims or looks up an operation, in turn, and returns its result.
func (l *largeRun) ask(n int, key string) (string, error) {
	ctx, cancel := context.WithTimeout(l.ctx, callTime)
	defer cancel()
	if n%2 == 0 {
		resp, err := l.stubs.of(n).Claim(ctx, &oncedv1.ClaimRequest{
			Ref: refOf("default", key), ClaimToken: client.NewToken(), Fingerprints: []string{firstFingerprint},
		})
		return resp.GetOperation().GetResult().GetStored().GetText(), err
	}
	resp, err := l.stubs.of(n).Lookup(ctx, &oncedv1.LookupRequest{
		Ref: refOf("default", key), View: oncedv1.LookupView_LOOKUP_VIEW_FULL,
	})
	return resp.GetOperation().GetResult().GetStored().GetText(), err
}

// neighbours measures what callers of other operations get done: alone, beside
// refused claims of a small result, and beside refused claims of a large one.
func (l *largeRun) neighbours() error {
	rates := map[string]float64{}
	for _, beside := range []string{"", "small", largeKey(0)} {
		stop := peakRSS(l.server)
		done, refusals, strange := l.beside(beside)
		rss, err := stop()
		if err != nil {
			return err
		}
		name := map[string]string{"": "alone", "small": "beside_small"}[beside]
		if name == "" {
			name = "beside_large"
		}
		rates[name] = float64(done) / l.Phase.Seconds()
		l.rep.figure(name+"_claims_per_s", rates[name])
		l.rep.figure(name+"_refusals_per_s", float64(refusals)/l.Phase.Seconds())
		l.rep.figure(name+"_rss_anon_mib", inMiB(rss))
		l.rep.holds(name+": every call is answered as it should", len(strange) == 0, "%d were not: %.300v", len(strange), strange)
	}
	l.rep.figure("beside_large_to_alone", rates["beside_large"]/rates["alone"])
	l.rep.figure("beside_large_to_small", rates["beside_large"]/rates["beside_small"])
	return nil
}

// beside lets neighbours claim and settle for a phase, while other callers' claims
// of a key are refused. It returns the claims that were granted and those that were
// refused.
func (l *largeRun) beside(key string) (done, refusals int64, strange []string) {
	ctx, cancel := context.WithTimeout(l.ctx, l.Phase)
	defer cancel()
	var (
		granted, refused atomic.Int64
		mu               sync.Mutex
		all              sync.WaitGroup
	)
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		strange = append(strange, err.Error())
	}
	if key != "" {
		all.Go(func() {
			closedLoop(ctx, l.Mismatches, func(caller, _ int) {
				req := claimOf("default", key)
				req.Fingerprints = []string{otherFingerprint}
				if _, err := claim(l.ctx, l.stubs.of(caller), req); reasonOf(err) != mismatch {
					note(fmt.Errorf("a claim with another fingerprint was answered %w", err))
				}
				refused.Add(1)
			})
		})
	}
	run := rand.Int63()
	closedLoop(ctx, l.Neighbours, func(caller, round int) {
		req := claimOf("default", fmt.Sprintf("neighbour-%x-%d-%d", run, caller, round))
		stub := l.stubs.of(caller)
		fence, err := claim(l.ctx, stub, req)
		if err == nil {
			granted.Add(1)
			err = complete(l.ctx, stub, completion(req, fence, "done"))
		}
		if err != nil {
			note(err)
		}
	})
	all.Wait()
	return granted.Load(), refused.Load(), strange
}
