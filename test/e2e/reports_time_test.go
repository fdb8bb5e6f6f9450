package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The tests of this file and the next are scenarios of field reports: what went
// wrong for people who built such a service. Each prints its executions.

// A holder that died blocks its key until the lease ends, not for the retention.
// Then the answer says who claimed it and when, and goes on saying so: nothing
// runs silently, and an operator can resolve it.
func TestR16_DeadHolder(t *testing.T) {
	inLab(t, func(l *lab) {
		dead := leased("k", 30*time.Second)
		dead.Holder = "tool-1"
		granted := l.granted(dead)
		l.runs.Add(1) // the effect; then the tool is killed
		pass(time.Second)
		began := granted.GetOperation().GetClaimTime().AsTime()
		for _, at := range []time.Duration{5 * time.Second, 29 * time.Second} {
			pass(time.Until(began.Add(at)))
			resp := l.answered(claimOf("k"), inProgressOutcome)
			if retry, left := resp.GetRetryAfter().AsDuration(), 30*time.Second-at; retry <= 0 || retry > left {
				t.Errorf("%v after the claim retry_after is %v, want at most the %v that are left", at, retry, left)
			}
		}
		for _, at := range []time.Duration{31 * time.Second, 23 * time.Hour} {
			pass(time.Until(began.Add(at)))
			op := l.answered(claimOf("k"), unresolvedOutcome).GetOperation()
			if op.GetReason() != oncedv1.Reason_REASON_LAPSED || op.GetHolder() != "tool-1" || !op.GetClaimTime().AsTime().Equal(began) {
				t.Errorf("%v after the claim the answer is %v, want LAPSED with its holder and time", at, op)
			}
			if _, err := l.do("k", "again"); !errors.As(err, new(*client.Unresolved)) {
				t.Errorf("a call %v after the claim ended with %v, want Unresolved", at, err)
			}
		}
		l.resolve("k", onced.ResolveRequest{
			Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("it happened")),
		})
		if out, err := l.do("k", "again"); err != nil || !out.Replayed || out.Value != "it happened" {
			t.Errorf("after it was resolved a call got %v, %v", out, err)
		}
		l.ran(1)
	})
}

// Retention runs from the completion, not from the claim, and does not inherit
// what was left of the lease.
func TestR16_RetentionFromCompletion(t *testing.T) {
	const retention = 24 * time.Hour
	inLab(t, func(l *lab) {
		req := leased("k", 30*time.Second)
		granted := l.granted(req)
		l.runs.Add(1)
		pass(29900 * time.Millisecond)
		l.complete(completion(req, granted, "1"))
		pass(retention - 1)
		l.replayed("k", "1", granted)
		pass(1)
		l.absent("k")
		l.ran(1)
	}, retained(retention))
}

func retained(d time.Duration) func(*onced.Policy) {
	return func(p *onced.Policy) { p.ResultRetention, p.KeyRetention, p.MaxLease = d, d, min(d, p.MaxLease) }
}

// After the lease nobody knows what a killed holder did. By default nothing runs
// until that is resolved, as "it happened" or as "it did not"; where the policy
// says that running again is safe, the next call runs, knowing that it is the
// second attempt.
func TestR33_OutcomeUnknown(t *testing.T) {
	kill := func(l *lab, namespace, key string) *oncedv1.ClaimResponse {
		req := leased(key, 5*time.Second)
		req.Ref.Namespace = namespace
		granted := l.granted(req)
		pass(10 * time.Second) // killed at 2 s
		return granted
	}
	t.Run("it happened", func(t *testing.T) {
		inLab(t, func(l *lab) {
			kill(l, "default", "k")
			l.runs.Add(1)
			l.answered(claimOf("k"), unresolvedOutcome)
			l.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("r"))})
			if out, err := l.do("k", "other"); err != nil || !out.Replayed || out.Value != "r" {
				t.Errorf("got %v, %v, want the replay of r", out, err)
			}
			l.ran(1)
		})
	})
	t.Run("it did not happen", func(t *testing.T) {
		inLab(t, func(l *lab) {
			granted := kill(l, "default", "k")
			l.answered(claimOf("k"), unresolvedOutcome)
			l.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
			again := claimOf("k")
			op := l.granted(again).GetOperation()
			l.runs.Add(1)
			if op.GetFence() <= granted.GetOperation().GetFence() || op.GetAttempt() != 2 {
				t.Errorf("after the release the claim is %v, want attempt 2 and a fence above %d", op, granted.GetOperation().GetFence())
			}
			l.ran(1)
		})
	})
	t.Run("found out by a takeover", func(t *testing.T) {
		inLab(t, func(l *lab) {
			kill(l, "default", "k")
			pass(time.Minute) // what it sent outside has landed
			first := takeover("k", 1)
			taken := l.answered(first, takenOverOutcome)
			l.fail(failing(first, taken, didNotHappen))
			if out, err := l.do("k", "r"); err != nil || out.Replayed || out.Attempt != 3 {
				t.Errorf("got %v, %v, want an execution as attempt 3", out, err)
			}
			l.ran(1)
		})
	})
	t.Run("safe to rerun", func(t *testing.T) {
		inLab(t, func(l *lab) {
			granted := kill(l, "rerun", "k")
			l.runs.Add(1)
			out, err := client.Do(l.Context(), l.client(client.WithNamespace("rerun")), client.Call{Key: "k", Method: "act"},
				func(_ context.Context, cl *client.Claim) (string, error) {
					l.runs.Add(1)
					if !cl.TakenOver || cl.Attempt != 2 || cl.Fence <= granted.GetOperation().GetFence() {
						t.Errorf("the second attempt sees taken over %v, attempt %d, fence %d", cl.TakenOver, cl.Attempt, cl.Fence)
					}
					return "r", nil
				})
			if err != nil || out.Value != "r" {
				t.Errorf("got %v, %v", out, err)
			}
			l.ran(2)
		})
	})
}

