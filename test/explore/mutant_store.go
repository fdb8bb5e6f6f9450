package main

import "github.com/onced/onced"

// operatorMutants are about the decisions of operators.
func operatorMutants() []mutant {
	decided := pair.but(func(b *bounds) { b.Decisions = 1 })
	return []mutant{
		{
			name: "resolve-live-without-force", breaks: "S2", in: decided,
			rule: "Resolve without force is refused while a lease runs",
			off: func(r *rules) {
				beforeResolve(r, func(_ *onced.View, q *onced.ResolveRequest) { q.Force = true })
			},
		},
		{
			name: "resolve-repeat-applied", breaks: "S8", in: decided,
			rule: "a repeat of the last Resolve changes nothing",
			off: func(r *rules) {
				beforeResolve(r, func(v *onced.View, q *onced.ResolveRequest) {
					q.Etag = ""
					edit(v, func(r *onced.Record) { r.LastResolve = nil })
				})
			},
		},
		{
			name: "etag-ignored", breaks: "S8", in: decided.but(func(b *bounds) { b.Decisions = 2 }),
			rule: "a Resolve of another version than the present one is refused",
			off: func(r *rules) {
				beforeResolve(r, func(_ *onced.View, q *onced.ResolveRequest) { q.Etag = "" })
			},
		},
		{
			name: "reopen-unsettled", breaks: "S7", in: decided,
			rule: "reopen of what is not settled is refused",
			off: func(r *rules) {
				beforeResolve(r, func(v *onced.View, q *onced.ResolveRequest) {
					if q.Resolution == onced.ResolveReopen && !v.Record.State.Settled() {
						q.Resolution = onced.ResolveReleased
					}
				})
			},
		},
		{
			name: "release-forgets-tokens", breaks: "S6", in: decided,
			rule: "a release by an operator keeps the tokens of former attempts",
			off: func(r *rules) {
				inner := r.resolve
				r.resolve = func(v onced.View, p onced.Policy, q onced.ResolveRequest) (onced.Plan, *onced.Operation, error) {
					plan, op, err := inner(v, p, q)
					if plan.Put != nil && isReleased(plan.Put) {
						plan.Put.Attempts = nil
					}
					return plan, op, err
				}
			},
		},
	}
}

// storeMutants are about what time and the store do to a record.
func storeMutants() []mutant {
	return []mutant{
		{
			name: "sweep-of-lapsed", breaks: "S4", in: pair,
			rule: "no sweep touches what is unsettled",
			off: func(r *rules) {
				inner := r.sweep
				r.sweep = func(v onced.View, p onced.Policy) onced.Plan {
					if shown(&v, &p).Reason == onced.ReasonLapsed {
						return onced.Plan{Delete: true}
					}
					return inner(v, p)
				}
			},
		},
		{
			name: "unsettled-expires", breaks: "S4", in: pair.but(func(b *bounds) { b.Expiry = true }),
			rule: "what is unsettled never expires",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, p *onced.Policy, _ *onced.ClaimRequest) {
					if v.Record != nil && v.Record.State.Unsettled() && !v.Now.Before(v.Record.UpdateTime.Add(p.KeyRetention)) {
						v.Record = nil
					}
				})
			},
		},
		{
			name: "not-executed-deletes", breaks: "S2", in: pair.but(func(b *bounds) { b.Lies, b.Amend = 1, true }),
			rule: "NOT_EXECUTED makes RELEASED, with tokens and reports, and not absent",
			off: func(r *rules) {
				afterReport(r, func(_ onced.View, _ said, plan *onced.Plan, _ *error) {
					if plan.Put != nil && isReleased(plan.Put) {
						*plan = onced.Plan{Delete: true}
					}
				})
			},
		},
		{
			name: "unreadable-taken-for-absent", breaks: "S10", in: pair.but(func(b *bounds) { b.Unreadable = true }),
			rule: "a record that this build cannot read is refused, not taken for absent",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) { v.Unreadable = false })
			},
		},
	}
}
