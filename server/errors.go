package server

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// errorDomain is the domain of every google.rpc.ErrorInfo.
const errorDomain = "onced"

// Keys and values of an ErrorInfo's metadata. claimed says whether the call may
// have made a claim; older_than_memory, of a NOT_FOUND alone, whether the key
// may have been used and forgotten.
const (
	metadataClaimed         = "claimed"
	metadataOlderThanMemory = "older_than_memory"

	claimedNo      = "no"
	claimedUnknown = "unknown"
)

// The reasons of the server's own refusals, beside those of the domain.
const (
	refusedOverloaded      onced.RefusalReason = "OVERLOADED"
	refusedStopping        onced.RefusalReason = "STOPPING"
	refusedNotReady        onced.RefusalReason = "NOT_READY"
	refusedStorageFull     onced.RefusalReason = "STORAGE_FULL"
	refusedMethodAmbiguous onced.RefusalReason = "METHOD_AMBIGUOUS"
)

// refusalCodes maps every reason to its code. A reason that is not here is a
// bug, and answered as one.
var refusalCodes = map[onced.RefusalReason]codes.Code{
	onced.RefusedInvalid:           codes.InvalidArgument,
	onced.RefusedNotFound:          codes.NotFound,
	onced.RefusedSubject:           codes.PermissionDenied,
	onced.RefusedFingerprint:       codes.FailedPrecondition,
	onced.RefusedFingerprintScheme: codes.FailedPrecondition,
	onced.RefusedClaimLost:         codes.FailedPrecondition,
	onced.RefusedAlreadySettled:    codes.FailedPrecondition,
	onced.RefusedReport:            codes.FailedPrecondition,
	onced.RefusedClaimLive:         codes.FailedPrecondition,
	onced.RefusedAttempts:          codes.FailedPrecondition,
	onced.RefusedUnreadable:        codes.FailedPrecondition,
	onced.RefusedEtag:              codes.Aborted,
	onced.RefusedQuota:             codes.ResourceExhausted,
	refusedStorageFull:             codes.ResourceExhausted,
	refusedOverloaded:              codes.Unavailable,
	refusedStopping:                codes.Unavailable,
	refusedNotReady:                codes.Unavailable,
	refusedMethodAmbiguous:         codes.FailedPrecondition,
}

// retryDelays is when a refusal that names no time itself may be asked again:
// soon where another moment is enough, later where somebody must act first.
var retryDelays = map[onced.RefusalReason]time.Duration{
	refusedOverloaded:  100 * time.Millisecond,
	refusedStopping:    time.Second,
	refusedNotReady:    time.Second,
	refusedStorageFull: 5 * time.Second,
	onced.RefusedQuota: 5 * time.Second,
}

func refuseOverloaded(why string) *onced.Refusal {
	return &onced.Refusal{Reason: refusedOverloaded, Message: why + "; nothing was changed: re-send it unchanged after the retry delay"}
}

func refuseStopping() *onced.Refusal {
	return &onced.Refusal{Reason: refusedStopping, Message: "the server is stopping; nothing was changed: re-send it unchanged, after the retry delay"}
}

func refuseStorageFull() *onced.Refusal {
	return &onced.Refusal{Reason: refusedStorageFull, Message: "the store is full; nothing was stored: re-send it unchanged when an operator has made room"}
}

// invalidRequest is a request that breaks the rules of its message.
type invalidRequest struct {
	violations []*errdetails.BadRequest_FieldViolation
}

// Error joins the violations.
func (e *invalidRequest) Error() string {
	texts := make([]string, len(e.violations))
	for i, v := range e.violations {
		texts[i] = v.GetField() + ": " + v.GetDescription()
	}
	return strings.Join(texts, "; ")
}

// statusError is an error in the form in which clients get it.
type statusError struct {
	st     *status.Status
	reason string
	// fault is what went wrong inside, for the log alone; nil for refusals.
	fault error
}

// Error returns the text of the status.
func (e *statusError) Error() string { return e.st.Err().Error() }

