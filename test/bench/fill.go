package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt"
)

// shiftedClock is a clock that stands at a moment, and is moved. It makes stores
// whose records are as old as a scenario wants them.
type shiftedClock struct {
	wall    time.Time
	elapsed atomic.Int64 // nanoseconds
}

// Wall implements [storage.Clock].
func (c *shiftedClock) Wall() time.Time { return c.wall.Add(c.Elapsed()) }

// Elapsed implements [storage.Clock].
func (c *shiftedClock) Elapsed() time.Duration { return time.Duration(c.elapsed.Load()) }

// moveTo moves the clock on to a moment.
func (c *shiftedClock) moveTo(t time.Time) { c.elapsed.Store(int64(t.Sub(c.wall))) }

// fillers is how many updates share the commits of a store that is filled.
const fillers = 512

// fillStore makes a store with a clock and lets fill write to it.
func fillStore(dir string, clock storage.Clock, fill func(*bolt.Store) error) error {
	if err := bolt.Init(dir, bolt.Options{Clock: clock}); err != nil {
		return err
	}
	return inStore(dir, clock, fill)
}

// inStore opens a store that nobody serves.
func inStore(dir string, clock storage.Clock, do func(*bolt.Store) error) error {
	store, err := bolt.Open(dir, bolt.Options{Clock: clock})
	if err != nil {
		return err
	}
	return errors.Join(do(store), store.Close())
}

// write applies one update for every number below n.
func write(store *bolt.Store, n int, update func(i int) (onced.Identity, storage.UpdateFunc)) error {
	var once sync.Once
	var first error
	each(n, fillers, func(i int) {
		id, fn := update(i)
		if err := store.Update(context.Background(), storage.Target{ID: id}, fn); err != nil {
			once.Do(func() { first = err })
		}
	})
	return first
}

// idOf names an operation as refOf does.
func idOf(namespace, key string) onced.Identity {
	return onced.Identity{Namespace: namespace, Key: key, Method: benchMethod}
}

// tokenOf is the token of a claim that was written into a store.
func tokenOf(key string) []byte {
	token := sha256.Sum256([]byte(key))
	return token[:]
}

// pending is the update of a plain claim.
func pending(id onced.Identity, lease time.Duration) storage.UpdateFunc {
	return func(v onced.View) onced.Plan {
		plan, _, _ := onced.Claim(v, onced.DefaultPolicy(), claimRequest(id, lease))
		return plan
	}
}

// settled is the update of a claim and its completion at once.
func settled(id onced.Identity, size int) storage.UpdateFunc {
	return func(v onced.View) onced.Plan {
		policy := onced.DefaultPolicy()
		req := claimRequest(id, time.Minute)
		claimed, answer, err := onced.Claim(v, policy, req)
		if err != nil || claimed.Put == nil {
			return onced.Plan{}
		}
		v.Record = claimed.Put
		holder := onced.Holder{Token: req.Token, Fence: answer.Operation.Fence}
		plan, _, _ := onced.Complete(v, policy, holder, onced.NewResult("text/plain", true, []byte(contentOf(id.Key, size))))
		plan.UsesFence = claimed.UsesFence
		return plan
	}
}

func claimRequest(id onced.Identity, lease time.Duration) onced.ClaimRequest {
	return onced.ClaimRequest{Token: sha256.Sum256(tokenOf(id.Key)), Lease: lease}
}

// realClock is the machine's. Its scenarios are over before a machine sleeps.
type realClock struct{}

var processStart = time.Now()

// Wall implements [storage.Clock].
func (realClock) Wall() time.Time { return time.Now() }

// Elapsed implements [storage.Clock].
func (realClock) Elapsed() time.Duration { return time.Since(processStart) }
