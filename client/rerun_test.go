package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// rerun is Do of an operation that is safe to run again. It checks that its function
// sees a takeover.
func (r *rig) rerun(ctx context.Context, fn func(context.Context, *client.Claim) (string, error), opts ...client.DoOption) (client.Outcome[string], error) {
	return client.Do(ctx, r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
		if !cl.TakenOver || cl.Attempt < 2 {
			r.Errorf("it runs under attempt %d, taken over: %v", cl.Attempt, cl.TakenOver)
		}
		return fn(ctx, cl)
	}, append(opts, client.SafeToRerun())...)
}

// unknowns are the ways to an operation whose first attempt may have had its effect,
// and may be followed by another one.
func unknowns() map[string]func(*rig) {
	return map[string]func(*rig){
		"lapsed": func(r *rig) {
			r.dies("k", nil)
			pass(30 * time.Second)
		},
		"declared": func(r *rig) {
			if err := r.dies("k", nil).fail(oncedv1.Disposition_DISPOSITION_UNKNOWN); err != nil {
				r.Fatal(err)
			}
		},
	}
}

func TestSafeToRerun(t *testing.T) {
	for name, happen := range unknowns() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				happen(r)
				doubt := time.Now()
				// Who does not wait is told when.
				_, err := r.rerun(r.Context(), r.once("no"), client.NoWait())
				if u := as[*client.Unresolved](t, err); u.RetryAfter != time.Minute || u.Attempt != 1 || u.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET {
					t.Errorf("got %+v", u)
				}
				r.ran(0)
				out, err := r.rerun(r.Context(), r.once("again"))
				if waited := time.Since(doubt); waited < time.Minute || waited > 66*time.Second {
					t.Errorf("it ran after %v", waited)
				}
				if err != nil || out.Value != "again" || out.Replayed || !out.Settled || out.Attempt != 2 {
					t.Errorf("got %+v, %v", out, err)
				}
				// From now on it is an operation like any other.
				if out := r.run("k", "no"); !out.Replayed || out.Value != "again" {
					t.Errorf("got %+v", out)
				}
				r.ran(1)
			})
		})
	}
}

// An operation that nobody has claimed is granted, and one that was executed is
// replayed, whatever may be done again.
func TestSafeToRerunOfWhatIsKnown(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, replayed := range []bool{false, true} {
			out, err := client.Do(r.Context(), r.Client, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
				r.runs.Add(1)
				if cl.TakenOver || cl.Attempt != 1 {
					t.Errorf("attempt %d, taken over: %v", cl.Attempt, cl.TakenOver)
				}
				return "mine", nil
			}, client.SafeToRerun())
			if err != nil || out.Replayed != replayed {
				t.Errorf("got %+v, %v", out, err)
			}
		}
		r.ran(1)
	})
}

// A deadline before it is time is told so at once.
func TestSafeToRerunDeadlineBeforeItIsTime(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(40 * time.Second)
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		for _, opts := range [][]client.DoOption{{client.ClaimTimeout(10 * time.Second)}, nil} {
			start := time.Now()
			_, err := r.rerun(ctx, r.once("no"), opts...)
			if u := as[*client.Unresolved](t, err); u.RetryAfter != 50*time.Second || time.Since(start) != 0 {
				t.Errorf("got %+v after %v", u, time.Since(start))
			}
			ctx = r.Context() // then the claim timeout alone bounds it
			ctx, cancel = context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
		}
		r.ran(0)
	})
}

// What speaks against a second run is heard: a former holder that has told of an
// effect, and a history that is not known.
func TestSafeToRerunOfWhatMustNotBeRunAgain(t *testing.T) {
	t.Run("contradicted", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.contradicted("k")
			pass(time.Hour)
			_, err := r.rerun(r.Context(), r.once("no"))
			if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_CONTRADICTED || u.RetryAfter != 0 {
				t.Errorf("got %+v", u)
			}
			r.ran(0)
		}, atOnce)
	})
	t.Run("history lost", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			for range 2 {
				_, err := client.Do(r.Context(), r.Client, forgotten("k"), r.once("no"), client.SafeToRerun())
				if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_HISTORY_LOST {
					t.Errorf("got %+v", u)
				}
				pass(time.Hour)
			}
			r.ran(0)
		}, atOnce)
	})
	// It is contradicted while the call waits for its time.
	t.Run("contradicted meanwhile", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			first := r.dies("k", nil)
			pass(90 * time.Second)
			r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
			pass(31 * time.Second)
			time.AfterFunc(20*time.Second, func() {
				if first.complete("it happened") == nil {
					t.Error("a former holder has settled the operation")
				}
			})
			_, err := r.rerun(r.Context(), r.once("no"))
			if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_CONTRADICTED {
				t.Errorf("got %+v", u)
			}
			r.ran(0)
		})
	})
}

// The namespace decides who may take over. Without access control everybody is an
// operator; a server that tells them apart refuses in these words.
func TestSafeToRerunAsThePolicyAllows(t *testing.T) {
	for _, who := range []onced.TakeoverPolicy{onced.TakeoverByNobody, onced.TakeoverByOperator} {
		t.Run(who.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				pass(time.Hour)
				if who == onced.TakeoverByOperator {
					r.faults.editReplies(func(_ string, reply any) {
						if claim, ok := reply.(*oncedv1.ClaimResponse); ok {
							claim.TakeoverRefused = oncedv1.TakeoverRefused_TAKEOVER_REFUSED_POLICY
						}
					})
				}
				_, err := r.rerun(r.Context(), r.once("no"))
				if u := as[*client.Unresolved](t, err); u.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_POLICY || u.RetryAfter != 0 {
					t.Errorf("got %+v", u)
				}
				r.ran(0)
			}, func(p *onced.Policy) { p.Takeover = who })
		})
	}
}