// GRPCStatus is how gRPC finds the status.
func (e *statusError) GRPCStatus() *status.Status { return e.st }

// toStatus gives an error of a handler, the domain or the store its form on the
// wire: a status with ErrorInfo, and BadRequest or RetryInfo where they apply.
// It is the only place that does so. Errors which are not meant for clients keep
// their text inside.
func toStatus(err error) *statusError {
	var (
		done    *statusError
		invalid *invalidRequest
		refusal *onced.Refusal
	)
	switch {
	case errors.As(err, &done):
		return done
	case errors.As(err, &invalid):
		return newStatus(codes.InvalidArgument, errorInfo(string(onced.RefusedInvalid), claimedNo), invalid.Error(),
			&errdetails.BadRequest{FieldViolations: invalid.violations})
	case errors.As(err, &refusal):
		return fromRefusal(refusal, claimedNo)
	case errors.Is(err, storage.ErrFull):
		return fromRefusal(refuseStorageFull(), claimedNo)
	case errors.Is(err, storage.ErrOverloaded):
		return fromRefusal(refuseOverloaded("as many calls wait for the store as may"), claimedNo)
	case errors.Is(err, storage.ErrClosed):
		return fromRefusal(refuseStopping(), claimedNo)
	case errors.Is(err, storage.ErrFailed):
		st := fromRefusal(&onced.Refusal{Reason: refusedNotReady, Message: "the store has failed" + outcomeUnknown}, claimedUnknown)
		st.fault = err
		return st
	case errors.Is(err, context.DeadlineExceeded):
		return newStatus(codes.DeadlineExceeded, errorInfo("DEADLINE_EXCEEDED", claimedUnknown), "the deadline has passed"+outcomeUnknown)
	case errors.Is(err, context.Canceled):
		return newStatus(codes.Canceled, errorInfo("CANCELLED", claimedUnknown), "the call was cancelled"+outcomeUnknown)
	case status.Code(err) == codes.Unimplemented: // from generated code
		return newStatus(codes.Unimplemented, errorInfo("UNIMPLEMENTED", claimedNo), "this server does not have the call yet; nothing was changed: use a release that has it")
	default:
		st := newStatus(codes.Internal, errorInfo("INTERNAL", claimedUnknown), "the server met a fault, which it has logged"+outcomeUnknown)
		st.fault = err
		return st
	}
}

// outcomeUnknown ends the message of every error after which the caller does not
// know what became of its call.
const outcomeUnknown = ", and whether the call was carried out is not known: re-send it unchanged, and do not execute without an answer"

func fromRefusal(r *onced.Refusal, claimed string) *statusError {
	code, ok := refusalCodes[r.Reason]
	if !ok {
		code = codes.Internal
	}
	info := errorInfo(string(r.Reason), claimed)
	if r.Reason == onced.RefusedNotFound {
		info.Metadata[metadataOlderThanMemory] = strconv.FormatBool(r.OlderThanMemory)
	}
	if after := cmp.Or(r.RetryAfter, retryDelays[r.Reason]); after > 0 {
		return newStatus(code, info, r.Message, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	return newStatus(code, info, r.Message)
}

func errorInfo(reason, claimed string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Domain: errorDomain, Reason: reason, Metadata: map[string]string{metadataClaimed: claimed}}
}

// greatestMessage bounds the message of a status, in bytes. With its violations a
// status stays below what gRPC's clients take of headers.
const greatestMessage = 1024

// cut shortens a text to a number of bytes, and shows that it did.
func cut(text string, bytes int) string {
	const more = "…"
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len(more)], "") + more
}

func newStatus(code codes.Code, info *errdetails.ErrorInfo, message string, more ...protoadapt.MessageV1) *statusError {
	st := status.New(code, cut(message, greatestMessage))
	if detailed, err := st.WithDetails(append([]protoadapt.MessageV1{info}, more...)...); err == nil {
		st = detailed
	}
	return &statusError{st: st, reason: info.GetReason()}
}
