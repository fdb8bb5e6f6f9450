package main

import "github.com/onced/onced"

// asCurrent makes a restored record look as if this generation had written it.
func asCurrent(v *onced.View, when func(*onced.Record) bool) {
	edit(v, func(r *onced.Record) {
		if when(r) {
			r.Generation = v.Epoch.Generation
		}
	})
}

func isPending(r *onced.Record) bool { return r.State == onced.StatePending }

func isReleased(r *onced.Record) bool { return r.State == onced.StateReleased }

// currentFor makes restored records look current to claims, or to reports.
func currentFor(claims bool, when func(*onced.Record) bool) func(*rules) {
	return func(r *rules) {
		if claims {
			beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) { asCurrent(v, when) })
			return
		}
		beforeReport(r, func(v *onced.View, _ *said) { asCurrent(v, when) })
	}
}

// restoredMutants are about records that a restore has brought back.
func restoredMutants() []mutant {
	return []mutant{
		{
			name: "restored-released-granted", breaks: "S2", in: after,
			rule: "a restored RELEASED operation is UNRESOLVED",
			off:  currentFor(true, isReleased),
		},
		{
			name: "restored-released-rewritten", breaks: "S2", in: after,
			rule: "a repeat on a restored RELEASED operation does not make it one of this generation",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, _ said, plan *onced.Plan, err *error) {
					if *err == nil && isReleased(v.Record) && !plan.Changes() {
						asCurrent(&v, isReleased)
						plan.Put = v.Record
					}
				})
			},
		},
		{
			name: "restored-pending-live", breaks: "S2", in: after,
			rule: "a restored PENDING operation is lapsed, with doubt",
			off:  currentFor(true, isPending),
		},
		{
			name: "restored-pending-without-doubt", breaks: "S2", in: after,
			rule: "a restored PENDING operation carries doubt",
			off:  currentFor(false, func(r *onced.Record) bool { return isPending(r) && !r.ByTakeover }),
		},
		{
			name: "restored-takeover-kept", breaks: "S2",
			in:   pair.but(func(b *bounds) { b.Restores, b.Says, b.Hold = 1, didNotHappen, true }),
			rule: "a restored takeover may no longer say DID_NOT_HAPPEN",
			off:  currentFor(false, func(r *onced.Record) bool { return isPending(r) && r.ByTakeover }),
		},
		{
			name: "restored-renew-ends-doubt", breaks: "S2",
			in:   after.but(func(b *bounds) { b.Renew, b.Says, b.Hold = true, notExecuted, true }),
			rule: "a Renew revives a restored claim with its doubt",
			off: func(r *rules) {
				afterReport(r, func(_ onced.View, s said, plan *onced.Plan, _ *error) {
					if s.kind == renewed && plan.Put != nil {
						plan.Put.Doubt = false
					}
				})
			},
		},
		{
			name: "restored-unknown-ignored", breaks: "S7",
			in:   after.but(func(b *bounds) { b.Amend, b.Says = true, notExecuted|unknown }),
			rule: "UNKNOWN makes a restored RELEASED operation DECLARED, although it is UNRESOLVED as it is",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, s said, plan *onced.Plan, _ *error) {
					if s.kind == unknown && v.Record != nil && isReleased(v.Record) && v.Record.Generation != v.Epoch.Generation {
						*plan = onced.Plan{}
					}
				})
			},
		},
		{
			name: "refusal-revives-restored", breaks: "S5",
			in:   after.but(func(b *bounds) { b.Amend, b.Says = true, notExecuted|unknown|completed }),
			rule: "a refused report does not make a restored claim one of this generation",
			off: func(r *rules) {
				afterReport(r, func(v onced.View, _ said, plan *onced.Plan, err *error) {
					if *err != nil && plan.Put != nil {
						plan.Put.Generation = v.Epoch.Generation
					}
				})
			},
		},
		{
			name: "sweep-restamps-generation", breaks: "S2", in: after,
			rule: "a sweep does not change a record's generation",
			off: func(r *rules) {
				inner := r.sweep
				r.sweep = func(v onced.View, p onced.Policy) onced.Plan {
					if v.Record != nil && isReleased(v.Record) && v.Record.Generation != v.Epoch.Generation {
						asCurrent(&v, isReleased)
						return onced.Plan{Put: v.Record}
					}
					return inner(v, p)
				}
			},
		},
		{
			name: "restored-due-from-backup", breaks: "S9", in: after,
			rule: "a takeover of a restored operation is timed from when the store serves again",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) { v.Epoch.ServingSince = at(longAgo) })
			},
		},
		{
			name: "reconcile-after-without-lease", breaks: "S9", in: after,
			rule: "reconcile_after covers a lease: after a restore there are holders that the store does not know of",
			off: func(r *rules) {
				beforeClaim(r, func(_ *onced.View, p *onced.Policy, _ *onced.ClaimRequest) {
					short := landTicks * tick
					p.ReconcileAfter = &short
				})
			},
		},
	}
}

// blindMutants are about keys that a restore may have lost.
func blindMutants() []mutant {
	// sighted takes the blind period out of a view without ending it: it lies
	// before every key.
	sighted := func(v *onced.View) { v.Epoch.BlindUntil = at(0).AddDate(-1000, 0, 0) }
	return []mutant{
		{
			name: "blind-period-off", breaks: "S2", in: after,
			rule: "a key that is not found after a restore is HISTORY_LOST, not new",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) { sighted(v) })
			},
		},
		{
			name: "blind-period-needs-key-time", breaks: "S2", in: after.but(func(b *bounds) { b.NoKeyTime = true }),
			rule: "in a blind period a claim without a key time is HISTORY_LOST too",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, c *onced.ClaimRequest) {
					if c.KeyTime.IsZero() {
						c.KeyTime = v.Now
						sighted(v)
					}
				})
			},
		},
		{
			name: "end-of-blind-period-frees-released", breaks: "S2", in: after.but(func(b *bounds) { b.EndBlind = true }),
			rule: "the end of the blind period does not free a restored RELEASED operation",
			off: func(r *rules) {
				beforeClaim(r, func(v *onced.View, _ *onced.Policy, _ *onced.ClaimRequest) {
					if v.Epoch.BlindUntil.IsZero() {
						asCurrent(v, isReleased)
					}
				})
			},
		},
	}
}
