package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	firstRest   = time.Minute // of an operation that was asked about once in vain; doubled each time
	longestRest = 6 * time.Hour
)

// resting is how long, from a moment of store time, an operation is left alone whose last
// attempt ended unknown, after the first: there are few attempts, and the outside system
// may be down for hours. It goes by the record, so that neither restarts nor more callers
// ask more often.
func resting(op *oncedv1.Operation, at *timestamppb.Timestamp) time.Duration {
	if r := op.GetReason(); r != oncedv1.Reason_REASON_DECLARED && r != oncedv1.Reason_REASON_CONTRADICTED {
		return 0
	}
	used := onced.MaxAttempts - int(op.GetAttemptsLeft())
	if used < 2 {
		return 0
	}
	rest := firstRest
	for n := used; n > 2 && rest < longestRest; n-- {
		rest *= 2
	}
	return moment(op.GetClaimTime()).Add(min(rest, longestRest)).Sub(moment(at))
}

// pursue does what an answer UNRESOLVED asks for, where the doubt is about an attempt
// of somebody else: it prepares the claim that takes that attempt over, or waits until
// it may. It pursues no second one, by which somebody else has gone on meanwhile: callers
// that wait for each other would use up the attempts. With an error the call ends.
func (a *acquisition) pursue(ctx context.Context, g grant) error {
	op, refused := g.answer.GetOperation(), g.answer.GetTakeoverRefused()
	unresolved := newUnresolved(a.call, op)
	unresolved.TakeoverRefused = refused
	if a.reconcile.Ask == nil && !a.mayRerun(op) {
		return unresolved
	}
	if unresolved.Err = a.reconcile.over(op, g.answer.GetAnswerTime()); unresolved.Err != nil {
		return unresolved
	}
	early := resting(op, g.answer.GetAnswerTime())
	switch {
	case refused == oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET:
		early = max(early, g.answer.GetRetryAfter().AsDuration(), firstPause)
	case refused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_UNSPECIFIED, a.takeOver != 0:
		return unresolved
	case op.GetAttemptsLeft() == 0:
		unresolved.Err = errors.New("its attempts are used up, and only an operator can go on")
		return unresolved
	}
	if early <= 0 {
		a.takeOver = op.GetAttempt()
		a.change(func(req *oncedv1.ClaimRequest) { req.TakeOverAttempt, req.Wait = a.takeOver, nil })
		return nil
	}
	unresolved.RetryAfter = early
	if end, ok := ctx.Deadline(); a.noWait || ok && time.Until(end) < early {
		return unresolved
	}
	pause := min(early, max(mostPause, min(early/10, time.Minute))) // its last holder may still settle it meanwhile
	if !sleep(ctx, pause+jitter(pause/10)) {
		return &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: unresolved}
	}
	return nil
}

// mayRerun tells whether an unresolved operation may be executed again without having
// been asked about. It is what a namespace's policy safe_to_rerun lets pass.
func (a *acquisition) mayRerun(op *oncedv1.Operation) bool {
	r := op.GetReason()
	return a.safeToRerun && (r == oncedv1.Reason_REASON_LAPSED || r == oncedv1.Reason_REASON_DECLARED)
}

// asks tells whether the operation is to be asked about before anything is executed.
func (a *acquisition) asks(g grant) bool {
	return a.reconcile.Ask != nil && g.answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER
}

// within returns the context of what is done under a claim. After a takeover it ends
// with the downstream window.
func (a *acquisition) within(ctx context.Context, g grant) (context.Context, context.CancelFunc) {
	if a.reconcile.DownstreamWindow == 0 || g.answer.GetOutcome() != oncedv1.Outcome_OUTCOME_TAKEN_OVER {
		return ctx, func() {}
	}
	left := a.reconcile.left(g.answer.GetOperation(), g.answer.GetAnswerTime())
	return context.WithDeadlineCause(ctx, g.sent.Add(left), errWindow)
}

var errWindow = errors.New("the downstream window is over, so what the outside system knows proves nothing")