// Work that takes longer than its lease is renewed and stays its holder's; a
// short gap in the network changes nothing; a long one is told to the holder, so
// that it stops, and its late result counts unless somebody took over.
func TestR36_LongWork(t *testing.T) {
	call := client.Call{Key: "k", Method: "act", Lease: 30 * time.Second}
	// work takes 200 s. After 101 s, a second after it was renewed, nothing gets
	// through for a while; then, after 181 s, something is looked at.
	work := func(l *lab, gap time.Duration, after func(context.Context)) (client.Outcome[string], error) {
		return client.Do(l.Context(), l.client(), call, func(ctx context.Context, _ *client.Claim) (string, error) {
			l.runs.Add(1)
			pass(101 * time.Second)
			l.network.lose("Renew", codes.Unavailable)
			pass(gap)
			l.network.lose("", codes.OK)
			pass(80*time.Second - gap)
			after(ctx)
			pass(19 * time.Second)
			return "r", nil
		})
	}
	held := func(l *lab) func(context.Context) {
		return func(ctx context.Context) {
			if ctx.Err() != nil {
				t.Errorf("the work was stopped: %v", context.Cause(ctx))
			}
			l.answered(claimOf("k"), inProgressOutcome)
		}
	}
	lost := func(ctx context.Context) {
		if !errors.As(context.Cause(ctx), new(*client.ClaimLost)) {
			t.Errorf("the work was not told that its claim is lost: %v", context.Cause(ctx))
		}
	}
	t.Run("a gap of 25 s", func(t *testing.T) {
		inLab(t, func(l *lab) {
			out, err := work(l, 25*time.Second, held(l))
			if err != nil || !out.Settled {
				t.Errorf("got %v, %v", out, err)
			}
			l.ran(1)
		})
	})
	t.Run("a gap of 45 s", func(t *testing.T) {
		inLab(t, func(l *lab) {
			out, err := work(l, 45*time.Second, lost)
			if err != nil || !out.Settled {
				t.Errorf("got %v, %v, want the late result taken", out, err)
			}
			if out, err := l.do("k", "other"); err != nil || out.Value != "r" {
				t.Errorf("the next call got %v, %v", out, err)
			}
			l.ran(1)
		})
	})
	t.Run("a gap in which somebody took over", func(t *testing.T) {
		inLab(t, func(l *lab) {
			_, err := work(l, 80*time.Second, func(ctx context.Context) {
				lost(ctx)
				l.answered(takeover("k", 1), takenOverOutcome)
			})
			if !errors.As(err, new(*client.ClaimLost)) {
				t.Errorf("got %v, want ClaimLost: the effect may have happened twice", err)
			}
			if op := l.lookup("k"); op.GetState() != oncedv1.State_STATE_PENDING || op.GetAttempt() != 2 {
				t.Errorf("the operation is %v, want it with the one who took over", op)
			}
			l.ran(1)
		}, func(p *onced.Policy) { now := time.Duration(0); p.ReconcileAfter = &now })
	})
}

