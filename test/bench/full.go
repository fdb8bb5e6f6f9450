package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// full lets the disk of a server run full, settles what was granted before, and
// gives the disk room again: by removing the file that filled it, and where the
// store filled it itself by the retention of what it holds.
type full struct {
	MiB     int      `name:"mib" default:"8" help:"Size of the disk."`
	Open    int      `default:"300" help:"Claims that are granted before the disk is full."`
	Settled int      `default:"256" help:"So many of them must be settled while it is."`
	Small   int      `default:"2" help:"Size of a second, smaller disk; 0 for none."`
	Legs    []string `default:"ballast,own" enum:"ballast,own" help:"What fills the disk: another file, or the store itself."`
}

const (
	fullResult    = 4 << 10  // bytes of the settlements that must succeed
	fillerResult  = 64 << 10 // bytes of what fills a store
	fullRecovery  = 2.0      // seconds until claims are granted again
	fullPatience  = 30 * time.Second
	refusalsInRow = 20 // claims in a row that must be refused until a store counts as full
	fullSettlers  = 8
	proberPause   = 5 * time.Millisecond
)

// fullConfig gives the namespace of what fills a store the shortest memory.
const fullConfig = `namespaces:
  filler: {max_lease: 30s, result_retention: 40s, key_retention: 40s, key_time_skew: 0s}
`

