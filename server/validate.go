package server

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Bounds that only the wire has, in bytes. All others are the domain's.
const (
	greatestContentType    = 256
	greatestFailureCode    = 64
	greatestFailureMessage = 4096
	sha256Size             = len(onced.Digest{})
)

// Bounds of what is said of one request. An answer's status travels in headers, for
// which clients have little room: with more of it they give up the connection.
const (
	greatestViolations  = 16
	greatestDescription = 256 // bytes of one violation
)

// violations collects what is wrong with a request: as much of it as an answer has
// room for.
type violations []*errdetails.BadRequest_FieldViolation

func (v *violations) add(field, format string, args ...any) {
	if len(*v) < greatestViolations {
		description := cut(fmt.Sprintf(format, args...), greatestDescription)
		*v = append(*v, &errdetails.BadRequest_FieldViolation{Field: field, Description: description})
	}
}

func (v *violations) check(field string, err error) {
	if err != nil {
		v.add(field, "%s", err.Error())
	}
}

func (v violations) err() error {
	if len(v) == 0 {
		return nil
	}
	return &invalidRequest{violations: v}
}

func validateClaim(req *oncedv1.ClaimRequest, policies *Policies) (*claimCall, error) {
	var v violations
	c := &claimCall{id: v.ref(req.GetRef()), policy: policies.For(req.GetRef().GetNamespace())}
	c.wait = v.wait(req.GetWait())
	c.request = onced.ClaimRequest{
		Token:           v.token(req.GetClaimToken()),
		Fingerprints:    v.fingerprints(req.GetFingerprints()),
		Subject:         v.subject(req.GetSubject()),
		Holder:          req.GetHolder(),
		Lease:           v.lease(req.GetLease(), c.policy),
		TakeOverAttempt: req.GetTakeOverAttempt(),
		KeyTime:         v.keyTime(req.GetKeyTime(), c.id.Key, c.policy),
		Labels:          req.GetLabels(),
		Guard:           v.guard(req.GetTwinGuard()),
	}
	v.check("holder", onced.ValidateHolder(req.GetHolder()))
	v.check("labels", onced.ValidateLabels(req.GetLabels()))
	switch {
	case len(req.GetFingerprints()) > 0:
	case c.policy.FingerprintRequired:
		v.add("fingerprints", "namespace %s requires one: send the digest of the arguments", c.id.Namespace)
	case req.GetTwinGuard() != nil:
		v.add("fingerprints", "a twin guard needs one: twins are told by the digest of their arguments")
	}
	if c.policy.KeyTimeRequired && req.GetKeyTime() == nil && c.request.KeyTime.IsZero() {
		v.add("key_time", "namespace %s requires it: send when the key was first minted", c.id.Namespace)
	}
	return c, v.err()
}

func validateComplete(req *oncedv1.CompleteRequest, policies *Policies) (*reportCall, *onced.Result, error) {
	var v violations
	c := v.report(req, policies)
	var result *onced.Result
	switch r := req.GetResult().(type) {
	case *oncedv1.CompleteRequest_Stored:
		v.contentType("stored.content_type", r.Stored.GetContentType())
		result = resultFromWire(r.Stored, c.policy.MaxResultBytes)
	case *oncedv1.CompleteRequest_Omitted:
		v.contentType("omitted.content_type", r.Omitted.GetContentType())
		if n := len(r.Omitted.GetSha256()); n != sha256Size {
			v.add("omitted.sha256", "must have exactly %d bytes, has %d", sha256Size, n)
		}
		result = omittedFromWire(r.Omitted)
	default:
		v.add("result", "must be stored or omitted; an empty result is a stored one with an empty body")
	}
	return c, result, v.err()
}

func validateFail(req *oncedv1.FailRequest, policies *Policies) (*reportCall, onced.FailRequest, error) {
	var v violations
	c := v.report(req, policies)
	f := onced.FailRequest{
		Disposition: onced.Disposition(req.GetDisposition()),
		Checkpoint:  v.checkpoint(req.GetCheckpoint(), c.policy),
	}
	switch req.GetDisposition() {
	case oncedv1.Disposition_DISPOSITION_FINAL:
		f.Failure = v.failure(req.GetFailure(), c.policy)
	case oncedv1.Disposition_DISPOSITION_NOT_EXECUTED, oncedv1.Disposition_DISPOSITION_UNKNOWN, oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN:
	default:
		v.add("disposition", "%d is not one that this server knows; say NOT_EXECUTED, FINAL, UNKNOWN or DID_NOT_HAPPEN, and UNKNOWN when in doubt", req.GetDisposition())
	}
	return c, f, v.err()
}

