package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// CodeCompensated is the code of the failure by which a [Compensated] operation is
// settled.
const CodeCompensated = "COMPENSATED"

// ReconcileFunc finds out whether an unresolved operation has had its effect, by
// asking the outside system. It must not cause the effect a second time: it asks, or
// sends again what the system recognises as the same. It runs under a claim by
// takeover: earlier holders can settle nothing any more, though what they have sent
// may still arrive, which the namespace's policy (reconcile_after) leaves time for.
// [Claim.LastCheckpoint] is what they left, and [Child] of [Claim.Key] is the key
// that they sent, if they sent one.
//
// ctx ends with the caller's, and with the claim. What an outside system answers late
// or not at all is no proof: return [StillUnknown] then. A panic counts as it, and
// goes on.
type ReconcileFunc func(ctx context.Context, cl *Claim) Verdict

// Verdict is what a [ReconcileFunc] has found out. The zero value is [StillUnknown].
type Verdict struct {
	kind   verdictKind
	result result // of happened
	note   string // of compensated
	why    error  // of stillUnknown
}

type verdictKind uint8

const (
	stillUnknown verdictKind = iota
	happened
	didNotHappen
	compensated
)

// String returns the verdict as it stands in logs.
func (k verdictKind) String() string {
	return [...]string{"still unknown", "happened", "did not happen", "compensated"}[k]
}

// Happened says that the operation had its effect, once, with this result. It
// completes the operation, and this and later calls get the result as a replay. It
// is encoded by its static type, as the results of [Do] are, so T is what the function
// of that Do returns.
func Happened[T any](value T) Verdict {
	return Verdict{kind: happened, result: encode(reflect.TypeFor[T](), value)}
}

// DidNotHappen says that no attempt had its effect, and that none will have it: the
// outside system knows the operation by its key and has not seen it, long enough after
// the last attempt for its look-up to be up to date. It releases the operation for
// the next claim. It is refused where a former holder has told onced of an effect.
func DidNotHappen() Verdict { return Verdict{kind: didNotHappen} }

// StillUnknown says that the outside system could not be asked, or that its answer
// proves nothing: two effects where there should be one, for example. The operation
// stays unresolved. why is for people, and may be nil.
func StillUnknown(why error) Verdict { return Verdict{why: why} }

// Compensated says that the operation had its effect and that the effect was undone.
// It fails the operation for good, with [CodeCompensated] and the note, of at most
// 4 KiB, for this and later callers.
func Compensated(note string) Verdict { return Verdict{kind: compensated, note: note} }

// WithReconcile makes [Do] find out what became of an operation that is unresolved,
// instead of failing with [*Unresolved] at once. It takes the operation over, which
// it may have to wait for, asks f, and acts on its verdict; its own function runs only
// after [DidNotHappen], under a new claim. Where the verdict is [StillUnknown], where
// the namespace's policy forbids the takeover, and where it is too early for it, under
// [NoWait] or with a deadline before it, Do fails with [*Unresolved].
//
// Where the policy is safe_to_rerun, f is asked before the function too.
func WithReconcile(f ReconcileFunc) DoOption {
	return func(o *doOptions) { o.reconcile.Ask = f }
}

// WithDownstreamWindow sets for how long after the first claim the outside system
// recognises what it was sent, for example how long it keeps idempotency keys, less
// the time that a call to it may take. After that neither an answer of it nor sending
// the same again proves anything: [Do] does not ask, and does not execute again under
// safe_to_rerun, but fails with [*Unresolved]. It counts in store time. Zero, the
// default, means for ever.
func WithDownstreamWindow(d time.Duration) DoOption {
	return func(o *doOptions) { o.reconcile.DownstreamWindow = d }
}

// Reconciliation is how operations of one method are reconciled.
type Reconciliation struct {
	// Ask finds out; see [WithReconcile].
	Ask ReconcileFunc
	// DownstreamWindow is until when asking proves something; see
	// [WithDownstreamWindow].
	DownstreamWindow time.Duration
}

// over tells why an operation cannot be reconciled any more at a moment of store time,
// or nil. Where it is not remembered when it was first claimed, it may have been at any
// time.
func (r Reconciliation) over(op *oncedv1.Operation, at *timestamppb.Timestamp) error {
	first := moment(op.GetFirstClaimTime())
	switch {
	case r.DownstreamWindow == 0:
		return nil
	case first.IsZero():
		return errors.New("when it was first claimed is not remembered, so what the outside system knows of it proves nothing")
	case at == nil || !at.AsTime().Before(first.Add(r.DownstreamWindow)):
		return fmt.Errorf("it was first claimed more than %v ago, so what the outside system knows of it proves nothing", r.DownstreamWindow)
	}
	return nil
}

// pursue does what an answer UNRESOLVED asks for, where the doubt is about an attempt
// of somebody else: it prepares the claim that takes the operation over. With an error
// the call ends.
func (a *acquisition) pursue(ctx context.Context, g grant) error {
	attempt := g.answer.GetOperation().GetAttempt()
	unresolved := newUnresolved(a.call, g.answer.GetOperation())
	unresolved.TakeoverRefused, unresolved.RetryAfter = g.answer.GetTakeoverRefused(), g.answer.GetRetryAfter().AsDuration()
	if a.reconcile.Ask == nil {
		return unresolved
	}
	if unresolved.Err = a.reconcile.over(g.answer.GetOperation(), g.answer.GetAnswerTime()); unresolved.Err != nil {
		return unresolved
	}
	switch unresolved.TakeoverRefused {
	case oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET:
		if end, ok := ctx.Deadline(); a.noWait || ok && time.Until(end) < unresolved.RetryAfter {
			return unresolved
		}
		// Its last holder may still settle it meanwhile.
		pause := min(max(unresolved.RetryAfter, firstPause), mostPause)
		if !sleep(ctx, pause+jitter(pause/10)) {
			return &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: unresolved}
		}
	case oncedv1.TakeoverRefused_TAKEOVER_REFUSED_UNSPECIFIED, oncedv1.TakeoverRefused_TAKEOVER_REFUSED_OTHER_ATTEMPT:
		if a.takeOver == attempt {
			return unresolved // asked for, and neither given nor refused
		}
	default:
		return unresolved
	}
	a.doubt, a.takeOver = unresolved, attempt
	a.req.TakeOverAttempt, a.req.Wait = attempt, nil
	return nil
}

