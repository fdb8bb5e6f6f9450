package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// ErrNotClaimed is the error of [LookupOutcome] for an operation that the next claim
// would execute: onced does not know it, or it was released.
var ErrNotClaimed = errors.New("client: the operation is not known, or was released; nothing was claimed and nothing was executed")

// Bounds of the time after which asking again makes a difference, as the server has
// them for claims.
const (
	leastRetryAfter = 50 * time.Millisecond
	mostRetryAfter  = 30 * time.Second
)

// LookupOutcome returns what [Do] would return for an operation without claiming it:
// the replay, [*Failed], [*InProgress], [*Unresolved], [*ResultUnavailable] or
// [*Mismatch]; and [ErrNotClaimed] where Do would execute. It never waits for somebody
// who executes, and writes nothing. It is for callers that must not begin the operation
// any more, but owe the answer to one that was: a request that validation has come to
// refuse, for example. The other errors are those of Do.
func LookupOutcome[T any](ctx context.Context, c *Client, call Call) (Outcome[T], error) {
	if err := c.validate(&call, &doOptions{}); err != nil {
		return Outcome[T]{}, err
	}
	if err := errors.Join(c.pending.refusal(), c.generation.refusal()); err != nil {
		return Outcome[T]{}, err
	}
	req := &oncedv1.LookupRequest{Ref: c.refOf(&call), Subject: call.Subject, Fingerprints: fingerprints(&call)}
	if !call.KeyTime.IsZero() {
		req.KeyTime = timestamppb.New(call.KeyTime)
	}
	resp, _, err := exchange(ctx, c, untilAnswered(0), c.stub.Lookup, req)
	switch {
	case status.Code(err) == codes.NotFound:
		return Outcome[T]{}, ErrNotClaimed
	case answerPending(err):
		return Outcome[T]{}, &outcomeUnknown{key: call.Key, ended: ctx.Err(), last: err}
	case err != nil:
		return Outcome[T]{}, refused(&call, err, false)
	}
	return known[T](&call, resp.GetOperation())
}

// known is the outcome of an operation as it was looked up.
func known[T any](call *Call, op *oncedv1.Operation) (Outcome[T], error) {
	var err error
	switch op.GetState() {
	case oncedv1.State_STATE_COMPLETED:
		return replay[T](call, op)
	case oncedv1.State_STATE_FAILED:
		err = newFailed(call, op)
	case oncedv1.State_STATE_PENDING:
		after := min(max(op.GetLeaseRemaining().AsDuration(), leastRetryAfter), mostRetryAfter)
		err = newInProgress(call, &oncedv1.ClaimResponse{Operation: op, RetryAfter: durationpb.New(after)})
	case oncedv1.State_STATE_UNRESOLVED:
		err = newUnresolved(call, op)
	case oncedv1.State_STATE_RELEASED:
		err = ErrNotClaimed
	default:
		err = fmt.Errorf("%s: this client does not know the state %v, so nothing was executed: use a newer client",
			operation(call.Key, call.Method), op.GetState())
	}
	return Outcome[T]{}, err
}
