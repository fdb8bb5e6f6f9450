package onced

import "time"

// row is what an operation is at one moment: the row of the transition table
// that applies. It is computed from the record, the store's epoch and the clock.
type row uint8

const (
	rowAbsent           row = iota // no record, or expired
	rowLive                        // PENDING, lease running
	rowLapsed                      // PENDING, lease over, or restored
	rowDeclared                    // UNRESOLVED: a holder does not know
	rowContradicted                // UNRESOLVED: a former holder reported an effect
	rowHistory                     // UNRESOLVED: older than the store's memory; has no holder
	rowRestoredReleased            // RELEASED before a restore: what came after is not known
	rowReleased
	rowCompleted
	rowFailed
)

func (r row) settled() bool  { return r == rowCompleted || r == rowFailed }
func (r row) released() bool { return r == rowReleased || r == rowRestoredReleased }

// standing is what a token is to an operation.
type standing uint8

const (
	neverSeen standing = iota
	presentHolder
	formerHolder
)

// operation is the working copy on which one transition decides: the record as
// it is now, in a copy that may be changed, and the row that it stands in.
type operation struct {
	v   View
	p   Policy
	now time.Time
	r   *Record // nil when absent or expired
	row row
}

// open loads the view: readable first, then expiry, then what a restore did.
func open(v View, p Policy) (*operation, error) {
	o := &operation{v: v, p: p, now: v.Now}
	if v.Unreadable || v.Record != nil && !v.Record.State.Known() {
		return nil, refuseUnreadable(v.ID)
	}
	if v.Record == nil || expired(v, p) {
		return o, nil
	}
	o.r = v.Record.clone()
	o.now = later(v.Now, o.r.UpdateTime)
	dropExpiredBytes(o.r, p, v.ExpiryTime)
	if v.restored() && o.r.State.Unsettled() {
		// Between the backup and the restore the holder may have reported, been
		// taken over or been released: nothing that was said then is known.
		o.r.Doubt, o.r.ByTakeover = true, false
	}
	o.row = o.currentRow()
	return o, nil
}

// restored reports whether the record, as it is now, was last written before a
// restore.
func (o *operation) restored() bool { return o.r.Generation != o.v.Epoch.Generation }

func (o *operation) currentRow() row {
	switch o.r.State {
	case StatePending:
		if o.restored() || !o.now.Before(o.leaseEnd()) {
			return rowLapsed
		}
		return rowLive
	case StateUnresolved:
		switch o.r.Reason {
		case ReasonContradicted:
			return rowContradicted
		case ReasonHistoryLost:
			return rowHistory
		default:
			return rowDeclared
		}
	case StateReleased:
		if o.restored() {
			return rowRestoredReleased
		}
		return rowReleased
	case StateCompleted:
		return rowCompleted
	default:
		return rowFailed
	}
}

// leaseEnd is the effective end of the lease: onced's own outage lapses nobody,
// so a holder has up to a minute after a start to renew.
func (o *operation) leaseEnd() time.Time {
	return later(o.r.LeaseEnd, o.v.Epoch.ServingSince.Add(min(o.r.Lease, outageGrace)))
}

// standingOf tells what a token is to the operation, whatever its fence.
func (o *operation) standingOf(token Digest) standing {
	for i, a := range o.r.Attempts {
		if a.Token == token {
			return o.standingAt(i)
		}
	}
	return neverSeen
}

func (o *operation) standingAt(i int) standing {
	if o.r.Attempts[i].Number == o.r.Attempt {
		return presentHolder
	}
	return formerHolder
}

// authorize checks the subject and the fingerprints, in this order, and shows
// nothing of what is stored but a scheme's name.
func (o *operation) authorize(subject string, fingerprints []Fingerprint) error {
	if subject != o.r.Subject {
		return refuse(RefusedSubject, "the subject is not the one that this operation is bound to; a key belongs to the subject that first used it: use a key of your own")
	}
	return matchFingerprints(o.r.Fingerprints, fingerprints)
}

// matchFingerprints compares under any scheme in common.
func matchFingerprints(stored, given []Fingerprint) error {
	if len(stored) == 0 && len(given) == 0 {
		return nil
	}
	common := false
	for _, s := range stored {
		for _, g := range given {
			if s == g {
				return nil
			}
			common = common || s.Scheme == g.Scheme
		}
	}
	if !common && len(stored) > 0 && len(given) > 0 {
		return refuse(RefusedFingerprintScheme, "the operation is bound to a fingerprint under scheme %s and this request has none under it: send that scheme too", stored[0].Scheme)
	}
	switch {
	case len(stored) == 0:
		return refuse(RefusedFingerprint, "the key was first used without a fingerprint, and this request has one; nothing was executed: send none for this key")
	case len(given) == 0:
		return refuse(RefusedFingerprint, "the key was first used with a fingerprint, and this request has none; nothing was executed: send the fingerprint of the arguments")
	}
	return refuse(RefusedFingerprint, "the key was first used with other arguments; nothing was executed: send the first arguments again, or use a new key for what is a new operation")
}

