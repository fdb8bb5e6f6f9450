package main

import (
	"google.golang.org/grpc/codes"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Exit statuses. Scripts rely on every one of them. The high ones are those of
// sysexits.h where it has a fitting one.
const (
	exitOK          = 0  // GRANTED, or the answer of any other verb
	exitReplayed    = 3  // REPLAYED
	exitFailed      = 4  // FAILED
	exitInProgress  = 5  // IN_PROGRESS
	exitUnresolved  = 6  // UNRESOLVED
	exitTakenOver   = 7  // TAKEN_OVER
	exitBlocked     = 8  // BLOCKED_BY_TWIN
	exitUsage       = 64 // INVALID_ARGUMENT, or a command line that makes no sense
	exitRefused     = 65 // FAILED_PRECONDITION, ABORTED: a mismatch above all
	exitNotFound    = 66 // NOT_FOUND
	exitUnreachable = 69 // UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED
	exitOther       = 70 // everything else
	exitDenied      = 77 // PERMISSION_DENIED, UNAUTHENTICATED

	// Of exec alone, whose other statuses belong to the command that it runs.
	exitExecInProgress = 75 // not run: somebody else is running it
	exitExecUnresolved = 76 // not run: nobody knows whether it ran
	exitNotExecutable  = 126
	exitNoCommand      = 127
	exitSignal         = 128 // plus the number of the signal
)

// outcomeStatus is the status that a claim's outcome ends `once claim` with. An
// outcome without a row is not known to this build.
var outcomeStatus = map[oncedv1.Outcome]int{
	oncedv1.Outcome_OUTCOME_GRANTED:         exitOK,
	oncedv1.Outcome_OUTCOME_REPLAYED:        exitReplayed,
	oncedv1.Outcome_OUTCOME_FAILED:          exitFailed,
	oncedv1.Outcome_OUTCOME_IN_PROGRESS:     exitInProgress,
	oncedv1.Outcome_OUTCOME_UNRESOLVED:      exitUnresolved,
	oncedv1.Outcome_OUTCOME_TAKEN_OVER:      exitTakenOver,
	oncedv1.Outcome_OUTCOME_BLOCKED_BY_TWIN: exitBlocked,
}

// codeStatus is the status that a refused call ends any verb with. A code
// without a row ends it with exitOther.
var codeStatus = map[codes.Code]int{
	codes.OK:                 exitOK,
	codes.InvalidArgument:    exitUsage,
	codes.FailedPrecondition: exitRefused,
	codes.Aborted:            exitRefused,
	codes.NotFound:           exitNotFound,
	codes.Unavailable:        exitUnreachable,
	codes.ResourceExhausted:  exitUnreachable,
	codes.DeadlineExceeded:   exitUnreachable,
	codes.PermissionDenied:   exitDenied,
	codes.Unauthenticated:    exitDenied,
}
