package onced

import (
	"slices"
	"time"
)

// Holder is how a caller shows that it holds, or held, a claim: the digest of
// its token and the fence that it was given. A token under another fence than
// its own counts as never seen, since tokens and attempt numbers live twice
// after a restore or after key expiry, and fences do not.
type Holder struct {
	Token Digest
	Fence uint64
}

// FailRequest is a report that is not a result.
type FailRequest struct {
	Disposition Disposition
	Failure     *Failure    // FINAL only
	Checkpoint  *Checkpoint // taken with the Fail that is applied
}

// report is what a holder says of its attempt.
type report struct {
	content                 // of a fact
	disposition Disposition // Final for both kinds of fact
	checkpoint  *Checkpoint
}

func (rep report) isFact() bool { return rep.disposition == Final }

// Complete reports that the attempt had its effect, with the result.
func Complete(v View, p Policy, h Holder, result *Result) (Plan, *Operation, error) {
	return applyReport(v, p, h, report{content: completed(result), disposition: Final})
}

// Fail reports what is known of the effect of an attempt that has no result.
func Fail(v View, p Policy, h Holder, f FailRequest) (Plan, *Operation, error) {
	rep := report{disposition: f.Disposition, checkpoint: f.Checkpoint}
	if rep.isFact() {
		rep.content = failed(f.Failure)
	}
	return applyReport(v, p, h, rep)
}

func applyReport(v View, p Policy, h Holder, rep report) (Plan, *Operation, error) {
	o, i, err := openFor(v, p, h)
	if err != nil {
		return Plan{}, nil, err
	}
	a := &o.r.Attempts[i]
	switch {
	case a.accepted(rep):
		return Plan{}, o.show(), nil
	case o.standingAt(i) == formerHolder:
		return o.fencedReport(a, rep)
	case o.row.settled():
		return o.lateReport(a, rep)
	case rep.isFact():
		return o.settleReport(a, rep)
	case len(a.Facts) > 0:
		return Plan{}, o.show(), nil // weaker than what this attempt has reported
	default:
		return o.presentReport(a, rep)
	}
}

// openFor opens the operation for a report of a holder and finds its attempt.
func openFor(v View, p Policy, h Holder) (*operation, int, error) {
	o, err := open(v, p)
	if err != nil {
		return nil, 0, err
	}
	if o.row == rowAbsent {
		return nil, 0, refuseClaimLost()
	}
	i := slices.IndexFunc(o.r.Attempts, func(a Attempt) bool { return a.Token == h.Token && a.Fence == h.Fence })
	if i < 0 {
		return nil, 0, refuseClaimLost()
	}
	return o, i, nil
}

// accepted reports whether this attempt has had this very report accepted.
func (a *Attempt) accepted(rep report) bool {
	if rep.isFact() {
		return slices.Contains(a.Facts, rep.fact)
	}
	return a.Reports.Has(rep.disposition)
}

func (a *Attempt) accept(rep report) {
	if rep.isFact() {
		a.Facts = append(slices.Clip(a.Facts), rep.fact)
		return
	}
	a.Reports = a.Reports.With(rep.disposition)
}

// saidNoEffect reports whether the attempt has claimed to have had no effect.
func (a *Attempt) saidNoEffect() bool {
	return a.Reports.Has(NotExecuted) || a.Reports.Has(DidNotHappen)
}

// lateReport is a report of the last holder on a settled operation: the same
// outcome is a repeat, anything else differs from what settled it.
func (o *operation) lateReport(a *Attempt, rep report) (Plan, *Operation, error) {
	same := rep.isFact() && rep.fact == Fact{Failed: o.row == rowFailed, Digest: o.r.SettledDigest}
	if !same {
		return Plan{}, nil, refuseAlreadySettled()
	}
	a.accept(rep)
	plan := o.put(o.r.State)
	return plan, o.show(), nil
}

// settleReport is an outcome reported by the last holder: it settles whatever
// else has been said, and ends all doubt.
func (o *operation) settleReport(a *Attempt, rep report) (Plan, *Operation, error) {
	before, overruled := o.r.State, o.r.State == StateReleased && o.r.ByOperator
	a.accept(rep)
	o.settle(rep.content, SettledByHolder)
	plan := o.put(before)
	if overruled {
		plan.Alarm, plan.AlarmBy = AlarmSettledAfterResolve, a
	}
	return plan, o.show(), nil
}

