package main

import (
	"time"

	"github.com/onced/onced"
)

// rules are the transitions under test. The walk of the real ones uses
// realRules; a mutant wraps one of them so that a single rule is off.
type rules struct {
	claim    func(onced.View, onced.Policy, onced.ClaimRequest) (onced.Plan, onced.ClaimAnswer, error)
	complete func(onced.View, onced.Policy, onced.Holder, *onced.Result) (onced.Plan, *onced.Operation, error)
	fail     func(onced.View, onced.Policy, onced.Holder, onced.FailRequest) (onced.Plan, *onced.Operation, error)
	renew    func(onced.View, onced.Policy, onced.Holder, time.Duration, *onced.Checkpoint) (onced.Plan, *onced.Operation, error)
	resolve  func(onced.View, onced.Policy, onced.ResolveRequest) (onced.Plan, *onced.Operation, error)
	sweep    func(onced.View, onced.Policy) onced.Plan
	// generation numbers the store that a restore makes, given the greatest
	// generation so far and the backup's.
	generation func(last, backup uint8) uint8
}

func realRules() rules {
	return rules{
		claim: onced.Claim, complete: onced.Complete, fail: onced.Fail, renew: onced.Renew,
		resolve: onced.Resolve, sweep: onced.Sweep,
		// A generation is the Unix second at which it began, so it is above all
		// earlier ones.
		generation: func(last, _ uint8) uint8 { return last + 1 },
	}
}
