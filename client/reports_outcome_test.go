package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The tests named R and a number, here and in the two files beside this one, are
// scenarios in which other systems have executed a mutation twice, or lost its
// result. Each prints how often it was executed. These are about what an execution
// leaves behind.

// R02: the effect happened, and then the handler failed. An error is not "nothing
// happened".
func TestR02_ErrorAfterEffect(t *testing.T) {
	for name, after := range map[string]func() error{
		"internal":    func() error { return status.Error(codes.Internal, "a later step failed") },
		"unavailable": func() error { return status.Error(codes.Unavailable, "a later step failed") },
		"panic":       func() error { panic("a later step") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				handler := func(context.Context, *client.Claim) (string, error) {
					r.runs.Add(1)
					return "", after()
				}
				func() {
					defer func() { _ = recover() }()
					if _, err := client.Do(r.Context(), r.Client, call("k"), handler); err == nil {
						t.Error("no error")
					}
				}()
				pass(100 * time.Millisecond)
				_, err := client.Do(r.Context(), r.Client, call("k"), handler)
				if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_DECLARED {
					t.Errorf("got %+v", u)
				}
				r.ran(1)
			})
		})
	}
}

// R04: the caller's deadline passed while the handler ran; what it did must be
// recorded all the same, also when onced is down at that moment.
func TestR04_CompletionOutlivesTheCaller(t *testing.T) {
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 100*time.Millisecond)
	}
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(90*time.Millisecond, cancel)
		return ctx, cancel
	}
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){"deadline": deadline, "cancelled": cancelled} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				ctx, cancel := end(r.Context())
				defer cancel()
				if _, err := client.Do(ctx, r.Client, call("k"), r.slow(300*time.Millisecond, "ticket 7")); err != nil {
					t.Error(err)
				}
				pass(100 * time.Millisecond)
				if out := r.run("k", "again"); out.Value != "ticket 7" || !out.Replayed {
					t.Errorf("the retry got %+v", out)
				}
				r.ran(1)
			})
		})
	}
	t.Run("onced down", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			ctx, cancel := deadline(r.Context())
			defer cancel()
			out, err := client.Do(ctx, r.Client, call("k"), func(context.Context, *client.Claim) (string, error) {
				r.runs.Add(1)
				r.down()
				pass(300 * time.Millisecond)
				return "ticket 7", nil
			})
			if err != nil || out.Value != "ticket 7" || out.Settled {
				t.Errorf("the first caller got %+v, %v", out, err)
			}
			pass(2 * time.Minute) // far beyond the lease
			r.up()
			if left := r.Close(r.Context()); left != nil {
				t.Errorf("left: %v", left)
			}
			out, err = client.Do(r.Context(), r.newClient(), call("k"), r.once("again"))
			if err != nil || out.Value != "ticket 7" || !out.Replayed {
				t.Errorf("the retry got %+v, %v", out, err)
			}
			r.saw("Fail", 0)
			r.ran(1)
		})
	})
}

// R25: empty results are results.
func TestR25_EmptyResults(t *testing.T) {
	inBubble(t, func(r *rig) {
		emptyResult(r, "message", &emptypb.Empty{})
		emptyResult(r, "bytes", []byte{})
		emptyResult(r, "string", "")
		emptyResult(r, "false", false)
		emptyResult(r, "zero", 0)
		emptyResult(r, "list", []string{})
		emptyResult[[]string](r, "null list", nil)
		emptyResult[*int](r, "nil pointer", nil)
		emptyResult[any](r, "nothing", nil)
		emptyResult(r, "struct", struct{}{})
		r.ran(10)
	})
}

// emptyResult runs an operation twice and compares what the two callers get.
func emptyResult[T any](r *rig, key string, value T) {
	r.Helper()
	for i := range 2 {
		out, err := client.Do(r.Context(), r.Client, call(key), func(context.Context, *client.Claim) (T, error) {
			r.runs.Add(1)
			return value, nil
		})
		if got, want := fmt.Sprintf("%#v", out.Value), fmt.Sprintf("%#v", value); err != nil || out.Replayed != (i == 1) || shape(got) != shape(want) {
			r.Errorf("%s, call %d: got %s, %+v, %v; want %s", key, i+1, got, out, err, want)
		}
	}
}

