package onced

import (
	"fmt"
	"time"
)

// RefusalReason is the machine-readable reason of a refusal. Its text stands on
// the wire as the reason of a google.rpc.ErrorInfo.
type RefusalReason string

// The reasons of refusals. A refusal changes neither state, result, token,
// lease nor fingerprint; the only thing that it may add is doubt.
const (
	RefusedInvalid           RefusalReason = "INVALID_ARGUMENT"
	RefusedNotFound          RefusalReason = "NOT_FOUND"
	RefusedSubject           RefusalReason = "SUBJECT_MISMATCH"
	RefusedFingerprint       RefusalReason = "FINGERPRINT_MISMATCH"
	RefusedFingerprintScheme RefusalReason = "FINGERPRINT_SCHEME"
	RefusedClaimLost         RefusalReason = "CLAIM_LOST"
	RefusedAlreadySettled    RefusalReason = "ALREADY_SETTLED"
	RefusedReport            RefusalReason = "REPORT_REFUSED"
	RefusedClaimLive         RefusalReason = "CLAIM_LIVE"
	RefusedAttempts          RefusalReason = "ATTEMPTS_EXHAUSTED"
	RefusedUnreadable        RefusalReason = "RECORD_UNREADABLE"
	RefusedEtag              RefusalReason = "ETAG_MISMATCH"
	RefusedQuota             RefusalReason = "UNSETTLED_QUOTA"
)

// Refusal is the error of every transition: what was refused, why, and what to
// do next. Its message shows nothing of the stored operation.
type Refusal struct {
	Reason  RefusalReason
	Message string
	// RetryAfter is when asking again may help; zero where it does not.
	RetryAfter time.Duration
	// OlderThanMemory says of a NOT_FOUND that the key may have been used before
	// the store's memory begins.
	OlderThanMemory bool
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason RefusalReason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// The refusals that more than one transition gives.
func refuseUnreadable(id Identity) *Refusal {
	return refuse(RefusedUnreadable, "the record of %v cannot be read by this build; nothing was changed: read it with the build that wrote it, or ask an operator", id)
}

func refuseAbsent(id Identity) *Refusal {
	return refuse(RefusedNotFound, "no operation is recorded under %v; check the three parts byte for byte", id)
}

func refuseClaimLost() *Refusal {
	return refuse(RefusedClaimLost, "this claim token and fence do not hold the claim; another claim may be executing: stop, have no further effect, and look the operation up")
}

func refuseAlreadySettled() *Refusal {
	return refuse(RefusedAlreadySettled, "the operation is settled, and not by what this report says; nothing was changed: look the operation up")
}
