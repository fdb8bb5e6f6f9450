package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Outcome is what [Do] knows of an operation when it returns.
type Outcome[T any] struct {
	// Value is the first result: the function's own value, or a replay of it.
	Value T

	// Replayed says that the operation had been executed before and the function did
	// not run. Callers pass that on.
	Replayed bool

	// FirstClaimedAt is when the operation was first claimed, in store time: for a
	// replay, when the original call was made. Zero when that is not remembered.
	FirstClaimedAt time.Time

	// Attempt counts the claims of the operation, from 1.
	Attempt uint32

	// Settled says that onced has the outcome. While it is false, the report is still
	// on its way in the background, or was not accepted; later callers wait for it,
	// and nobody executes the operation again meanwhile.
	Settled bool
}

// DoOption changes how one call of [Do] works.
type DoOption func(*doOptions)

type doOptions struct {
	noWait       bool
	detached     bool
	safeToRerun  bool
	claimTimeout time.Duration
	reconcile    Reconciliation
}

// NoWait makes [Do] return [*InProgress] at once while somebody else executes the
// operation, instead of waiting for the outcome.
func NoWait() DoOption { return func(o *doOptions) { o.noWait = true } }

// Detached lets the function go on when the caller's context ends: its own context ends
// with the claim alone. It is for callers who may leave, such as clients of a server,
// when what was begun is better finished and kept for their next try. The values
// of the context stay, its deadline does not: fn bounds the time that it takes, because
// while it runs the claim is renewed, and nobody else finds out or executes.
func Detached() DoOption { return func(o *doOptions) { o.detached = true } }

// ClaimTimeout bounds how long [Do] tries to get the operation's outcome or the right to
// execute it, the waiting for somebody else included. It does not bound the function,
// nor what [WithReconcile] asks; after that it begins anew. Zero, the default, leaves it
// to the context; a negative one is refused.
func ClaimTimeout(d time.Duration) DoOption {
	return func(o *doOptions) { o.claimTimeout = d }
}

// SafeToRerun makes [Do] run its function although an earlier attempt may have had
// its effect, because a second one changes nothing. It takes the operation over, as
// the namespace's policy allows and after its reconcile_after, and waits for that as
// [WithReconcile] does; the function sees [Claim.TakenOver]. An operation that is seen to
// be contradicted, or whose history was lost, stays unresolved all the same. With
// WithReconcile, what that finds out decides.
func SafeToRerun() DoOption { return func(o *doOptions) { o.safeToRerun = true } }

// Do runs fn at most once for the operation that call names, and gives its result
// to this and every later call.
//
// Do claims the operation, and waits while somebody else executes it, until ctx
// ends. fn runs, in the goroutine of the caller, only under a grant: that no
// earlier attempt can have had an effect, or that the namespace's policy or
// [SafeToRerun] lets the operation be run again (then [Claim.TakenOver] is set). What
// has become of an operation that is unresolved, [WithReconcile] finds out first. Its
// context ends with ctx, unless it is [Detached], and when the claim is lost, then with
// [*ClaimLost] as cause; it must stop before the next effect. The lease is renewed until
// the operation is settled.
//
// What fn returns is reported, also after ctx has ended and after the lease has
// ended, and in the background if that takes longer than 5 s, until the settle
// budget is spent:
//
//   - a value completes the operation, and later calls get it as a replay. It is
//     encoded by its static type: a protobuf message, []byte and string as they
//     are, everything else as JSON. A value that cannot be encoded, or is over
//     16 MiB, completes the operation too, and later calls get
//     [*ResultUnavailable];
//   - an error made by [Final] is the outcome, and later calls get it as [*Failed];
//   - an error made by [NotExecuted] releases the operation for the next call;
//   - every other error, and a panic, which goes on after the report, leave the
//     operation unresolved: nobody knows whether it had its effect, and later calls
//     get [*Unresolved].
//
// Do returns fn's own value and error; the error is joined with [*ClaimLost] if the
// claim was lost meanwhile. A value whose report was refused, because somebody
// else was given the claim or has settled the operation, comes with [*ClaimLost]:
// its effect may have happened twice.
//
// When fn did not run, the error says why: [*InProgress], [*Unresolved],
// [*Mismatch], [*Failed], [*ResultUnavailable], [*BlockedByTwin],
// [*GenerationChange], [ErrClosed], a gRPC status as onced refused with, or, when
// ctx ended first, an error that says "outcome unknown" and matches ctx's error. All
// of them are found by [errors.As] and [errors.Is]. None of them is a reason to use
// another key.
func Do[T any](ctx context.Context, c *Client, call Call, fn func(context.Context, *Claim) (T, error), opts ...DoOption) (Outcome[T], error) {
	var o doOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := c.validate(&call, &o); err != nil {
		return Outcome[T]{}, err
	}
	if err := c.nested(ctx, &call); err != nil {
		return Outcome[T]{}, err
	}
	call.Namespace = c.namespaceOf(&call)
	p, err := c.pending.begin(&call)
	if err != nil {
		return Outcome[T]{}, err
	}
	defer p.release()
	a := &acquisition{c: c, call: &call, p: p, doOptions: o}
	for {
		g, err := a.acquire(ctx)
		switch {
		case err != nil:
			return Outcome[T]{}, err
		case g.answer.GetOutcome() == oncedv1.Outcome_OUTCOME_REPLAYED:
			return replay[T](&call, g.answer.GetOperation())
		case !a.asks(g):
			within, cancel := a.within(a.executing(ctx), g)
			defer cancel()
			return execute(ctx, p, c.hold(within, &call, g), fn)
		}
		if f := a.find(ctx, g); !f.again {
			return found[T](&call, f)
		}
	}
}