// shape leaves out of a printed value where it lies in memory and what a message
// caches.
func shape(s string) string {
	before, _, _ := strings.Cut(s, "state:")
	return before
}

// R33: after a lapse nobody knows. By default nobody executes; where the namespace says
// that running again is safe, the handler sees that it is a second attempt.
func TestR33_NoTimerKnowsTheOutcome(t *testing.T) {
	killed := func(r *rig) {
		r.rival("k", withLease(5*time.Second)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		r.runs.Add(1) // its effect, and then it was killed
		pass(10 * time.Second)
	}
	t.Run("mutation, happened", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			killed(r)
			_, err := client.Do(r.Context(), r.Client, call("k"), r.once("again"))
			as[*client.Unresolved](t, err)
			r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveCompleted, Result: onced.NewResult("text/plain", true, []byte("R"))})
			if out := r.run("k", "again"); out.Value != "R" || !out.Replayed {
				t.Errorf("got %+v", out)
			}
			r.ran(1)
		})
	})
	t.Run("mutation, did not happen", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			killed(r)
			fence := r.operation("k").GetFence()
			r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReleased})
			out, err := client.Do(r.Context(), r.Client, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
				r.runs.Add(1)
				if cl.Fence <= fence || cl.TakenOver {
					t.Errorf("fence %d after %d, taken over %v", cl.Fence, fence, cl.TakenOver)
				}
				return "again", nil
			})
			if err != nil || out.Attempt != 2 {
				t.Errorf("got %+v, %v", out, err)
			}
			r.ran(2)
		})
	})
	t.Run("safe to rerun", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			killed(r)
			fence := r.operation("k").GetFence()
			_, err := client.Do(r.Context(), r.Client, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
				r.runs.Add(1)
				if cl.Attempt != 2 || !cl.TakenOver || cl.Fence <= fence {
					t.Errorf("attempt %d, taken over %v, fence %d after %d", cl.Attempt, cl.TakenOver, cl.Fence, fence)
				}
				return "again", nil
			})
			if err != nil {
				t.Error(err)
			}
			r.ran(2)
		}, func(p *onced.Policy) { p.SafeToRerun = true })
	})
}

// R57: a client with a cache has answered before its checks. This one has none: every
// call asks, and what an operator changes is seen by the next one.
func TestR57_NoCache(t *testing.T) {
	inBubble(t, func(r *rig) {
		print := func(digit string) client.Call {
			f, err := onced.ParseFingerprint("raw1:" + strings.Repeat(digit, 64))
			if err != nil {
				t.Fatal(err)
			}
			return client.Call{Key: "k", Method: "m", Fingerprints: []onced.Fingerprint{f}}
		}
		do := func(c client.Call, opts ...client.DoOption) (client.Outcome[string], error) {
			return client.Do(r.Context(), r.Client, c, r.once("again"), opts...)
		}
		elsewhere := r.rival("k", func(req *oncedv1.ClaimRequest) { req.Fingerprints = []string{print("a").Fingerprints[0].String()} })
		_, err := do(print("a"), client.NoWait())
		as[*client.InProgress](t, err)
		if err := elsewhere.complete("R"); err != nil {
			t.Fatal(err)
		}
		_, err = do(print("b"))
		as[*client.Mismatch](t, err)
		if out, err := do(print("a")); err != nil || out.Value != "R" || !out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
		r.resolve("k", onced.ResolveRequest{Resolution: onced.ResolveReopen})
		if out, err := do(print("a")); err != nil || out.Replayed || out.Attempt != 2 {
			t.Errorf("after a reopen: %+v, %v", out, err)
		}
		r.ran(1)
	})
}
