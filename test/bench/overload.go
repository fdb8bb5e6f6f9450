package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// overload offers ten times what a server accepts. Its commits are made slow and
// small by fault switches, so that the limit lies in the store and not in the two
// or four processors which callers and server share.
//
// The callers are an open loop: what is due is sent by any of them that is free.
// They share a few connections, as the callers of a few backends do; a connection
// for each of them would cost the server more memory than anything that overload
// does to it, and hide the latter.
type overload struct {
	Duration    time.Duration `default:"30s" help:"How long the overload lasts."`
	Phase       time.Duration `default:"10s" help:"How long each phase before and after it lasts."`
	Callers     int           `default:"2000" help:"Callers of the open loop."`
	Connections int           `default:"20" help:"Connections that the callers share."`
	Factor      float64       `default:"10" help:"What is offered, in units of what is accepted."`
}

const (
	// batchLimit is the content of the switch that bounds a batch, in requests.
	batchLimit = 64
	// saturating is how many callers of a closed loop keep such batches full: half of
	// them wait for a commit while the others come back from the one before. With more
	// of them some would be refused, and at once be back: an overload before the one
	// that is measured.
	saturating = 2 * batchLimit
	// unsettledShare: of so many grants under overload one is left unsettled, so that
	// there are acknowledged grants to look for.
	unsettledShare = 16
	overloadResult = 100 // bytes
	// leastRecovery is the share of what was accepted before that counts as recovered,
	// over a window of this length.
	leastRecovery = 0.9
	recoverWindow = time.Second
	recoverWithin = 5 // seconds
	// leastOffered is the share of what should be offered without which nothing that
	// was measured counts.
	leastOffered = 0.9
)

// overloadRun is a running overload.
type overloadRun struct {
	overload
	ctx    context.Context
	rig    *rig
	rep    *report
	data   string
	setup  setup
	server *server
	stubs  stubs
	ledger *ledger
	phases []*pairs // in which no server was killed
}

// pairs counts what became of the claims of one phase, and of the settlements of
// those that were granted.
type pairs struct {
	name      string
	completed *marks
	refused   times // claims that were answered OVERLOADED
	claims    atomic.Int64
	granted   atomic.Int64
	failed    atomic.Int64 // claims that were answered anything else
	unsettled atomic.Int64 // settlements that were not acknowledged
	strange   atomic.Value // the text of an error of the last two kinds
}

func newPairs(name string) *pairs { return &pairs{name: name, completed: newMarks()} }

// phase begins a phase.
func (o *overloadRun) phase(name string) *pairs {
	p := newPairs(name)
	o.phases = append(o.phases, p)
	return p
}

// measure implements scenario.
func (o *overload) measure(ctx context.Context, r *rig, rep *report) error {
	run := &overloadRun{overload: *o, ctx: ctx, rig: r, rep: rep, data: r.name("store"), ledger: newLedger()}
	if err := run.start(); err != nil {
		return err
	}
	saturated := run.saturate(run.Phase, "saturated")
	accepted := saturated.completed.rate(0, run.Phase)
	rep.figure("accepted_pairs_per_s", accepted)
	rep.figure("saturated_refused", saturated.refused.count())
	r.say("a closed loop of %d callers is accepted %.0f pairs/s", saturating, accepted)
	if accepted == 0 {
		return fmt.Errorf("nothing was accepted in %v", run.Phase)
	}
	before, err := run.steady(accepted)
	if err != nil {
		return err
	}
	r.say("%d callers at that rate: %.1f MiB of anonymous memory", o.Callers, inMiB(before))
	if err := run.worst(accepted, before); err != nil {
		return err
	}
	return run.restart(accepted)
}

