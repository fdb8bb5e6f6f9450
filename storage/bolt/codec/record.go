package codec

import (
	"time"

	"github.com/onced/onced"
	storagev1 "github.com/onced/onced/gen/onced/storage/v1"
	"github.com/onced/onced/storage"
)

// Large payloads are stored on their own: a record is written several times in its
// life, and would take them along each time.

// Part names a payload of a record that may be stored apart from it.
type Part uint8

// The parts, from 1 to Parts. The numbers stand in keys.
const (
	PartResult Part = iota + 1
	PartDetails
	PartCheckpoint
	Parts = iota
)

// Payloads are the payloads of one record that are stored apart; those that come
// from a value have no bytes.
type Payloads [Parts]*onced.Result

// Of returns a part's payload; nil if there is none that is stored apart.
func (p *Payloads) Of(which Part) *onced.Result { return p[which-1] }

// EncodeRecord returns the value of a record under key, and which of its payloads
// are to be stored apart from it; one of these without bytes is there already.
func EncodeRecord(key []byte, r *onced.Record) ([]byte, Payloads, error) {
	e := encoder{}
	m := e.record(r)
	if e.err != nil {
		return nil, Payloads{}, e.err
	}
	value, err := sealMessage(key, m)
	return value, e.apart, err
}

// encoder converts the domain to messages. The bytes of payloads are shared.
type encoder struct {
	checker
	apart Payloads
}

func (e *encoder) record(r *onced.Record) *storagev1.Record {
	e.enum("state", storagev1.State_name, int32(r.State), 1)
	e.enum("reason", storagev1.Reason_name, int32(r.Reason), 0)
	e.enum("settled_by", storagev1.SettledBy_name, int32(r.SettledBy), 0)
	return &storagev1.Record{
		State: storagev1.State(r.State), Reason: storagev1.Reason(r.Reason),
		Attempt: r.Attempt, AttemptBase: r.AttemptBase,
		Fence: r.Fence, Generation: r.Generation, Revision: r.Revision,
		LeaseNanos: int64(r.Lease), LeaseEnd: e.stamp(r.LeaseEnd), Attempts: e.attempts(r.Attempts),
		Heard: r.Heard, ByTakeover: r.ByTakeover, Doubt: r.Doubt,
		Contradicted: r.Contradicted, ByOperator: r.ByOperator, DoubtTime: e.stamp(r.DoubtTime),
		Subject: r.Subject, Holder: r.Holder, Fingerprints: fingerprintMessages(r.Fingerprints),
		KeyTime: e.stamp(r.KeyTime), Labels: r.Labels,
		FirstClaimTime: e.stamp(r.FirstClaimTime), ClaimTime: e.stamp(r.ClaimTime),
		ReleaseTime: e.stamp(r.ReleaseTime), SettleTime: e.stamp(r.SettleTime),
		UpdateTime: e.stamp(r.UpdateTime), SettledBy: storagev1.SettledBy(r.SettledBy),
		Result: e.payload(PartResult, r.Result), Failure: e.failure(r.Failure),
		SettledDigest: digestBytes(r.SettledDigest), Checkpoint: e.checkpoint(r.Checkpoint),
		ResultExpire: e.stamp(r.ResultExpire), KeyExpire: e.stamp(r.KeyExpire),
		Twin: twinIDMessage(r.Twin), LastResolve: e.lastResolve(r.LastResolve),
	}
}

func (e *encoder) attempts(list []onced.Attempt) []*storagev1.Attempt {
	var out []*storagev1.Attempt
	for _, a := range list {
		m := &storagev1.Attempt{
			Number: a.Number, Token: digestBytes(a.Token), Fence: a.Fence,
			Holder: a.Holder, ClaimTime: e.stamp(a.ClaimTime), Reports: e.reports(a.Reports),
		}
		for _, f := range a.Facts {
			m.Facts = append(m.Facts, &storagev1.Fact{Failed: f.Failed, Digest: digestBytes(f.Digest)})
		}
		out = append(out, m)
	}
	return out
}