func validateRenew(req *oncedv1.RenewRequest, policies *Policies) (*renewCall, error) {
	var v violations
	c := &renewCall{reportCall: *v.report(req, policies)}
	c.lease = v.lease(req.GetLease(), c.policy)
	c.checkpoint = v.checkpoint(req.GetCheckpoint(), c.policy)
	return c, v.err()
}

func validateLookup(req *oncedv1.LookupRequest, policies *Policies) (*lookupCall, error) {
	var v violations
	c := &lookupCall{id: v.refOfKey(req.GetRef()), policy: policies.For(req.GetRef().GetNamespace()), bytes: true}
	c.wait = v.wait(req.GetWait())
	c.request = onced.LookupRequest{
		Subject:      v.subject(req.GetSubject()),
		Fingerprints: v.fingerprints(req.GetFingerprints()),
		KeyTime:      v.keyTime(req.GetKeyTime(), c.id.Key, c.policy),
	}
	switch req.GetView() {
	case oncedv1.LookupView_LOOKUP_VIEW_UNSPECIFIED, oncedv1.LookupView_LOOKUP_VIEW_FULL:
	case oncedv1.LookupView_LOOKUP_VIEW_BASIC:
		c.bytes = false
	default:
		v.add("view", "%d is not one that this server knows; say BASIC or FULL", req.GetView())
	}
	return c, v.err()
}

func validateGetPolicy(req *oncedv1.GetPolicyRequest) error {
	var v violations
	v.check("namespace", onced.ValidateNamespace(req.GetNamespace()))
	return v.err()
}

// keyTimeRefused gives the one refusal of the domain that is about a field, a
// key_time in the future, the form of a violation.
func keyTimeRefused(err error) error {
	var refusal *onced.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != onced.RefusedInvalid {
		return err
	}
	var v violations
	v.add("key_time", "%s", refusal.Message)
	return v.err()
}

// ref checks the reference of an operation.
func (v *violations) ref(ref *oncedv1.OperationRef) onced.Identity {
	id := v.refOfKey(ref)
	if ref != nil && id.Method == "" {
		v.check("ref.method", onced.ValidateMethod(id.Method))
	}
	return id
}

// refOfKey checks a reference that may leave the method out.
func (v *violations) refOfKey(ref *oncedv1.OperationRef) onced.Identity {
	if ref == nil {
		v.add("ref", "is required: it names the operation by namespace, key and method")
		return onced.Identity{}
	}
	v.check("ref.namespace", onced.ValidateNamespace(ref.GetNamespace()))
	v.check("ref.key", onced.ValidateKey(ref.GetKey()))
	if ref.GetMethod() != "" {
		v.check("ref.method", onced.ValidateMethod(ref.GetMethod()))
	}
	return onced.Identity{Namespace: ref.GetNamespace(), Key: ref.GetKey(), Method: ref.GetMethod()}
}

// report checks what all reports of a holder have in common.
func (v *violations) report(req holderRequest, policies *Policies) *reportCall {
	if req.GetFence() == 0 {
		v.add("fence", "is required and never 0: send the fence that the claim was answered with")
	}
	return &reportCall{
		id:     v.ref(req.GetRef()),
		policy: policies.For(req.GetRef().GetNamespace()),
		holder: onced.Holder{Token: v.token(req.GetClaimToken()), Fence: req.GetFence()},
	}
}

func (v *violations) token(token []byte) onced.Digest {
	v.check("claim_token", onced.ValidateToken(token))
	return onced.TokenDigest(token)
}

func (v *violations) subject(subject string) string {
	v.check("subject", onced.ValidateSubject(subject))
	return subject
}

func (v *violations) fingerprints(list []string) []onced.Fingerprint {
	parsed, err := onced.ParseFingerprints(list)
	v.check("fingerprints", err)
	return parsed
}

// lease returns the lease in force: unset is the namespace's default, and zero
// is not unset.
func (v *violations) lease(d *durationpb.Duration, p onced.Policy) time.Duration {
	if d == nil {
		return p.DefaultLease
	}
	lease, ok := v.duration("lease", d)
	if ok {
		v.check("lease", p.CheckLease(lease))
	}
	return lease
}

