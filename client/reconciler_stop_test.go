package client_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// What is under way when a reconciler is stopped does not hold it up: asks that heed
// their context and asks that do not, and calls that nobody answers. What is found out
// after that counts all the same, and Close waits for it.
func TestReconcilerStops(t *testing.T) {
	for name, c := range map[string]struct {
		heeds bool
		cut   func(*rig) // while it asks
		mend  func(*rig) // after it has stopped
		then  oncedv1.State
	}{
		"asks heed":                             {heeds: true, then: oncedv1.State_STATE_UNRESOLVED},
		"asks do not heed":                      {then: oncedv1.State_STATE_COMPLETED},
		"asks heed, and the server is down":     {true, (*rig).down, (*rig).up, oncedv1.State_STATE_UNRESOLVED},
		"asks do not heed, the server is down":  {false, (*rig).down, (*rig).up, oncedv1.State_STATE_COMPLETED},
		"asks heed, and nothing is answered":    {true, (*rig).holes, (*rig).mended, oncedv1.State_STATE_UNRESOLVED},
		"asks do not heed, nothing is answered": {false, (*rig).holes, (*rig).mended, oncedv1.State_STATE_COMPLETED},
		"the process is closed over what it asks": {false, func(r *rig) {
			ended, end := context.WithCancel(r.Context())
			end()
			if left := r.Client.Close(ended); len(left) != client.DefaultWorkers || left[0].Stage != client.StageReconciling {
				r.Errorf("it is closed over %v", left)
			}
		}, func(*rig) {}, oncedv1.State_STATE_COMPLETED},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				o := newOutside()
				o.takes, o.heeds = 20*time.Second, c.heeds
				keys := r.backlog(2*client.DefaultWorkers, o)
				for _, key := range keys {
					if o.count(key) == 0 {
						o.act(key)
					}
				}
				pass(time.Minute)
				stop := r.inBackground(reconciler(r.Client, o))
				o.until(t, client.DefaultWorkers)
				if c.cut != nil {
					c.cut(r)
					pass(3 * time.Second)
				}
				stop()
				if c.mend != nil {
					c.mend(r)
				}
				if left := r.Client.Close(context.Background()); left != nil {
					t.Errorf("it leaves %v", left)
				}
				o.eachOnce(t, client.DefaultWorkers)
				for key := range o.asked {
					r.isIn(key, c.then)
				}
			}, atOnce)
		})
	}
}

// holes makes no call be answered any more, and mended ends that.
func (r *rig) holes() {
	r.faults.set(func(sent) fault { return hole })
}

func (r *rig) mended() { r.faults.set(nil) }

// A reconciler that cannot reach onced, in whatever it does there, stops at once too.
func TestReconcilerStopsUnanswered(t *testing.T) {
	for _, rpc := range []string{"GetPolicy", "ListOperations", "Claim", "Complete"} {
		for how, happen := range map[string]fault{"nobody answers": hole, "unavailable": refusedWith(codes.Unavailable)} {
			t.Run(rpc+", "+how, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					o := newOutside()
					r.dies("k", func() { o.act("k") })
					pass(time.Minute)
					r.faults.always(happen, rpc)
					stop := r.inBackground(reconciler(r.newClient(), o))
					pass(12 * time.Second)
					stop()
					r.mended()
				}, atOnce)
			})
		}
	}
}

// However its context ends, before it began too and with whatever cause: it has stopped
// as it should.
func TestReconcilerStoppedByItsContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancelCause(r.Context())
		cancel(errNoAnswer)
		if err := reconciler(r.Client, newOutside()).Run(ctx); err != nil {
			t.Errorf("got %v", err)
		}
		ctx, cancel = context.WithCancelCause(r.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- reconciler(r.Client, newOutside()).Run(ctx) }()
		pass(time.Minute)
		cancel(errNoAnswer)
		if err := <-stopped; err != nil {
			t.Errorf("got %v", err)
		}
		ctx, end := context.WithTimeout(r.Context(), time.Minute)
		defer end()
		if err := reconciler(r.Client, newOutside()).Run(ctx); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// What can never work is told at once, and nothing is sent.
func TestReconcilerIsToldWhatIsWrong(t *testing.T) {
	inBubble(t, func(r *rig) {
		ask := answering(client.DidNotHappen()).ask
		of := func(method string, how client.Reconciliation) map[string]client.Reconciliation {
			return map[string]client.Reconciliation{method: how}
		}
		good := of("m", client.Reconciliation{Ask: ask})
		for _, c := range []struct {
			of   client.Reconciler
			says string
		}{
			{client.Reconciler{Methods: good}, "a client is required"},
			{client.Reconciler{Client: r.Client}, "name the methods"},
			{client.Reconciler{Client: r.Client, Methods: of("", client.Reconciliation{Ask: ask})}, "method"},
			{client.Reconciler{Client: r.Client, Methods: of("a\nb", client.Reconciliation{Ask: ask})}, "method"},
			{client.Reconciler{Client: r.Client, Methods: of("m", client.Reconciliation{})}, `method "m" needs a function that asks`},
			{client.Reconciler{Client: r.Client, Methods: of("m", client.Reconciliation{Ask: ask, DownstreamWindow: -1})}, "not negative"},
			{client.Reconciler{Client: r.Client, Methods: good, Workers: -1}, "workers"},
			{client.Reconciler{Client: r.Client, Methods: good, Interval: -1}, "interval"},
			{client.Reconciler{Client: r.Client, Methods: good, Interval: time.Millisecond}, "interval"},
			{client.Reconciler{Client: r.Client, Methods: good, Interval: math.MaxInt64}, "interval"},
		} {
			err := c.of.Run(r.Context())
			if err == nil {
				t.Fatalf("%+v: no error", c.of)
			}
			says(t, err, "nothing is reconciled", c.says)
		}
		err := (&client.Reconciler{Workers: -1}).Run(r.Context())
		says(t, err, "a client is required", "name the methods", "workers")
		if n := len(r.faults.all()); n != 0 {
			t.Errorf("%d calls were sent", n)
		}
	})
}