// presentReport is a report without an outcome by the last holder.
func (o *operation) presentReport(a *Attempt, rep report) (Plan, *Operation, error) {
	before := o.r.State
	if rep.disposition == NotExecuted && o.row == rowRestoredReleased {
		return Plan{}, o.show(), nil // a write would make it RELEASED of this generation
	}
	switch rep.disposition {
	case NotExecuted:
		if err := o.notExecuted(); err != nil {
			return Plan{}, nil, err
		}
	case Unknown:
		o.unresolve(ReasonDeclared)
	case DidNotHappen:
		if err := o.didNotHappen(); err != nil {
			return Plan{}, nil, err
		}
	}
	a.accept(rep)
	o.r.Heard = true
	if o.r.State == StateUnresolved {
		o.takeCheckpoint(rep.checkpoint)
	}
	plan := o.put(before)
	return plan, o.show(), nil
}

// notExecuted applies NOT_EXECUTED: this attempt had no effect. While an
// earlier attempt is in doubt that does not say that none had.
func (o *operation) notExecuted() error {
	switch {
	case o.row.released():
		return nil // as released as it was
	case o.r.State != StatePending:
		return refuse(RefusedReport, "this attempt was declared unknown; doubt that was declared is not taken back by NOT_EXECUTED: report the outcome, or take over and find out")
	case o.r.Doubt:
		since := o.r.DoubtTime
		o.unresolve(ReasonDeclared)
		if o.r.Contradicted {
			o.r.DoubtTime = since
		}
	default:
		o.release(false)
	}
	return nil
}

// didNotHappen applies DID_NOT_HAPPEN: the holder of a takeover has asked the
// outside system, and no attempt had its effect.
func (o *operation) didNotHappen() error {
	switch {
	case o.r.State != StatePending:
		return refuse(RefusedReport, "only the holder of a running takeover may say DID_NOT_HAPPEN; the operation is %v now: take over again and find out", o.shownState())
	case !o.r.ByTakeover:
		return refuse(RefusedReport, "this claim is not a takeover; say NOT_EXECUTED of this attempt alone, or take over and find out")
	case o.r.Contradicted:
		return refuse(RefusedReport, "a former holder has reported that the effect happened; report that outcome, or let an operator resolve the operation")
	}
	o.release(false)
	return nil
}

// fencedReport is a report of a former holder. It settles nothing, but an
// effect that it reports is not forgotten: nobody may then say that none
// happened. A former holder's UNKNOWN takes its own word back that it had none.
func (o *operation) fencedReport(a *Attempt, rep report) (Plan, *Operation, error) {
	lost := refuseClaimLost()
	switch {
	case rep.isFact() && o.row.settled():
		return Plan{Alarm: AlarmReportAfterSettled, AlarmBy: a}, nil, lost
	case rep.isFact():
		plan := o.contradict()
		plan.Alarm, plan.AlarmBy = AlarmContradicted, a
		return plan, nil, lost
	case rep.disposition == Unknown && a.saidNoEffect() && !o.row.settled():
		return o.withdraw(), nil, lost
	default:
		return Plan{}, nil, lost
	}
}

func (o *operation) contradict() Plan {
	r, before := o.r, o.r.State
	if r.Contradicted {
		return Plan{}
	}
	r.Contradicted, r.Doubt = true, true
	if before == StatePending {
		r.DoubtTime = o.now
	} else {
		o.unresolve(ReasonContradicted)
	}
	return o.put(before)
}

func (o *operation) withdraw() Plan {
	r, before := o.r, o.r.State
	if r.Doubt && !o.row.released() {
		return Plan{}
	}
	r.Doubt = true
	if o.row.released() {
		o.unresolve(ReasonDeclared)
	}
	return o.put(before)
}

// Renew extends the lease of a claim and may leave a checkpoint. It never
// shortens, and it revives a claim that has lapsed if nobody took it over.
func Renew(v View, p Policy, h Holder, lease time.Duration, c *Checkpoint) (Plan, *Operation, error) {
	o, i, err := openFor(v, p, h)
	if err != nil {
		return Plan{}, nil, err
	}
	switch {
	case o.standingAt(i) == formerHolder:
		return Plan{}, nil, refuseClaimLost()
	case o.row.settled():
		return Plan{}, nil, refuseAlreadySettled()
	case o.r.State != StatePending:
		return Plan{}, nil, refuseClaimLost()
	}
	o.r.LeaseEnd, o.r.Lease = later(o.leaseEnd(), o.now.Add(lease)), lease
	o.r.Heard, o.row = true, rowLive
	o.takeCheckpoint(c)
	plan := o.put(StatePending)
	return plan, o.show(), nil
}

// takeCheckpoint keeps a checkpoint that is newer than the stored one: by
// attempt, then by sequence number.
func (o *operation) takeCheckpoint(c *Checkpoint) {
	if c == nil {
		return
	}
	if old := o.r.Checkpoint; old != nil && old.Attempt == o.r.Attempt && old.Seq >= c.Seq {
		return
	}
	next := *c
	next.Attempt = o.r.Attempt
	o.r.Checkpoint = &next
}