func (v *violations) wait(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	wait, ok := v.duration("wait", d)
	if ok && wait < 0 {
		v.add("wait", "%v must not be negative; leave it unset not to wait", wait)
	}
	return wait
}

// duration returns a well-formed duration. What does not fit a time.Duration
// comes out as the longest one, which is over every bound.
func (v *violations) duration(field string, d *durationpb.Duration) (time.Duration, bool) {
	if d.CheckValid() != nil {
		v.add(field, "%d s and %d ns are not a duration: seconds must lie within ±315576000000, nanos within ±999999999, both of one sign", d.GetSeconds(), d.GetNanos())
		return 0, false
	}
	return d.AsDuration(), true
}

// keyTime returns when the key was minted: what the request says, or what is
// written in the key, where the namespace reads it there.
func (v *violations) keyTime(t *timestamppb.Timestamp, key string, p onced.Policy) time.Time {
	if t == nil {
		if !p.KeyTimeFromKey {
			return time.Time{}
		}
		return timeInKey(key)
	}
	if t.CheckValid() != nil || t.AsTime().IsZero() {
		v.add("key_time", "%d s and %d ns are not a time: seconds must lie after the beginning of year 1 and before year 10000, nanos within 0 to 999999999", t.GetSeconds(), t.GetNanos())
		return time.Time{}
	}
	return t.AsTime()
}

func (v *violations) guard(g *oncedv1.TwinGuard) *onced.TwinGuard {
	if g == nil {
		return nil
	}
	guard := &onced.TwinGuard{Confirmed: g.GetConfirmedTwinKey()}
	switch g.GetBlock() {
	case oncedv1.TwinGuard_BLOCK_UNSETTLED:
		guard.Block = onced.BlockUnsettled
	case oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT:
		guard.Block = onced.BlockUnsettledOrRecent
	default:
		v.add("twin_guard.block", "%d is not one that this server knows; say UNSETTLED or UNSETTLED_OR_RECENT", g.GetBlock())
	}
	guard.Window = v.window(g.GetWindow(), guard.Block)
	if guard.Confirmed != "" {
		v.check("twin_guard.confirmed_twin_key", onced.ValidateKey(guard.Confirmed))
	}
	return guard
}

// window checks how long a twin is recent, which only one of the blocks asks.
func (v *violations) window(d *durationpb.Duration, block onced.TwinBlock) time.Duration {
	if d == nil {
		if block == onced.BlockUnsettledOrRecent {
			v.add("twin_guard.window", "is required with UNSETTLED_OR_RECENT: %v to %v", onced.LeastTwinWindow, onced.GreatestTwinWindow)
		}
		return 0
	}
	window, ok := v.duration("twin_guard.window", d)
	if ok && (window < onced.LeastTwinWindow || window > onced.GreatestTwinWindow) {
		v.add("twin_guard.window", "%v must lie within %v to %v", window, onced.LeastTwinWindow, onced.GreatestTwinWindow)
	}
	return window
}

// failure checks a failure that becomes the outcome; unset is one without
// anything in it.
func (v *violations) failure(f *oncedv1.Failure, p onced.Policy) *onced.Failure {
	v.atMost("failure.code", f.GetCode(), greatestFailureCode)
	v.atMost("failure.message", f.GetMessage(), greatestFailureMessage)
	failure := &onced.Failure{Code: f.GetCode(), Message: f.GetMessage()}
	if d := f.GetDetails(); d != nil {
		v.contentType("failure.details.content_type", d.GetContentType())
		failure.Details = resultFromWire(d, p.MaxResultBytes)
	}
	return failure
}

func (v *violations) checkpoint(c *oncedv1.Checkpoint, p onced.Policy) *onced.Checkpoint {
	if c == nil {
		return nil
	}
	v.contentType("checkpoint.payload.content_type", c.GetPayload().GetContentType())
	payload := payloadFromWire(c.GetPayload())
	if n := int64(len(payload.Bytes)); n > p.MaxCheckpointBytes {
		v.add("checkpoint.payload", "must have at most %d bytes, has %d; store what it refers to elsewhere", p.MaxCheckpointBytes, n)
	}
	return &onced.Checkpoint{Seq: c.GetSeq(), Payload: *payload}
}

func (v *violations) contentType(field, s string) { v.atMost(field, s, greatestContentType) }

func (v *violations) atMost(field, s string, bytes int) {
	if len(s) > bytes {
		v.add(field, "must have at most %d bytes, has %d", bytes, len(s))
	}
}
