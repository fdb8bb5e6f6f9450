package client_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// tokens are the claim tokens of some claims, without repeats.
func tokens(claims []sent) [][]byte {
	var all [][]byte
	for _, s := range claims {
		token := s.req.(*oncedv1.ClaimRequest).GetClaimToken()
		if n := len(all); n == 0 || !bytes.Equal(all[n-1], token) {
			all = append(all, token)
		}
	}
	return all
}

func TestAcquireResendsUnderTheSameToken(t *testing.T) {
	for name, happen := range map[string]fault{"lost": lost, "swallowed": swallowed, "never arrived": hole} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.faults.times(3, happen, "Claim")
				if out := r.run("k", "mine"); out.Attempt != 1 || out.Replayed || !out.Settled {
					t.Errorf("got %+v", out)
				}
				if n := len(tokens(r.saw("Claim", 4))); n != 1 {
					t.Errorf("%d tokens, want 1", n)
				}
				r.ran(1)
			}, func(p *onced.Policy) { p.DefaultLease = time.Minute })
		})
	}
}

// A grant whose answer came too late was never begun: it is given back, and the
// operation is claimed anew.
func TestAcquireStartsOverAfterItsOwnLapse(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.times(1, swallowed, "Claim") // the try's 5 s are longer than the lease
		short := call("k")
		short.Lease = 2 * time.Second
		out, err := client.Do(r.Context(), r.Client, short, r.once("mine"))
		if err != nil || out.Attempt != 2 || out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
		if n := len(tokens(r.saw("Claim", 3))); n != 2 {
			t.Errorf("%d tokens, want 2", n)
		}
		if d := r.saw("Fail", 1)[0].req.(*oncedv1.FailRequest).GetDisposition(); d != oncedv1.Disposition_DISPOSITION_NOT_EXECUTED {
			t.Errorf("reported %v", d)
		}
		r.ran(1)
	})
}

func TestAcquireStartsOverThreeTimesAtMost(t *testing.T) {
	short := call("k")
	short.Lease = time.Second
	t.Run("answers that come after the lease", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.faults.always(func(ctx context.Context, send func(context.Context) error) error {
				err := send(ctx)
				pass(time.Second)
				return err
			}, "Claim")
			_, err := client.Do(r.Context(), r.Client, short, r.once("mine"))
			if err == nil {
				t.Fatal("no error")
			}
			says(t, err, `"k"`, "3 times", "longer lease")
			r.settledAsReleased(3)
		})
	})
	t.Run("answers that never come", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			n := 0
			r.faults.set(func(s sent) fault {
				if s.rpc != "Claim" {
					return nil
				}
				if n++; n%2 == 1 {
					return swallowed
				}
				return nil
			})
			_, err := client.Do(r.Context(), r.Client, short, r.once("mine"))
			as[*client.Unresolved](t, err)
			r.settledAsReleased(6)
		})
	})
}

// settledAsReleased checks that three tokens were used, and given back.
func (r *rig) settledAsReleased(claims int) {
	r.Helper()
	if left := r.Close(r.Context()); left != nil {
		r.Errorf("left: %v", left)
	}
	if n := len(tokens(r.saw("Claim", claims))); n != 3 {
		r.Errorf("%d tokens, want 3", n)
	}
	r.saw("Fail", 3)
	r.isIn("k", oncedv1.State_STATE_RELEASED)
	r.ran(0)
}

// A token whose attempt is over is replaced: here by somebody who took over while
// the answer was on its way.
func TestAcquireReplacesAUsedToken(t *testing.T) {
	atOnce := time.Duration(0)
	inBubble(t, func(r *rig) {
		r.faults.times(1, swallowed, "Claim")
		short := call("k")
		short.Lease = time.Second
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, err := client.Do(r.Context(), r.Client, short, r.once("mine"))
			if err != nil || out.Value != "theirs" || !out.Replayed || out.Attempt != 2 {
				t.Errorf("got %+v, %v", out, err)
			}
		}()
		pass(2 * time.Second)
		rival := r.rival("k", takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER)
		pass(6 * time.Second)
		if err := rival.complete("theirs"); err != nil {
			t.Fatal(err)
		}
		<-done
		r.ran(0)
	}, func(p *onced.Policy) { p.ReconcileAfter = &atOnce })
}

