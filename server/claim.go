package server

import (
	"context"
	"errors"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// claimCall is a valid claim.
type claimCall struct {
	id      onced.Identity
	policy  onced.Policy
	request onced.ClaimRequest
	wait    time.Duration
}

// Claim implements the RPC of this name.
func (s *Service) Claim(ctx context.Context, req *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	c, err := validateClaim(req, s.policies)
	if err != nil {
		return nil, err
	}
	who, _ := ctx.Value(principalKey{}).(principal)
	c.request.Operator = who.roles&roleOperator != 0
	var answer onced.ClaimAnswer
	err = s.hold(ctx, c.id, c.wait, c.policy, func() (time.Duration, error) {
		err := s.withPayloads(ctx, c.id, func() (_ shown, err error) {
			answer, err = s.claim(ctx, c)
			return shownByClaim(answer), err
		})
		if answer.Outcome != onced.OutcomeInProgress {
			return 0, err
		}
		return answer.Operation.LeaseRemaining, err
	})
	if err != nil {
		return nil, err
	}
	wire := claimToWire(answer)
	if answer.Outcome == onced.OutcomeBlockedByTwin {
		if wire.Twin, err = s.twin(ctx, c, answer.Twin); err != nil {
			return nil, err
		}
	}
	label := s.policies.Label(c.id.Namespace)
	s.observer.Claimed(label, answer.Outcome)
	if answer.KeyTimeChanged {
		s.observer.KeyTimeChanged(label)
	}
	return wire, nil
}

// shownByClaim returns what a claim is answered with.
func shownByClaim(a onced.ClaimAnswer) shown {
	switch {
	case a.Checkpoint != nil:
		return shown{payloads: []*onced.Result{&a.Checkpoint.Payload}, claimed: true}
	case a.Operation != nil && a.Operation.State.Settled():
		return shown{payloads: a.Operation.Payloads()}
	default:
		return shown{}
	}
}

// claim decides a claim once: by what is durable if that is known and the claim
// changes nothing of it, as a replay or a refusal, and otherwise in an update, which
// waits its turn.
func (s *Service) claim(ctx context.Context, c *claimCall) (onced.ClaimAnswer, error) {
	request := c.request
	request.QuotaFull = s.unsettled.full(c.id.Namespace, c.policy.MaxUnsettled)
	if answer, known, err := s.claimKnown(ctx, c.id, c.policy, request); known {
		return answer, err
	}
	var (
		answer onced.ClaimAnswer
		stored *onced.Record
	)
	decide := func(v onced.View) (plan onced.Plan, err error) {
		stored = v.Record
		plan, answer, err = onced.Claim(v, c.policy, request)
		return plan, err
	}
	// A plain grant concerns the twin entry that the claim names, whatever entry the
	// operation stood in before it was released. A takeover goes on in that one.
	var err error
	if twin := request.TwinID(c.id); twin != nil || request.TakeOverAttempt == 0 {
		err = s.update(ctx, storage.Target{ID: c.id, Twin: twin}, decide)
	} else {
		err = s.updateWithTwin(ctx, storage.Target{ID: c.id}, decide)
	}
	s.mismatch(err, stored, request.Fingerprints, request.Holder)
	return answer, keyTimeRefused(err)
}

// claimKnown decides a claim by a read. It reports false when that is not for a read
// to decide: nothing is known of the operation, the claim would change it, or it is
// refused for what is looked at after twin entries, which a read does not see.
func (s *Service) claimKnown(ctx context.Context, id onced.Identity, p onced.Policy, request onced.ClaimRequest) (answer onced.ClaimAnswer, known bool, err error) {
	v, err := s.store.Get(ctx, id)
	if err != nil {
		return onced.ClaimAnswer{}, true, err
	}
	if v.Record == nil && !v.Unreadable {
		return onced.ClaimAnswer{}, false, nil
	}
	plan, answer, err := onced.Claim(v, p, request)
	if plan.Changes() || refusedFor(err, onced.RefusedQuota) {
		return onced.ClaimAnswer{}, false, nil
	}
	s.mismatch(err, v.Record, request.Fingerprints, request.Holder)
	return answer, true, keyTimeRefused(err)
}

// refusedFor reports whether an error is a refusal of the domain for a reason.
func refusedFor(err error, reason onced.RefusalReason) bool {
	var refusal *onced.Refusal
	return errors.As(err, &refusal) && refusal.Reason == reason
}

// twin shows the operation that blocks a claim, read after the decision. It may
// have gone, or be unreadable: then its key is all that is shown.
func (s *Service) twin(ctx context.Context, c *claimCall, key string) (*oncedv1.Twin, error) {
	v, err := s.store.Get(ctx, onced.Identity{Namespace: c.id.Namespace, Key: key, Method: c.id.Method})
	if err != nil {
		return nil, err
	}
	op, ok, err := onced.Show(v, c.policy)
	if err != nil || !ok {
		op = nil
	}
	return twinToWire(key, op), nil
}
