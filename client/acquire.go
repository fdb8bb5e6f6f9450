package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	// mostRounds is how many claim tokens one call uses up at most.
	mostRounds = 3
	// withdrawTry is how long the last re-sent claim of a call that gives up may take.
	withdrawTry = 5 * time.Second
	// heldAtLeast is how long a call must have taken to have been held by the server
	// rather than answered at once.
	heldAtLeast = time.Second
)

// grant is an answer to a claim, with what its holder shows and when the claim that
// it answers was sent.
type grant struct {
	holding
	answer *oncedv1.ClaimResponse
	sent   time.Time
}

// acquisition is the part of a call before its function starts.
type acquisition struct {
	c    *Client
	call *Call
	p    *pending
	doOptions

	takeOver uint32                // the attempt to take over; 0 for a plain claim
	req      *oncedv1.ClaimRequest // under the present token
	open     bool                  // a claim under it may have been granted, and its answer is not known
	rounds   int                   // tokens used
	polls    int                   // answers IN_PROGRESS that came at once, in a row
	busy     *InProgress           // the newest answer IN_PROGRESS
}

// acquiring returns the context of the part of a call before its function starts.
func (a *acquisition) acquiring(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.claimTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, a.claimTimeout)
}

// executing returns the context that the function's own is made from.
func (a *acquisition) executing(ctx context.Context) context.Context {
	if a.detached {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// acquire claims until the operation may be executed or has been: the answer is
// GRANTED, TAKEN_OVER or REPLAYED. With an error nothing is to be executed, and
// what may have been granted is given back.
func (a *acquisition) acquire(ctx context.Context) (grant, error) {
	if err := ctx.Err(); err != nil {
		return grant{}, fmt.Errorf("client: nothing was sent and nothing was executed: %w", err)
	}
	if err := a.c.generation.refusal(); err != nil {
		return grant{}, err
	}
	ctx, cancel := a.acquiring(ctx)
	defer cancel()
	a.rounds = 0
	for a.nextRound(); ; {
		g, err := a.ask(ctx)
		if err == nil {
			if done, err := a.heed(ctx, g); done || err != nil {
				return g, err
			}
			continue
		}
		if refusedFor(err, onced.RefusedClaimLost) && a.nextRound() {
			continue // the token was used: an earlier claim under it was granted, and is over
		}
		if a.open {
			a.withdraw(ctx)
		}
		return grant{}, a.explain(ctx, err)
	}
}

// nextRound begins anew under a new token, unless enough were used.
func (a *acquisition) nextRound() bool {
	if a.rounds == mostRounds {
		return false
	}
	a.rounds++
	a.req = a.c.claimRequest(a.call)
	a.req.TakeOverAttempt = a.takeOver
	return true
}

// change makes the next claim under the present token another one. What was sent
// before may still be on its way, and stays as it is.
func (a *acquisition) change(f func(*oncedv1.ClaimRequest)) {
	a.req = proto.CloneOf(a.req)
	f(a.req)
}

// ask sends the claim until it is answered. The first claim under a token asks
// for no wait, so that a lost answer is noticed early in its lease.
func (a *acquisition) ask(ctx context.Context) (grant, error) {
	answer, s, err := exchange(ctx, a.c, untilAnswered(held(a.req.GetWait())), a.c.stub.Claim, a.req)
	a.open = s.unanswered
	return grant{
		holding: holding{ref: a.req.GetRef(), token: a.req.GetClaimToken(), fence: answer.GetOperation().GetFence()},
		answer:  answer, sent: s.at,
	}, err
}

// heed does what an answer says. It is done when the call can go on with it.
func (a *acquisition) heed(ctx context.Context, g grant) (done bool, err error) {
	op := g.answer.GetOperation()
	switch g.answer.GetOutcome() {
	case oncedv1.Outcome_OUTCOME_GRANTED, oncedv1.Outcome_OUTCOME_TAKEN_OVER:
		return a.take(ctx, g)
	case oncedv1.Outcome_OUTCOME_REPLAYED:
		return true, nil
	case oncedv1.Outcome_OUTCOME_FAILED:
		return false, newFailed(a.call, op)
	case oncedv1.Outcome_OUTCOME_IN_PROGRESS:
		return false, a.await(ctx, g)
	case oncedv1.Outcome_OUTCOME_UNRESOLVED:
		return false, a.unresolved(ctx, g)
	case oncedv1.Outcome_OUTCOME_BLOCKED_BY_TWIN:
		return false, &BlockedByTwin{Key: a.call.Key, Method: a.call.Method, Twin: g.answer.GetTwin()}
	default:
		if g.answer.GetYours() {
			a.giveBack(ctx, g)
		}
		return false, fmt.Errorf("%s: this client does not know the outcome %v, so nothing was executed: use a newer client",
			operation(a.call.Key, a.call.Method), g.answer.GetOutcome())
	}
}

// unresolved goes on where the doubt is about a claim of the call's own: one that was
// granted and lapsed before its answer came, so that nothing was executed under it.
// What became of another's is found out, if the call has a way to.
func (a *acquisition) unresolved(ctx context.Context, g grant) error {
	switch {
	case g.answer.GetYours() && a.rounds < mostRounds:
		return a.startOver(ctx, g)
	case g.answer.GetYours():
		a.giveBack(ctx, g)
		return newUnresolved(a.call, g.answer.GetOperation())
	}
	return a.pursue(ctx, g)
}

// take checks, as the last thing before the function starts, that it may start.
func (a *acquisition) take(ctx context.Context, g grant) (done bool, err error) {
	t, now := termOf(g.answer.GetOperation(), g.sent), time.Now()
	over := !now.Before(t.end)
	stale := a.c.generation.refusal()
	var late *Unresolved // too late for what was taken over
	if g.answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER {
		if why := a.reconcile.over(g.answer.GetOperation(), g.answer.GetAnswerTime()); why != nil {
			late = a.unknown(g, nil, why)
		}
	}
	switch {
	case g.fence == 0:
		return false, fmt.Errorf("%s: the answer grants the claim without a fence, so nothing was executed: look at what stands between the client and onced",
			operation(a.call.Key, a.call.Method))
	case ctx.Err() != nil:
		err = fmt.Errorf("%s was claimed as the call ended; nothing was executed and the claim is given back: %w",
			operation(a.call.Key, a.call.Method), ctx.Err())
	case stale != nil:
		err = stale
	case late != nil:
		err = late
	case a.req.GetWait() != nil && !now.Before(t.renewal):
		// The lease counts from when the claim was sent, and the server may have held
		// it for as long. The same claim again, not held, tells what is left.
		a.change(func(req *oncedv1.ClaimRequest) { req.Wait = nil })
		return false, nil
	case over && a.rounds < mostRounds:
		return false, a.startOver(ctx, g)
	case over:
		err = fmt.Errorf("%s was claimed %d times, and each answer came when its lease had ended; nothing was executed: ask for a longer lease, or look at the way to onced",
			operation(a.call.Key, a.call.Method), a.rounds)
	default:
		return true, nil
	}
	a.giveBack(ctx, g)
	return false, err
}

// await lets time pass until it makes sense to ask again. From now on the server is
// asked to hold the claim. Where it did, asking again at once is right; where it
// answers at once, because too many wait already, the pauses grow.
func (a *acquisition) await(ctx context.Context, g grant) error {
	a.busy = newInProgress(a.call, g.answer)
	if a.noWait {
		return a.busy
	}
	if time.Since(g.sent) >= heldAtLeast {
		a.polls = 0
	}
	pause := backoff(a.polls, mostPause)
	if a.busy.RetryAfter > 0 {
		pause = min(pause, a.busy.RetryAfter)
	}
	a.polls++
	a.change(func(req *oncedv1.ClaimRequest) { req.Wait = durationpb.New(longestWait) })
	if !sleep(ctx, jitter(pause)) {
		return &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: a.busy}
	}
	return nil
}

// startOver gives a claim back that can no longer be executed under its token, and
// goes on under a new one once onced has heard of it.
func (a *acquisition) startOver(ctx context.Context, g grant) error {
	if !a.giveBack(ctx, g).waitAll(ctx) {
		return &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: newUnresolved(a.call, g.answer.GetOperation())}
	}
	a.p.enter(StageClaiming)
	a.takeOver = 0
	a.nextRound()
	return nil
}

