package main

// scenario is a set of events that is walked on its own. Fewer events mean that
// a walk reaches deeper within the same number of states.
type scenario struct {
	name  string
	what  string
	in    bounds
	whole bool // small enough for every state to be visited by the tests
}

// scenarios are the walks of the real rules: small ones that end because every
// state has been visited, and large ones that end at a number of states.
func scenarios() []scenario {
	small := bounds{Callers: 2, Tokens: 1, Takeover: true}
	return []scenario{
		{
			name: "reports", whole: true,
			what: "lies, amended reports and FINAL",
			in:   small.but(func(b *bounds) { b.Lies, b.Amend, b.Final = 2, true, true }),
		},
		{
			name: "leases", whole: true,
			what: "Renew, restarts and amended reports",
			in:   small.but(func(b *bounds) { b.Renew, b.Restart, b.Amend = true, true, true }),
		},
		{
			name: "short leases", whole: true,
			what: "Renew for less than what remains",
			in:   small.but(func(b *bounds) { b.Renew, b.ShortRenew, b.Restart = true, true, true }),
		},
		{
			name: "operators", whole: true,
			what: "two decisions of operators, true, false and by force",
			in:   small.but(func(b *bounds) { b.Decisions, b.Lies = 2, 1 }),
		},
		{
			name: "restore", whole: true,
			what: "two restores of one backup",
			in:   small.but(func(b *bounds) { b.Restores = 2 }),
		},
		{
			name: "restore with lies",
			what: "a restore, false reports, and Renew",
			in:   small.but(func(b *bounds) { b.Restores, b.Lies, b.Renew = 1, 1, true }),
		},
		{
			name: "end of the blind period", whole: true,
			what: "a restore, and an operator who ends the blind period",
			in:   small.but(func(b *bounds) { b.Restores, b.EndBlind, b.NoKeyTime = 1, true, true }),
		},
		{
			name: "memory", whole: true,
			what: "expiry, sweeps and a restore",
			in:   small.but(func(b *bounds) { b.Expiry, b.Restores = true, 1 }),
		},
		{
			name: "reruns", whole: true,
			what: "a policy that says that reruns are safe",
			in:   small.but(func(b *bounds) { b.Rerun, b.Lies, b.Expiry = true, 1, true }),
		},
		{
			name: "builds", whole: true,
			what: "a build that cannot read the record",
			in:   small.but(func(b *bounds) { b.Unreadable, b.Lies = true, 1 }),
		},
		{
			name: "plain denials", whole: true,
			what: "DID_NOT_HAPPEN from the holder of a plain grant",
			in:   bounds{Callers: 3, Tokens: 1, Lies: 1, Amend: true, PlainDeny: true},
		},
		{
			name: "kept tokens", whole: true,
			what: "restarted callers that claim with the token of their former self, and renew before they begin",
			in:   bounds{Callers: 2, Tokens: 2, Renew: true, Restart: true, KeepToken: true, Says: unknown | completed},
		},
		{
			name: "three callers",
			what: "three callers, lies and amended reports",
			in:   bounds{Callers: 3, Tokens: 1, Takeover: true, Lies: 1, Amend: true},
		},
		{
			name: "three callers, restore",
			what: "three callers and a restore",
			in:   bounds{Callers: 3, Tokens: 1, Takeover: true, Restores: 1},
		},
		{
			name: "two tokens each",
			what: "two callers that come back with a second token",
			in:   bounds{Callers: 2, Tokens: 2, Takeover: true, Lies: 1, Amend: true},
		},
		{
			name: "everything",
			what: "all events at once",
			in: bounds{
				Callers: 2, Tokens: 2, Lies: 2, Decisions: 2, Restores: 1,
				Takeover: true, Amend: true, Renew: true, Restart: true, Expiry: true, Final: true,
				Unreadable: true, PlainDeny: true, EndBlind: true,
			},
		},
	}
}
