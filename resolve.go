package onced

// Resolution is what an operator decides about an operation.
type Resolution uint8

// The resolutions.
const (
	ResolveCompleted Resolution = iota + 1 // it happened, with this result
	ResolveFailed                          // it failed for good
	ResolveReleased                        // no attempt had an effect: the next claim may execute
	ResolveReopen                          // settled, and to be run anew under the same key
)

var resolutionNames = [...]string{"", "completed", "failed", "released", "reopen"}

// String returns the resolution's name as it stands in the audit trail.
func (r Resolution) String() string { return enumName(resolutionNames[:], int(r)) }

// ResolveRequest is an operator's decision, with its evidence.
type ResolveRequest struct {
	Resolution Resolution
	Result     *Result  // ResolveCompleted
	Failure    *Failure // ResolveFailed
	Evidence   string
	Etag       string // the version that was decided on; empty: any
	Force      bool   // also while a lease runs, because the holder is dead
	Who        string
}

// Resolve applies an operator's decision. A repeat of the last one, without an
// etag or with one that is no longer current, answers OK and changes nothing.
func Resolve(v View, p Policy, q ResolveRequest) (Plan, *Operation, error) {
	o, err := openForOperator(v, p)
	if err != nil {
		return Plan{}, nil, err
	}
	last, c := q.identity()
	current := q.Etag == o.etag()
	if o.r.LastResolve != nil && *o.r.LastResolve == last && !current {
		return Plan{}, o.show(), nil
	}
	if q.Etag != "" && !current {
		return Plan{}, nil, refuseEtag()
	}
	if q.Resolution != ResolveReopen && o.row == rowLive && !q.Force {
		return Plan{}, nil, refuse(RefusedClaimLive, "the operation is claimed and its lease runs; wait for its end, or use force if the holder is known to be dead")
	}
	before := o.shownState()
	if changed, err := o.resolve(q.Resolution, c); err != nil || !changed {
		return Plan{}, o.showIf(err == nil), err
	}
	o.r.LastResolve = &last
	return o.audited(before, q.Resolution.String(), q.Who, q.Evidence)
}

func (q ResolveRequest) identity() (LastResolve, content) {
	var c content
	switch q.Resolution {
	case ResolveCompleted:
		c = completed(q.Result)
	case ResolveFailed:
		c = failed(q.Failure)
	}
	return LastResolve{Resolution: q.Resolution, Content: c.fact.Digest, Evidence: q.Evidence}, c
}

func openForOperator(v View, p Policy) (*operation, error) {
	o, err := open(v, p)
	if err != nil {
		return nil, err
	}
	if o.row == rowAbsent {
		return nil, refuseAbsent(v.ID)
	}
	return o, nil
}

// resolve applies the resolution and reports whether it changed anything.
func (o *operation) resolve(as Resolution, c content) (bool, error) {
	settled := o.row.settled()
	switch as {
	case ResolveReleased:
		if settled {
			return false, refuse(RefusedReport, "the operation is settled; use reopen to let it run anew")
		}
		o.release(true)
	case ResolveReopen:
		if !settled && o.row != rowReleased {
			return false, refuse(RefusedReport, "the operation is not settled; resolve it as completed, failed or released instead")
		}
		o.release(true)
	default:
		if settled {
			if c.fact == (Fact{Failed: o.row == rowFailed, Digest: o.r.SettledDigest}) {
				return false, nil
			}
			return false, refuse(RefusedAlreadySettled, "the operation is settled with another outcome; nothing was changed: reopen it first if that outcome is wrong")
		}
		o.settle(c, SettledByOperator)
	}
	return true, nil
}

// EraseRequest asks that the bytes of an outcome be dropped now, for privacy.
type EraseRequest struct {
	Evidence string
	Etag     string
	Who      string
}

// EraseResult drops the bytes of a settled operation, a failure's message with
// them, and keeps the tombstone. Erasing twice answers OK.
func EraseResult(v View, p Policy, q EraseRequest) (Plan, *Operation, error) {
	o, err := openForOperator(v, p)
	if err != nil {
		return Plan{}, nil, err
	}
	if !o.row.settled() {
		return Plan{}, nil, refuse(RefusedReport, "the operation is not settled and has no result to erase; resolve it first")
	}
	// What is stored counts, not what is shown: bytes that have just expired
	// and are not yet swept are erased too.
	if !v.Record.holdsBytes() && (o.r.Failure == nil || o.r.Failure.Erased) {
		return Plan{}, o.show(), nil
	}
	if q.Etag != "" && q.Etag != o.etag() {
		return Plan{}, nil, refuseEtag()
	}
	before := o.shownState()
	dropBytes(o.r)
	if f := o.r.Failure; f != nil {
		f.Message, f.Erased = "", true
	}
	return o.audited(before, "erase-result", q.Who, q.Evidence)
}

// audited finishes an operator's change and adds its trace.
func (o *operation) audited(before State, verb, who, evidence string) (Plan, *Operation, error) {
	stored := o.v.Record.State
	plan := o.put(stored)
	plan.Audit = &AuditEntry{
		Time: o.now, Who: who, Verb: verb, ID: o.v.ID, Evidence: evidence,
		Before: before, After: o.r.State,
	}
	return plan, o.show(), nil
}

func (o *operation) shownState() State { return o.show().State }

func (o *operation) showIf(ok bool) *Operation {
	if !ok {
		return nil
	}
	return o.show()
}

func (o *operation) etag() string { return o.r.Etag(o.v.Epoch.Generation) }

func refuseEtag() *Refusal {
	return refuse(RefusedEtag, "the operation has changed since the etag was read; look at it again, then decide again")
}
