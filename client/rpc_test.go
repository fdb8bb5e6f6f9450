package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// methods are the RPCs, each as a call that succeeds on an operation that a rival
// holds.
func methods(r *rig, v *rival) map[string]func(context.Context) error {
	ref, token, fence := v.req.GetRef(), v.req.GetClaimToken(), v.answer.GetOperation().GetFence()
	return map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error { _, err := r.Claim(ctx, v.req); return err },
		"Renew": func(ctx context.Context) error {
			_, err := r.Renew(ctx, &oncedv1.RenewRequest{Ref: ref, ClaimToken: token, Fence: fence})
			return err
		},
		"Lookup":    func(ctx context.Context) error { _, err := r.Lookup(ctx, &oncedv1.LookupRequest{Ref: ref}); return err },
		"GetPolicy": func(ctx context.Context) error { _, err := r.GetPolicy(ctx); return err },
		"Complete":  func(context.Context) error { return v.complete("R") },
		"Fail":      func(context.Context) error { return v.fail(oncedv1.Disposition_DISPOSITION_UNKNOWN) },
	}
}

// Every RPC is re-sent unchanged, and answered as if it had been sent once.
func TestMethodsAreResentUnchanged(t *testing.T) {
	for _, rpc := range []string{"Claim", "Renew", "Lookup", "GetPolicy", "Complete", "Fail"} {
		for name, happen := range map[string]fault{"lost": lost, "swallowed": swallowed, "never arrived": hole, "time-out": refusedWith(codes.DeadlineExceeded)} {
			t.Run(rpc+", "+name, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					v := r.rival("k", withLease(time.Hour))
					before := len(r.faults.all())
					r.faults.times(3, happen, rpc)
					if err := methods(r, v)[rpc](r.Context()); err != nil {
						t.Fatal(err)
					}
					calls := r.faults.all()[before:]
					if len(calls) != 4 {
						t.Errorf("sent %d times", len(calls))
					}
					for _, s := range calls[1:] {
						if !proto.Equal(calls[0].req, s.req) {
							t.Errorf("sent %v, then %v", calls[0].req, s.req)
						}
					}
				})
			})
		}
	}
}

// Every other error is the caller's, at once and as it came.
func TestMethodsReturnOtherErrorsAsTheyCame(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Canceled, codes.Unknown, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.ResourceExhausted, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented,
		codes.Internal, codes.DataLoss, codes.Unauthenticated,
	} {
		t.Run(code.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				v := r.rival("k", nil)
				for rpc, send := range methods(r, v) {
					before := len(r.faults.all())
					r.faults.always(refusedWith(code), rpc)
					if err := send(r.Context()); status.Code(err) != code || err.Error() != status.Error(code, "from the way").Error() {
						t.Errorf("%s: got %v", rpc, err)
					}
					if n := len(r.faults.all()) - before; n != 1 {
						t.Errorf("%s: sent %d times", rpc, n)
					}
				}
			})
		})
	}
}

func TestMethodsEndWithTheContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.always(refusedWith(codes.Unavailable), "Lookup")
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := r.Lookup(ctx, &oncedv1.LookupRequest{Ref: r.Ref("k", "m")})
		if time.Since(start) != time.Minute || !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.Unavailable {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		says(t, err, "onced gave no answer")

		r.faults.always(hole, "Lookup")
		ctx, cancel = context.WithCancel(r.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = r.Lookup(ctx, &oncedv1.LookupRequest{Ref: r.Ref("k", "m")})
		if !errors.Is(err, context.Canceled) || status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
	})
}

// A try of a call that the server holds is given the time for it.
func TestMethodsWaitForHeldCalls(t *testing.T) {
	inBubble(t, func(r *rig) {
		v := r.rival("k", withLease(time.Hour))
		start := time.Now()
		resp, err := r.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: r.Ref("k", "m"), Wait: durationpb.New(15 * time.Second)})
		if err != nil || resp.GetOperation().GetState() != oncedv1.State_STATE_PENDING || time.Since(start) != 15*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(start), resp, err)
		}
		time.AfterFunc(10*time.Second, func() { _ = v.complete("R") })
		start = time.Now()
		claim, err := r.Claim(r.Context(), &oncedv1.ClaimRequest{Ref: r.Ref("k", "m"), ClaimToken: client.NewToken(), Wait: durationpb.New(20 * time.Second)})
		if err != nil || claim.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED || time.Since(start) != 10*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(start), claim, err)
		}
		r.saw("Lookup", 1)
	})
}

func TestGetPolicyIsOfTheClientsNamespace(t *testing.T) {
	inBubble(t, func(r *rig) {
		p, err := r.newClient(client.WithNamespace("other")).GetPolicy(r.Context())
		if err != nil || p.GetDefaultLease().AsDuration() != 30*time.Second {
			t.Errorf("got %v, %v", p, err)
		}
		if ns := r.saw("GetPolicy", 1)[0].req.(*oncedv1.GetPolicyRequest).GetNamespace(); ns != "other" {
			t.Errorf("asked for %q", ns)
		}
	})
}

func TestHolderByDefault(t *testing.T) {
	inBubble(t, func(r *rig) {
		if _, err := client.Do(r.Context(), client.New(r.conn), call("k"), r.once("mine")); err != nil {
			t.Fatal(err)
		}
		if holder := r.saw("Claim", 1)[0].req.(*oncedv1.ClaimRequest).GetHolder(); holder == "" {
			t.Error("people are not told who holds the claim")
		}
	})
}
