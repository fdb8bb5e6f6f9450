package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// The metadata of answers for which a handler ran, now or for an earlier call. It is in
// the headers, but in the trailers where the handler says that it had no effect, where it
// failed unprotected, and where it has sent its headers itself. Refusals have none.
const (
	HeaderOutcome        = "onced-outcome"          // one of the Outcome constants
	HeaderKey            = "onced-key"              // the key, where it is printable ASCII
	HeaderKeyBin         = "onced-key-bin"          // the key, where it is not
	HeaderFirstClaimTime = "onced-first-claim-time" // when the operation was first claimed, in RFC 3339
)

// What [HeaderOutcome] says.
const (
	OutcomeExecuted    = "executed"     // the handler ran for this call; its error may leave the outcome unknown
	OutcomeReplayed    = "replayed"     // it ran for an earlier call, and this is that call's answer, or why that cannot be given
	OutcomeNotExecuted = "not-executed" // the handler ran and said that it had no effect
	OutcomeUnprotected = "unprotected"  // the handler ran, and the call carried no key
)

// errorDomain is the domain of the ErrorInfo in a guard's refusals, as in onced's own.
const errorDomain = "onced"

// reason is that of an ErrorInfo. Those of onced itself are handed on as they are.
type reason string

const (
	reasonKeyRequired       reason = "KEY_REQUIRED"
	reasonKeyInvalid        reason = "KEY_INVALID"
	reasonKeyAmbiguous      reason = "KEY_AMBIGUOUS"
	reasonKeyNotGuarded     reason = "KEY_NOT_GUARDED"
	reasonArgumentsInvalid  reason = "ARGUMENTS_INVALID"
	reasonStream            reason = "STREAM_NOT_GUARDED"
	reasonMisconfigured     reason = "GUARD_MISCONFIGURED"
	reasonInProgress        reason = "IN_PROGRESS"
	reasonUnresolved        reason = "UNRESOLVED"
	reasonFailed            reason = "FAILED"
	reasonResultUnavailable reason = "RESULT_UNAVAILABLE"
	reasonClaimLost         reason = "CLAIM_LOST"
	reasonUnavailable       reason = "ONCED_UNAVAILABLE"
)

// code is the code of a refusal. What a client may retry has a code of its own.
func (r reason) code() codes.Code {
	switch r {
	case reasonKeyRequired, reasonKeyInvalid, reasonKeyAmbiguous, reasonKeyNotGuarded, reasonArgumentsInvalid:
		return codes.InvalidArgument
	case reasonStream:
		return codes.Unimplemented
	case reasonMisconfigured:
		return codes.Internal
	case reasonInProgress:
		return codes.Aborted
	case reasonUnavailable:
		return codes.Unavailable
	case reason(onced.RefusedSubject):
		return codes.PermissionDenied
	}
	return codes.FailedPrecondition
}

// refusal is the status of a call of the method that was refused.
func (m *method) refusal(r reason, format string, args ...any) error {
	return detailed(r, fmt.Sprintf(format, args...), map[string]string{"method": m.name})
}

// detailed is a status with an ErrorInfo, and more details.
func detailed(r reason, message string, facts map[string]string, more ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Domain: errorDomain, Reason: string(r), Metadata: facts}
	s := status.New(r.code(), strings.ToValidUTF8(message, "\uFFFD"))
	if with, err := s.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		s = with
	}
	return s.Err()
}

// mostHandlers is how long most handlers take at most: it is worth while to ask again after
// that about one that is in progress, long before its lease is over.
const mostHandlers = time.Second

// factsOf names an operation in an ErrorInfo.
func factsOf(op client.Call) map[string]string {
	return map[string]string{"key": op.Key, "method": op.Method}
}

