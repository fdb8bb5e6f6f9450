package onced

import "time"

// ClaimRequest asks for the right to execute an operation. Its parts are
// validated by the server; Lease is in force (never zero).
type ClaimRequest struct {
	Token           Digest // of the claim token that was minted for this call
	Fingerprints    []Fingerprint
	Subject         string
	Holder          string
	Lease           time.Duration
	TakeOverAttempt uint32 // the attempt to take over; 0 for a plain claim
	KeyTime         time.Time
	Labels          map[string]string
	Guard           *TwinGuard // the view then holds the entry of the request's [ClaimRequest.TwinID]
	Operator        bool       // the caller has the operator role in the namespace
	QuotaFull       bool       // the namespace has as many unsettled operations as it may
}

// TwinID names the twin entry of a guarded claim: the identity of the act, by
// the first fingerprint of the request. nil for a claim without the guard.
func (c ClaimRequest) TwinID(id Identity) *TwinID {
	if c.Guard == nil {
		return nil
	}
	return &TwinID{Namespace: id.Namespace, Method: id.Method, Subject: c.Subject, Fingerprint: c.Fingerprints[0]}
}

// ClaimAnswer is what a claim answers.
type ClaimAnswer struct {
	Outcome         Outcome
	Time            time.Time  // store time at which it was decided; never before the operation's stamps
	Operation       *Operation // nil when BLOCKED_BY_TWIN leaves the key absent
	Yours           bool       // the token is the present holder's
	RetryAfter      time.Duration
	Checkpoint      *Checkpoint // of the newest attempt that left one, when TAKEN_OVER
	TakeoverRefused TakeoverRefusal
	Twin            string // key of the twin that blocks
	KeyTimeChanged  bool   // the operation is bound to another key time
}

// Claim decides a claim. The order of its checks is part of the contract:
// readable, expiry, subject, fingerprint, state and token; and only for what
// would be a new grant: key birth, twin, quota.
func Claim(v View, p Policy, c ClaimRequest) (Plan, ClaimAnswer, error) {
	if c.KeyTime.After(v.Now.Add(p.Skew)) {
		return Plan{}, ClaimAnswer{}, refuse(RefusedInvalid, "key_time lies more than %v in the future: send when the key was first minted, and check the caller's clock", p.Skew)
	}
	o, err := open(v, p)
	if err != nil {
		return Plan{}, ClaimAnswer{}, err
	}
	var (
		plan   Plan
		answer ClaimAnswer
	)
	if o.row == rowAbsent {
		plan, answer, err = o.claimAbsent(c)
	} else if err = o.authorize(c.Subject, c.Fingerprints); err == nil {
		plan, answer, err = o.claimFound(c)
		answer.KeyTimeChanged = !c.KeyTime.IsZero() && !o.r.KeyTime.IsZero() && !c.KeyTime.Equal(o.r.KeyTime)
	}
	answer.Time = o.now
	return plan, answer, err
}

// claimAbsent decides a claim of a key that has no record.
func (o *operation) claimAbsent(c ClaimRequest) (Plan, ClaimAnswer, error) {
	if c.TakeOverAttempt != 0 || o.p.forgets(o.v.Epoch, c.KeyTime, o.v.ExpiryTime) {
		return o.claimForgotten(c)
	}
	o.r = newRecord(o.v.ID, c)
	return o.grantNew(c, 0)
}

// claimForgotten records an operation that may have run in a time that the
// store does not remember: attempt 1 stands for the lost one. It has no holder.
func (o *operation) claimForgotten(c ClaimRequest) (Plan, ClaimAnswer, error) {
	if c.QuotaFull {
		return Plan{}, ClaimAnswer{}, refuseQuota(o.v.ID.Namespace)
	}
	o.r = newRecord(o.v.ID, c)
	o.r.Attempt, o.r.Fence = 1, o.v.NextFence
	o.unresolve(ReasonHistoryLost)
	plan := o.put(0)
	plan.UsesFence = true
	return plan, ClaimAnswer{Outcome: OutcomeUnresolved, Operation: o.show()}, nil
}

func newRecord(id Identity, c ClaimRequest) *Record {
	return &Record{
		ID: id, Subject: c.Subject, Fingerprints: c.Fingerprints, KeyTime: c.KeyTime, Labels: c.Labels,
	}
}

// claimFound decides a claim of an operation that has a record.
func (o *operation) claimFound(c ClaimRequest) (Plan, ClaimAnswer, error) {
	who := o.standingOf(c.Token)
	switch {
	case o.row == rowCompleted:
		return Plan{}, o.answer(OutcomeReplayed, who), nil
	case o.row == rowFailed:
		return Plan{}, o.answer(OutcomeFailed, who), nil
	case who == formerHolder, who == presentHolder && o.row == rowReleased:
		return Plan{}, ClaimAnswer{}, refuseUsedToken()
	case o.row == rowReleased:
		return o.claimReleased(c)
	case o.row == rowLive:
		return Plan{}, o.claimLive(who), nil
	case who == presentHolder:
		return Plan{}, o.answer(OutcomeUnresolved, who), nil
	case c.TakeOverAttempt != 0:
		return o.takeOver(c)
	case o.rerunnable():
		return o.grant(c, true)
	default:
		return Plan{}, o.answer(OutcomeUnresolved, who), nil
	}
}

func (o *operation) claimReleased(c ClaimRequest) (Plan, ClaimAnswer, error) {
	if o.exhausted() {
		return Plan{}, ClaimAnswer{}, refuseExhausted()
	}
	return o.grantNew(c, StateReleased)
}

