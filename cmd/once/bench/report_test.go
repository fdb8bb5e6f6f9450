package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 100}, 3},
		{[]float64{0, 0}, 0},
		{[]float64{123456789}, 123457000},
		{[]float64{-0.00012345678}, -0.000123457},
	} {
		if got := *median(tt.values); math.Abs(got-tt.want) > 1e-12*math.Abs(tt.want) {
			t.Errorf("the median of %v is %v, not %v", tt.values, got, tt.want)
		}
	}
	if got := median(nil); got != nil {
		t.Errorf("the median of nothing is %v", *got)
	}
}

// TestUnknown: what follows from something unknown is unknown.
func TestUnknown(t *testing.T) {
	for name, got := range map[string]*float64{
		"sum": plus(known(1), nil), "difference": minus(nil, known(1)), "quotient": quotient(known(1), nil),
		"quotient by 0": quotient(known(1), known(0)),
	} {
		if got != nil {
			t.Errorf("%s: %v", name, *got)
		}
	}
	if got := quotient(minus(known(5), known(1)), plus(known(1), known(1))); *got != 2 {
		t.Errorf("(5-1)/(1+1) = %v", *got)
	}
}

// TestOver takes the median over rounds, of those that have the figure.
func TestOver(t *testing.T) {
	var rounds []*round
	for i := range 4 {
		r := &round{callsPerPair: 2}
		for range i {
			r.claim.observe(1e6)
		}
		rounds = append(rounds, r)
	}
	claims := func(r *round) *float64 {
		if n := r.claim.total(); n > 0 {
			return known(float64(n))
		}
		return nil
	}
	if got := *over(rounds, claims); got != 2 {
		t.Errorf("the median of 1, 2, 3 is %v", got)
	}
}

// TestTurnShare: the given share of the calls are replays.
func TestTurnShare(t *testing.T) {
	for _, callsPerPair := range []float64{1, 2} {
		for _, share := range []float64{0, 0.25, 0.5, 1} {
			turns := turnShare(share, callsPerPair)
			calls := turns + (1-turns)*callsPerPair
			if got := turns / calls; math.Abs(got-share) > 1e-12 {
				t.Errorf("%v of the calls are replays, not %v", got, share)
			}
		}
	}
}

// TestText leaves out what is not known, and tells the ratios.
func TestText(t *testing.T) {
	r := Report{PairsPerS: known(400), NullPairsPerS: known(1000), EmptyPairsPerS: known(1600), ClaimP50: known(0.0125)}
	var out bytes.Buffer
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"store / null", "0.400", "null / empty", "0.625", "12.5ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	for _, unwanted := range []string{"memory", "fdatasync", "records", "replay"} {
		if strings.Contains(out.String(), unwanted) {
			t.Errorf("%q is in\n%s", unwanted, &out)
		}
	}
}

// TestJSON: figures that are not known are null, and those of records are not there
// without records.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(Report{Callers: 3})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rss_anon", "commit_batch", "replay_p50"} {
		if v, there := got[name]; !there || v != nil {
			t.Errorf("%s: %v, there: %v", name, v, there)
		}
	}
	for _, name := range []string{"empty_store_pairs_per_s", "prefill_s", "prefill_records_per_s"} {
		if _, there := got[name]; there {
			t.Errorf("%s is there without records", name)
		}
	}
}