// A namespace that is safe to rerun as a whole does not wait for reconcile_after.
func TestSafeToRerunWhereTheNamespaceIs(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		pass(30 * time.Second)
		start := time.Now()
		out, err := r.rerun(r.Context(), r.once("again"))
		if err != nil || out.Attempt != 2 || !time.Now().Equal(start) {
			t.Errorf("got %+v, %v", out, err)
		}
		r.ran(1)
	}, func(p *onced.Policy) { p.SafeToRerun = true })
}

// Attempts that end unknown come ever more slowly. That one was not executed says nothing
// of those before.
func TestSafeToRerunRests(t *testing.T) {
	for name, fail := range map[string]error{"unknown": errors.New("time-out"), "not executed": client.NotExecuted(errors.New("busy"))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				pass(time.Hour)
				var at []time.Time
				for n := uint32(2); n <= 6; n++ {
					_, err := r.rerun(r.Context(), func(_ context.Context, cl *client.Claim) (string, error) {
						r.runs.Add(1)
						at = append(at, time.Now())
						if cl.Attempt != n {
							t.Errorf("attempt %d, want %d", cl.Attempt, n)
						}
						return "", fail
					})
					if !errors.Is(err, fail) {
						t.Fatalf("attempt %d: %v", n, err)
					}
					if op := r.operation("k"); op.GetState() != oncedv1.State_STATE_UNRESOLVED || op.GetReason() != oncedv1.Reason_REASON_DECLARED {
						t.Fatalf("attempt %d leaves %v", n, op)
					}
				}
				r.rested(at)
				r.ran(5)
			}, atOnce)
		})
	}
}

// When the attempts are used up an operator has the word.
func TestSafeToRerunWithoutAttemptsLeft(t *testing.T) {
	inBubble(t, func(r *rig) {
		v := r.dies("k", nil)
		for n := uint32(1); ; n++ {
			if err := v.fail(oncedv1.Disposition_DISPOSITION_UNKNOWN); err != nil {
				t.Fatal(err)
			}
			if n == onced.MaxAttempts {
				break
			}
			v = r.rival("k", takingOver(n)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
		}
		pass(time.Minute)
		_, err := r.rerun(r.Context(), r.once("no"))
		says(t, as[*client.Unresolved](t, err), "attempts are used up", "operator")
		r.ran(0)
	}, atOnce)
}

// With a reconcile function its verdict decides, and the function runs after
// DidNotHappen alone.
func TestSafeToRerunWithReconcile(t *testing.T) {
	for name, leg := range map[string]struct {
		verdict client.Verdict
		runs    int32
		check   func(*rig, client.Outcome[string], error)
	}{
		"happened":       {client.Happened("theirs"), 0, (*rig).replaysWhatHappened},
		"did not happen": {client.DidNotHappen(), 1, (*rig).ranAfterAsking},
		"still unknown":  {client.StillUnknown(errAmbiguous), 0, (*rig).staysUnresolved},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				a := answering(leg.verdict)
				out, err := client.Do(r.Context(), r.Client, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
					r.runs.Add(1)
					if cl.TakenOver {
						t.Error("it was not asked about")
					}
					return "mine", nil
				}, client.SafeToRerun(), client.WithReconcile(a.ask))
				leg.check(r, out, err)
				a.was(t, 1)
			})
		})
	}
}

// Ten callers meet the same lapsed operation: one runs it again, and the others have
// what comes of it. Where that is not known either, nobody goes on.
func TestSafeToRerunOfManyCallers(t *testing.T) {
	for name, fail := range map[string]error{"a value": nil, "unknown": errors.New("time-out")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				var all sync.WaitGroup
				var mu sync.Mutex
				attempts := map[uint32]int{}
				for n := range 10 {
					c := r.newClient(client.WithHolder(fmt.Sprintf("holder-%d", n)))
					all.Go(func() {
						out, err := client.Do(r.Context(), c, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
							mu.Lock()
							attempts[cl.Attempt]++
							mu.Unlock()
							pass(45 * time.Second)
							return "again", fail
						}, client.SafeToRerun())
						switch {
						case fail == nil && (err != nil || out.Value != "again"):
							t.Errorf("got %+v, %v", out, err)
						case fail != nil && !errors.Is(err, fail):
							as[*client.Unresolved](t, err)
						}
					})
				}
				all.Wait()
				if len(attempts) != 1 || attempts[2] != 1 {
					t.Errorf("executions by attempt: %v", attempts)
				}
			})
		})
	}
}

// Answers get lost: the takeover is asked for under one token until it is answered, and
// the function runs once for each attempt that it is given.
func TestSafeToRerunWhoseAnswersAreLost(t *testing.T) {
	for name, happen := range map[string]fault{"lost": lost, "never arrived": hole, "refused on the way": refusedWith(codes.Unavailable)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				pass(time.Hour)
				n := 0
				r.faults.set(func(s sent) fault {
					if s.rpc != "Claim" {
						return nil
					}
					if n++; n%2 == 0 {
						return happen
					}
					return nil
				})
				out, err := r.rerun(r.Context(), r.once("again"))
				if err != nil || out.Value != "again" || out.Attempt != 2 {
					t.Errorf("got %+v, %v", out, err)
				}
				r.ran(1)
			})
		})
	}
}
