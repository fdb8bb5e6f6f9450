package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

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
// [Claim.LastCheckpoint] is what they left, and [Claim.Child] is the key that they
// sent, if they sent one.
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
// after [DidNotHappen], under a new claim. Where the policy is safe_to_rerun, f is asked
// before the function too. The claim is renewed for as long as f asks, so f bounds the
// time that it takes.
//
// Do fails with [*Unresolved] where the verdict is [StillUnknown]; where the namespace's
// policy forbids the takeover; where somebody else has taken over meanwhile and does not
// know either; where no attempts are left; and where it is too early, under [NoWait] or
// with a deadline before it is time. Give it a deadline: without one it waits.
//
// It is too early before reconcile_after, and while the operation rests, so that the
// attempts last for a day and a half: from the second attempt on, when the last one ended
// unknown, for a minute, two, four and so on, up to 6 h. One that lapsed does not rest,
// and under safe_to_rerun nothing does.
func WithReconcile(f ReconcileFunc) DoOption {
	return func(o *doOptions) { o.reconcile.Ask = f }
}

// WithDownstreamWindow sets for how long after the first claim the outside system
// recognises what it was sent, for example how long it keeps idempotency keys, less
// the time that a call to it may take. After that neither an answer of it nor sending
// the same again proves anything: [Do] does not ask, and does not execute again under
// safe_to_rerun, but fails with [*Unresolved]; the context of what has begun before ends
// then, and [DidNotHappen] after it counts as [StillUnknown]. It counts in store time,
// and from the first claim whatever became of that. Zero, the default, means for ever; a
// negative one is refused.
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
	switch {
	case r.DownstreamWindow == 0:
		return nil
	case op.GetFirstClaimTime() == nil || at == nil:
		return errors.New("when it was first claimed is not remembered, so what the outside system knows of it proves nothing")
	case r.left(op, at) <= 0:
		return fmt.Errorf("it was first claimed more than %v ago, so what the outside system knows of it proves nothing", r.DownstreamWindow)
	}
	return nil
}

// left is how much of the window is left at a moment of store time.
func (r Reconciliation) left(op *oncedv1.Operation, at *timestamppb.Timestamp) time.Duration {
	return moment(op.GetFirstClaimTime()).Add(r.DownstreamWindow).Sub(moment(at))
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
