package storagetest

import (
	"crypto/sha256"
	"time"

	"github.com/onced/onced"
)

// epoch is the moment from which the stamps of specimens are counted, with
// nanoseconds that a backend must not lose.
var epoch = NewClock().Wall()

// far is a moment after all stamps of the suite but those that are about range.
var far = epoch.Add(100 * 365 * 24 * time.Hour)

// plain returns a small unsettled record, whose revision tells versions apart.
// It is due revision minutes after the epoch.
func plain(id onced.Identity, revision uint64) *onced.Record {
	return &onced.Record{
		ID: id, State: onced.StatePending, Attempt: 1, Fence: 1, Generation: 1, Revision: revision,
		Lease: 30 * time.Second, LeaseEnd: epoch.Add(time.Duration(revision) * time.Minute),
		FirstClaimTime: epoch, ClaimTime: epoch, UpdateTime: epoch,
	}
}

// completed returns a small settled record with a stored result.
func completed(id onced.Identity, result []byte) *onced.Record {
	r := plain(id, 1)
	r.State, r.Lease, r.LeaseEnd = onced.StateCompleted, 0, time.Time{}
	r.SettleTime, r.SettledBy = epoch, onced.SettledByHolder
	r.Result = onced.NewResult("application/octet-stream", false, result)
	r.SettledDigest = r.Result.Identity()
	r.ResultExpire, r.KeyExpire = epoch.Add(7*24*time.Hour), epoch.Add(30*24*time.Hour)
	return r
}

// revision returns the revision of the record in a view, zero without one.
func revision(v onced.View) uint64 {
	if v.Record == nil {
		return 0
	}
	return v.Record.Revision
}

// specimens returns records that together set every field of a record.
func specimens() []*onced.Record {
	unresolved := common(op("unresolved"))
	unresolved.State, unresolved.Reason = onced.StateUnresolved, onced.ReasonContradicted
	unresolved.Heard, unresolved.ByTakeover = true, true
	unresolved.Doubt, unresolved.Contradicted, unresolved.DoubtTime = true, true, epoch.Add(3)
	payload := onced.NewResult("text/plain", true, []byte("step 4 of 9"))
	unresolved.Checkpoint = &onced.Checkpoint{Attempt: 2, Seq: 1 << 63, Payload: *payload}

	released := common(op("released"))
	released.State, released.ByOperator = onced.StateReleased, true
	released.ReleaseTime, released.KeyExpire = epoch.Add(4), epoch.Add(720*time.Hour)
	released.LastResolve = &onced.LastResolve{
		Resolution: 1, Content: sha256.Sum256([]byte("content")), Evidence: "ticket 17 was never made",
	}

	done := common(op("completed"))
	settle(done, onced.StateCompleted, onced.SettledByHolder)
	done.Result = onced.NewResult("application/json", true, []byte(`{"id":17}`))
	done.SettledDigest = done.Result.Identity()

	failed := common(op("failed"))
	settle(failed, onced.StateFailed, onced.SettledByOperator)
	failed.Failure = &onced.Failure{
		Code: "RESOURCE_EXHAUSTED", Message: "quota\nof the day", Erased: true,
		Details: onced.NewResult("application/x-protobuf", false, []byte{0, 0xff, 0x80}),
	}
	failed.SettledDigest = failed.Failure.Identity()

	return []*onced.Record{unresolved, released, done, failed}
}

func settle(r *onced.Record, state onced.State, by onced.SettledBy) {
	r.State, r.SettledBy, r.SettleTime = state, by, epoch.Add(5)
	r.ResultExpire, r.KeyExpire = epoch.Add(168*time.Hour), epoch.Add(720*time.Hour)
}

// common returns a record with what every state may carry.
func common(id onced.Identity) *onced.Record {
	twin := twinID("subject")
	return &onced.Record{
		ID: id, Attempt: 3, AttemptBase: 1, Fence: 7<<32 + 9, Generation: 7, Revision: 12,
		Lease: 1500 * time.Millisecond, LeaseEnd: epoch.Add(time.Hour + 7),
		Attempts: []onced.Attempt{
			{
				Number: 2, Token: sha256.Sum256([]byte("first")), Fence: 7<<32 + 8, Holder: "worker-1",
				ClaimTime: epoch.Add(1), Reports: onced.ReportSet(0).With(onced.NotExecuted).With(onced.Unknown),
			},
			{
				Number: 3, Token: sha256.Sum256([]byte("second")), Fence: 7<<32 + 9, Holder: "worker-2", ClaimTime: epoch.Add(2),
				Facts: []onced.Fact{{Digest: sha256.Sum256([]byte("a"))}, {Failed: true, Digest: sha256.Sum256([]byte("b"))}},
			},
		},
		Subject: "user-1", Holder: "worker-2",
		Fingerprints: []onced.Fingerprint{
			{Scheme: "cj1", Digest: string([]byte{0, 0xff, 0xfe, 'x', 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})},
			{Scheme: "raw1", Digest: "0123456789abcdef"},
		},
		KeyTime: epoch.Add(-time.Minute), Labels: map[string]string{"team": "crm", "empty": ""},
		FirstClaimTime: epoch.Add(-1), ClaimTime: epoch.Add(2), UpdateTime: epoch.Add(6), Twin: &twin,
	}
}

// twinID returns the identity of a twin entry of one subject.
func twinID(subject string) onced.TwinID {
	return onced.TwinID{
		Namespace: "tools", Method: "crm.v1.Tickets/Create", Subject: subject,
		Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: string([]byte{0xff, 0, 0xfe, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})},
	}
}

// twinEntry returns a twin entry that sets every field.
func twinEntry(id onced.TwinID) *onced.TwinEntry {
	return &onced.TwinEntry{
		ID:        id,
		Unsettled: []onced.TwinKey{{Key: "a", ClaimTime: epoch.Add(1)}, {Key: "b", ClaimTime: epoch.Add(2)}},
		Last:      &onced.TwinKey{Key: "c", ClaimTime: epoch, SettleTime: epoch.Add(3)},
	}
}

// settledTwin returns a twin entry that can be dropped a day after a moment.
func settledTwin(id onced.TwinID, at time.Time) *onced.TwinEntry {
	return &onced.TwinEntry{ID: id, Last: &onced.TwinKey{Key: "c", ClaimTime: epoch, SettleTime: at}}
}

// auditEntry returns an audit entry that sets every field and tells n.
func auditEntry(id onced.Identity, n int) *onced.AuditEntry {
	return &onced.AuditEntry{
		Time: epoch.Add(time.Duration(n)), Who: "operator@example.org", Verb: "resolve", ID: id,
		Evidence: "seen in the outside system\n", Before: onced.StateUnresolved, After: onced.StateReleased,
	}
}