// giveUp runs a call whose claims are not answered, and its give-up.
func (r *rig) giveUp(c client.Call) error {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
	defer cancel()
	start := time.Now()
	_, err := client.Do(ctx, r.Client, c, r.once("mine"))
	if took := time.Since(start); took != 3*time.Second {
		r.Errorf("it returned after %v, although its context ended at 3s", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("got %v", err)
	}
	says(r.T, err, `outcome unknown, key "k"`, "nothing was executed")
	return err
}

func TestAcquireGivesBackWhatItGaveUp(t *testing.T) {
	for name, happen := range map[string]fault{"lost": lost, "swallowed": swallowed, "never arrived": hole} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				start := time.Now()
				r.faults.set(func(s sent) fault {
					if s.rpc == "Claim" && s.at.Sub(start) < 3*time.Second {
						return happen
					}
					return nil
				})
				r.giveUp(call("k"))
				if left := r.Close(r.Context()); left != nil {
					t.Errorf("left: %v", left)
				}
				r.isIn("k", oncedv1.State_STATE_RELEASED)
				if d := r.saw("Fail", 1)[0].req.(*oncedv1.FailRequest).GetDisposition(); d != oncedv1.Disposition_DISPOSITION_NOT_EXECUTED {
					t.Errorf("reported %v", d)
				}
				r.ran(0)
			})
		})
	}
}

// The claim that is given up has lapsed meanwhile.
func TestAcquireGivesBackALapsedClaim(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.times(1, swallowed, "Claim")
		short := call("k")
		short.Lease = time.Second
		r.giveUp(short)
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.ran(0)
	})
}

// A call that gives up while somebody else executes asks once more, and not for a wait.
func TestAcquireGiveUpDoesNotWait(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.rival("k", withLease(time.Hour)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(10*time.Second, cancel)
		_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"))
		as[*client.InProgress](t, err)
		start := time.Now()
		if left := r.Close(r.Context()); left != nil || !time.Now().Equal(start) {
			t.Errorf("left: %v after %v", left, time.Since(start))
		}
		claims := r.saw("Claim", 4) // the rival's, the first one, the one that waits, the last one
		if n := len(tokens(claims)); n != 2 {
			t.Errorf("%d tokens, want 2", n)
		}
		for i, want := range []time.Duration{0, 0, 20 * time.Second, 0} {
			if wait := claims[i].req.(*oncedv1.ClaimRequest).GetWait().AsDuration(); wait != want {
				t.Errorf("claim %d asked for a wait of %v, want %v", i, wait, want)
			}
		}
		r.saw("Fail", 0)
		r.ran(0)
	})
}

// The first claim is still on its way when the call gives up. It arrives after
// everything else, and must find its token used.
func TestAcquireLateClaimMeetsAUsedToken(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.times(1, late(time.Minute), "Claim")
		r.giveUp(call("k"))
		pass(2 * time.Minute)
		if op := r.operation("k"); op.GetState() != oncedv1.State_STATE_RELEASED || op.GetAttempt() != 1 {
			t.Errorf("the late claim was granted: %v", op)
		}
		r.ran(0)
	})
}

func TestAcquireGiveUpOfATakeoverStaysUnknown(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
		pass(31 * time.Second)
		r.faults.times(1, swallowed, "Claim")
		r.giveUp(call("k"))
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		if d := r.saw("Fail", 1)[0].req.(*oncedv1.FailRequest).GetDisposition(); d != oncedv1.Disposition_DISPOSITION_UNKNOWN {
			t.Errorf("reported %v", d)
		}
		if op := r.operation("k"); op.GetReason() != oncedv1.Reason_REASON_DECLARED || op.GetAttempt() != 2 {
			t.Errorf("got %v", op)
		}
		r.ran(0)
	}, func(p *onced.Policy) { p.SafeToRerun = true })
}

func TestAcquireGiveUpIsTriedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(hole, "Claim")
		r.giveUp(call("k"))
		start := time.Now()
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("giving up took %v, want 5s", took)
		}
		r.saw("Claim", 2)
		r.saw("Fail", 0)
		if log := r.log.String(); !strings.Contains(log, "given up unanswered") {
			t.Errorf("the log does not say so: %s", log)
		}
	})
}