// giveBack reports a claim under which nothing was executed. It releases the
// operation; after a takeover the earlier attempt stays unknown.
func (a *acquisition) giveBack(ctx context.Context, g grant) *settlement {
	a.p.enter(StageWithdrawing)
	d := oncedv1.Disposition_DISPOSITION_NOT_EXECUTED
	if g.answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER {
		d = oncedv1.Disposition_DISPOSITION_UNKNOWN
	}
	r := a.c.failure(g.holding, d, nil)
	if d == oncedv1.Disposition_DISPOSITION_UNKNOWN {
		r = a.unlessDecided(g, r)
	}
	return a.c.settle(ctx, a.p, g.holding, r, func() {})
}

// withdraw ends a call whose claim was not answered: it may have been granted, or
// may be granted when it arrives late. It is sent once more, and given back if the
// answer says that it is held; a late first copy then meets a used token.
func (a *acquisition) withdraw(ctx context.Context) {
	a.p.enter(StageWithdrawing)
	a.p.retain()
	req := proto.CloneOf(a.req)
	req.Wait, req.TakeOverAttempt = nil, 0 // a takeover that was not given is not asked for any more
	go func() {
		defer a.p.release()
		ctx := context.WithoutCancel(ctx)
		answer, err := attempt(ctx, a.c, withdrawTry, a.c.stub.Claim, req)
		if err != nil {
			a.c.log.WarnContext(ctx, "a claim was given up unanswered; if it was granted, it lapses",
				"namespace", a.c.namespaceOf(a.call), "key", a.call.Key, "method", a.call.Method, "error", err)
			return
		}
		switch outcome := answer.GetOutcome(); {
		case outcome == oncedv1.Outcome_OUTCOME_GRANTED, outcome == oncedv1.Outcome_OUTCOME_TAKEN_OVER,
			outcome == oncedv1.Outcome_OUTCOME_UNRESOLVED && answer.GetYours():
			h := holding{ref: req.GetRef(), token: req.GetClaimToken(), fence: answer.GetOperation().GetFence()}
			a.giveBack(ctx, grant{holding: h, answer: answer})
		}
	}()
}

// explain is the error of a call whose claim was refused, or not answered before
// its context ended.
func (a *acquisition) explain(ctx context.Context, err error) error {
	switch {
	case !answerPending(err):
		return refused(a.call, err, a.open)
	case a.busy != nil:
		return &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: a.busy}
	default:
		return &outcomeUnknown{key: a.call.Key, ended: ctx.Err(), last: err}
	}
}
