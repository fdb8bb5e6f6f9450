package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// peer is a server under load. Its methods are called concurrently.
type peer interface {
	// name is what the server is called in lines for people.
	name() string
	// pair makes the calls of one pair and observes how long each took.
	pair(ctx context.Context, r *round) error
	// replay claims a settled key and observes how long it took.
	replay(ctx context.Context, r *round, random *rand.Rand) error
}

const (
	// callersPerConnection and maxConnections are how callers share connections:
	// see connections.
	callersPerConnection = 32
	maxConnections       = 8
	// patience is how long a round may go on beyond its end, for calls that were
	// begun in time. A server that takes longer does not answer.
	patience = 2 * time.Minute
	// maxReply lets the greatest result through.
	maxReply = 17 << 20
)

// connections returns over how many connections a number of callers call, the
// same for all servers. One connection for all would have every frame of it
// written by one goroutine on either side, which is fast, since its writes are
// large, and like no fleet of callers; one for each caller would measure the
// system calls alone.
func connections(callers int) int {
	return min((callers+callersPerConnection-1)/callersPerConnection, maxConnections)
}

// dial returns the connections to a server. They are made by the first calls.
func dial(address string, callers int) ([]*grpc.ClientConn, error) {
	var conns []*grpc.ClientConn
	for range connections(callers) {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []*grpc.ClientConn) {
	for _, c := range conns {
		_ = c.Close() // nothing is in flight
	}
}

// round is what happened at one server for a while.
type round struct {
	claim, complete, replay histogram // at the empty server claim has every call
	elapsed                 time.Duration
	callsPerPair            float64
}

// pairsPerSecond counts two calls as a pair, replays included, or one when claims
// are left unsettled.
func (r *round) pairsPerSecond() *float64 {
	calls := r.claim.total() + r.complete.total() + r.replay.total()
	return known(float64(calls) / r.callsPerPair / r.elapsed.Seconds())
}

// round has all callers call a server for as long as d. Each calls again as soon
// as it is answered.
func (b *bench) round(ctx context.Context, p peer, d time.Duration, replayShare float64) (*round, error) {
	r := &round{callsPerPair: 2}
	if b.LeaveUnsettled {
		r.callsPerPair = 1
	}
	turns := turnShare(replayShare, r.callsPerPair)
	start := time.Now()
	end := start.Add(d)
	err := crowd(ctx, b.Callers, d, func(ctx context.Context) error {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // no secret
		for time.Now().Before(end) {
			turn := p.pair
			if turns > 0 && random.Float64() < turns {
				turn = func(ctx context.Context, r *round) error { return p.replay(ctx, r, random) }
			}
			if err := turn(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	r.elapsed = time.Since(start)
	return r, err
}

// turnShare returns the share of the turns that must be replays, so that a share of
// the calls is: a replay is one call, a pair may be two.
func turnShare(ofCalls, callsPerPair float64) float64 {
	return ofCalls * callsPerPair / (1 + ofCalls*(callsPerPair-1))
}

// fill settles n records, with many callers, and makes them those that replays
// are of.
func (b *bench) fill(ctx context.Context, n int) (time.Duration, error) {
	first := b.service.next.Load()
	var begun atomic.Int64
	var r round
	start := time.Now()
	defer b.sayFilled(&begun, n)()
	err := crowd(ctx, max(b.Callers, fillers), unbounded, func(ctx context.Context) error {
		for begun.Add(1) <= int64(n) {
			if err := b.service.settle(ctx, &r); err != nil {
				return err
			}
		}
		return nil
	})
	b.service.settled = keyRange{first, uint64(n)}
	return time.Since(start), err
}

// sayFilled says how far the filling has come, now and then, until the returned
// function is called.
func (b *bench) sayFilled(begun *atomic.Int64, n int) (end func()) {
	const often = 5 * time.Second
	done := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		tick := time.NewTicker(often)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.say("%d of %d records", min(begun.Load(), int64(n)), n)
			}
		}
	})
	return func() {
		close(done)
		saying.Wait()
	}
}

// unbounded is for a crowd that ends when its work is done.
const unbounded = 24 * time.Hour

// errNoAnswer is the end of a round that did not end by itself.
var errNoAnswer = fmt.Errorf("a server has not answered for %v: see its log", patience)

// crowd runs f in n callers, for about as long as d, and returns the first error,
// which ends them all.
func crowd(ctx context.Context, n int, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d+patience, errNoAnswer)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			if err := f(ctx); err != nil {
				fail(err) // of many, the first one counts
			}
		})
	}
	callers.Wait()
	return context.Cause(ctx)
}

// at says at which server a call failed. The error keeps its status.
func at(where string, err error) error {
	p := status.Convert(err).Proto()
	p.Message = where + ": " + p.GetMessage()
	return status.ErrorProto(p)
}