// start makes a store and serves it with the switches on.
func (o *overloadRun) start() error {
	if err := o.rig.newStore(o.data); err != nil {
		return err
	}
	o.setup = setup{tags: "faults", faults: o.rig.name("faults")}
	if err := os.Mkdir(o.setup.faults, 0o700); err != nil {
		return err
	}
	for name, content := range map[string]string{"slow-commit": "", "batch-limit": fmt.Sprint(batchLimit)} {
		if err := os.WriteFile(filepath.Join(o.setup.faults, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return o.serve()
}

func (o *overloadRun) serve() (err error) {
	if o.server, err = o.rig.serve(o.ctx, o.data, o.setup); err != nil {
		return err
	}
	o.stubs, err = o.rig.stubs(o.server, o.Connections)
	return err
}

// pair claims a key of its own and reports a result, as a caller does. A share of
// the grants may be left unsettled.
func (o *overloadRun) pair(p *pairs, caller, n int, leave bool) {
	stub := o.stubs.of(caller)
	req := claimOf("default", fmt.Sprintf("%s-%d", p.name, n))
	req.Holder = fmt.Sprintf("caller %d", caller)
	p.claims.Add(1)
	sent := time.Now()
	fence, err := claim(o.ctx, stub, req)
	switch {
	case reasonOf(err) == overloaded:
		p.refused.add(time.Since(sent))
		return
	case err != nil:
		p.failed.Add(1)
		p.strange.Store(err.Error())
		return
	}
	p.granted.Add(1)
	e := o.ledger.granted(req, fence, overloadResult)
	if leave && n%unsettledShare == 0 {
		return
	}
	if err := o.ledger.settle(o.ctx, stub, e); err != nil {
		p.unsettled.Add(1)
		p.strange.Store(err.Error())
		return
	}
	p.completed.add()
}

// saturate runs as many callers in a closed loop as keep the store busy.
func (o *overloadRun) saturate(d time.Duration, name string) *pairs {
	ctx, cancel := context.WithTimeout(o.ctx, d)
	defer cancel()
	p := o.phase(name)
	closedLoop(ctx, saturating, func(caller, round int) { o.pair(p, caller, round*saturating+caller, false) })
	return p
}

// steady offers what is accepted by all the callers, and returns the peak of the
// server's anonymous memory.
func (o *overloadRun) steady(accepted float64) (rss int64, err error) {
	ctx, cancel := context.WithTimeout(o.ctx, o.Phase)
	defer cancel()
	p, loop, stop := o.phase("steady"), newOpenLoop(o.Callers), peakRSS(o.server)
	loop.run(ctx, accepted, func(caller, n int) { o.pair(p, caller, n, false) })
	rss, err = stop()
	loop.running.Wait()
	o.rep.figure("steady_refused", p.refused.count())
	o.rep.figure("before_rss_anon_mib", inMiB(rss))
	return rss, err
}

// worst offers several times as much, while the empty server is called at the same
// rate: what the processors are late with is late for both.
func (o *overloadRun) worst(accepted float64, before int64) error {
	empty, err := o.rig.startEmpty(o.Connections)
	if err != nil {
		return err
	}
	rate := o.Factor * accepted
	o.rig.say("%d callers offer %.0f claims/s for %v", o.Callers, rate, o.Duration)
	var (
		p       = o.phase("worst")
		loop    = newOpenLoop(o.Callers)
		beside  = newOpenLoop(o.Callers)
		empties times
		failed  atomic.Value // the text of an error
		pacing  sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(o.ctx, o.Duration)
	defer cancel()
	stop := peakRSS(o.server)
	pacing.Go(func() { loop.run(ctx, rate, func(caller, n int) { o.pair(p, caller, n, true) }) })
	pacing.Go(func() {
		beside.run(ctx, rate, func(caller, _ int) {
			sent := time.Now()
			if err := callEmpty(o.ctx, empty[caller%len(empty)]); err != nil {
				failed.Store(err.Error())
			}
			empties.add(time.Since(sent))
		})
	})
	pacing.Wait()
	rss, err := stop()
	recovered := o.saturate(o.Phase, "after").completed.reaches(leastRecovery*accepted, recoverWindow, o.Phase)
	loop.running.Wait()
	beside.running.Wait()
	if text := failed.Load(); text != nil {
		err = errors.Join(err, fmt.Errorf("an empty call failed: %v", text))
	}
	if err != nil {
		return err
	}
	o.tell(p, loop, rate)
	o.judge()
	o.rep.figure("empty_p50_ms", empties.ms(0.5))
	o.rep.figure("empty_p99_ms", empties.ms(0.99))
	o.rep.figure("overload_rss_anon_mib", inMiB(rss))
	o.rep.figure("recovered_s", recovered)
	o.rep.atMost("anonymous memory under overload, in units of before", float64(rss)/float64(before), 1.5)
	o.rep.atMost("p99 of refused calls, in units of the empty call's", p.refused.ms(0.99)/empties.ms(0.99), 5)
	o.rep.atMost("seconds until 0.9 of what was accepted before is accepted again", recovered, recoverWithin)
	return nil
}

// tell reports what became of the claims under overload.
func (o *overloadRun) tell(p *pairs, loop *openLoop, rate float64) {
	offered := float64(loop.sent) / o.Duration.Seconds()
	o.rep.atLeast("claims/s that were offered", offered, leastOffered*rate)
	o.rep.figure("offered_claims_per_s", offered)
	o.rep.figure("offered_too_late", loop.tooLate)
	o.rep.figure("offered_no_caller_free", loop.unfree)
	o.rep.figure("offered_late_p99_ms", loop.late.ms(0.99))
	o.rep.figure("overload_pairs_per_s", p.completed.rate(0, o.Duration))
	o.rep.figure("overload_granted", p.granted.Load())
	o.rep.figure("overload_other_errors", p.failed.Load())
	o.rep.figure("refused", p.refused.count())
	o.rep.figure("refused_p50_ms", p.refused.ms(0.5))
	o.rep.figure("refused_p99_ms", p.refused.ms(0.99))
}

// judge says whether any call was answered as none should be, in any phase.
func (o *overloadRun) judge() {
	var claims, granted, failed, unsettled int64
	example := ""
	for _, p := range o.phases {
		claims += p.claims.Load()
		granted += p.granted.Load()
		failed += p.failed.Load()
		unsettled += p.unsettled.Load()
		if s, ok := p.strange.Load().(string); ok {
			example = ", for example: " + s
		}
	}
	o.rep.holds("settlements of granted claims are not refused", unsettled == 0,
		"%d of %d were not acknowledged%s", unsettled, granted, example)
	o.rep.holds("claims are granted or refused as overload", failed == 0,
		"%d of %d got another answer%s", failed, claims, example)
}

// restart looks whether all that was acknowledged is there, overloads the server
// once more, kills it in the middle of that, and looks again.
func (o *overloadRun) restart(accepted float64) error {
	looked, lost := o.ledger.lost(o.ctx, o.stubs, "")
	o.rep.keeps("acknowledged operations after the overload", looked, lost)
	o.rig.say("looked at %d operations; kill -9 under overload", looked)

	ctx, cancel := context.WithTimeout(o.ctx, o.Phase/2)
	defer cancel()
	p, loop := newPairs("killed"), newOpenLoop(o.Callers)
	loop.run(ctx, o.Factor*accepted, func(caller, n int) { o.pair(p, caller, n, true) })
	o.server.kill()
	loop.running.Wait()
	if err := o.serve(); err != nil {
		return err
	}
	o.rep.figure("restart_s", o.server.startup.Seconds())
	looked, lost = o.ledger.lost(o.ctx, o.stubs, "")
	o.rep.keeps("acknowledged operations after kill -9 under overload", looked, lost)
	return o.rig.soundAfter(o.server, o.data, o.rep, "the store is sound")
}
