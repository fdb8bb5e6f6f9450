//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	demoMethod = "send_invoice"
	demoAct    = "invoice-1" // key of the act that is called ten times
	demoCrash  = "invoice-2" // key of the act whose holder is killed

	demoProcesses = 2 // that call the first act
	demoCalls     = 5 // of each of them

	// demoLease is the lease of the holder that is killed.
	demoLease = 2 * time.Second
)

// tenCalls has two processes call one act at once.
func (d *demo) tenCalls(ctx context.Context) error {
	d.tell("act", nil, "\n1. One act, ten calls: two processes send %s, each five times, all at once, under one key.", demoAct)
	var callers []*demoProcess
	for range demoProcesses {
		p, err := d.start(ctx, partCaller)
		if err != nil {
			return err
		}
		defer p.kill()
		callers = append(callers, p)
	}
	for _, p := range callers {
		if err := p.cue(); err != nil {
			return err
		}
	}
	var result string
	for _, p := range callers {
		var count demoCount
		if err := p.hear(&count); err != nil {
			return err
		}
		d.sum.Calls += count.Executed + count.Replayed
		d.sum.Replays += count.Replayed
		d.tell("calls", nil, "   Process %d: %d executed, %d replayed.", p.pid(), count.Executed, count.Replayed)
		if result != "" && result != count.Result {
			return fmt.Errorf("one process has the result %q, another %q", result, count.Result)
		}
		result = count.Result
	}
	var err error
	if d.sum.Executions, err = sent(d.outbox, demoAct); err != nil {
		return err
	}
	d.tell("replays", nil, "   The outbox has it %d time, and all calls have the result of that one execution: %q.", d.sum.Executions, result)
	return nil
}

// crash kills a process that holds a claim.
func (d *demo) crash(ctx context.Context) error {
	p, err := d.start(ctx, partHolder)
	if err != nil {
		return err
	}
	defer p.kill()
	d.tell("crash", nil, "\n2. A crash: process %d claims %s, and is killed before it has sent or reported anything.", p.pid(), demoCrash)
	if err := p.cue(); err != nil {
		return err
	}
	var granted demoGrant
	if err := p.hear(&granted); err != nil {
		return err
	}
	p.kill()
	d.tell("killed", nil, "   GRANTED to it: attempt %d, with a lease of %v. Then SIGKILL; onced hears nothing more.", granted.Attempt, demoLease)
	return nil
}

// findOut is what the next caller of that act does.
func (d *demo) findOut(ctx context.Context) error {
	d.tell("next", nil, "   The next caller claims %s under the same key, and is answered:", demoCrash)
	req := &oncedv1.ClaimRequest{Ref: d.c.Ref(demoCrash, demoMethod), ClaimToken: client.NewToken()}
	attempt, err := d.seeUnresolved(ctx, req)
	if err != nil {
		return err
	}
	req.TakeOverAttempt = attempt
	op, err := d.takeOver(ctx, req)
	if err != nil {
		return err
	}
	if err := d.reportNothing(ctx, req, op); err != nil {
		return err
	}
	return d.claimAnew(ctx)
}

// seeUnresolved claims until the operation counts as unresolved, and returns the
// attempt that is in doubt.
func (d *demo) seeUnresolved(ctx context.Context, req *oncedv1.ClaimRequest) (uint32, error) {
	answer, err := d.c.Claim(ctx, req)
	if err == nil && answer.GetOutcome() == oncedv1.Outcome_OUTCOME_IN_PROGRESS {
		op := answer.GetOperation()
		d.tell("in_progress", answer, "   IN_PROGRESS: the lease of %s ends in %s. That it is dead, onced cannot know: wait.", op.GetHolder(), span(op.GetLeaseRemaining()))
		req.Wait = durationpb.New(onced.GreatestWait) // the answer comes when there is another one
		answer, err = d.c.Claim(ctx, req)
		req.Wait = nil
	}
	if err := expect(answer, err, oncedv1.Outcome_OUTCOME_UNRESOLVED); err != nil {
		return 0, err
	}
	d.sum.UnresolvedSeen++
	op := answer.GetOperation()
	d.tell("unresolved", answer, "   %s: was it sent? Nobody knows, so nobody may send it now, and no timer changes that.", stateName(op))
	return op.GetAttempt(), nil
}

// takeOver takes the operation over as soon as the server allows it.
func (d *demo) takeOver(ctx context.Context, req *oncedv1.ClaimRequest) (*oncedv1.Operation, error) {
	answer, err := d.c.Claim(ctx, req)
	for err == nil && answer.GetTakeoverRefused() == oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET {
		pause := answer.GetRetryAfter()
		d.tell("not_yet", answer, "   Takeover NOT_YET, but in %s: what the dead process had under way must have arrived by then.", span(pause))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause.AsDuration()):
		}
		answer, err = d.c.Claim(ctx, req)
	}
	if err := expect(answer, err, oncedv1.Outcome_OUTCOME_TAKEN_OVER); err != nil {
		return nil, err
	}
	op := answer.GetOperation()
	d.tell("taken_over", answer, "   TAKEN_OVER: attempt %d. This is the right to find out, not to send. So look into the outbox:", op.GetAttempt())
	return op, nil
}

// reportNothing looks whether the earlier attempt had its effect, and reports that
// it had none.
func (d *demo) reportNothing(ctx context.Context, req *oncedv1.ClaimRequest, op *oncedv1.Operation) error {
	found, err := sent(d.outbox, demoCrash)
	if err != nil {
		return err
	}
	if found > 0 {
		return fmt.Errorf("%s was sent %d times, although its holder was killed before that", demoCrash, found)
	}
	report, err := d.c.Fail(ctx, &oncedv1.FailRequest{
		Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: op.GetFence(),
		Disposition: oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN,
	})
	if err != nil {
		return err
	}
	d.tell("did_not_happen", report, "   It is not there. DID_NOT_HAPPEN is reported; the operation is %s, free for a new claim.", stateName(report.GetOperation()))
	return nil
}

// claimAnew executes the operation that was released, as any caller would.
func (d *demo) claimAnew(ctx context.Context) error {
	call := client.Call{Key: demoCrash, Method: demoMethod}
	out, err := client.Do(ctx, d.c, call, func(_ context.Context, cl *client.Claim) (string, error) {
		d.tell("granted", nil, "   GRANTED: attempt %d. No earlier attempt had an effect, so this one sends it.", cl.Attempt)
		return send(d.outbox, demoCrash)
	})
	if err != nil {
		return err
	}
	found, err := sent(d.outbox, demoCrash)
	if err != nil {
		return err
	}
	if found != 1 || out.Replayed || !out.Settled {
		return fmt.Errorf("%s was sent %d times; replayed: %v, settled: %v", demoCrash, found, out.Replayed, out.Settled)
	}
	d.tell("completed", nil, "   COMPLETED: %q. The outbox has it once, and every later call gets this result.", out.Value)
	return nil
}

// expect is an error unless the claim was answered with this outcome.
func expect(answer *oncedv1.ClaimResponse, err error, want oncedv1.Outcome) error {
	if got := answer.GetOutcome(); err == nil && got != want {
		err = fmt.Errorf("the claim of %s was answered %s, and not %s", answer.GetOperation().GetRef().GetKey(),
			enumName(got.String(), "OUTCOME_"), enumName(want.String(), "OUTCOME_"))
	}
	return err
}