// asks tells whether the operation is to be asked about before anything is executed.
func (a *acquisition) asks(g grant) bool {
	return a.reconcile.Ask != nil && g.answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER
}

// finding is what came of asking about an operation.
type finding struct {
	again   bool               // the operation is to be claimed anew
	op      *oncedv1.Operation // as it was completed; nil when it was not
	settled bool               // onced has the outcome
	err     error
}

// find asks what became of an operation that was taken over, and reports the verdict.
func (a *acquisition) find(ctx context.Context, g grant) finding {
	cl := a.c.hold(ctx, a.call, g)
	var v Verdict
	cl.run(ctx, a.p, StageReconciling, func(ctx context.Context) { v = a.reconcile.Ask(ctx, cl) })
	level := slog.LevelInfo
	if v.kind == stillUnknown {
		level = slog.LevelWarn
	}
	a.c.log.Log(ctx, level, "an unresolved operation was asked about",
		"key", cl.Key, "method", cl.Method, "attempt", cl.Attempt, "verdict", v.kind.String(), "why", v.why)

	s := cl.report(ctx, a.p, v.report(cl))
	if v.kind == didNotHappen {
		return a.released(ctx, g, s)
	}
	answered := s.wait(ctx)
	f := finding{settled: answered && s.err == nil}
	if answered && lostBy(s.err) {
		f.err = cl.lostTo(s.err)
	}
	switch op := proto.CloneOf(g.answer.GetOperation()); v.kind {
	case happened:
		op.Result = v.result.wire()
		f.op = op
	case compensated:
		op.Failure = v.failure()
		f.err = failed(newFailed(a.call, op), f.err)
	default:
		f.err = failed(a.unknown(g, s, v.why), f.err)
	}
	return f
}

// released waits until onced has heard that nothing happened: only then may the
// operation be claimed anew.
func (a *acquisition) released(ctx context.Context, g grant, s *settlement) finding {
	if !s.waitAll(ctx) {
		return finding{err: &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: a.unknown(g, s, nil)}}
	}
	if refusedFor(s.err, onced.RefusedReport) && a.holds(ctx, g) {
		// A former holder has told of an effect meanwhile: what was found out is wrong.
		refused := s.err
		s = a.c.settle(ctx, a.p, g.holding, a.c.failure(g.holding, oncedv1.Disposition_DISPOSITION_UNKNOWN, nil), func() {})
		s.wait(ctx)
		return finding{err: a.unknown(g, s, refused)}
	}
	if answerPending(s.err) {
		return finding{err: a.unknown(g, s, s.err)}
	}
	a.doubt, a.takeOver = nil, 0
	a.p.enter(StageClaiming)
	return finding{again: true}
}

// holds tells whether the operation is still as it was taken over: neither settled
// nor released, nor taken over by somebody else. Without an answer it is taken to be.
func (a *acquisition) holds(ctx context.Context, g grant) bool {
	req := &oncedv1.LookupRequest{Ref: g.ref, Subject: a.call.Subject}
	resp, _, err := exchange(ctx, a.c, untilAnswered(0), a.c.stub.Lookup, req)
	op := resp.GetOperation()
	return err != nil || op.GetFence() == g.fence &&
		(op.GetState() == oncedv1.State_STATE_PENDING || op.GetState() == oncedv1.State_STATE_UNRESOLVED)
}

// unknown is the error of a call that has asked, or could not, and still does not
// know: what s was answered, if it was, or what the operation must have become.
func (a *acquisition) unknown(g grant, s *settlement, why error) *Unresolved {
	op := proto.CloneOf(g.answer.GetOperation())
	op.Reason = oncedv1.Reason_REASON_DECLARED
	if s != nil && s.over() && s.op.GetState() == oncedv1.State_STATE_UNRESOLVED {
		op = s.op
	}
	u := newUnresolved(a.call, op)
	u.Err = why
	return u
}

// found is the outcome of a call that has asked.
func found[T any](call *Call, f finding) (Outcome[T], error) {
	if f.op == nil {
		return Outcome[T]{}, f.err
	}
	out, err := replay[T](call, f.op)
	out.Settled = f.settled
	return out, errors.Join(err, f.err)
}

// report is the verdict as a holder's report.
func (v Verdict) report(cl *Claim) report {
	d := oncedv1.Disposition_DISPOSITION_UNKNOWN
	switch v.kind {
	case happened:
		return cl.c.completion(cl.holding, v.result)
	case didNotHappen:
		d = oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN
	case compensated:
		return cl.c.failure(cl.holding, oncedv1.Disposition_DISPOSITION_FINAL, v.failure())
	}
	return cl.c.failure(cl.holding, d, nil)
}

// failure is what a compensated operation fails with.
func (v Verdict) failure() *oncedv1.Failure {
	return &oncedv1.Failure{Code: CodeCompensated, Message: cut(v.note, maxFailureMessage)}
}
