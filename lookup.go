package onced

import "time"

// Operation is a record as it is at one moment: a lapse, a restore and expiry
// are shown as if they had been written.
type Operation struct {
	Record
	// LeaseRemaining counts to the effective end of the lease; never negative,
	// zero when nothing is held.
	LeaseRemaining time.Duration

	storeGeneration uint64
}

// Etag names this version of the operation in this store, see [Record.Etag].
func (op *Operation) Etag() string { return op.Record.Etag(op.storeGeneration) }

// LookupRequest asks what is known of an operation.
type LookupRequest struct {
	Subject      string
	Fingerprints []Fingerprint // compared only when given
	KeyTime      time.Time     // only for the words of a NOT_FOUND
}

// Lookup shows an operation to a caller of its subject. It changes nothing.
func Lookup(v View, p Policy, q LookupRequest) (*Operation, error) {
	o, err := open(v, p)
	if err != nil {
		return nil, err
	}
	if o.row == rowAbsent {
		return nil, refuseUnknownKey(v, p, q.KeyTime)
	}
	fingerprints := q.Fingerprints
	if len(fingerprints) == 0 {
		fingerprints = o.r.Fingerprints
	}
	if err := o.authorize(q.Subject, fingerprints); err != nil {
		return nil, err
	}
	return o.show(), nil
}

func refuseUnknownKey(v View, p Policy, keyTime time.Time) *Refusal {
	refusal := refuseAbsent(v.ID)
	since := MemorySince(v.Epoch, p, v.ExpiryTime).UTC().Format(time.RFC3339)
	switch {
	case !p.forgets(v.Epoch, keyTime, v.ExpiryTime):
		refusal.Message += "; keys used since " + since + " are remembered"
	case keyTime.IsZero():
		refusal.OlderThanMemory = true
		refusal.Message += "; the store was restored and does not remember all keys: this says nothing about whether it ran"
	default:
		refusal.OlderThanMemory = true
		refusal.Message += "; its key_time is older than what is remembered (since " + since + "): this says nothing about whether it ran"
	}
	return refusal
}

// Show returns a record as it is now, for operators: nothing is checked. ok is
// false when nothing is there; an unreadable record is a refusal.
func Show(v View, p Policy) (op *Operation, ok bool, err error) {
	o, err := open(v, p)
	if err != nil || o.row == rowAbsent {
		return nil, false, err
	}
	return o.show(), true, nil
}

// show returns the working copy as it is to be seen.
func (o *operation) show() *Operation {
	op := &Operation{Record: *o.r, storeGeneration: o.v.Epoch.Generation}
	if o.row.settled() || o.row == rowReleased {
		op.ResultExpire, op.KeyExpire = expiries(o.r, o.p)
	}
	switch o.row {
	case rowLive:
		op.LeaseRemaining = max(0, o.leaseEnd().Sub(o.now))
	case rowLapsed:
		op.State, op.Reason = StateUnresolved, ReasonLapsed
		if o.r.Contradicted {
			op.Reason = ReasonContradicted
		}
	case rowRestoredReleased:
		op.State, op.Reason = StateUnresolved, ReasonHistoryLost
		op.ReleaseTime, op.KeyExpire = time.Time{}, time.Time{}
	}
	return op
}

// doubtReason is the reason of doubt that stands on a running claim.
func (o *operation) doubtReason() Reason {
	if o.r.Contradicted {
		return ReasonContradicted
	}
	return ReasonDeclared
}
