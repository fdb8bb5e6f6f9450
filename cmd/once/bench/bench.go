// Package bench measures what a server of onced does under load, beside two
// servers that do less of the same work: one without a store, and one that only
// answers. What a machine can do at the moment stands in all three alike, so their
// ratios say more than any of the figures.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Config is what to measure.
type Config struct {
	Namespace      string
	Callers        int           // that call at the same time
	Duration       time.Duration // of a round at one server
	Rounds         int           // at each server
	Records        int           // settled before the rounds
	ResultBytes    int
	ReplayShare    float64 // of the calls, 0 to 1, that claim a settled key
	LeaveUnsettled bool    // claims are not completed; a claim alone is a pair
}

// Bounds of a [Config].
const (
	MaxCallers     = 20_000
	MaxResultBytes = 1 << 20 // what a namespace stores by default
)

// Validate says everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Callers >= 1 && c.Callers <= MaxCallers, "--callers %d must be from 1 to %d", c.Callers, MaxCallers)
	check(c.Duration > 0, "--duration %v must be above 0", c.Duration)
	check(c.Rounds >= 1, "--rounds %d must be at least 1", c.Rounds)
	check(c.Records >= 0, "--records %d must not be negative", c.Records)
	check(c.ResultBytes >= 0 && c.ResultBytes <= MaxResultBytes, "--result-bytes %d must be from 0 to %d", c.ResultBytes, MaxResultBytes)
	check(c.ReplayShare >= 0 && c.ReplayShare <= 1, "--replay-share %v must be from 0 to 1", c.ReplayShare)
	return errors.Join(errs...)
}

// Servers are the three servers, already serving.
type Servers struct {
	Store       Process
	Null, Empty string // addresses
}

// Process is a server with a store, as far as it is known. Only Address is
// required.
type Process struct {
	Address string // of gRPC
	Ops     string // of its operators' listener; "": not known
	PID     int    // 0: not known, or of another machine
	Data    string // folder of its store; "": not known
}

const (
	// warmUp is how long each server is called before anything counts.
	warmUp = time.Second
	// fillers settle the records before the rounds, if there are no more callers.
	fillers = 256
	// replayable is how many keys are settled to be claimed again, if no records
	// were asked for.
	replayable = 1000
)

// bench is one run.
type bench struct {
	Config
	progress io.Writer
	store    *probe
	service  *service // the store's server
	null     *service
	empty    *empty

	// What was found.
	before, after    reading // of the whole run
	syncs            []float64
	emptyStore       []*round // before the records were there
	filling          time.Duration
	rounds           map[peer][]*round
	batches, grouped *float64 // commits in the store's rounds, and the requests in them
	written          *float64 // bytes that the store's server had written in its rounds
	given            float64  // bytes that callers gave it to store meanwhile
}

// Run measures and returns what it has found, or the first thing that went wrong.
// progress is written to, a line at a time.
func Run(ctx context.Context, cfg Config, servers Servers, progress io.Writer) (*Report, error) {
	b := &bench{
		Config: cfg, progress: progress, store: newProbe(servers.Store), rounds: map[peer][]*round{},
		batches: known(0), grouped: known(0), written: known(0),
	}
	var err error
	if b.service, err = newService("the store's server", servers.Store.Address, cfg); err != nil {
		return nil, err
	}
	defer b.service.close()
	if b.null, err = newService("the server without a store", servers.Null, cfg); err != nil {
		return nil, err
	}
	defer b.null.close()
	if b.empty, err = newEmpty(servers.Empty, cfg); err != nil {
		return nil, err
	}
	defer b.empty.close()
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return b.report(), nil
}

// run does everything in its order.
func (b *bench) run(ctx context.Context) error {
	b.say("callers %d, connections %d, rounds %d of %v at each of 3 servers; load average %s",
		b.Callers, connections(b.Callers), b.Rounds, b.Duration, loadAverage())
	b.before = b.store.read(ctx)
	b.syncs = b.store.fdatasyncs()
	b.null.settled = keyRange{0, replayable} // it says so of every key
	peers := []peer{b.service, b.null, b.empty}
	for _, p := range peers {
		if _, err := b.round(ctx, p, min(warmUp, b.Duration), 0); err != nil {
			return err
		}
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for i := range b.Rounds {
		// The servers take turns, so that what else the machine does meets all of
		// them, and each round begins with another of them.
		for j := range peers {
			if err := b.measure(ctx, peers[(i+j)%len(peers)]); err != nil {
				return err
			}
		}
		b.say("round %d of %d: pairs/s %.0f with the store, %.0f without, %.0f empty", i+1, b.Rounds,
			*b.rounds[b.service][i].pairsPerSecond(), *b.rounds[b.null][i].pairsPerSecond(), *b.rounds[b.empty][i].pairsPerSecond())
	}
	b.after = b.store.read(ctx)
	b.syncs = append(b.syncs, b.store.fdatasyncs()...)
	return nil
}

// prepare settles what has to be there before the rounds.
func (b *bench) prepare(ctx context.Context) error {
	n := b.Records
	if n == 0 && b.ReplayShare > 0 {
		n = replayable
	}
	if n == 0 {
		return nil
	}
	for i := range b.Rounds {
		if b.Records == 0 {
			break
		}
		r, err := b.round(ctx, b.service, b.Duration, 0)
		if err != nil {
			return err
		}
		b.emptyStore = append(b.emptyStore, r)
		b.say("before the records, round %d of %d: pairs/s %.0f", i+1, b.Rounds, *r.pairsPerSecond())
	}
	var err error
	b.filling, err = b.fill(ctx, n)
	return err
}

// measure runs one round that counts.
func (b *bench) measure(ctx context.Context, p peer) error {
	atStore := p == peer(b.service)
	var before reading
	if atStore {
		before = b.store.read(ctx)
	}
	made := b.service.made.Load()
	r, err := b.round(ctx, p, b.Duration, b.ReplayShare)
	if err != nil {
		return err
	}
	b.rounds[p] = append(b.rounds[p], r)
	if atStore {
		after := b.store.read(ctx)
		b.batches = plus(b.batches, minus(after.batches, before.batches))
		b.grouped = plus(b.grouped, minus(after.grouped, before.grouped))
		b.written = plus(b.written, minus(after.written, before.written))
		b.given += float64(b.service.made.Load()-made) * b.service.recordBytes()
	}
	return nil
}

// say prints a line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "once bench: "+format+"\n", args...)
}

// loadAverage is the load of the last minute before the start. A busy machine
// makes every figure smaller, and the ratios less certain.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