// finding is what came of asking about an operation.
type finding struct {
	again   bool               // the operation is to be claimed anew
	op      *oncedv1.Operation // as it was completed; nil when it was not
	settled bool               // onced has the outcome
	err     error
}

// find asks what became of an operation that was taken over, and reports the verdict.
func (a *acquisition) find(ctx context.Context, g grant) finding {
	asking, cancel := a.within(ctx, g)
	defer cancel()
	cl := a.c.hold(asking, a.call, g)
	var v Verdict
	cl.run(ctx, a.p, StageReconciling, a.unlessDecided(g, Verdict{}.report(cl)), func(ctx context.Context) { v = a.reconcile.Ask(ctx, cl) })
	if v.kind == didNotHappen && context.Cause(asking) == errWindow {
		v = StillUnknown(errWindow)
	}
	level := slog.LevelInfo
	if v.kind == stillUnknown {
		level = slog.LevelWarn
	}
	a.c.log.Log(ctx, level, "an unresolved operation was asked about",
		"namespace", cl.Namespace, "key", cl.Key, "method", cl.Method, "attempt", cl.Attempt, "verdict", v.kind.String(), "why", v.why)

	r := v.report(cl)
	if v.kind == stillUnknown {
		r = a.unlessDecided(g, r)
	}
	s := cl.report(ctx, a.p, r)
	if v.kind == didNotHappen {
		return a.released(ctx, g, s)
	}
	return a.concluded(ctx, g, cl, v, s)
}

// concluded waits for the answer to a verdict that ends the call, unless somebody has
// decided meanwhile.
func (a *acquisition) concluded(ctx context.Context, g grant, cl *Claim, v Verdict, s *settlement) finding {
	answered := s.wait(ctx)
	lost := answered && (lostBy(s.err) || errors.Is(s.err, errDecided))
	f := finding{settled: answered && s.err == nil}
	switch op := proto.CloneOf(g.answer.GetOperation()); {
	case v.kind == happened:
		op.Result = v.result.wire()
		f.op = op
		if lost {
			f.err = cl.lostTo(s.err)
		}
	case lost && v.kind == compensated:
		f.err = fmt.Errorf("that it was compensated was not accepted: %w", cl.lostTo(s.err))
	case lost:
		return a.anew()
	case v.kind == compensated:
		op.Failure = v.failure()
		f.err = newFailed(a.call, op)
	default:
		f.err = a.unknown(g, s, v.why)
	}
	return f
}

// anew goes on by claiming anew: the answer has what became of the operation meanwhile.
func (a *acquisition) anew() finding {
	a.p.enter(StageClaiming)
	return finding{again: true}
}

var errDecided = errors.New("the operation is not as it was taken over, so nothing was reported")

// unlessDecided is a report that nothing was found out, which is not sent where somebody
// has decided meanwhile: it would put the decision in doubt.
func (a *acquisition) unlessDecided(g grant, r report) report {
	send := r.send
	r.send = func(ctx context.Context) (*oncedv1.Operation, error) {
		if !a.holds(ctx, g) {
			return nil, errDecided
		}
		return send(ctx)
	}
	return r
}

// released waits until onced has heard that nothing happened: only then may the
// operation be claimed anew.
func (a *acquisition) released(ctx context.Context, g grant, s *settlement) finding {
	if !s.waitAll(ctx) {
		return finding{err: &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: errors.New("that it did not happen is being reported")}}
	}
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleGrace)
	defer cancel()
	switch {
	case refusedFor(s.err, onced.RefusedReport) && a.holds(looking, g):
		// A former holder has told of an effect: what was found out is wrong. Nothing
		// more is reported, and the claim lapses.
		u := a.unknown(g, nil, s.err)
		u.Reason = oncedv1.Reason_REASON_CONTRADICTED
		return finding{err: u}
	case answerPending(s.err):
		return finding{err: a.unknown(g, s, s.err)}
	}
	a.takeOver = 0
	return a.anew()
}

// holds tells whether the operation is still as it was taken over: nobody has settled,
// released or taken it over since. Where that cannot be had, it is taken to be.
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
