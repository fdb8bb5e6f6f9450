package main

import "github.com/onced/onced"

// before makes a mutant that changes the record before reports of some kinds.
func before(kinds message, change func(*onced.Record, onced.Holder)) func(*rules) {
	return func(r *rules) {
		beforeReport(r, func(v *onced.View, s *said) {
			if s.kind&kinds != 0 {
				edit(v, func(r *onced.Record) { change(r, s.holder) })
			}
		})
	}
}

// holderMutants are about what the holder of a claim may say.
func holderMutants() []mutant {
	return []mutant{
		{
			name: "not-executed-despite-doubt", breaks: "S1", in: trio.saying(notExecuted),
			rule: "NOT_EXECUTED under doubt makes UNRESOLVED, not RELEASED",
			off:  before(notExecuted, func(r *onced.Record, _ onced.Holder) { r.Doubt, r.Contradicted = false, false }),
		},
		{
			name: "did-not-happen-without-takeover", breaks: "S2",
			in:   bounds{Callers: 3, Tokens: 1, Lies: 1, Amend: true, PlainDeny: true},
			rule: "only the holder of a takeover says DID_NOT_HAPPEN",
			off:  before(didNotHappen, func(r *onced.Record, _ onced.Holder) { r.ByTakeover = true }),
		},
		{
			name: "did-not-happen-while-contradicted", breaks: "S7", in: trio.but(func(b *bounds) { b.Lies, b.Says = 1, completed|didNotHappen }),
			rule: "DID_NOT_HAPPEN is refused once a former holder has reported an effect",
			off:  before(didNotHappen, func(r *onced.Record, _ onced.Holder) { r.Contradicted = false }),
		},
		{
			name: "unknown-forgets-contradiction", breaks: "S7",
			in:   trio.but(func(b *bounds) { b.Lies, b.Says = 1, completed|unknown|didNotHappen }),
			rule: "UNKNOWN of a contradicted operation leaves it CONTRADICTED",
			off: before(unknown, func(r *onced.Record, h onced.Holder) {
				if isPresent(r, h.Token) {
					r.Contradicted = false
				}
			}),
		},
	}
}

// lastWordMutants are about the last holder, who adds facts and takes no doubt
// back that it declared.
func lastWordMutants() []mutant {
	amending := pair.but(func(b *bounds) { b.Lies, b.Amend = 1, true })
	return []mutant{
		{
			name: "declared-then-not-executed", breaks: "S7", in: amending,
			rule: "a declared UNKNOWN is not taken back by NOT_EXECUTED",
			off: before(notExecuted, func(r *onced.Record, _ onced.Holder) {
				if r.Reason == onced.ReasonDeclared {
					asHeld(r)
				}
			}),
		},
		{
			name: "declared-then-did-not-happen", breaks: "S7", in: pair.but(func(b *bounds) { b.Amend = true }),
			rule: "DID_NOT_HAPPEN after UNKNOWN is refused: take over again",
			off: before(didNotHappen, func(r *onced.Record, _ onced.Holder) {
				if r.Reason == onced.ReasonDeclared {
					asHeld(r)
					r.ByTakeover, r.Doubt = true, true
				}
			}),
		},
		{
			name: "released-outcome-refused", breaks: "S7", in: amending,
			rule: "the last holder's Complete settles a RELEASED operation",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, s said, plan *onced.Plan, err *error) {
					if s.kind == completed && v.Record != nil && v.Record.State == onced.StateReleased {
						*plan, *err = onced.Plan{}, &onced.Refusal{Reason: onced.RefusedClaimLost}
					}
				})
			},
		},
		{
			name: "released-unknown-ignored", breaks: "S7", in: amending,
			rule: "the last holder's UNKNOWN makes a RELEASED operation UNRESOLVED",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, s said, plan *onced.Plan, err *error) {
					if s.kind == unknown && *err == nil && v.Record.State == onced.StateReleased {
						*plan = onced.Plan{}
					}
				})
			},
		},
		{
			name: "renew-revives-declared", breaks: "S7", in: pair.but(func(b *bounds) { b.Renew, b.Amend = true, true }),
			rule: "a Renew revives only what is PENDING",
			off: before(renewed, func(r *onced.Record, _ onced.Holder) {
				if r.State == onced.StateUnresolved {
					r.State, r.Reason = onced.StatePending, onced.ReasonNone
				}
			}),
		},
	}
}

// repeatMutants are about reports that come again, and outcomes that differ.
func repeatMutants() []mutant {
	decided := pair.but(func(b *bounds) { b.Decisions, b.Amend = 1, true })
	forgetFacts := func(r *onced.Record, _ onced.Holder) {
		for i := range r.Attempts {
			r.Attempts[i].Facts = nil
		}
	}
	return []mutant{
		{
			name: "repeat-not-recognised", breaks: "S8", in: decided,
			rule: "a repeat of an accepted report changes nothing, whatever has happened since",
			off: before(weaker, func(r *onced.Record, _ onced.Holder) {
				for i := range r.Attempts {
					r.Attempts[i].Reports = 0
				}
			}),
		},
		{
			name: "repeated-outcome-not-recognised", breaks: "S8", in: decided,
			rule: "a repeat of an accepted outcome changes nothing after an operator has reopened",
			off:  before(facts, forgetFacts),
		},
		{
			name: "weaker-after-outcome", breaks: "S8", in: decided,
			rule: "after its own accepted outcome an attempt's weaker reports change nothing",
			off:  before(weaker, forgetFacts),
		},
		{
			name: "second-outcome-replaces", breaks: "S3", in: trio.saying(completed),
			rule: "another outcome than the one that settled the operation is refused",
			off: func(r *rules) {
				beforeReport(r, func(v *onced.View, s *said) {
					if i := attemptOf(v.Record, s.holder.Token); i >= 0 && v.Record.State.Settled() {
						edit(v, asHeld)
						v.Record.Attempt = v.Record.Attempts[i].Number
					}
				})
			},
		},
	}
}
