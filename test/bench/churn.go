package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt"
)

// churn overwrites few records all the time while somebody reads all of them: the
// pages that an overwrite frees must be used again, and no reader may hold them
// back. It does so in the store itself, and in a real server.
type churn struct {
	Keys       int `default:"100" help:"Live keys."`
	Overwrites int `default:"20000" help:"Overwrites in all, spread over the keys."`
	Bytes      int `default:"2048" help:"Size of what is written."`
	Writers    int `default:"4" help:"Writers at once."`
}

const (
	churnLimit = 16 // MiB
	churnPage  = 10 // records that the lister reads at once
)

// measure implements scenario.
func (c *churn) measure(ctx context.Context, r *rig, rep *report) error {
	if err := c.inProcess(ctx, r, rep); err != nil {
		return err
	}
	return c.overTheWire(ctx, r, rep)
}

func (c *churn) key(i int) string { return fmt.Sprintf("live-%04d", i%c.Keys) }

// checkpoint is what the n-th overwrite writes.
func (c *churn) checkpoint(n int) []byte {
	return []byte(contentOf(fmt.Sprintf("%d %s", n, c.key(n)), c.Bytes))
}

// inProcess churns through the interface of the store, with a lister that goes from
// page to page.
func (c *churn) inProcess(ctx context.Context, r *rig, rep *report) error {
	dir := r.name("store")
	return fillStore(dir, realClock{}, func(store *bolt.Store) error {
		r.say("%d overwrites of %d records in the store itself", c.Overwrites, c.Keys)
		if err := write(store, c.Keys, func(i int) (onced.Identity, storage.UpdateFunc) {
			id := idOf("default", c.key(i))
			return id, pending(id, longLease)
		}); err != nil {
			return err
		}
		overwrite := func(n int) error { return c.renewInStore(ctx, store, n) }
		list := func() (int, error) { return c.list(ctx, store) }
		if err := c.run(ctx, rep, "store", dir, overwrite, list); err != nil {
			return err
		}
		return c.newest(ctx, rep, "store", store)
	})
}

// renewInStore overwrites a record's checkpoint by the transition of a renewal.
func (c *churn) renewInStore(ctx context.Context, store *bolt.Store, n int) error {
	id := idOf("default", c.key(n))
	var refused error
	err := store.Update(ctx, storage.Target{ID: id}, func(v onced.View) (plan onced.Plan) {
		if v.Record == nil {
			refused = errors.New("the record is gone")
			return onced.Plan{}
		}
		holder := onced.Holder{Token: sha256.Sum256(tokenOf(id.Key)), Fence: v.Record.Fence}
		plan, _, refused = onced.Renew(v, onced.DefaultPolicy(), holder, longLease, &onced.Checkpoint{
			Seq: uint64(n) + 1, Payload: *onced.NewResult("text/plain", true, c.checkpoint(n)),
		})
		return plan
	})
	return errors.Join(err, refused)
}

// list reads all records, a page at a time, and returns how many pages that were.
func (c *churn) list(ctx context.Context, store *bolt.Store) (pages int, err error) {
	for cursor := storage.Cursor(nil); ; {
		page, err := store.ScanIdentity(ctx, nil, cursor, churnPage)
		if err != nil {
			return pages, err
		}
		pages++
		if cursor = page.Next; cursor == nil {
			return pages, nil
		}
	}
}

// run overwrites while somebody lists, and reports how large the file became. The
// overwrites of one key are made in order, each key by one writer.
func (c *churn) run(ctx context.Context, rep *report, leg, dir string, overwrite func(n int) error, list func() (int, error)) error {
	largest := peak(func() (int64, error) { return fileSize(dataFile(dir)) })
	listing, stop := context.WithCancel(ctx)
	var (
		writers, lister sync.WaitGroup
		pages           atomic.Int64
		failures        = make(chan error, c.Writers+1)
	)
	lister.Go(func() {
		for listing.Err() == nil {
			n, err := list()
			pages.Add(int64(n))
			if err != nil {
				failures <- fmt.Errorf("list: %w", err)
				return
			}
		}
	})
	for w := range c.Writers {
		writers.Go(func() {
			for n := range c.Overwrites {
				if n%c.Keys%c.Writers != w {
					continue
				}
				if err := overwrite(n); err != nil {
					failures <- fmt.Errorf("overwrite %d: %w", n, err)
					return
				}
			}
		})
	}
	writers.Wait()
	stop()
	lister.Wait()
	size, err := largest()
	select {
	case failed := <-failures:
		return failed
	default:
	}
	rep.figure(leg+"_file_mib", inMiB(size))
	rep.figure(leg+"_reads", pages.Load())
	rep.atMost(leg+": MiB of the data file", inMiB(size), churnLimit)
	return err
}

// newest compares the checkpoints of a store with the last that were written.
func (c *churn) newest(ctx context.Context, rep *report, leg string, store *bolt.Store) error {
	var missing []string
	for n := max(0, c.Overwrites-c.Keys); n < c.Overwrites; n++ {
		want := c.checkpoint(n)
		got, err := store.Payload(ctx, idOf("default", c.key(n)), sha256.Sum256(want))
		if err != nil && !errors.Is(err, storage.ErrNoPayload) {
			return err
		}
		if !bytes.Equal(got, want) {
			missing = append(missing, c.key(n))
		}
	}
	rep.keeps(leg+": the newest checkpoint of every key", min(c.Keys, c.Overwrites), missing)
	return nil
}

// overTheWire churns by renewals of a real server, while somebody looks the
// operations up.
func (c *churn) overTheWire(ctx context.Context, r *rig, rep *report) error {
	dir := r.name("store")
	if err := r.newStore(dir); err != nil {
		return err
	}
	s, err := r.serve(ctx, dir, setup{})
	if err != nil {
		return err
	}
	stubs, err := r.stubs(s, 2)
	if err != nil {
		return err
	}
	r.say("%d overwrites of %d records by renewals", c.Overwrites, c.Keys)
	fences := make([]uint64, c.Keys)
	for i := range fences {
		req := claimOf("default", c.key(i))
		req.ClaimToken = tokenOf(c.key(i))
		if fences[i], err = claim(ctx, stubs.of(0), req); err != nil {
			return err
		}
	}
	overwrite := func(n int) error { return c.renew(ctx, stubs.of(0), fences[n%c.Keys], n) }
	lookUp := func() (int, error) {
		for i := range c.Keys {
			if _, err := stubs.of(1).Lookup(ctx, &oncedv1.LookupRequest{Ref: refOf("default", c.key(i))}); err != nil {
				return i, err
			}
		}
		return c.Keys, nil
	}
	if err := c.run(ctx, rep, "wire", dir, overwrite, lookUp); err != nil {
		return err
	}
	total, err := written(s)
	if err != nil {
		return err
	}
	rep.figure("wire_written_per_overwrite_bytes", total/int64(c.Overwrites))
	s.kill()
	return inStore(dir, realClock{}, func(store *bolt.Store) error { return c.newest(ctx, rep, "wire", store) })
}

// renew overwrites the checkpoint of a claim.
func (c *churn) renew(ctx context.Context, stub oncedv1.IdempotencyServiceClient, fence uint64, n int) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	key := c.key(n)
	_, err := stub.Renew(ctx, &oncedv1.RenewRequest{
		Ref: refOf("default", key), ClaimToken: tokenOf(key), Fence: fence, Lease: durationpb.New(longLease),
		Checkpoint: &oncedv1.Checkpoint{Seq: uint64(n) + 1, Payload: &oncedv1.Payload{
			ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: string(c.checkpoint(n))},
		}},
	})
	return err
}
