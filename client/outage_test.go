package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// holders are processes that each execute an operation of their own while onced goes
// down.
const holders = 24

// outage starts an onced and the holders, each in a function that it is given, and
// brings onced down. The function that it returns waits for all of them.
func outage(t *testing.T, fn func(n int, ctx context.Context) error) (s *oncetest.Server, wait func() []error) {
	s = oncetest.New(t)
	var all, begun sync.WaitGroup
	errs := make([]error, holders)
	for n := range holders {
		c := s.Client()
		begun.Add(1)
		all.Go(func() {
			out, err := client.Do(t.Context(), c, call(fmt.Sprintf("k%d", n)), func(ctx context.Context, _ *client.Claim) (string, error) {
				begun.Done()
				return fmt.Sprintf("by holder %d", n), fn(n, ctx)
			})
			if errs[n] = err; err == nil && !out.Settled {
				errs[n] = errors.New("not settled")
			}
		})
	}
	begun.Wait()
	pass(7 * time.Second)
	s.Down()
	return s, func() []error {
		all.Wait()
		return errs
	}
}

// onced is down for longer than every lease. The holders still execute, and renew as
// soon as they can: none of their operations is unresolved when it is back, and
// whoever asks gets their results.
func TestOutageLapsesNobodyWhoRenews(t *testing.T) {
	for _, down := range []time.Duration{20 * time.Second, 40 * time.Second, 10 * time.Minute} {
		t.Run(down.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, wait := outage(t, func(int, context.Context) error {
					pass(15 * time.Minute)
					return nil
				})
				pass(down)
				s.Up()
				other := s.Client()
				never := func(context.Context, *client.Claim) (string, error) { return "", errors.New("it runs again") }
				for _, after := range []time.Duration{0, time.Second, 10 * time.Second, 19 * time.Second, 30 * time.Second} {
					pass(after)
					for n := range holders {
						_, err := client.Do(t.Context(), other, call(fmt.Sprintf("k%d", n)), never, client.NoWait())
						if busy := as[*client.InProgress](t, err); busy.Holder != fmt.Sprintf("process-%d", n+1) {
							t.Errorf("holder %d: %v", n, err)
						}
					}
				}
				for n, err := range wait() {
					if err != nil {
						t.Errorf("holder %d: %v", n, err)
					}
					out, err := client.Do(t.Context(), other, call(fmt.Sprintf("k%d", n)), never)
					if err != nil || !out.Replayed || out.Attempt != 1 || out.Value != fmt.Sprintf("by holder %d", n) {
						t.Errorf("holder %d: a later caller got %+v, %v", n, out, err)
					}
				}
			})
		})
	}
}

// Who stops when told is told by its own clock, while onced is down: before onced, were
// it up, could give its claim away. What it did is unknown, and nobody executes it.
func TestOutageIsToldByTheHoldersOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var told atomic.Int32
		s, wait := outage(t, func(n int, ctx context.Context) error {
			<-ctx.Done()
			var lost *client.ClaimLost
			if at := time.Since(start); !errors.As(context.Cause(ctx), &lost) || lost.Err != nil || at != 30*time.Second {
				t.Errorf("holder %d: its context ended at %v: %v", n, at, context.Cause(ctx))
			}
			told.Add(1)
			return ctx.Err()
		})
		pass(10 * time.Minute)
		if n := told.Load(); n != holders {
			t.Errorf("%d holders were told", n)
		}
		s.Up()
		for n, err := range wait() {
			var lost *client.ClaimLost
			if !errors.As(err, &lost) {
				t.Errorf("holder %d: %v", n, err)
			}
		}
		pass(time.Minute)
		for n := range holders {
			_, err := client.Do(t.Context(), s.Client(), call(fmt.Sprintf("k%d", n)), func(context.Context, *client.Claim) (string, error) {
				return "", errors.New("it runs again")
			})
			if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_DECLARED || u.Attempt != 1 {
				t.Errorf("holder %d: %+v", n, u)
			}
		}
	})
}

// onced is down for so long that the connection, by itself, would come back later than
// holders have after the outage.
func TestOutageLongerThanTheConnectionsPauses(t *testing.T) {
	for _, down := range []time.Duration{11 * time.Minute, 17 * time.Minute, 23 * time.Minute, 29 * time.Minute, time.Hour} {
		t.Run(down.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				done := make(chan error, 1)
				go func() {
					_, err := client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (string, error) {
						pass(down + 3*time.Minute)
						return "first", nil
					})
					done <- err
				}()
				pass(5 * time.Second)
				r.down()
				pass(down)
				r.up()
				pass(35 * time.Second) // longer than the lease
				conn := r.connect()    // of another process
				defer conn.Close()
				other := client.New(conn, client.WithLogger(slog.New(slog.DiscardHandler)))
				_, err := client.Do(r.Context(), other, call("k"), r.once("again"), client.NoWait())
				as[*client.InProgress](t, err)
				if err := <-done; err != nil {
					t.Error(err)
				}
				r.ran(0)
			})
		})
	}
}