// A caller whose first try is still running waits for its result; when its time
// is over first, the error says that the outcome is unknown, not that it failed.
func TestR40_OwnFirstTryRunning(t *testing.T) {
	inLab(t, func(l *lab) {
		running := make(chan struct{})
		go func() {
			call := client.Call{Key: "k", Method: "act"}
			_, err := client.Do(l.Context(), l.client(), call, func(context.Context, *client.Claim) (string, error) {
				l.runs.Add(1)
				close(running)
				pass(3 * time.Second)
				return "r", nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		<-running
		began := time.Now()
		short, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		_, err := client.Do(short, l.client(), client.Call{Key: "k", Method: "act"}, l.returning("other"))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `outcome unknown, key "k"`) {
			t.Errorf("when its time was over first the call got %v", err)
		}
		out, err := l.do("k", "other")
		if err != nil || !out.Replayed || out.Value != "r" {
			t.Errorf("got %v, %v, want the replay of r", out, err)
		}
		if took := time.Since(began); took > 3100*time.Millisecond {
			t.Errorf("the replay came after %v, want it at about 3 s", took)
		}
		l.ran(1)
	})
}

// The memory is anchored at the completion. Replays do not extend it, restarts do
// not shorten it, and a key that says when it was minted is never taken for a new
// one after it was forgotten.
func TestR48_RetentionIsNoWindow(t *testing.T) {
	const every, retention = 50 * time.Minute, 2 * time.Hour
	for name, restart := range map[string]bool{"without restarts": false, "with restarts": true} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				minted := time.Now()
				call := client.Call{Key: "k", Method: "act", KeyTime: minted}
				for since := time.Duration(0); since <= 10*time.Hour; since += every {
					out, err := client.Do(l.Context(), l.client(), call, l.returning("r"))
					forgotten := errors.As(err, new(*client.Unresolved))
					switch {
					case err != nil && !forgotten, err == nil && out.Value != "r":
						t.Errorf("after %v: %v, %v", since, out, err)
					case since < retention && err != nil:
						t.Errorf("after %v the result was forgotten: %v", since, err)
					case since >= retention && !restart && !forgotten:
						t.Errorf("after %v a replay has extended the memory", since)
					}
					pass(every)
					if restart {
						l.restart()
					}
				}
				l.ran(1)
			}, retained(retention))
		})
	}
}

// Claim, lookup and the sweep agree on the moment at which a key is forgotten.
func TestR48_Boundary(t *testing.T) {
	inLab(t, func(l *lab) {
		minted := timestamppb.Now()
		req := claimOf("k")
		req.KeyTime = minted
		granted := l.granted(req)
		l.runs.Add(1)
		l.complete(completion(req, granted, "1"))
		pass(2*time.Hour - 1)
		l.replayed("k", "1", granted)
		pass(1)
		l.absent("k")
		late := claimOf("k")
		late.KeyTime = minted
		if op := l.answered(late, unresolvedOutcome).GetOperation(); op.GetReason() != oncedv1.Reason_REASON_HISTORY_LOST {
			t.Errorf("a claim of the forgotten key answered %v, want HISTORY_LOST", op)
		}
		l.ran(1)
	}, retained(2*time.Hour))
}

// Leases and retentions are exact, to the nanosecond, in whatever unit they were
// asked for; what is below a second is refused rather than taken for nothing.
func TestR58_Boundaries(t *testing.T) {
	const lease, retention = 1500 * time.Millisecond, 86400 * time.Second
	inLab(t, func(l *lab) {
		req := leased("k", lease)
		granted := l.granted(req)
		l.runs.Add(1)
		pass(lease - 1)
		l.answered(claimOf("k"), inProgressOutcome)
		pass(1)
		l.answered(claimOf("k"), unresolvedOutcome)
		pass(time.Millisecond)
		l.answered(claimOf("k"), unresolvedOutcome)

		l.complete(completion(req, granted, "1"))
		pass(retention - time.Second)
		l.replayed("k", "1", granted)
		pass(time.Second - 1)
		l.replayed("k", "1", granted)
		pass(1)
		l.absent("k")
		pass(time.Second)
		l.absent("k")

		short := claimOf("short")
		short.Lease = durationpb.New(999 * time.Millisecond)
		if _, err := l.stub.Claim(l.ctx(), short); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a lease of 999 ms answered %v, want INVALID_ARGUMENT", err)
		}
		l.absent("short")
		l.ran(1)
	}, retained(retention))
}
