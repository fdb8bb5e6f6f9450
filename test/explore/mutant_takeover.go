package main

import (
	"time"

	"github.com/onced/onced"
)

// dueAtOnce lets takeovers through at once where the operation is unresolved for
// the given reason.
func dueAtOnce(why onced.Reason) func(*rules) {
	return func(r *rules) {
		beforeClaim(r, func(v *onced.View, p *onced.Policy, _ *onced.ClaimRequest) {
			if op := shown(v, p); op.State == onced.StateUnresolved && op.Reason == why {
				p.ReconcileAfter = new(time.Duration)
			}
		})
	}
}

// takeoverMutants are about when a takeover applies, and what it keeps.
func takeoverMutants() []mutant {
	return []mutant{
		{
			name: "lapsed-due-at-once", breaks: "S1", in: trio.saying(didNotHappen),
			rule: "a takeover of a lapsed operation waits for reconcile_after",
			off:  dueAtOnce(onced.ReasonLapsed),
		},
		{
			name: "declared-due-at-once", breaks: "S1", in: trio.saying(unknown | didNotHappen),
			rule: "a takeover of a declared operation waits for reconcile_after from the declaring Fail",
			off:  dueAtOnce(onced.ReasonDeclared),
		},
		{
			name: "contradicted-due-at-once", breaks: "S9",
			in:   trio.but(func(b *bounds) { b.Lies, b.Amend, b.Says = 1, true, notExecuted|completed }),
			rule: "a takeover of a contradicted operation waits for reconcile_after from the contradiction",
			off:  dueAtOnce(onced.ReasonContradicted),
		},
		{
			name: "history-due-at-once", breaks: "S9", in: after,
			rule: "a takeover of a HISTORY_LOST operation waits for reconcile_after from the creation of its record",
			off:  dueAtOnce(onced.ReasonHistoryLost),
		},
		{
			name: "due-before-restart", breaks: "S9", in: trio.but(func(b *bounds) { b.Restart = true }),
			rule: "a takeover is timed from the effective end of the lease, which a restart moves",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) {
					if c.TakeOverAttempt != 0 {
						v.Epoch.ServingSince = at(longAgo)
					}
				})
			},
		},
		{
			name: "takeover-of-live", breaks: "S1", in: trio.saying(didNotHappen),
			rule: "a claim whose lease runs is not taken over",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, p *onced.Policy, c *onced.ClaimRequest) {
					if c.TakeOverAttempt != 0 && attemptOf(v.Record, c.Token) < 0 && shown(v, p).State == onced.StatePending {
						p.ReconcileAfter = new(time.Duration)
						edit(v, func(r *onced.Record) { r.LeaseEnd = v.Now })
					}
				})
			},
		},
		{
			name: "renew-shortens", breaks: "S9", in: trio.but(func(b *bounds) { b.Renew, b.ShortRenew = true, true }),
			rule: "a Renew never brings the end of the lease forward",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, s said, plan *onced.Plan, _ *error) {
					if s.kind == renewed && plan.Put != nil {
						plan.Put.LeaseEnd = v.Now.Add(plan.Put.Lease)
					}
				})
			},
		},
		{
			name: "takeover-of-any-attempt", breaks: "S9", in: pair,
			rule: "a takeover names the attempt that it saw and applies to no other",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) {
					if c.TakeOverAttempt != 0 && v.Record != nil {
						c.TakeOverAttempt = v.Record.Attempt
					}
				})
			},
		},
		{
			name: "takeover-of-absent-granted", breaks: "S2",
			in:   bounds{Callers: 2, Tokens: 1, Takeover: true, Restores: 1, EndBlind: true},
			rule: "a takeover of an absent key is HISTORY_LOST: who names an attempt knows that there was one",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) {
					if v.Record == nil {
						c.TakeOverAttempt = 0
					}
				})
			},
		},
		{
			name: "takeover-without-doubt", breaks: "S1", in: trio.saying(notExecuted),
			rule: "a takeover leaves doubt: what its holder did not do says nothing of the attempt before",
			off: func(r *rules) {
				afterClaim(r, func(plan *onced.Plan, a onced.ClaimAnswer) {
					if plan.Put != nil && a.Outcome == onced.OutcomeTakenOver {
						plan.Put.Doubt = false
					}
				})
			},
		},
		{
			name: "takeover-forgets-contradiction", breaks: "S7", in: trio.but(func(b *bounds) { b.Lies, b.Says = 1, completed|didNotHappen }),
			rule: "a takeover keeps `contradicted`",
			off: func(r *rules) {
				afterClaim(r, func(plan *onced.Plan, a onced.ClaimAnswer) {
					if plan.Put != nil && a.Outcome == onced.OutcomeTakenOver {
						plan.Put.Contradicted = false
					}
				})
			},
		},
	}
}

// rerunMutants are about the policy that calls reruns safe.
func rerunMutants() []mutant {
	// asDeclared hides why an operation is not to be rerun.
	asDeclared := func(why onced.Reason) func(*rules) {
		return func(r *rules) {
			beforeClaim(r, func(v *onced.View, p *onced.Policy, _ *onced.ClaimRequest) {
				if shown(v, p).Reason != why {
					return
				}
				edit(v, func(r *onced.Record) {
					r.Contradicted = false
					if r.State == onced.StateUnresolved {
						r.Reason = onced.ReasonDeclared
					}
				})
			})
		}
	}
	return []mutant{
		{
			name: "contradicted-rerun", breaks: "S9",
			in:   trio.but(func(b *bounds) { b.Takeover, b.Rerun, b.Says = false, true, completed }),
			rule: "CONTRADICTED stays UNRESOLVED under safe_to_rerun: an outcome was reported",
			off:  asDeclared(onced.ReasonContradicted),
		},
		{
			name: "history-lost-rerun", breaks: "S9", in: pair.but(func(b *bounds) { b.Rerun, b.Expiry = true, true }),
			rule: "HISTORY_LOST stays UNRESOLVED under safe_to_rerun: an outcome may have been forgotten",
			off:  asDeclared(onced.ReasonHistoryLost),
		},
	}
}
