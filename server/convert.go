package server

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The enums of the domain have the numbers of those on the wire, so a conversion
// is a cast; a test compares them name by name.

// payloadFromWire returns a payload as a stored result. A body that is not set
// is an empty one.
func payloadFromWire(p *oncedv1.Payload) *onced.Result {
	if text, ok := p.GetBody().(*oncedv1.Payload_Text); ok {
		return onced.NewResult(p.GetContentType(), true, []byte(text.Text))
	}
	return onced.NewResult(p.GetContentType(), false, p.GetData())
}

// resultFromWire returns a payload as a result: over the limit in bytes, it is
// omitted from the start.
func resultFromWire(p *oncedv1.Payload, limit int64) *onced.Result {
	r := payloadFromWire(p)
	if int64(len(r.Bytes)) > limit {
		r.Presence, r.Bytes = onced.Omitted, nil
	}
	return r
}

func omittedFromWire(o *oncedv1.OmittedResult) *onced.Result {
	r := &onced.Result{ContentType: o.GetContentType(), Presence: onced.Omitted, Size: o.GetSize()}
	copy(r.SHA256[:], o.GetSha256())
	return r
}

func refToWire(id onced.Identity) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: id.Namespace, Key: id.Key, Method: id.Method}
}

// operationToWire shows an operation, with the bytes of its outcome or without.
func operationToWire(op *onced.Operation, bytes bool) *oncedv1.Operation {
	if op == nil {
		return nil
	}
	wire := &oncedv1.Operation{
		Ref:              refToWire(op.ID),
		State:            oncedv1.State(op.State),
		Reason:           oncedv1.Reason(op.Reason),
		Attempt:          op.Attempt,
		Fence:            op.Fence,
		Etag:             op.Etag(),
		Generation:       op.Generation,
		AttemptsLeft:     op.AttemptsLeft(),
		FirstClaimTime:   timeToWire(op.FirstClaimTime),
		ClaimTime:        timeToWire(op.ClaimTime),
		LeaseEnd:         timeToWire(op.LeaseEnd),
		SettleTime:       timeToWire(op.SettleTime),
		ReleaseTime:      timeToWire(op.ReleaseTime),
		SettledBy:        oncedv1.SettledBy(op.SettledBy),
		Result:           resultToWire(op.Result, bytes),
		Failure:          failureToWire(op.Failure, bytes),
		Holder:           op.Holder,
		ResultExpireTime: timeToWire(op.ResultExpire),
		KeyExpireTime:    timeToWire(op.KeyExpire),
	}
	if !op.LeaseEnd.IsZero() {
		wire.Lease = durationpb.New(op.Lease)
	}
	if op.State == onced.StatePending {
		wire.LeaseRemaining = durationpb.New(op.LeaseRemaining)
	}
	return wire
}

func resultToWire(r *onced.Result, bytes bool) *oncedv1.Result {
	if r == nil {
		return nil
	}
	wire := &oncedv1.Result{Size: r.Size, Sha256: r.SHA256[:]}
	switch r.Presence {
	case onced.Stored:
		wire.Kind = &oncedv1.Result_Stored{Stored: payloadToWire(r, bytes)}
	case onced.Omitted:
		wire.Kind = &oncedv1.Result_Omitted{Omitted: &oncedv1.OmittedResult{ContentType: r.ContentType, Size: r.Size, Sha256: r.SHA256[:]}}
	case onced.Dropped:
		wire.Kind = &oncedv1.Result_Dropped{Dropped: &oncedv1.DroppedResult{ContentType: r.ContentType, Size: r.Size, Sha256: r.SHA256[:]}}
	}
	return wire
}

// payloadToWire shows stored bytes in the form in which they came.
func payloadToWire(r *onced.Result, bytes bool) *oncedv1.Payload {
	wire := &oncedv1.Payload{ContentType: r.ContentType}
	switch {
	case !bytes:
	case r.Text:
		wire.Body = &oncedv1.Payload_Text{Text: string(r.Bytes)}
	default:
		wire.Body = &oncedv1.Payload_Data{Data: r.Bytes}
	}
	return wire
}

func failureToWire(f *onced.Failure, bytes bool) *oncedv1.Failure {
	if f == nil {
		return nil
	}
	wire := &oncedv1.Failure{Code: f.Code, Message: f.Message}
	switch {
	case f.Details == nil:
	case f.Details.Presence == onced.Stored:
		wire.Details = payloadToWire(f.Details, bytes)
	default:
		wire.DetailsDropped = true
	}
	return wire
}

func checkpointToWire(c *onced.Checkpoint) *oncedv1.Checkpoint {
	if c == nil {
		return nil
	}
	return &oncedv1.Checkpoint{Seq: c.Seq, Payload: payloadToWire(&c.Payload, true), Attempt: c.Attempt}
}

func claimToWire(a onced.ClaimAnswer) *oncedv1.ClaimResponse {
	wire := &oncedv1.ClaimResponse{
		Outcome:         oncedv1.Outcome(a.Outcome),
		Operation:       operationToWire(a.Operation, true),
		Yours:           a.Yours,
		Checkpoint:      checkpointToWire(a.Checkpoint),
		TakeoverRefused: oncedv1.TakeoverRefused(a.TakeoverRefused),
		KeyTimeChanged:  a.KeyTimeChanged,
		AnswerTime:      timeToWire(a.Time),
	}
	if a.RetryAfter > 0 {
		wire.RetryAfter = durationpb.New(a.RetryAfter)
	}
	return wire
}

// twinToWire shows a twin. op is nil when nothing of it can be shown but its key.
func twinToWire(key string, op *onced.Operation) *oncedv1.Twin {
	wire := &oncedv1.Twin{Key: key}
	if op != nil {
		wire.State = oncedv1.State(op.State)
		wire.FirstClaimTime = timeToWire(op.FirstClaimTime)
		wire.ClaimTime = timeToWire(op.ClaimTime)
		wire.SettleTime = timeToWire(op.SettleTime)
		wire.Holder = op.Holder
	}
	return wire
}

// policyToWire shows a policy as it is in force at a moment of the store.
func policyToWire(p onced.Policy, now onced.View) *oncedv1.Policy {
	wire := &oncedv1.Policy{
		ResultRetention:     durationpb.New(p.ResultRetention),
		KeyRetention:        durationpb.New(p.KeyRetention),
		DefaultLease:        durationpb.New(p.DefaultLease),
		MinLease:            durationpb.New(p.MinLease),
		MaxLease:            durationpb.New(p.MaxLease),
		MaxWait:             durationpb.New(p.MaxWait),
		MaxResultBytes:      uint64(p.MaxResultBytes),
		MaxCheckpointBytes:  uint64(p.MaxCheckpointBytes),
		MemorySince:         timeToWire(onced.MemorySince(now.Epoch, p, now.ExpiryTime)),
		Generation:          now.Epoch.Generation,
		Takeover:            oncedv1.TakeoverPolicy(p.Takeover),
		SafeToRerun:         p.SafeToRerun,
		FingerprintRequired: p.FingerprintRequired,
		KeyTimeRequired:     p.KeyTimeRequired,
		KeyTimeFromKey:      p.KeyTimeFromKey,
		KeyTimeSkew:         durationpb.New(p.Skew),
	}
	if p.ReconcileAfter != nil {
		wire.ReconcileAfter = durationpb.New(*p.ReconcileAfter)
	}
	return wire
}

// timeToWire shows a time; zero is unset.
func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func joinFingerprints(list []onced.Fingerprint) string {
	texts := make([]string, len(list))
	for i, f := range list {
		texts[i] = f.String()
	}
	return strings.Join(texts, " ")
}
