package bench

import (
	"math"
	"slices"
)

// Report is what was measured. Times are in seconds, sizes in bytes; nil is what
// could not be known. Figures of rounds are medians over the rounds.
type Report struct {
	Callers        int     `json:"callers"`
	Connections    int     `json:"connections"`
	DurationS      float64 `json:"duration_s"`
	Rounds         int     `json:"rounds"`
	Records        int     `json:"records"`
	ResultBytes    int     `json:"result_bytes"`
	ReplayShare    float64 `json:"replay_share"`
	LeaveUnsettled bool    `json:"leave_unsettled"`

	PairsPerS      *float64 `json:"pairs_per_s"`
	NullPairsPerS  *float64 `json:"null_pairs_per_s"`
	EmptyPairsPerS *float64 `json:"empty_pairs_per_s"`
	// Only where records were settled before the rounds.
	EmptyStorePairsPerS *float64 `json:"empty_store_pairs_per_s,omitempty"`
	PrefillS            *float64 `json:"prefill_s,omitempty"`
	PrefillRecordsPerS  *float64 `json:"prefill_records_per_s,omitempty"`

	ClaimP50     *float64 `json:"claim_p50"`
	ClaimP99     *float64 `json:"claim_p99"`
	CompleteP50  *float64 `json:"complete_p50"`
	CompleteP99  *float64 `json:"complete_p99"`
	ReplayP50    *float64 `json:"replay_p50"`
	ReplayP99    *float64 `json:"replay_p99"`
	NullClaimP50 *float64 `json:"null_claim_p50"`
	NullClaimP99 *float64 `json:"null_claim_p99"`
	EmptyP50     *float64 `json:"empty_p50"`
	EmptyP99     *float64 `json:"empty_p99"`

	CommitBatch        *float64 `json:"commit_batch"`
	RSSAnon            *float64 `json:"rss_anon"`
	BytesPerRecord     *float64 `json:"bytes_per_record"`
	WriteAmplification *float64 `json:"write_amplification"`
	FdatasyncP50       *float64 `json:"fdatasync_p50"`
}

// report makes the report of what was measured.
func (b *bench) report() *Report {
	store, null, empty := b.rounds[b.service], b.rounds[b.null], b.rounds[b.empty]
	r := &Report{
		Callers: b.Callers, Connections: connections(b.Callers), DurationS: b.Duration.Seconds(), Rounds: b.Rounds,
		Records: b.Records, ResultBytes: b.ResultBytes, ReplayShare: b.ReplayShare, LeaveUnsettled: b.LeaveUnsettled,

		PairsPerS: over(store, (*round).pairsPerSecond), NullPairsPerS: over(null, (*round).pairsPerSecond),
		EmptyPairsPerS: over(empty, (*round).pairsPerSecond), EmptyStorePairsPerS: over(b.emptyStore, (*round).pairsPerSecond),

		ClaimP50: over(store, claims(.5)), ClaimP99: over(store, claims(.99)),
		CompleteP50: over(store, completions(.5)), CompleteP99: over(store, completions(.99)),
		ReplayP50: over(store, replays(.5)), ReplayP99: over(store, replays(.99)),
		NullClaimP50: over(null, claims(.5)), NullClaimP99: over(null, claims(.99)),
		EmptyP50: over(empty, claims(.5)), EmptyP99: over(empty, claims(.99)),

		CommitBatch: quotient(b.grouped, b.batches), WriteAmplification: quotient(b.written, known(b.given)),
		RSSAnon: b.after.rssAnon, FdatasyncP50: median(b.syncs),
		BytesPerRecord: quotient(minus(b.after.used, b.before.used), known(float64(b.service.made.Load()))),
	}
	if b.Records > 0 {
		r.PrefillS = known(short(b.filling.Seconds()))
		r.PrefillRecordsPerS = quotient(known(float64(b.Records)), r.PrefillS)
	}
	return r
}

func claims(q float64) func(*round) *float64 {
	return func(r *round) *float64 { return r.claim.quantile(q) }
}

func completions(q float64) func(*round) *float64 {
	return func(r *round) *float64 { return r.complete.quantile(q) }
}

func replays(q float64) func(*round) *float64 {
	return func(r *round) *float64 { return r.replay.quantile(q) }
}

// over returns the median of a figure over rounds; nil when no round has it.
func over(rounds []*round, figure func(*round) *float64) *float64 {
	var known []float64
	for _, r := range rounds {
		if v := figure(r); v != nil {
			known = append(known, *v)
		}
	}
	return median(known)
}

// median returns the middle of values, of an even number the mean of the middle
// two; nil when there are none.
func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	return known(short((low + high) / 2))
}

// known is a figure that is known.
func known(v float64) *float64 { return &v }

// plus, minus and quotient calculate with figures; of one that is not known the
// result is not known either.
func plus(a, b *float64) *float64 { return with(a, b, func(a, b float64) float64 { return a + b }) }

func minus(a, b *float64) *float64 { return with(a, b, func(a, b float64) float64 { return a - b }) }

// quotient is not known if the divisor is 0.
func quotient(a, b *float64) *float64 {
	if b != nil && *b == 0 {
		return nil
	}
	return with(a, b, func(a, b float64) float64 { return short(a / b) })
}

// short rounds to six digits, which is more than a measurement deserves.
func short(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*unit) / unit
}

func with(a, b *float64, f func(a, b float64) float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(f(*a, *b))
}