// retryAfter is the detail that says when another try makes a difference.
func retryAfter(d time.Duration) protoadapt.MessageV1 {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// refused is the status of a call whose handler did not run, because of an error of the
// client.
func (c *call) refused(ctx context.Context, op client.Call, err error) error {
	facts := factsOf(op)
	with := func(more map[string]string) map[string]string {
		maps.Copy(facts, more)
		return facts
	}
	var (
		inProgress  *client.InProgress
		unresolved  *client.Unresolved
		mismatch    *client.Mismatch
		unavailable *client.ResultUnavailable
	)
	switch {
	case errors.As(err, &inProgress):
		return detailed(reasonInProgress, inProgress.Error(), with(map[string]string{
			"holder": inProgress.Holder, "since": stamp(inProgress.Since), "lease_end": stamp(inProgress.LeaseEnd),
		}), retryAfter(min(inProgress.RetryAfter, mostHandlers)))
	case errors.As(err, &unresolved):
		var more []protoadapt.MessageV1
		if unresolved.RetryAfter > 0 {
			more = append(more, retryAfter(unresolved.RetryAfter))
		}
		message := unresolved.Error()
		if c.safeToRerun && unresolved.RetryAfter > 0 {
			message = fmt.Sprintf("key %q of method %q is unresolved: an earlier try may have had its effect; nothing was executed now: the method is safe to run again, so ask again under the same key in %v",
				op.Key, op.Method, unresolved.RetryAfter.Round(time.Millisecond))
		}
		return detailed(reasonUnresolved, message, with(map[string]string{
			"unresolved_reason": strings.TrimPrefix(unresolved.Reason.String(), "REASON_"),
			"attempt":           strconv.FormatUint(uint64(unresolved.Attempt), 10),
			"first_claim_time":  stamp(unresolved.FirstClaimedAt),
			"claim_time":        stamp(unresolved.ClaimedAt), "holder": unresolved.Holder,
		}), more...)
	case errors.As(err, &mismatch) && mismatch.Reason == onced.RefusedSubject:
		return detailed(reason(mismatch.Reason), fmt.Sprintf("key %q of method %q stands for somebody else's call; nothing was executed: use a key of your own",
			op.Key, op.Method), facts)
	case errors.As(err, &mismatch):
		return detailed(reason(mismatch.Reason), fmt.Sprintf("key %q of method %q was first used otherwise (%s); nothing was executed: repeat the first call as it was, or use a new key for a new intent",
			op.Key, op.Method, mismatch.Reason), facts)
	case errors.As(err, &unavailable):
		return detailed(reasonResultUnavailable, unavailable.Error(), with(map[string]string{
			"first_claim_time": stamp(unavailable.FirstClaimedAt), "size": strconv.FormatUint(unavailable.Size, 10),
			"sha256": fmt.Sprintf("%x", unavailable.SHA256),
		}))
	}
	return c.unclaimed(ctx, op, facts, err)
}

// unclaimed is the status of a call for which onced gave no answer, or one that is not
// about the caller. Only what the caller can do something about keeps its code and
// message; the rest is for the service's own log.
func (c *call) unclaimed(ctx context.Context, op client.Call, facts map[string]string, err error) error {
	code, r := status.Code(err), reasonUnavailable
	var more []protoadapt.MessageV1
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			lost := d.GetReason() == string(onced.RefusedClaimLost) // the token, before anything was executed
			if code == codes.FailedPrecondition && d.GetDomain() == errorDomain && !lost {
				r = reason(d.GetReason())
			}
		case *errdetails.BadRequest:
			r = reasonArgumentsInvalid
			lease := func(v *errdetails.BadRequest_FieldViolation) bool { return v.GetField() == "lease" }
			if slices.ContainsFunc(d.GetFieldViolations(), lease) { // the method's option has it
				r = reasonMisconfigured
			}
		case *errdetails.RetryInfo:
			more = append(more, d)
		}
	}
	if r == reasonUnavailable && ctx.Err() != nil { // the caller has left, which says nothing of onced
		return status.FromContextError(ctx.Err()).Err()
	}
	if r == reasonUnavailable {
		level := slog.LevelWarn
		switch code {
		case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
			level = slog.LevelError // it does not pass by itself
		}
		c.log.Log(ctx, level, "a call was refused because onced gave no right to execute it", "namespace", op.Namespace, "key", op.Key, "method", op.Method, "error", err)
		return detailed(r, "the service could not make sure that this call is executed at most once, so nothing was executed: try again under the same key", facts, more...)
	}
	return detailed(r, status.Convert(err).Message(), facts, more...)
}

// mark says what an answer is. The headers of an answer commit a call to it: no retry, and
// of hedged copies no other one, counts any more. So there are headers only where
// something was executed or is replayed.
func mark(ctx context.Context, outcome, key string, firstClaimed time.Time) {
	md := metadata.Pairs(HeaderOutcome, outcome)
	if key != "" {
		md.Set(metadataOf(HeaderKey, HeaderKeyBin, key))
	}
	if !firstClaimed.IsZero() {
		md.Set(HeaderFirstClaimTime, stamp(firstClaimed))
	}
	if outcome == OutcomeNotExecuted || grpc.SetHeader(ctx, md) != nil { // it fails where the handler has sent them
		_ = grpc.SetTrailer(ctx, md)
	}
}

// refuse gives a refusal as the answer. But for UNAVAILABLE the client's retry policy is
// told not to try again: it would change nothing, or come too soon.
func refuse(ctx context.Context, err error) error {
	if status.Code(err) != codes.Unavailable {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "-1"))
	}
	return err
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