// claimLive decides a claim while the lease runs. The present token gets its
// first answer again, so that a lost answer costs nothing, until anything else
// has come from the holder: then the claim is a restart, not a retry. Nor is a
// plain grant repeated once doubt has come up: it would run although onced was
// told of an effect.
func (o *operation) claimLive(who standing) ClaimAnswer {
	if who != presentHolder || o.r.Heard {
		a := o.answer(OutcomeInProgress, who)
		a.RetryAfter = RetryAfter(a.Operation.LeaseRemaining)
		return a
	}
	if o.r.ByTakeover {
		a := o.answer(OutcomeTakenOver, who)
		a.Checkpoint = o.r.Checkpoint
		return a
	}
	if o.r.Doubt {
		a := o.answer(OutcomeUnresolved, who)
		a.Operation.State, a.Operation.Reason = StateUnresolved, o.doubtReason()
		return a
	}
	return o.answer(OutcomeGranted, who)
}

// takeOver decides a claim that names an attempt to take over, by a token that
// this operation has never seen.
func (o *operation) takeOver(c ClaimRequest) (Plan, ClaimAnswer, error) {
	a := o.answer(OutcomeUnresolved, neverSeen)
	due := o.doubtSince().Add(o.p.reconcileAfter(o.r.Lease))
	switch {
	case c.TakeOverAttempt != o.r.Attempt:
		a.TakeoverRefused = TakeoverRefusedOtherAttempt
	case o.p.Takeover == TakeoverByNobody, o.p.Takeover == TakeoverByOperator && !c.Operator:
		a.TakeoverRefused = TakeoverRefusedPolicy
	case o.now.Before(due):
		a.TakeoverRefused, a.RetryAfter = TakeoverRefusedNotYet, max(leastRetryAfter, due.Sub(o.now))
	case o.exhausted():
		return Plan{}, ClaimAnswer{}, refuseExhausted()
	default:
		return o.grant(c, true)
	}
	return Plan{}, a, nil
}

// rerunnable reports whether the policy lets a plain claim execute again.
func (o *operation) rerunnable() bool {
	if !o.p.SafeToRerun || o.r.Contradicted || o.exhausted() {
		return false
	}
	return o.row == rowLapsed || o.row == rowDeclared
}

// exhausted reports whether the operation has had all attempts that it may have
// until an operator releases or reopens it.
func (o *operation) exhausted() bool { return o.r.AttemptsLeft() == 0 }

// doubtSince is the moment from which a takeover is timed: the effective end of
// the lease, or when the doubt came up. Of a restored record it is not before the
// store was ready again: an attempt that the backup does not know may have
// executed until then.
func (o *operation) doubtSince() time.Time {
	since := o.r.DoubtTime
	if o.row == rowLapsed {
		since = later(since, o.leaseEnd())
	}
	if o.restored() {
		since = later(since, o.v.Epoch.ServingSince)
	}
	return since
}

// grantNew is a grant that no attempt came before, as far as is known: the twin
// guard and the quota have their say.
func (o *operation) grantNew(c ClaimRequest, before State) (Plan, ClaimAnswer, error) {
	if c.Guard != nil {
		if o.v.TwinUnreadable {
			return Plan{}, ClaimAnswer{}, refuseUnreadable(o.v.ID)
		}
		if twin := o.v.Twin.blocker(o.v.ID.Key, *c.Guard, o.now); twin != nil {
			a := ClaimAnswer{Outcome: OutcomeBlockedByTwin, Twin: twin.Key}
			if before != 0 {
				a.Operation = o.show()
			}
			return Plan{}, a, nil
		}
	}
	if c.QuotaFull {
		return Plan{}, ClaimAnswer{}, refuseQuota(o.v.ID.Namespace)
	}
	o.r.Twin = c.TwinID(o.v.ID)
	return o.grant(c, false)
}

// grant gives the claim away: a new attempt with a new fence. A takeover leaves
// the operation in doubt and keeps what a former holder reported and the progress
// that one left; a plain grant has none of it.
func (o *operation) grant(c ClaimRequest, takeover bool) (Plan, ClaimAnswer, error) {
	r, former := o.r, *o.r
	o.clear()
	r.State = StatePending
	r.Attempt++
	r.Fence, r.Lease, r.LeaseEnd = o.v.NextFence, c.Lease, o.now.Add(c.Lease)
	r.Heard, r.ByTakeover, r.Doubt = false, takeover, takeover
	r.Holder, r.ClaimTime = c.Holder, o.now
	outcome := OutcomeGranted
	if takeover {
		r.Checkpoint, outcome = former.Checkpoint, OutcomeTakenOver
		if former.Contradicted {
			r.Contradicted, r.DoubtTime = true, former.DoubtTime
		}
	} else if r.FirstClaimTime.IsZero() {
		r.FirstClaimTime = o.now
	}
	r.Attempts = append(r.Attempts, Attempt{Number: r.Attempt, Token: c.Token, Fence: r.Fence, Holder: c.Holder, ClaimTime: o.now})
	o.row = rowLive
	plan := o.put(former.State)
	plan.UsesFence = true
	a := o.answer(outcome, presentHolder)
	a.Checkpoint = r.Checkpoint
	return plan, a, nil
}

func (o *operation) answer(outcome Outcome, who standing) ClaimAnswer {
	return ClaimAnswer{Outcome: outcome, Operation: o.show(), Yours: who == presentHolder}
}

func refuseUsedToken() *Refusal {
	return refuse(RefusedClaimLost, "this claim token was used for an attempt that is over; a token gets one attempt: mint a new token to claim again")
}

func refuseExhausted() *Refusal {
	return refuse(RefusedAttempts, "the operation has had %d attempts without an outcome; find out why, then let an operator resolve or reopen it", MaxAttempts)
}

func refuseQuota(namespace string) *Refusal {
	return refuse(RefusedQuota, "namespace %s has as many unsettled operations as it may; settle or resolve some, then claim again", namespace)
}