// measure implements scenario.
func (f *full) measure(ctx context.Context, r *rig, rep *report) error {
	for _, leg := range f.Legs {
		name := fmt.Sprintf("%d MiB, %s", f.MiB, leg)
		if err := f.leg(ctx, r, rep, name, f.MiB, leg == "own", f.Open, f.Settled); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if f.Small == 0 {
		return nil
	}
	// A disk this small has hardly room for anything: what counts is that nothing is
	// wrong, and that one claim which was granted just before can be settled.
	name := fmt.Sprintf("%d MiB, ballast", f.Small)
	if err := f.leg(ctx, r, rep, name, f.Small, false, max(1, f.Open/10), 1); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// fullRun is one leg.
type fullRun struct {
	ctx    context.Context
	rig    *rig
	rep    *report
	name   string
	own    bool // the store fills its disk itself
	disk   string
	server *server
	stubs  stubs
	ledger *ledger
	claims atomic.Int64 // numbers keys
}

func (f *full) leg(ctx context.Context, r *rig, rep *report, name string, mib int, own bool, open, least int) error {
	run := &fullRun{ctx: ctx, rig: r, rep: rep, name: name, own: own, ledger: newLedger()}
	if err := run.start(mib); err != nil {
		return err
	}
	granted := run.grant(open)
	if len(granted) < open {
		return fmt.Errorf("only %d of %d claims were granted before the disk was filled", len(granted), open)
	}
	if err := run.fill(); err != nil {
		return err
	}
	run.settle(granted, least)
	run.verify("while the disk is full")
	if err := run.makeRoom(); err != nil {
		return err
	}
	run.verify("when there is room again")
	return run.restart()
}

// start mounts a disk, and serves a new store on it.
func (f *fullRun) start(mib int) error {
	f.disk = f.rig.name("disk")
	if err := os.Mkdir(f.disk, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", f.disk, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		return fmt.Errorf("mount a tmpfs of %d MiB: %w; run this as root", mib, err)
	}
	f.rig.undo = append(f.rig.undo, func() { _ = syscall.Unmount(f.disk, syscall.MNT_DETACH) })
	if err := f.rig.newStore(f.data()); err != nil {
		return err
	}
	return f.serve()
}

func (f *fullRun) data() string { return filepath.Join(f.disk, "data") }

func (f *fullRun) serve() error {
	config, err := f.rig.writeFile("config", fullConfig)
	if err != nil {
		return err
	}
	if f.server, err = f.rig.serve(f.ctx, f.data(), setup{config: config}); err != nil {
		return err
	}
	f.stubs, err = f.rig.stubs(f.server, 2)
	return err
}

// claim claims a new key and returns what was granted.
func (f *fullRun) claim(namespace string, size int) (*entry, error) {
	req := claimOf(namespace, fmt.Sprintf("key-%d", f.claims.Add(1)))
	if namespace == "filler" {
		req.Lease = nil // its policy has shorter ones
	}
	fence, err := claim(f.ctx, f.stubs.of(0), req)
	if err != nil {
		return nil, err
	}
	return f.ledger.granted(req, fence, size), nil
}

// grant has a number of claims granted, which are settled later.
func (f *fullRun) grant(n int) (granted []*entry) {
	for range n {
		if e, err := f.claim("default", fullResult); err == nil {
			granted = append(granted, e)
		}
	}
	return granted
}

// fill fills the disk until claims are refused for want of room, again and again.
func (f *fullRun) fill() error {
	if !f.own {
		if err := f.ballast(); err != nil {
			return err
		}
	}
	refusals, filled := 0, 0
	for refusals < refusalsInRow {
		e, err := f.claim("filler", fillerResult)
		switch {
		case err == nil:
			refusals = 0
			if err := f.ledger.settle(f.ctx, f.stubs.of(0), e); err == nil {
				filled++
			} else if reasonOf(err) != storageFull {
				return fmt.Errorf("settle what fills the store: %w", err)
			}
		case reasonOf(err) == storageFull:
			refusals++
		default:
			return fmt.Errorf("claim until the store is full: %w", err)
		}
	}
	f.figure("filled_with_records", filled)
	f.rig.say("%s: claims are refused as %s after %d large results", f.name, storageFull, filled)
	return nil
}

func (f *fullRun) figure(name string, value any) { f.rep.figure(f.name+": "+name, value) }

func (f *fullRun) ballastFile() string { return filepath.Join(f.disk, "ballast") }

// ballast takes all the room that is left, to the last page.
func (f *fullRun) ballast() error {
	file, err := os.Create(f.ballastFile())
	if err != nil {
		return err
	}
	defer file.Close()
	for page := make([]byte, 4<<10); ; {
		if _, err := file.Write(page); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// settle settles what was granted before the disk was full, while new claims go on.
func (f *fullRun) settle(granted []*entry, least int) {
	var (
		stop             = make(chan struct{})
		prober           sync.WaitGroup
		refused, let     int
		strange          []string
		settledOnes      atomic.Int64
		mu               sync.Mutex
		unsettledReasons = map[string]int{}
	)
	prober.Go(func() {
		tick := time.NewTicker(proberPause)
		defer tick.Stop()
		for {
			_, err := f.claim("default", fullResult)
			switch {
			case err == nil:
				let++
			case reasonOf(err) == storageFull:
				refused++
			default:
				strange = append(strange, err.Error())
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	each(len(granted), fullSettlers, func(i int) {
		err := f.ledger.settle(f.ctx, f.stubs.of(1), granted[i])
		if err == nil {
			settledOnes.Add(1)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		unsettledReasons[reasonOf(err)]++
	})
	close(stop)
	prober.Wait()
	f.figure("settled", settledOnes.Load())
	f.figure("not_settled", unsettledReasons)
	f.figure("claims_refused_meanwhile", refused)
	f.figure("claims_granted_meanwhile", let)
	f.rep.atLeast(f.name+": settlements of 4 KiB that succeed while claims are refused", float64(settledOnes.Load()), float64(least))
	f.rep.atLeast(f.name+": claims that were refused meanwhile", float64(refused), 1)
	f.rep.holds(f.name+": claims are refused for want of room alone", len(strange) == 0, "%d were refused otherwise: %.200v", len(strange), strange)
}

// verify looks for everything that was acknowledged. What filled the store has
// expired by the time at which there is room again.
func (f *fullRun) verify(when string) {
	namespace := ""
	if f.own && when != "while the disk is full" {
		namespace = "default"
	}
	looked, lost := f.ledger.lost(f.ctx, f.stubs, namespace)
	f.rep.keeps(f.name+": what was acknowledged, "+when, looked, lost)
}

// makeRoom frees space and measures how long it takes until claims are granted.
func (f *fullRun) makeRoom() error {
	if f.own {
		f.rig.say("%s: waiting for the sweep, which comes by once a minute", f.name)
		if err := poll(f.ctx, 5*time.Millisecond, patience, "a sweep of what has expired", func() (bool, error) {
			n, err := f.server.metric(deletedName)
			return n > 0, err
		}); err != nil {
			return err
		}
	} else if err := os.Remove(f.ballastFile()); err != nil {
		return err
	}
	conns, err := f.rig.connect(f.server.GRPC, 1)
	if err != nil {
		return err
	}
	granting, serving := f.recovery(conns[0])
	f.rig.say("%s: claims are granted %.3f s after there was room, the health says so after %.3f s", f.name, granting, serving)
	f.figure("granting_after_s", granting)
	f.figure("healthy_after_s", serving)
	f.rep.atMost(f.name+": seconds until the same process grants claims again", granting, fullRecovery)
	f.rep.atMost(f.name+": seconds until its health says so", serving, fullRecovery)
	return f.server.running()
}

// recovery returns after how many seconds a claim is granted, and after how many the
// health invites claims; not a number for what does not happen in a while.
func (f *fullRun) recovery(conn *grpc.ClientConn) (granting, serving float64) {
	start := time.Now()
	granting, serving = math.NaN(), math.NaN()
	_ = poll(f.ctx, 10*time.Millisecond, fullPatience, "claims to be granted again", func() (bool, error) {
		if math.IsNaN(granting) {
			if _, err := f.claim("default", fullResult); err == nil {
				granting = time.Since(start).Seconds()
			}
		}
		if math.IsNaN(serving) && f.server.serving(f.ctx, conn) {
			serving = time.Since(start).Seconds()
		}
		return !math.IsNaN(granting) && !math.IsNaN(serving), nil
	})
	return granting, serving
}

// restart looks for everything once more after kill -9.
func (f *fullRun) restart() error {
	f.server.kill()
	if err := f.serve(); err != nil {
		return err
	}
	f.verify("after kill -9")
	return f.rig.soundAfter(f.server, f.data(), f.rep, f.name+": the store is sound")
}