func (e *encoder) reports(set onced.ReportSet) []storagev1.Disposition {
	var out []storagev1.Disposition
	for d := onced.NotExecuted; d <= onced.DidNotHappen; d++ {
		if set.Has(d) {
			out = append(out, storagev1.Disposition(d))
		}
	}
	if reportSet(out) != set {
		e.fail("reports %b hold one that this build does not know", set)
	}
	return out
}

func reportSet(list []storagev1.Disposition) (set onced.ReportSet) {
	for _, d := range list {
		set = set.With(onced.Disposition(d))
	}
	return set
}

func (e *encoder) payload(which Part, r *onced.Result) *storagev1.Payload {
	if r == nil {
		return nil
	}
	e.enum("presence", storagev1.Presence_name, int32(r.Presence), 1)
	m := &storagev1.Payload{
		ContentType: r.ContentType, Text: r.Text, Presence: storagev1.Presence(r.Presence),
		Size: r.Size, Sha256: digestBytes(r.SHA256),
	}
	switch {
	case r.Presence != onced.Stored:
	case uint64(len(r.Bytes)) != r.Size && (r.Bytes != nil || !storage.Large(r)):
		e.fail("payload of size %d has %d bytes", r.Size, len(r.Bytes))
	case storage.Large(r):
		m.Apart = true
		e.apart[which-1] = r
	default:
		m.Data = r.Bytes
	}
	return m
}

func (e *encoder) failure(f *onced.Failure) *storagev1.Failure {
	if f == nil {
		return nil
	}
	return &storagev1.Failure{Code: f.Code, Message: f.Message, Details: e.payload(PartDetails, f.Details), Erased: f.Erased}
}

func (e *encoder) checkpoint(c *onced.Checkpoint) *storagev1.Checkpoint {
	if c == nil {
		return nil
	}
	return &storagev1.Checkpoint{Attempt: c.Attempt, Seq: c.Seq, Payload: e.payload(PartCheckpoint, &c.Payload)}
}

func (e *encoder) lastResolve(l *onced.LastResolve) *storagev1.LastResolve {
	if l == nil {
		return nil
	}
	e.enum("resolution", storagev1.Resolution_name, int32(l.Resolution), 1)
	return &storagev1.LastResolve{
		Resolution: storagev1.Resolution(l.Resolution), Content: digestBytes(l.Content), Evidence: l.Evidence,
	}
}

// DecodeRecord reads the value of a record under key, which is the encoding of
// id. Payloads that are stored apart have no bytes. The record shares no memory
// with value.
func DecodeRecord(id onced.Identity, key, value []byte) (*onced.Record, Payloads, error) {
	m := &storagev1.Record{}
	if err := unsealMessage(key, value, m); err != nil {
		return nil, Payloads{}, err
	}
	d := decoder{}
	r := d.record(m)
	if d.err != nil {
		return nil, Payloads{}, d.err
	}
	r.ID = id
	return r, d.apart, nil
}

// decoder converts messages to the domain.
type decoder struct {
	checker
	apart Payloads
}

