package main

import "github.com/onced/onced"

// fencedMutants are about the reports of former holders.
func fencedMutants() []mutant {
	lying := pair.but(func(b *bounds) { b.Lies, b.Amend = 1, true })
	// dropped lets refused reports of some kinds leave no trace.
	dropped := func(kinds message) func(*rules) {
		return func(r *rules) {
			afterReport(r, func(_ onced.View, s said, plan *onced.Plan, err *error) {
				if *err != nil && s.kind&kinds != 0 {
					*plan = onced.Plan{}
				}
			})
		}
	}
	return []mutant{
		{
			name: "fenced-outcome-ignored", breaks: "S2", in: lying,
			rule: "a former holder's outcome makes the operation contradicted",
			off:  dropped(facts),
		},
		{
			name: "fenced-unknown-ignored", breaks: "S2", in: lying,
			rule: "a former holder's UNKNOWN takes its own NOT_EXECUTED back",
			off:  dropped(unknown),
		},
		{
			name: "contradicted-without-doubt", breaks: "S2", in: lying,
			rule: "`contradicted` implies doubt",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, _ said, plan *onced.Plan, err *error) {
					if *err != nil && plan.Put != nil && plan.Put.State == onced.StatePending {
						plan.Put.Doubt = v.Record.Doubt
					}
				})
			},
		},
		{
			name: "contradiction-ends-lease", breaks: "S5", in: lying,
			rule: "a refusal changes no lease",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, _ said, plan *onced.Plan, err *error) {
					if *err != nil && plan.Put != nil {
						plan.Put.LeaseEnd = v.Now
					}
				})
			},
		},
		{
			name: "fenced-report-releases", breaks: "S2",
			in:   bounds{Callers: 3, Tokens: 1, Decisions: 1, Says: notExecuted},
			rule: "a former holder's NOT_EXECUTED releases nothing",
			off: func(r *rules) {
				beforeReport(r, func(v *onced.View, s *said) {
					if v.Record != nil && s.kind == notExecuted && isFormer(v.Record, s.holder.Token) {
						edit(v, func(r *onced.Record) { r.Attempt = r.Attempts[attemptOf(r, s.holder.Token)].Number })
					}
				})
				afterReport(r, func(v onced.View, _ said, plan *onced.Plan, _ *error) {
					if plan.Put != nil {
						plan.Put.Attempt = v.Record.Attempt
					}
				})
			},
		},
		{
			name: "renew-after-takeover", breaks: "S2", in: trio.but(func(b *bounds) { b.Renew, b.Says = true, didNotHappen }),
			rule: "a former holder's Renew is CLAIM_LOST",
			off: func(r *rules) {
				beforeReport(r, func(v *onced.View, s *said) {
					if s.kind == renewed && isFormer(v.Record, s.holder.Token) && v.Record.State == onced.StatePending {
						present := v.Record.Attempts[len(v.Record.Attempts)-1]
						s.holder = onced.Holder{Token: present.Token, Fence: present.Fence}
					}
				})
			},
		},
	}
}

// fenceMutants are about the fences themselves.
func fenceMutants() []mutant {
	return []mutant{
		{
			name: "fence-off", breaks: "S2", in: after.saying(didNotHappen),
			rule: "a token under another fence than its own counts as never seen",
			off: func(r *rules) {
				beforeReport(r, func(v *onced.View, s *said) {
					if i := attemptOf(v.Record, s.holder.Token); i >= 0 {
						s.holder.Fence = v.Record.Attempts[i].Fence
					}
				})
			},
		},
		{
			name: "fence-not-used-up", breaks: "S6", in: pair,
			rule: "every grant uses up a fence",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) {
					if v.Record != nil {
						v.NextFence = v.Record.Fence
					}
				})
			},
		},
		{
			name: "generation-of-the-backup", breaks: "S6", in: after.but(func(b *bounds) { b.Restores = 2 }),
			rule: "each restore of one backup makes another generation",
			off:  func(r *rules) { r.generation = func(_, backup uint8) uint8 { return backup + 1 } },
		},
		{
			name: "restore-keeps-generation", breaks: "S6", in: after,
			rule: "a restore starts a new generation",
			off:  func(r *rules) { r.generation = func(_, backup uint8) uint8 { return backup } },
		},
	}
}
