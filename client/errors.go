package client

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// InProgress is the error of a call whose operation somebody else is executing.
// Its outcome is not known yet: ask again under the same key.
type InProgress struct {
	Key, Method string
	Holder      string        // who executes, for people; may be empty
	Since       time.Time     // when the holder claimed it, in store time
	LeaseEnd    time.Time     // until when the holder may execute, in store time
	RetryAfter  time.Duration // when asking again makes a difference
}

// Error says what is known and what to do.
func (e *InProgress) Error() string {
	return fmt.Sprintf("%s is in progress%s since %s and its outcome is not known yet; ask again under the same key",
		operation(e.Key, e.Method), by(e.Holder), stamp(e.Since))
}

// Unresolved is the error of a call whose operation was claimed before, and
// nobody knows whether it had its effect. It is not executed until somebody has
// found out: by a takeover, see [WithReconcile], or by an operator.
type Unresolved struct {
	Key, Method     string
	Reason          oncedv1.Reason
	Attempt         uint32                  // names the attempt to take over
	Holder          string                  // who claimed it last, for people; may be empty
	FirstClaimedAt  time.Time               // zero when that is not remembered
	ClaimedAt       time.Time               // when the newest attempt was claimed; zero when that is not remembered
	TakeoverRefused oncedv1.TakeoverRefused // why a takeover was not given, if one was asked for
	RetryAfter      time.Duration           // when one may be, if it was too early
	Err             error                   // why it was not, or could not be, found out; nil when nothing is known of that
}

// Error says what is known and what to do.
func (e *Unresolved) Error() string {
	earlier := ","
	if e.Attempt > 1 {
		earlier = ", or one before it,"
	}
	text := fmt.Sprintf("%s is unresolved (%s): attempt %d, claimed%s %s%s may have had its effect; nothing was executed now: "+
		"find out what happened and have it resolved, and do not use another key",
		operation(e.Key, e.Method), strings.TrimPrefix(e.Reason.String(), "REASON_"), e.Attempt, by(e.Holder), at(e.ClaimedAt), earlier)
	if e.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_UNSPECIFIED {
		text += fmt.Sprintf("; a takeover was refused (%s)", strings.TrimPrefix(e.TakeoverRefused.String(), "TAKEOVER_REFUSED_"))
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf("; it may be taken over in %v", e.RetryAfter.Round(time.Millisecond))
	}
	if e.Err != nil {
		text += "; why it was not found out: " + e.Err.Error()
	}
	return text
}

// Unwrap returns why it was not found out, if that is known.
func (e *Unresolved) Unwrap() error { return e.Err }

// Mismatch is the error of a call whose key was first used with other arguments
// or for another subject. It is a bug of the caller; nothing was executed, and
// nothing is shown of the stored operation.
type Mismatch struct {
	Key, Method string
	Reason      onced.RefusalReason // FINGERPRINT_MISMATCH, FINGERPRINT_SCHEME or SUBJECT_MISMATCH
	Err         error               // the refusal as it came
}

// Error says what differs and what to do.
func (e *Mismatch) Error() string {
	return fmt.Sprintf("%s was first used otherwise (%s); nothing was executed: repeat the first call as it was, or use a new key for a new intent: %v",
		operation(e.Key, e.Method), e.Reason, e.Err)
}

// Unwrap returns the refusal as it came.
func (e *Mismatch) Unwrap() error { return e.Err }

// Failed is the error of a call whose operation has failed for good before: the
// replay of a failure. The caller that ran into the failure itself gets its own
// error.
type Failed struct {
	Key, Method    string
	Code           string           // for programs, as the failing call named it; may be empty
	Message        string           // for people
	Details        *oncedv1.Payload // nil when there are none, or none any more
	DetailsDropped bool             // there were details, and they are gone
	FirstClaimedAt time.Time
	Attempt        uint32
}

// Error gives the stored failure and says what to do.
func (e *Failed) Error() string {
	code := ""
	if e.Code != "" {
		code = " with " + e.Code
	}
	return fmt.Sprintf("%s has failed for good%s: %s (first called %s); nothing was executed now: use a new key for a new intent",
		operation(e.Key, e.Method), code, e.Message, at(e.FirstClaimedAt))
}

// ClaimLost says that this process no longer holds a claim that it held. It is
// the cause of the cancelled context of a function that is running
// ([context.Cause]), and the error of a call whose result was not accepted.
type ClaimLost struct {
	Key, Method string
	Attempt     uint32
	Err         error // onced's refusal; nil when the client's own lease clock ran out
}

// Error says how the claim was lost and what to do.
func (e *ClaimLost) Error() string {
	how := "its lease could not be renewed in time"
	if e.Err != nil {
		how = e.Err.Error()
	}
	return fmt.Sprintf("attempt %d of %s has lost its claim: %s; stop before the next effect, and look the operation up: somebody else may execute it or have settled it",
		e.Attempt, operation(e.Key, e.Method), how)
}

// Unwrap returns onced's refusal, if there was one.
func (e *ClaimLost) Unwrap() error { return e.Err }