// The caller has gone when the grant arrives.
func TestAcquireGivesBackAGrantThatComesTooLate(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		r.faults.times(1, func(_ context.Context, send func(context.Context) error) error {
			err := send(r.Context())
			cancel()
			return err
		}, "Claim")
		_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		says(t, err, "nothing was executed", "given back")
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.ran(0)
	})
}

// An error whose meaning is not known is not re-sent by the call, but the claim may
// have been granted all the same.
func TestAcquireWithdrawsAfterAnUnknownError(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.times(1, func(ctx context.Context, send func(context.Context) error) error {
			_ = send(ctx)
			return status.Error(codes.Internal, "stream reset")
		}, "Claim")
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		if status.Code(err) != codes.Internal {
			t.Errorf("got %v", err)
		}
		says(t, err, "nothing was executed", "not known whether", `"k"`, "ask again")
		if strings.Contains(err.Error(), "was not claimed") {
			t.Errorf("it was claimed: %v", err)
		}
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.ran(0)
	})
}

// A refusal says how the token stands: nothing is to be withdrawn after it, unless
// an earlier try is open.
func TestAcquireWithdrawsOnlyWhatIsOpen(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.faults.always(refusedWith(code), "Claim")
				if _, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine")); status.Code(err) != code {
					t.Errorf("got %v", err)
				}
				r.Close(r.Context())
				r.saw("Claim", 1)

				n := 0
				r.faults.set(func(s sent) fault {
					if n++; n == 1 {
						return lost
					}
					return map[bool]fault{true: refusedWith(code)}[n == 2]
				})
				if _, err := client.Do(r.Context(), r.newClient(), call("k2"), r.once("mine")); status.Code(err) != code {
					t.Errorf("got %v", err)
				}
				pass(time.Second)
				r.saw("Claim", 4)
				r.isIn("k2", oncedv1.State_STATE_RELEASED)
				r.ran(0)
			})
		})
	}
}

func TestAcquireHonoursRetryInfo(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted} {
		t.Run(code.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				st, err := status.New(code, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
				if err != nil {
					t.Fatal(err)
				}
				r.faults.times(2, func(context.Context, func(context.Context) error) error { return st.Err() }, "Claim")
				r.run("k", "mine")
				claims := r.saw("Claim", 3)
				for i, most := range []time.Duration{7100 * time.Millisecond, 7200 * time.Millisecond} {
					if pause := claims[i+1].at.Sub(claims[i].at); pause < 7*time.Second || pause > most {
						t.Errorf("pause %d was %v", i, pause)
					}
				}
				r.ran(1)
			})
		})
	}
}

func TestAcquireReportsACallThatWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		rival := r.rival("k", nil).got(oncedv1.Outcome_OUTCOME_GRANTED)
		ctx, cancel := context.WithCancel(r.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run("k", "mine")
		}()
		pass(time.Second)
		time.AfterFunc(time.Second, cancel)
		left := r.Close(ctx)
		if len(left) != 1 || left[0].Key != "k" || left[0].Method != "m" || left[0].Stage != client.StageClaiming {
			t.Errorf("left: %+v", left)
		}
		if err := rival.complete("theirs"); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// TestHeldLongerThanLease: forty callers wait for longer than the lease that they
// ask for. When the holder gives the claim back, one of them executes under the
// first claim that it is granted, and the others are given its result.
func TestHeldLongerThanLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		rival := r.rival("k", withLease(time.Minute)).got(oncedv1.Outcome_OUTCOME_GRANTED)
		const callers = 40
		var (
			all  sync.WaitGroup
			errs = make(chan error, callers)
		)
		for range callers {
			c := r.newClient()
			all.Go(func() {
				waiting := call("k")
				waiting.Lease = 2 * time.Second
				_, err := client.Do(r.Context(), c, waiting, r.once("v"))
				errs <- err
			})
		}
		pass(15 * time.Second)
		if err := rival.fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		for range callers {
			if err := <-errs; err != nil {
				t.Errorf("a caller was answered %v", err)
			}
		}
		if op := r.operation("k"); r.runs.Load() != 1 || op.GetAttempt() != 2 {
			t.Errorf("%d executions, attempt %d; want one, under the second attempt", r.runs.Load(), op.GetAttempt())
		}
	})
}