// put finishes a change: stamps, revision, the twin entry that follows, and the
// row in which the record stands now. A lapsed claim stays of its generation:
// only a claim or a renewal makes a restored one live again.
func (o *operation) put(before State) Plan {
	if o.row != rowLapsed || o.r.State != StatePending {
		o.r.Generation = o.v.Epoch.Generation
	}
	o.r.UpdateTime = o.now
	o.r.Revision++
	plan := Plan{Put: o.r}
	o.followTwin(&plan, before)
	o.row = o.currentRow()
	return plan
}

// MissingTwin returns the twin entry in which the record of v stands when v does
// not hold it: a report must then be decided again on a view that does, so that
// the entry follows. nil when nothing is missing.
func MissingTwin(v View) *TwinID {
	if v.Record == nil || v.Record.Twin == nil || v.TwinID != nil && *v.TwinID == *v.Record.Twin {
		return nil
	}
	return v.Record.Twin
}

// followTwin brings the operation's twin entry after a change of state: settled
// moves the key to the last settled one, released takes it out, and what was
// released and is in doubt again comes back. A lapse, a renewal and a takeover
// leave it.
func (o *operation) followTwin(plan *Plan, before State) {
	id, after := o.r.Twin, o.r.State
	if id == nil || o.v.TwinID == nil || *o.v.TwinID != *id || o.v.TwinUnreadable || before == after {
		return
	}
	var next *TwinEntry
	switch {
	case after.Settled():
		next = o.v.Twin.settled(*id, o.r.ID.Key, o.r.ClaimTime, o.now)
	case after == StateReleased:
		next = o.v.Twin.without(*id, o.r.ID.Key)
	case !before.Unsettled():
		next = o.v.Twin.claimed(*id, o.r.ID.Key, o.r.ClaimTime)
	default:
		return
	}
	if len(next.Unsettled) == 0 && next.Last == nil {
		plan.DeleteTwin = o.v.Twin != nil
		return
	}
	plan.PutTwin = next
}

// unresolve makes the operation UNRESOLVED and begins the wait for a takeover.
func (o *operation) unresolve(why Reason) {
	r := o.r
	if r.Contradicted {
		why = ReasonContradicted
	}
	r.State, r.Reason, r.DoubtTime = StateUnresolved, why, o.now
	r.ReleaseTime, r.KeyExpire, r.ByOperator = time.Time{}, time.Time{}, false
}

// release makes the operation RELEASED: it is known that no attempt so far had
// an effect, and the next plain claim may execute.
func (o *operation) release(byOperator bool) {
	o.clear()
	r := o.r
	r.State, r.ByOperator, r.ReleaseTime = StateReleased, byOperator, o.now
	r.KeyExpire = keyExpiry(r, o.p, o.now)
	if byOperator {
		r.AttemptBase = r.Attempt
	}
}

// settle makes the operation COMPLETED or FAILED.
func (o *operation) settle(c content, by SettledBy) {
	o.clear()
	r := o.r
	r.State = StateCompleted
	if c.fact.Failed {
		r.State = StateFailed
	}
	r.Result, r.Failure, r.SettledDigest = c.result, c.failure, c.fact.Digest
	r.SettledBy, r.SettleTime = by, o.now
	r.ResultExpire, r.KeyExpire = o.now.Add(o.p.ResultRetention), keyExpiry(r, o.p, o.now)
}

// clear takes away all that belongs to the state that is being left.
func (o *operation) clear() {
	r := o.r
	r.Reason, r.Doubt, r.Contradicted, r.ByOperator = ReasonNone, false, false, false
	r.DoubtTime, r.ReleaseTime, r.SettleTime = time.Time{}, time.Time{}, time.Time{}
	r.ResultExpire, r.KeyExpire = time.Time{}, time.Time{}
	r.Result, r.Failure, r.SettledDigest, r.SettledBy = nil, nil, Digest{}, SettledByNobody
	r.Checkpoint = nil
}

// content is an outcome: a result or a failure, with its digest.
type content struct {
	fact    Fact
	result  *Result
	failure *Failure
}

func completed(r *Result) content {
	return content{fact: Fact{Digest: r.Identity()}, result: r}
}

func failed(f *Failure) content {
	return content{fact: Fact{Failed: true, Digest: f.Identity()}, failure: f}
}
