package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt"
)

// open starts a server on a store with very many records after kill -9: all of them
// settled, and all of them unsettled. The time is that from the start of the process
// to its ready file.
type open struct {
	Records int           `default:"1000000" help:"Records of each store."`
	Load    time.Duration `default:"2s" help:"How long claims go on until the server is killed."`
}

const (
	openLimit   = 2.0 // seconds
	openResult  = 100 // bytes
	openCallers = 64
	openSample  = 1000 // records that are asked for in the end
)

// measure implements scenario.
func (o *open) measure(ctx context.Context, r *rig, rep *report) error {
	for _, leg := range []struct {
		name   string
		update func(onced.Identity) storage.UpdateFunc
	}{
		{"settled", func(id onced.Identity) storage.UpdateFunc { return settled(id, openResult) }},
		{"unsettled", func(id onced.Identity) storage.UpdateFunc { return pending(id, longLease) }},
	} {
		if err := o.leg(ctx, r, rep, leg.name, leg.update); err != nil {
			return fmt.Errorf("%s: %w", leg.name, err)
		}
	}
	return nil
}

func (o *open) leg(ctx context.Context, r *rig, rep *report, name string, update func(onced.Identity) storage.UpdateFunc) error {
	dir := r.name("store")
	defer os.RemoveAll(dir) // the next leg needs the room
	r.say("writing %d %s records", o.Records, name)
	start := time.Now()
	if err := fillStore(dir, realClock{}, func(store *bolt.Store) error {
		return write(store, o.Records, func(i int) (onced.Identity, storage.UpdateFunc) {
			id := idOf("default", openKey(i))
			return id, update(id)
		})
	}); err != nil {
		return err
	}
	rep.figure(name+"_written_per_s", float64(o.Records)/time.Since(start).Seconds())
	acknowledged, err := o.killUnderLoad(ctx, r, dir)
	if err != nil {
		return err
	}
	size, err := fileSize(dataFile(dir))
	if err != nil {
		return err
	}
	rep.figure(name+"_file_mib", inMiB(size))
	rep.figure(name+"_bytes_per_record", size/int64(o.Records))

	s, err := r.serve(ctx, dir, setup{})
	if err != nil {
		return err
	}
	r.say("%s: ready after %v", name, s.startup.Round(time.Millisecond))
	rep.figure(name+"_open_s", s.startup.Seconds())
	rep.atMost(name+": seconds from the start to the ready file", s.startup.Seconds(), openLimit)
	stubs, err := r.stubs(s, 2)
	if err != nil {
		return err
	}
	looked, lost := acknowledged.lost(ctx, stubs, "")
	rep.keeps(name+": what was acknowledged before the kill", looked, lost)
	looked, lost = o.sample(name).lost(ctx, stubs, "")
	rep.keeps(name+": a sample of the records", looked, lost)
	return o.cold(ctx, r, rep, dir, name, s)
}

func openKey(i int) string { return fmt.Sprintf("record-%08d", i) }

// killUnderLoad serves a store, lets callers claim and settle in a namespace of
// their own, where they meet no quota, and kills the server while they do.
func (o *open) killUnderLoad(ctx context.Context, r *rig, dir string) (*ledger, error) {
	s, err := r.serve(ctx, dir, setup{})
	if err != nil {
		return nil, err
	}
	stubs, err := r.stubs(s, 2)
	if err != nil {
		return nil, err
	}
	l := newLedger()
	loading, stop := context.WithCancel(ctx)
	timer := time.AfterFunc(o.Load, func() {
		s.kill()
		stop()
	})
	defer timer.Stop()
	closedLoop(loading, openCallers, func(caller, round int) {
		req := claimOf("load", fmt.Sprintf("%d-%d", caller, round))
		if fence, err := claim(ctx, stubs.of(caller), req); err == nil {
			_ = l.settle(ctx, stubs.of(caller), l.granted(req, fence, openResult)) // may meet the kill
		}
	})
	return l, nil
}

// sample returns some of the records that were written, as if a server had
// acknowledged them. Their fences are not known.
func (o *open) sample(name string) *ledger {
	l := newLedger()
	for n := range min(openSample, o.Records) {
		key := openKey(n * (o.Records / min(openSample, o.Records)))
		e := l.granted(claimOf("default", key), 0, openResult)
		e.completed = name == "settled"
	}
	return l
}

// cold opens the store once more when nothing of its file is in memory.
func (o *open) cold(ctx context.Context, r *rig, rep *report, dir, name string, warm *server) error {
	warm.kill()
	f, err := os.Open(dataFile(dir))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	s, err := r.serve(ctx, dir, setup{})
	if err != nil {
		return err
	}
	rep.figure(name+"_open_cold_s", s.startup.Seconds())
	s.kill()
	return nil
}
