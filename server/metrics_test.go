package server

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server/sweep"
	"github.com/onced/onced/storage"
)

// traffic claims, replays, mismatches and loses under one key of a namespace.
func (r *rig) traffic(namespace, key string) {
	r.Helper()
	at := func(req *oncedv1.ClaimRequest) *oncedv1.ClaimRequest {
		req.GetRef().Namespace = namespace
		return req
	}
	resp, err := r.client.Claim(r.Context(), at(claimRequest(key)))
	if err != nil {
		r.Fatal(err)
	}
	complete := completeRequest(key, resp.GetOperation().GetFence(), "x")
	complete.GetRef().Namespace = namespace
	if _, err := r.client.Complete(r.Context(), complete); err != nil {
		r.Fatal(err)
	}
	if _, err := r.client.Claim(r.Context(), at(claimRequest(key))); err != nil {
		r.Fatal(err)
	}
	mismatch := at(claimRequest(key))
	mismatch.Fingerprints = []string{"raw1:" + strings.Repeat("0", 64)}
	if _, err := r.client.Claim(r.Context(), mismatch); err == nil {
		r.Fatal("a mismatch was answered")
	}
	complete.Fence++
	if _, err := r.client.Complete(r.Context(), complete); err == nil {
		r.Fatal("a wrong fence was answered")
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, slog.LevelError+1)
	r.traffic("n", "k")
	r.traffic("elsewhere", "k")
	r.grant("left")
	r.clock.Advance(31 * time.Second)
	r.metrics.Alarm("n", onced.AlarmContradicted)
	r.metrics.KeyTimeChanged("n")
	r.metrics.Committed(storage.Commit{Requests: [storage.Classes]int{3, 2, 0}, Took: time.Second, Bytes: 500})
	r.metrics.Committed(storage.Commit{Requests: [storage.Classes]int{0, 1, 0}}) // nothing had to be written
	r.metrics.Swept(sweep.Batch{Kind: onced.DueExpiry, Deleted: 3, Rewritten: 2, Kept: 1, Failed: 4, Lag: time.Minute})

	for _, tt := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{2, "onced_claims_total", []string{"n", "GRANTED"}},
		{1, "onced_claims_total", []string{"other", "GRANTED"}},
		{1, "onced_claims_total", []string{"n", "REPLAYED"}},
		{1, "onced_refusals_total", []string{"n", "Claim", "FINGERPRINT_MISMATCH"}},
		{1, "onced_refusals_total", []string{"other", "Complete", "CLAIM_LOST"}},
		{1, "onced_settlements_total", []string{"n", "COMPLETED", "HOLDER"}},
		{1, "onced_alarms_total", []string{"n", "contradicted"}},
		{1, "onced_key_time_changes_total", []string{"n"}},
		{7, "onced_rpcs_total", []string{"Claim"}},
		{2, "onced_rpcs_total", []string{idempotency, "Complete", "FailedPrecondition"}},
		{1, "onced_unsettled_operations", []string{"n"}},
		{0, "onced_unsettled_operations", []string{"other"}},
		{1, "onced_unresolved_age_seconds", nil},
		{4096, "onced_store_size_bytes", nil},
		{3072, "onced_store_used_bytes", nil},
		{1024, "onced_store_free_bytes", nil},
		{1, "onced_store_queued", []string{"claim"}},
		{2, "onced_store_queued", []string{"settlement"}},
		{3, "onced_store_queued", []string{"sweep"}},
		{500, "onced_store_written_bytes_total", nil},
		{3, "onced_sweep_entries_total", []string{"operations", "deleted"}},
		{2, "onced_sweep_entries_total", []string{"operations", "rewritten"}},
		{1, "onced_sweep_entries_total", []string{"operations", "kept"}},
		{4, "onced_sweep_entries_total", []string{"operations", "failed"}},
		{60, "onced_sweep_lag_seconds", []string{"operations"}},
	} {
		r.counted(tt.want, tt.name, tt.labels...)
	}
	for name, want := range map[string][2]float64{ // how many, and their sum
		"onced_commit_batch_size": {1, 5}, "onced_commit_seconds": {1, 1}, "onced_queue_seconds": {3, 0},
	} {
		if n, sum := r.observed(name); n != want[0] || sum != want[1] {
			t.Errorf("%s: %v observations of %v in all, want %v", name, n, sum, want)
		}
	}
	problems, err := testutil.GatherAndLint(r.registry)
	if err != nil || len(problems) != 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// TestNoSeriesPerKey: what callers choose, keys and namespaces, adds no series.
func TestNoSeriesPerKey(t *testing.T) {
	r := newRig(t, slog.LevelError+1)
	r.traffic("n", "first")
	r.traffic("namespace", "first")
	for i := range 10 {
		for _, method := range []string{"/onced.v1.IdempotencyService/Method%d", "/service%d/Claim"} {
			_ = r.conn.Invoke(t.Context(), fmt.Sprintf(method, i), claimRequest("k"), claimRequest("k"))
		}
	}
	before := r.series()
	for i := range 1000 {
		r.traffic("n", fmt.Sprintf("key%d", i))
		if i%100 == 0 {
			r.traffic(fmt.Sprintf("namespace%d", i), "key")
		}
	}
	if n := r.count("onced_rpcs_total", "Unimplemented"); n != 0 {
		t.Errorf("%v calls of unknown methods have series", n)
	}
	if after := r.series(); after != before {
		t.Errorf("%d series before, %d after 1,000 keys", before, after)
	}
	if got := r.count("onced_claims_total", "n", "GRANTED"); got != 1001 {
		t.Errorf("%v claims were granted", got)
	}
}

// TestNoStoreNoSample: a store that is closed has no age to tell, and its scrape
// does not fail.
func TestNoStoreNoSample(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	if slices.Contains(names, "onced_unresolved_age_seconds") || !slices.Contains(names, "onced_calls_running") {
		t.Errorf("%v", names)
	}
}

func TestMetricsAreForOneServer(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	policies, err := NewPolicies(onced.DefaultPolicy(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(t.Context(), Config{Store: r.store, Policies: policies, Metrics: r.metrics, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Error("two servers have the same metrics")
	}
}
