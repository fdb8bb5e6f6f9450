package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// canned answers every claim and every completion at once and keeps nothing. Its
// answers have the fields and the sizes of those of a server with a store.
type canned struct {
	oncedv1.UnimplementedIdempotencyServiceServer

	generation uint64
	etag       string
	fence      atomic.Uint64

	// What all answers have in common; only read.
	now, later *timestamppb.Timestamp
	lease      *durationpb.Duration
	told       *oncedv1.Result // to the holder, who has the bytes
	replayed   *oncedv1.Result
}

// newCanned returns a service whose results are of the given size.
func newCanned(resultBytes int, generation uint64, now time.Time) *canned {
	result := resultOf(resultBytes)
	digest := sha256.Sum256(result)
	c := &canned{
		generation: generation, etag: fmt.Sprintf("%x-%x-1", generation, generation<<32),
		now: timestamppb.New(now), later: timestamppb.New(now.AddDate(0, 0, 30)), lease: durationpb.New(30 * time.Second),
		told: &oncedv1.Result{
			Size: uint64(len(result)), Sha256: digest[:],
			Kind: &oncedv1.Result_Stored{Stored: &oncedv1.Payload{ContentType: contentType}},
		},
		replayed: &oncedv1.Result{
			Size: uint64(len(result)), Sha256: digest[:],
			Kind: &oncedv1.Result_Stored{Stored: payload(result)},
		},
	}
	c.fence.Store(generation << 32)
	return c
}

// Claim grants, or replays to a holder that says so.
func (c *canned) Claim(_ context.Context, req *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	if req.GetHolder() == holderReplay {
		return &oncedv1.ClaimResponse{
			Outcome: oncedv1.Outcome_OUTCOME_REPLAYED, Operation: c.settled(req.GetRef(), c.fence.Load(), c.replayed), AnswerTime: c.now,
		}, nil
	}
	op := c.operation(req.GetRef(), c.fence.Add(1))
	op.State = oncedv1.State_STATE_PENDING
	op.LeaseRemaining = c.lease
	return &oncedv1.ClaimResponse{Outcome: oncedv1.Outcome_OUTCOME_GRANTED, Operation: op, AnswerTime: c.now}, nil
}

// Complete says that it did.
func (c *canned) Complete(_ context.Context, req *oncedv1.CompleteRequest) (*oncedv1.CompleteResponse, error) {
	return &oncedv1.CompleteResponse{Operation: c.settled(req.GetRef(), req.GetFence(), c.told)}, nil
}

func (c *canned) operation(ref *oncedv1.OperationRef, fence uint64) *oncedv1.Operation {
	return &oncedv1.Operation{
		Ref: ref, Attempt: 1, Fence: fence, Etag: c.etag, Generation: c.generation,
		FirstClaimTime: c.now, ClaimTime: c.now, Lease: c.lease, LeaseEnd: c.later, Holder: holderFirst,
		AttemptsLeft: onced.MaxAttempts - 1,
	}
}

func (c *canned) settled(ref *oncedv1.OperationRef, fence uint64, result *oncedv1.Result) *oncedv1.Operation {
	op := c.operation(ref, fence)
	op.State, op.SettledBy, op.SettleTime = oncedv1.State_STATE_COMPLETED, oncedv1.SettledBy_SETTLED_BY_HOLDER, c.now
	op.Result, op.ResultExpireTime, op.KeyExpireTime = result, c.later, c.later
	return op
}