// ResultUnavailable is the error of a call whose operation was executed before,
// and whose result cannot be given: its bytes were never stored, are no longer
// stored, or cannot be decoded into the type that was asked for. Nothing is
// executed again.
type ResultUnavailable struct {
	Key, Method    string
	ContentType    string
	Size           uint64           // bytes of the result; 0 also when it could not be encoded
	SHA256         []byte           // of the bytes of the result
	Payload        *oncedv1.Payload // the stored bytes, where only decoding failed
	FirstClaimedAt time.Time
	Attempt        uint32
	Err            error // why the bytes could not be decoded; nil when there are none
	dropped        bool
}

// Error says why there is no result and what to do.
func (e *ResultUnavailable) Error() string {
	why := "its result was not stored"
	switch {
	case e.Err != nil:
		why = "its stored result cannot be decoded: " + e.Err.Error()
	case e.dropped:
		why = "its result is no longer stored"
	}
	return fmt.Sprintf("%s was executed (first called %s), but %s (%d bytes, %q); nothing was executed now: get the result from where the effect happened",
		operation(e.Key, e.Method), at(e.FirstClaimedAt), why, e.Size, e.ContentType)
}

// Unwrap returns why the bytes could not be decoded, if that is why.
func (e *ResultUnavailable) Unwrap() error { return e.Err }

// BlockedByTwin is the error of a call that the twin guard stopped: the same act
// is under way, or was just done, under another key.
type BlockedByTwin struct {
	Key, Method string
	Twin        *oncedv1.Twin // its key, state, times and holder; never its result
}

// Error shows the twin and says what to do.
func (e *BlockedByTwin) Error() string {
	return fmt.Sprintf("%s was not executed: the same act stands under key %q (%s, claimed%s %s); "+
		"ask whether it is meant a second time, and if so confirm that key in the twin guard",
		operation(e.Key, e.Method), e.Twin.GetKey(), strings.TrimPrefix(e.Twin.GetState().String(), "STATE_"),
		by(e.Twin.GetHolder()), at(moment(e.Twin.GetClaimTime())))
}

// outcomeUnknown is the error of a call whose context ended while the outcome of
// the operation was not known. It is not a failure of the operation.
type outcomeUnknown struct {
	key   string
	ended error // the context's error
	last  error // what was known last: [*InProgress], or a try's error
}

func (e *outcomeUnknown) Error() string {
	return fmt.Sprintf("outcome unknown, key %q: the call ended (%v) before there was one; nothing was executed by it: ask again under the same key; last: %v",
		e.key, e.ended, e.last)
}

func (e *outcomeUnknown) Unwrap() []error { return []error{e.ended, e.last} }

// refused is the error of a call that was refused. open says that its claim may have
// been granted all the same: by a try whose answer is not known, or by one that was
// answered "I do not know".
func refused(call *Call, err error, open bool) error {
	for _, reason := range []onced.RefusalReason{onced.RefusedFingerprint, onced.RefusedFingerprintScheme, onced.RefusedSubject} {
		if refusedFor(err, reason) {
			return &Mismatch{Key: call.Key, Method: call.Method, Reason: reason, Err: err}
		}
	}
	if open {
		return fmt.Errorf("nothing was executed, and it is not known whether %s was claimed: a claim is given back, or lapses; ask again under the same key: %w",
			operation(call.Key, call.Method), err)
	}
	return fmt.Errorf("%s was not claimed and nothing was executed: %w", operation(call.Key, call.Method), err)
}

func newInProgress(call *Call, a *oncedv1.ClaimResponse) *InProgress {
	op := a.GetOperation()
	return &InProgress{
		Key: call.Key, Method: call.Method, Holder: op.GetHolder(),
		Since: moment(op.GetClaimTime()), LeaseEnd: moment(op.GetLeaseEnd()), RetryAfter: a.GetRetryAfter().AsDuration(),
	}
}

func newUnresolved(call *Call, op *oncedv1.Operation) *Unresolved {
	return &Unresolved{
		Key: call.Key, Method: call.Method, Reason: op.GetReason(), Attempt: op.GetAttempt(), Holder: op.GetHolder(),
		FirstClaimedAt: moment(op.GetFirstClaimTime()), ClaimedAt: moment(op.GetClaimTime()),
	}
}

func newFailed(call *Call, op *oncedv1.Operation) *Failed {
	f := op.GetFailure()
	return &Failed{
		Key: call.Key, Method: call.Method, Code: f.GetCode(), Message: f.GetMessage(),
		Details: f.GetDetails(), DetailsDropped: f.GetDetailsDropped(),
		FirstClaimedAt: moment(op.GetFirstClaimTime()), Attempt: op.GetAttempt(),
	}
}

// operation names an operation in a sentence.
func operation(key, method string) string { return fmt.Sprintf("key %q of method %q", key, method) }

func by(holder string) string {
	if holder == "" {
		return ""
	}
	return fmt.Sprintf(" by %q", holder)
}

func at(t time.Time) string {
	if t.IsZero() {
		return "at a time that is not remembered"
	}
	return "at " + stamp(t)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// moment is a time of an answer; unset is the zero time.
func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