// execute runs the function under a claim and reports what became of it.
func execute[T any](ctx context.Context, p *pending, cl *Claim, fn func(context.Context, *Claim) (T, error)) (Outcome[T], error) {
	var value T
	var err error
	unknown := cl.c.failure(cl.holding, oncedv1.Disposition_DISPOSITION_UNKNOWN, nil)
	cl.run(ctx, p, StageExecuting, unknown, func(ctx context.Context) { value, err = fn(ctx, cl) })
	s := cl.report(ctx, p, cl.c.outcome(cl.holding, reflect.TypeFor[T](), value, err))
	answered := s.wait(ctx)
	out := Outcome[T]{FirstClaimedAt: cl.FirstClaimedAt, Attempt: cl.Attempt}
	out.Settled = answered && s.err == nil && settles(err)
	var lost error
	if answered && lostBy(s.err) {
		lost = cl.lostTo(s.err)
	}
	if err == nil {
		out.Value = value
		return out, lost
	}
	if lost == nil {
		lost = cl.lost()
	}
	return out, failed(err, lost)
}

// run runs what the caller has given, under the claim. A panic in it, and the end of
// the goroutine, go on after they were reported: what it did is not known.
func (cl *Claim) run(ctx context.Context, p *pending, stage Stage, unknown report, f func(context.Context)) {
	returned := false
	defer func() {
		if !returned {
			cl.report(ctx, p, unknown).wait(context.WithoutCancel(ctx))
		}
	}()
	p.enter(stage)
	f(cl.ctx)
	returned = true
}

// report ends the function's part and sends the report; the claim is renewed until
// it is answered.
func (cl *Claim) report(ctx context.Context, p *pending, r report) *settlement {
	cl.cancel(nil)
	p.enter(StageSettling)
	return cl.c.settle(ctx, p, cl.holding, r, cl.letGo)
}

// settles tells whether what a function returned settles the operation.
func settles(err error) bool {
	v := declarationOf(err)
	return err == nil || v != nil && v.disposition == oncedv1.Disposition_DISPOSITION_FINAL
}

// failed is the error of a call whose function failed.
func failed(err, lost error) error {
	if declarationOf(err) != nil {
		err = &reported{err}
	}
	if already := new(ClaimLost); lost == nil || errors.As(err, &already) {
		return err
	}
	return errors.Join(err, lost)
}

// replay is the outcome of a call whose operation was executed before.
func replay[T any](call *Call, op *oncedv1.Operation) (Outcome[T], error) {
	out := Outcome[T]{Replayed: true, Settled: true, FirstClaimedAt: moment(op.GetFirstClaimTime()), Attempt: op.GetAttempt()}
	r := op.GetResult()
	unavailable := &ResultUnavailable{
		Key: call.Key, Method: call.Method, Size: r.GetSize(), SHA256: r.GetSha256(),
		FirstClaimedAt: out.FirstClaimedAt, Attempt: out.Attempt,
	}
	switch kind := r.GetKind().(type) {
	case *oncedv1.Result_Stored:
		value, err := decode[T](kind.Stored)
		if err == nil {
			out.Value = value
			return out, nil
		}
		unavailable.Payload, unavailable.Err = kind.Stored, err
		unavailable.ContentType = kind.Stored.GetContentType()
	case *oncedv1.Result_Omitted:
		unavailable.ContentType = kind.Omitted.GetContentType()
	case *oncedv1.Result_Dropped:
		unavailable.ContentType, unavailable.dropped = kind.Dropped.GetContentType(), true
	default:
		unavailable.Err = fmt.Errorf("this client does not know the kind %T of result; use a newer client", kind)
	}
	return out, unavailable
}
