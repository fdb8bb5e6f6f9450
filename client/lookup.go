package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// ErrNotClaimed is the error of [LookupOutcome] for an operation of which no attempt can
// have had an effect: onced does not know it, although it would, or it was released.
var ErrNotClaimed = errors.New("client: the operation is not known, or was released; nothing was claimed and nothing was executed")

// LookupOutcome returns what [Do] would return for an operation without claiming it:
// the replay, [*Failed], [*InProgress], [*Unresolved], [*ResultUnavailable] or
// [*Mismatch]; and [ErrNotClaimed] where Do would execute, or be refused for what only
// a new claim is refused for, such as a twin or a quota. It never waits for somebody
// who executes, and writes nothing. It is for callers that must not begin the operation
// any more, but owe the answer to one that was: a request that validation has come to
// refuse, for example. The other errors are those of Do. A call without fingerprints is
// not a mismatch here: it says nothing of its arguments.
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
	case refusedFor(err, onced.RefusedNotFound):
		return Outcome[T]{}, c.notKnown(&call, err)
	case answerPending(err):
		return Outcome[T]{}, &outcomeUnknown{key: call.Key, ended: ctx.Err(), last: err}
	case err != nil:
		return Outcome[T]{}, refused(&call, err, false)
	}
	out, err := known[T](&call, resp.GetOperation())
	if errors.Is(err, ErrNotClaimed) {
		err = c.notClaimed()
	}
	return out, err
}

// olderThanMemory is set in the refusal of a look-up whose key may have been used and
// forgotten. A claim makes an unresolved operation of it.
const olderThanMemory = "older_than_memory"

// notKnown is the error of a look-up of an operation that onced does not know.
func (c *Client) notKnown(call *Call, err error) error {
	if refusal(err).GetMetadata()[olderThanMemory] != "true" {
		return c.notClaimed()
	}
	return newUnresolved(call, &oncedv1.Operation{Reason: oncedv1.Reason_REASON_HISTORY_LOST, Attempt: 1})
}

// notClaimed is the error where Do would execute. The very answer may show that the store
// is another one, and then Do would not.
func (c *Client) notClaimed() error {
	if err := c.generation.refusal(); err != nil {
		return err
	}
	return ErrNotClaimed
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
		after := onced.RetryAfter(op.GetLeaseRemaining().AsDuration())
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
