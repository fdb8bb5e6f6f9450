// Package onced is the domain of onced, an idempotency coordination service:
// identities, records and the state machine that decides who may execute an
// operation, who is given the outcome of an earlier execution, and when nobody
// may execute because the outcome is not known.
//
// Everything here is pure: no I/O, no clock, no randomness, and nothing but the
// standard library. Time, fences and token digests come in as arguments.
// A transition ([Claim], [Complete], [Fail], [Renew], [Resolve], [EraseResult],
// [Sweep]) looks at a [View] and answers with a [Plan] of what to store; it
// never changes what it was given, so a store may run it as often as it likes.
//
// The promise that this code keeps: at most one initiation per key that can
// have had an effect, plus replay of its outcome; while the outcome is not
// known, onced says so and nobody executes.
package onced

// State is the stored state of an operation.
type State uint8

// The states. PENDING and UNRESOLVED are unsettled, COMPLETED and FAILED are
// settled, RELEASED is neither. An absent operation has no record and no state.
const (
	StatePending    State = iota + 1 // claimed; the holder may be executing
	StateUnresolved                  // claimed, and nobody knows whether it ran
	StateReleased                    // every attempt so far is known to have had no effect
	StateCompleted                   // executed; the result is the outcome
	StateFailed                      // executed or given up; the failure is the outcome
)

var stateNames = [...]string{"", "PENDING", "UNRESOLVED", "RELEASED", "COMPLETED", "FAILED"}

// String returns the state's name as it stands on the wire, without the prefix.
func (s State) String() string { return enumName(stateNames[:], int(s)) }

// Known reports whether this build knows the state. A record in a state that it
// does not know is unreadable: never granted, swept or rewritten.
func (s State) Known() bool { return s >= StatePending && s <= StateFailed }

// Settled reports whether the state holds an outcome.
func (s State) Settled() bool { return s == StateCompleted || s == StateFailed }

// Unsettled reports whether an attempt may have had an effect that nobody has
// reported yet.
func (s State) Unsettled() bool { return s == StatePending || s == StateUnresolved }

// Reason says why an operation is UNRESOLVED.
type Reason uint8

// The reasons. LAPSED is computed from the clock and never stored.
const (
	ReasonNone         Reason = iota
	ReasonLapsed              // the lease ended and the holder said nothing
	ReasonDeclared            // a holder reported that it does not know
	ReasonHistoryLost         // the key is older than what the store remembers
	ReasonContradicted        // a holder that had lost its claim reported an effect
)

var reasonNames = [...]string{"NONE", "LAPSED", "DECLARED", "HISTORY_LOST", "CONTRADICTED"}

// String returns the reason's name as it stands on the wire, without the prefix.
func (r Reason) String() string { return enumName(reasonNames[:], int(r)) }

// Outcome is what a claim answers. A caller that meets an outcome it does not
// know must not execute.
type Outcome uint8

// The outcomes. Only GRANTED licenses an execution; TAKEN_OVER licenses
// finding out what the earlier attempt did.
const (
	OutcomeGranted       Outcome = iota + 1 // no earlier attempt can have had an effect: execute
	OutcomeReplayed                         // executed earlier; here is the first result
	OutcomeFailed                           // failed earlier for good; here is the first failure
	OutcomeInProgress                       // somebody else holds the claim
	OutcomeUnresolved                       // nobody knows whether it ran: do not execute
	OutcomeTakenOver                        // yours to find out; an earlier attempt may have run
	OutcomeBlockedByTwin                    // the same act is under way or just done under another key
)

var outcomeNames = [...]string{"", "GRANTED", "REPLAYED", "FAILED", "IN_PROGRESS", "UNRESOLVED", "TAKEN_OVER", "BLOCKED_BY_TWIN"}

// String returns the outcome's name as it stands on the wire, without the prefix.
func (o Outcome) String() string { return enumName(outcomeNames[:], int(o)) }

// Disposition is what a holder reports with Fail about the effect of its attempt.
type Disposition uint8

// The dispositions. An error alone never means NOT_EXECUTED.
const (
	NotExecuted  Disposition = iota + 1 // this attempt certainly had no effect
	Final                               // the failure is the outcome
	Unknown                             // the holder does not know whether it had an effect
	DidNotHappen                        // after a takeover: the outside system was asked, no attempt had its effect
)

var dispositionNames = [...]string{"", "NOT_EXECUTED", "FINAL", "UNKNOWN", "DID_NOT_HAPPEN"}

// String returns the disposition's name as it stands on the wire, without the prefix.
func (d Disposition) String() string { return enumName(dispositionNames[:], int(d)) }

// TakeoverRefusal says why a takeover that was asked for does not apply.
type TakeoverRefusal uint8

// The takeover refusals.
const (
	TakeoverNotRefused          TakeoverRefusal = iota
	TakeoverRefusedNotYet                       // the earlier attempt's request may still land; try again after RetryAfter
	TakeoverRefusedPolicy                       // the namespace's policy does not let this caller take over
	TakeoverRefusedOtherAttempt                 // the operation has moved on to another attempt; look at it again
)

var takeoverNames = [...]string{"NONE", "NOT_YET", "POLICY", "OTHER_ATTEMPT"}

// String returns the refusal's name as it stands on the wire, without the prefix.
func (t TakeoverRefusal) String() string { return enumName(takeoverNames[:], int(t)) }

// SettledBy says who settled an operation.
type SettledBy uint8

// Who can settle.
const (
	SettledByNobody   SettledBy = iota
	SettledByHolder             // the holder of the claim reported the outcome
	SettledByOperator           // an operator resolved it, with evidence
)

var settledByNames = [...]string{"NOBODY", "HOLDER", "OPERATOR"}

// String returns the name as it stands on the wire, without the prefix.
func (s SettledBy) String() string { return enumName(settledByNames[:], int(s)) }

func enumName(names []string, i int) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return "UNSPECIFIED"
}
