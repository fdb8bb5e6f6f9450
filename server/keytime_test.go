package server_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A retry that arrives after the memory of the store is not a new operation.
func TestHistoryLost(t *testing.T) {
	w := newWire(t)
	minted := func(at time.Time) func(*oncedv1.ClaimRequest) {
		return func(r *oncedv1.ClaimRequest) { r.KeyTime = timestamppb.New(at) }
	}
	w.claim(granted, "new", "a", minted(start))
	lost := w.claim(unresolved, "old", "a", minted(start.Add(-1)))
	op := lost.GetOperation()
	if op.GetReason() != historyLost || op.GetAttempt() != 1 || op.GetFence() == 0 || lost.GetYours() ||
		op.GetFirstClaimTime() != nil || op.GetLease() != nil || op.GetLeaseEnd() != nil || op.GetHolder() != "" {
		t.Errorf("%v", lost)
	}
	forged := held{w: w, key: "old", token: "a", fence: op.GetFence()}
	w.unchanged(func() { w.refused(precondition, "CLAIM_LOST")(forged.complete("done")) })
	// It is settled by a takeover.
	taker := w.takeOver("old", "b", 1)
	w.must(completed)(taker.complete("found"))
	// A takeover of what is not there is asked by somebody who knows more than the store.
	if resp := w.claim(unresolved, "absent", "a", takeOver(3)); resp.GetOperation().GetReason() != historyLost {
		t.Errorf("%v", resp)
	}
}

func TestKeyTimeChanged(t *testing.T) {
	w := newWire(t)
	at := func(d time.Duration) func(*oncedv1.ClaimRequest) {
		return func(r *oncedv1.ClaimRequest) { r.KeyTime = timestamppb.New(start.Add(d)) }
	}
	w.claim(granted, "k", "a", at(0))
	w.unchanged(func() {
		if resp := w.claim(inProgress, "k", "b", at(0)); resp.GetKeyTimeChanged() {
			t.Errorf("%v", resp)
		}
		if resp := w.claim(inProgress, "k", "b", at(1)); !resp.GetKeyTimeChanged() {
			t.Errorf("%v", resp)
		}
	})
	if n := w.seen.count("key_time_changed n"); n != 1 {
		t.Errorf("counted %d changes", n)
	}
}

// A namespace may read the key time from the key.
func TestKeyTimeFromKey(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) { p.KeyTimeFromKey, p.KeyTimeRequired = true, true })
	for key, want := range map[string]oncedv1.Outcome{
		"019ca945-0c80-7abc-8def-0123456789ab": granted,    // 2026-03-01T12:00:00Z and 640 ms
		"019CA945-0C80-7ABC-8DEF-0123456789AB": granted,    // in capitals: another key
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398f": unresolved, // the example of RFC 9562, of 2022
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":           unresolved, // the example of the ULID specification, of 2016
	} {
		resp := w.claim(want, key, "a")
		if want == unresolved && resp.GetOperation().GetReason() != historyLost {
			t.Errorf("%s: %v", key, resp)
		}
	}
	for _, key := range []string{
		"017f22e2-79b0-4cc3-98c4-dc0c0c07398f", // version 4
		"017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", // another variant
		"017f22e279b07cc398c4dc0c0c07398f",     // not the text form
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
		"81ARZ3NDEKTSV4RRFFQ69G5FAV", // more than 128 bits
		"01ARZ3NDEKTSV4RRFFQ69G5FAU", // U is no digit
		"order-1",
	} {
		wantViolation(t, w.tryClaim(key, "a"), "key_time")
	}
	// A time in the future is refused wherever it was read.
	wantViolation(t, w.tryClaim("7ZZZZZZZZZTSV4RRFFQ69G5FAV", "a"), "key_time")
	// What the request says counts.
	w.claim(granted, "01BX5ZZKBKACTAV9WEVGEMMVRZ", "a", func(r *oncedv1.ClaimRequest) { r.KeyTime = timestamppb.New(start) })
}

// What is over 128 bits looks like a ULID and is none: there is no time in it.
func TestNoTimeInKey(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) { p.KeyTimeFromKey = true })
	w.claim(granted, "81ARZ3NDEKTSV4RRFFQ69G5FAV", "a")
	w.claim(unresolved, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "a")
}