func (d *decoder) record(m *storagev1.Record) *onced.Record {
	d.enum("state", storagev1.State_name, int32(m.State), 1)
	d.enum("reason", storagev1.Reason_name, int32(m.Reason), 0)
	d.enum("settled_by", storagev1.SettledBy_name, int32(m.SettledBy), 0)
	return &onced.Record{
		State: onced.State(m.State), Reason: onced.Reason(m.Reason),
		Attempt: m.Attempt, AttemptBase: m.AttemptBase,
		Fence: m.Fence, Generation: m.Generation, Revision: m.Revision,
		Lease: time.Duration(m.LeaseNanos), LeaseEnd: d.time(m.LeaseEnd), Attempts: d.attempts(m.Attempts),
		Heard: m.Heard, ByTakeover: m.ByTakeover, Doubt: m.Doubt,
		Contradicted: m.Contradicted, ByOperator: m.ByOperator, DoubtTime: d.time(m.DoubtTime),
		Subject: m.Subject, Holder: m.Holder, Fingerprints: fingerprints(m.Fingerprints),
		KeyTime: d.time(m.KeyTime), Labels: m.Labels,
		FirstClaimTime: d.time(m.FirstClaimTime), ClaimTime: d.time(m.ClaimTime),
		ReleaseTime: d.time(m.ReleaseTime), SettleTime: d.time(m.SettleTime),
		UpdateTime: d.time(m.UpdateTime), SettledBy: onced.SettledBy(m.SettledBy),
		Result: d.payload(PartResult, m.Result), Failure: d.failure(m.Failure),
		SettledDigest: d.digest(m.SettledDigest), Checkpoint: d.checkpoint(m.Checkpoint),
		ResultExpire: d.time(m.ResultExpire), KeyExpire: d.time(m.KeyExpire),
		Twin: twinID(m.Twin), LastResolve: d.lastResolve(m.LastResolve),
	}
}

func (d *decoder) attempts(list []*storagev1.Attempt) []onced.Attempt {
	var out []onced.Attempt
	for _, m := range list {
		for _, r := range m.Reports {
			d.enum("disposition", storagev1.Disposition_name, int32(r), 1)
		}
		a := onced.Attempt{
			Number: m.Number, Token: d.digest(m.Token), Fence: m.Fence,
			Holder: m.Holder, ClaimTime: d.time(m.ClaimTime), Reports: reportSet(m.Reports),
		}
		for _, f := range m.Facts {
			a.Facts = append(a.Facts, onced.Fact{Failed: f.Failed, Digest: d.digest(f.Digest)})
		}
		out = append(out, a)
	}
	return out
}

func (d *decoder) payload(which Part, m *storagev1.Payload) *onced.Result {
	if m == nil {
		return nil
	}
	d.enum("presence", storagev1.Presence_name, int32(m.Presence), 1)
	r := &onced.Result{
		ContentType: m.ContentType, Text: m.Text, Presence: onced.Presence(m.Presence),
		Size: m.Size, SHA256: d.digest(m.Sha256),
	}
	switch {
	case r.Presence != onced.Stored:
		if len(m.Data) > 0 || m.Apart {
			d.fail("payload has bytes that are said to be gone")
		}
		return r
	case m.Apart != storage.Large(r) || uint64(len(m.Data)) != r.Size && !m.Apart:
		d.fail("payload of size %d has %d bytes, and more apart: %t", r.Size, len(m.Data), m.Apart)
	case m.Apart:
		apart := *r // the record's reader may change what it is shown
		d.apart[which-1] = &apart
	case m.Data == nil:
		r.Bytes = []byte{} // stored and empty
	default:
		r.Bytes = m.Data
	}
	return r
}

func (d *decoder) failure(m *storagev1.Failure) *onced.Failure {
	if m == nil {
		return nil
	}
	return &onced.Failure{Code: m.Code, Message: m.Message, Details: d.payload(PartDetails, m.Details), Erased: m.Erased}
}

func (d *decoder) checkpoint(m *storagev1.Checkpoint) *onced.Checkpoint {
	if m == nil {
		return nil
	}
	c := &onced.Checkpoint{Attempt: m.Attempt, Seq: m.Seq}
	if p := d.payload(PartCheckpoint, m.Payload); p != nil {
		c.Payload = *p
	} else {
		d.fail("checkpoint has no payload")
	}
	return c
}

func (d *decoder) lastResolve(m *storagev1.LastResolve) *onced.LastResolve {
	if m == nil {
		return nil
	}
	d.enum("resolution", storagev1.Resolution_name, int32(m.Resolution), 1)
	return &onced.LastResolve{
		Resolution: onced.Resolution(m.Resolution), Content: d.digest(m.Content), Evidence: m.Evidence,
	}
}