// A list that onced refuses for good ends the reconciler, and with it what it asks of
// other methods, whose verdicts are reported.
func TestReconcilerThatMayNotList(t *testing.T) {
	for _, code := range []codes.Code{codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.InvalidArgument} {
		t.Run(code.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				o := newOutside()
				o.takes, o.heeds = time.Hour, true
				r.dies("k", nil)
				pass(time.Minute)
				refuses := false
				r.faults.set(func(s sent) fault {
					if list, ok := s.req.(*oncedv1.ListOperationsRequest); ok && list.GetMethod() == "denied" && refuses {
						return refusedWith(code)
					}
					return nil
				})
				rec := reconciler(r.newClient(), o)
				rec.Methods["denied"] = client.Reconciliation{Ask: o.ask}
				stopped := make(chan error, 1)
				go func() { stopped <- rec.Run(r.Context()) }()
				pass(10 * time.Second)
				r.faults.mu.Lock()
				refuses = true
				r.faults.mu.Unlock()
				at := time.Now()
				err := <-stopped
				if took := time.Since(at); status.Code(err) != code || took > 16*time.Second {
					t.Errorf("it ended after %v with %v", took, err)
				}
				says(t, err, `method "denied"`, "cannot be reconciled")
				o.eachOnce(t, 1)
				pass(time.Second)
				if op := r.operation("k"); op.GetReason() != oncedv1.Reason_REASON_DECLARED || op.GetAttempt() != 2 {
					t.Errorf("what it asked about is %v", op)
				}
			}, atOnce)
		})
	}
}

// Every other error of a list passes.
func TestReconcilerGoesOnListing(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Unknown} {
		for _, rpc := range []string{"ListOperations", "GetPolicy"} {
			t.Run(rpc+" "+code.String(), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					o := newOutside()
					r.dies("k", func() { o.act("k") })
					r.faults.always(refusedWith(code), rpc)
					stop := r.inBackground(reconciler(r.newClient(), o))
					pass(10 * time.Minute)
					o.eachOnce(t, 0)
					r.mended()
					pass(time.Minute)
					stop()
					o.eachOnce(t, 1)
					r.isIn("k", oncedv1.State_STATE_COMPLETED)
				}, atOnce)
			})
		}
	}
}

// On a client that was closed nothing can be reconciled any more.
func TestReconcilerOfAClosedClient(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		stopped := make(chan error, 1)
		c := r.newClient()
		go func() { stopped <- reconciler(c, o).Run(ctx) }()
		pass(time.Minute)
		c.Close(r.Context())
		r.dies("k", nil)
		at := time.Now()
		if err := <-stopped; !errors.Is(err, client.ErrClosed) {
			t.Errorf("it ended after %v with %v", time.Since(at), err)
		}
		o.eachOnce(t, 0)
	}, atOnce)
}

// A client that refuses to work on another store than its first reconciles nothing
// there, and says so.
func TestReconcilerOfAnotherGeneration(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		stopped := make(chan error, 1)
		c := r.newClient(client.RefuseOnGenerationChange())
		go func() { stopped <- reconciler(c, o).Run(ctx) }()
		pass(time.Minute)
		r.anotherStore(time.Hour)
		r.backlog(20, o)
		if err := <-stopped; !errors.As(err, new(*client.GenerationChange)) {
			t.Errorf("it ended with %v", err)
		}
		o.eachOnce(t, 0)
		if n := len(r.warnings("level=WARN")); n > 5 {
			t.Errorf("%d warnings, the last: %s", n, r.warnings("level=WARN")[n-1])
		}
	}, atOnce)
}

// A function that panics knows nothing of its operation. It stops neither the others
// nor the process, which may execute other operations; the log has the panic.
func TestReconcilerOfAPanic(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		o.answer = func(_ context.Context, cl *client.Claim) *client.Verdict {
			switch cl.Key {
			case "k0003":
				panic("a bug of the function")
			case "k0004":
				runtime.Goexit() // as FailNow of a test does
			}
			return nil
		}
		r.backlog(6, o)
		pass(time.Minute)
		rec := reconciler(r.newClient(), o)
		rec.Workers, rec.Interval = 1, time.Hour
		stop := r.inBackground(rec)
		pass(10 * time.Minute)
		stop()
		o.eachOnce(t, 6)
		for _, key := range []string{"k0003", "k0004"} {
			if op := r.operation(key); op.GetReason() != oncedv1.Reason_REASON_DECLARED || op.GetAttempt() != 2 {
				t.Errorf("the operation is %v", op)
			}
		}
		if n := len(r.warnings("level=ERROR", "a bug of the function", "k0003")); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, r.log)
		}
	}, atOnce)
}

// The log says what was found out, and nothing of results.
func TestReconcilerLogs(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOutside()
		r.backlog(2, o)
		pass(time.Minute)
		stop := r.inBackground(reconciler(r.newClient(), o))
		pass(time.Minute)
		stop()
		for key, verdict := range map[string]string{"k0000": "happened", "k0001": `"did not happen"`} {
			if n := len(r.warnings("level=INFO", "key="+key, "method=m", "attempt=2", "verdict="+verdict)); n != 1 {
				t.Errorf("the log says %d times that %s %s:\n%s", n, key, verdict, r.log)
			}
		}
		if strings.Contains(r.log.String(), "found") {
			t.Errorf("the log has a result:\n%s", r.log)
		}
		r.isQuiet()
	}, atOnce)
}
