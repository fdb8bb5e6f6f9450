package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// syncsOfClaim is how many syncs a claim of a lone caller may take longer than a
// claim without a store.
const syncsOfClaim = 3.5

// WriteText writes the report for people: the three servers side by side, then
// what follows from it. What is not known is left out.
func (r *Report) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, cells ...string) {
		if strings.Join(cells, "") != "" {
			fmt.Fprintln(w, name+"\t"+strings.Join(cells, "\t"))
		}
	}
	row("", "store", "null", "empty")
	row("pairs/s", digits(r.PairsPerS, 0), digits(r.NullPairsPerS, 0), digits(r.EmptyPairsPerS, 0))
	row("claim p50", span(r.ClaimP50), span(r.NullClaimP50), span(r.EmptyP50))
	row("claim p99", span(r.ClaimP99), span(r.NullClaimP99), span(r.EmptyP99))
	row("complete p50", span(r.CompleteP50))
	row("complete p99", span(r.CompleteP99))
	row("replay p50", span(r.ReplayP50))
	row("replay p99", span(r.ReplayP99))
	row("store / null", digits(quotient(r.PairsPerS, r.NullPairsPerS), 3))
	row("null / empty", digits(quotient(r.NullPairsPerS, r.EmptyPairsPerS), 3))
	row("claim beyond null's", beyond(r.ClaimP50, r.NullClaimP50, r.FdatasyncP50))
	row("fdatasync p50", span(r.FdatasyncP50))
	row("requests a commit", digits(r.CommitBatch, 1))
	row("memory", size(r.RSSAnon))
	row("bytes a record", digits(r.BytesPerRecord, 0))
	row("write amplification", digits(r.WriteAmplification, 2))
	row("empty store, pairs/s", digits(r.EmptyStorePairsPerS, 0))
	row("records filled in", filled(r))
	return w.Flush()
}

// beyond says how much longer a claim takes for its store, in syncs of the disk. It
// is of interest with one caller; many wait for each other.
func beyond(claim, null, sync *float64) string {
	syncs := quotient(minus(claim, null), sync)
	if syncs == nil {
		return ""
	}
	return fmt.Sprintf("%.2f fdatasync (with 1 caller, at most %v)", *syncs, syncsOfClaim)
}

func filled(r *Report) string {
	if r.PrefillS == nil || r.PrefillRecordsPerS == nil {
		return ""
	}
	return fmt.Sprintf("%d in %s, %.0f/s", r.Records, span(r.PrefillS), *r.PrefillRecordsPerS)
}

// digits is a figure with n digits behind the point.
func digits(v *float64, n int) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', n, 64)
}

// span is a figure in seconds with its unit.
func span(v *float64) string {
	if v == nil {
		return ""
	}
	return time.Duration(*v * float64(time.Second)).Round(time.Microsecond).String()
}

// size is a figure in bytes with its unit.
func size(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.1f MiB", *v/(1<<20))
}
