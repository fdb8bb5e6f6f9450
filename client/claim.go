package client

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Claim is the right to execute an operation, as the function that [Do] runs has
// it. Its fields must not be changed; its methods are safe for concurrent use.
type Claim struct {
	// Namespace, Key and Method name the operation, as the call did.
	Namespace, Key, Method string

	// Attempt counts the claims of this operation, from 1; it is for people.
	Attempt uint32

	// Fence is greater than that of every earlier claim of the whole store. An
	// outside system that refuses smaller ones keeps former holders out.
	Fence uint64

	// FirstClaimedAt is when the operation was first claimed, in store time.
	FirstClaimedAt time.Time

	// TakenOver says that an earlier attempt may have had its effect. The function of
	// [Do] sees it set only where the operation may be run again all the same, by the
	// namespace's policy (safe_to_rerun) or by [SafeToRerun]; a [ReconcileFunc] always.
	// Attempt is 2 or more then.
	TakenOver bool

	c       *Client
	holding holding
	asked   *durationpb.Duration // the lease to ask for; nil for the namespace's default
	lease   time.Duration        // the lease in force when it was claimed
	clock   *leaseClock
	ctx     context.Context // of the function
	cancel  context.CancelCauseFunc
	unkeep  context.CancelFunc // ends the renewals
	earlier *oncedv1.Checkpoint
	seq     atomic.Uint64
}

// hold takes a granted claim: from here on its lease is counted and renewed. The
// function's context ends with the caller's, and with the claim.
func (c *Client) hold(ctx context.Context, call *Call, g grant) *Claim {
	op := g.answer.GetOperation()
	t := termOf(op, g.sent)
	cl := &Claim{
		Namespace: c.namespaceOf(call), Key: call.Key, Method: call.Method,
		Attempt: op.GetAttempt(), Fence: op.GetFence(), FirstClaimedAt: moment(op.GetFirstClaimTime()),
		TakenOver: g.answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER,
		c:         c, holding: g.holding, asked: lease(call.Lease), lease: op.GetLease().AsDuration(),
		earlier: g.answer.GetCheckpoint(),
	}
	if cl.lease <= 0 {
		cl.lease = op.GetLeaseRemaining().AsDuration()
	}
	cl.ctx, cl.cancel = context.WithCancelCause(cl.running(ctx))
	cl.clock = startLease(t.end, func() { cl.lose(nil) })
	keepCtx, unkeep := context.WithCancel(context.WithoutCancel(ctx))
	cl.unkeep = unkeep
	go cl.keep(keepCtx, t)
	return cl
}

// lose tells the function that the claim is lost; the first reason counts.
func (cl *Claim) lose(err error) {
	lost := cl.lostTo(err)
	if cl.ctx.Err() == nil {
		cl.c.log.ErrorContext(cl.ctx, "a claim was lost while its function runs", "namespace", cl.Namespace, "key", cl.Key, "method", cl.Method, "attempt", cl.Attempt, "error", lost)
	}
	cl.cancel(lost)
}

// lostTo is the loss of this claim to a refusal by onced, or to its lease clock.
func (cl *Claim) lostTo(err error) *ClaimLost {
	return &ClaimLost{Key: cl.Key, Method: cl.Method, Attempt: cl.Attempt, Err: err}
}

// lost is how the claim was lost while the function ran, or nil.
func (cl *Claim) lost() error {
	if lost, ok := context.Cause(cl.ctx).(*ClaimLost); ok {
		return lost
	}
	return nil
}

// letGo ends the renewals and the count of the lease.
func (cl *Claim) letGo() {
	cl.unkeep()
	cl.clock.stop()
}

// Done is closed when the function must stop before its next effect: the claim is
// lost, or, unless it is [Detached], the caller's context has ended. The context that the
// function was given ends at the same time, with [*ClaimLost] as its cause if that is why.
func (cl *Claim) Done() <-chan struct{} { return cl.ctx.Done() }

// Child derives the key for a call that the operation makes to another service, and is
// [Child] of the whole operation: operations of other namespaces and methods have other
// children, even under the same key. A second execution, and a [ReconcileFunc], derive
// the same one.
func (cl *Claim) Child(step string) (string, error) {
	parent, err := PerRequest(cl.Namespace, cl.Key, cl.Method)
	if err != nil {
		return "", err
	}
	return Child(parent, step)
}

// Checkpoint stores progress for whoever holds the claim next, for example the id
// that an outside system has answered, and renews the lease. The payload is encoded
// as the results of [Do] are, into at most 64 KiB. Checkpoints replace each other in
// the order of the calls; the newest is kept until the operation is settled or
// released. Checkpoint is re-sent until ctx ends. [*ClaimLost] means that the
// function must stop.
func (cl *Claim) Checkpoint(ctx context.Context, payload any) error {
	encoded := encode(reflect.TypeOf(payload), payload)
	if encoded.stored == nil {
		return fmt.Errorf("client: the checkpoint of %s cannot be encoded, or is too large", operation(cl.Key, cl.Method))
	}
	_, err := cl.renew(ctx, untilAnswered(0), &oncedv1.Checkpoint{Seq: cl.seq.Add(1), Payload: encoded.stored})
	switch {
	case lostBy(err):
		return cl.lostTo(err)
	case err != nil:
		return fmt.Errorf("client: the checkpoint of %s was not stored: %w", operation(cl.Key, cl.Method), err)
	}
	return nil
}

// LastCheckpoint reads the newest checkpoint of the earlier attempts into dst, a
// protobuf message, a *[]byte, a *string, or a pointer that JSON can fill. It tells
// whether there was one; there can be one only where [Claim.TakenOver] is set.
func (cl *Claim) LastCheckpoint(dst any) (bool, error) {
	if cl.earlier == nil {
		return false, nil
	}
	if err := DecodePayload(cl.earlier.GetPayload(), dst); err != nil {
		return true, fmt.Errorf("client: the checkpoint of %s cannot be decoded: %w", operation(cl.Key, cl.Method), err)
	}
	return true, nil
}
