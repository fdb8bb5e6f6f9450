package main

import "github.com/onced/onced"

// grantedWhen makes a claim by a token that was never seen answer a plain grant
// where the operation is unresolved for the given reason.
func grantedWhen(why onced.Reason) func(*rules) {
	return func(r *rules) {
		beforeClaim(r, func(v *onced.View, p *onced.Policy, c *onced.ClaimRequest) {
			if shown(v, p).Reason != why || c.TakeOverAttempt != 0 || attemptOf(v.Record, c.Token) >= 0 {
				return
			}
			edit(v, func(r *onced.Record) {
				r.State, r.Reason, r.Generation = onced.StateReleased, onced.ReasonNone, v.Epoch.Generation
				r.ReleaseTime, r.KeyExpire = v.Now, v.Now.Add(p.KeyRetention)
			})
		})
	}
}

// grantMutants are about who gets a plain grant, and gets it again.
func grantMutants() []mutant {
	return []mutant{
		{
			name: "lapsed-granted", breaks: "S1", in: pair,
			rule: "a plain claim of a lapsed operation answers UNRESOLVED",
			off:  grantedWhen(onced.ReasonLapsed),
		},
		{
			name: "declared-granted", breaks: "S1", in: pair,
			rule: "a plain claim of a declared operation answers UNRESOLVED",
			off:  grantedWhen(onced.ReasonDeclared),
		},
		{
			name: "contradicted-granted", breaks: "S2", in: trio.but(func(b *bounds) { b.Lies, b.Amend = 1, true }),
			rule: "a plain claim of a contradicted operation answers UNRESOLVED",
			off:  grantedWhen(onced.ReasonContradicted),
		},
		{
			name: "history-lost-granted", breaks: "S2", in: after,
			rule: "a plain claim of an operation whose history is lost answers UNRESOLVED",
			off:  grantedWhen(onced.ReasonHistoryLost),
		},
		{
			name: "grant-repeated-under-doubt", breaks: "S2", in: pair.but(func(b *bounds) { b.Lies, b.Amend = 1, true }),
			rule: "a plain grant is not repeated once doubt has come up",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) {
					edit(v, func(r *onced.Record) {
						if r.State == onced.StatePending && !r.ByTakeover {
							r.Doubt, r.Contradicted = false, false
						}
					})
				})
			},
		},
		{
			name: "grant-repeated-after-heard", breaks: "S2", in: bounds{Callers: 1, Tokens: 2, Renew: true, KeepToken: true},
			rule: "a grant is not repeated after anything else has come from its holder",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) {
					edit(v, func(r *onced.Record) { r.Heard = false })
				})
			},
		},
		{
			name: "takeover-repeated-as-grant", breaks: "S1", in: pair,
			rule: "a takeover's first answer is repeated as TAKEN_OVER, not as GRANTED",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) {
					edit(v, func(r *onced.Record) {
						if r.ByTakeover && isPresent(r, c.Token) {
							r.ByTakeover, r.Doubt = false, false
						}
					})
				})
			},
		},
	}
}

// tokenMutants are about tokens that were seen before.
func tokenMutants() []mutant {
	return []mutant{
		{
			name: "former-token-granted", breaks: "S6", in: pair,
			rule: "a former token gets CLAIM_LOST on RELEASED",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) {
					if isFormer(v.Record, c.Token) {
						edit(v, func(r *onced.Record) { unknownTo(r, c.Token) })
					}
				})
			},
		},
		{
			name: "used-token-granted", breaks: "S6", in: pair,
			rule: "the last holder's token gets CLAIM_LOST on RELEASED: a first claim that comes late finds its token used",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, p *onced.Policy, c *onced.ClaimRequest) {
					if shown(v, p).State == onced.StateReleased {
						edit(v, func(r *onced.Record) { unknownTo(r, c.Token) })
					}
				})
			},
		},
		{
			name: "present-token-reruns", breaks: "S6", in: pair.but(func(b *bounds) { b.Rerun = true }),
			rule: "the present token starts nothing more once its lease is over: one attempt a token",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, p *onced.Policy, c *onced.ClaimRequest) {
					if shown(v, p).State == onced.StateUnresolved {
						edit(v, func(r *onced.Record) { unknownTo(r, c.Token) })
					}
				})
			},
		},
		{
			name: "former-token-refused-settled", breaks: "S3", in: pair,
			rule: "a settled operation answers every token, former ones too",
			off: func(r *rules) {
				inner := r.claim
				r.claim = func(v onced.View, p onced.Policy, c onced.ClaimRequest) (onced.Plan, onced.ClaimAnswer, error) {
					if isFormer(v.Record, c.Token) && v.Record.State.Settled() {
						return onced.Plan{}, onced.ClaimAnswer{}, &onced.Refusal{Reason: onced.RefusedClaimLost}
					}
					return inner(v, p, c)
				}
			},
		},
	}
}

// memoryMutants are about keys that are not found.
func memoryMutants() []mutant {
	forgetful := pair.but(func(b *bounds) { b.Expiry, b.Says = true, completed })
	return []mutant{
		{
			name: "key-birth-off", breaks: "S1", in: forgetful,
			rule: "a key older than the store's memory is HISTORY_LOST, not new",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) { c.KeyTime = v.Now })
			},
		},
		{
			name: "memory-without-skew", breaks: "S1", in: forgetful,
			rule: "the skew of the callers' clocks is added to the horizon of memory",
			off: func(r *rules) {
				beforeClaim(r, func(_ *onced.View, p *onced.Policy, _ *onced.ClaimRequest) { p.Skew = 0 })
			},
		},
		{
			name: "history-not-recorded", breaks: "S4", in: forgetful,
			rule: "HISTORY_LOST makes a record",
			off: func(r *rules) {
				afterClaim(r, func(plan *onced.Plan, a onced.ClaimAnswer) {
					if a.Outcome == onced.OutcomeUnresolved {
						*plan = onced.Plan{}
					}
				})
			},
		},
	}
}
