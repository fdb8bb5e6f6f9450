package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// fullClaim is a claim with every field set, in bounds.
func fullClaim() *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{
		Ref: ref("k"), ClaimToken: token("a"), Fingerprints: []string{fp("cj1", "x"), fp("raw1", "x")},
		Subject: "s", Holder: "h", Lease: durationpb.New(time.Minute), Labels: map[string]string{"l": "v"},
		TwinGuard: &oncedv1.TwinGuard{Block: oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT, Window: durationpb.New(time.Hour)},
	}
}

func hexes(bytes int) string { return strings.Repeat("ab", bytes) }

func manyLabels(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("label", i)] = "v"
	}
	return m
}

// claimBounds are changes of fullClaim, each with the one field that is then
// wrong; "" where nothing is.
var claimBounds = []struct {
	name   string
	field  string
	change func(*oncedv1.ClaimRequest)
}{
	{"as it is", "", func(*oncedv1.ClaimRequest) {}},
	{"no ref", "ref", func(r *oncedv1.ClaimRequest) { r.Ref = nil }},
	{"namespace empty", "ref.namespace", func(r *oncedv1.ClaimRequest) { r.Ref.Namespace = "" }},
	{"namespace 128", "", func(r *oncedv1.ClaimRequest) { r.Ref.Namespace = strings.Repeat("n", 128) }},
	{"namespace 129", "ref.namespace", func(r *oncedv1.ClaimRequest) { r.Ref.Namespace = strings.Repeat("n", 129) }},
	{"namespace all characters", "", func(r *oncedv1.ClaimRequest) { r.Ref.Namespace = "aZ09._:/-" }},
	{"namespace blank", "ref.namespace", func(r *oncedv1.ClaimRequest) { r.Ref.Namespace = "a b" }},
	{"namespace not ASCII", "ref.namespace", func(r *oncedv1.ClaimRequest) { r.Ref.Namespace = "é" }},
	{"method empty", "ref.method", func(r *oncedv1.ClaimRequest) { r.Ref.Method = "" }},
	{"method 256", "", func(r *oncedv1.ClaimRequest) { r.Ref.Method = strings.Repeat("m", 256) }},
	{"method 257", "ref.method", func(r *oncedv1.ClaimRequest) { r.Ref.Method = strings.Repeat("m", 257) }},
	{"method control", "ref.method", func(r *oncedv1.ClaimRequest) { r.Ref.Method = "a\nb" }},

	{"key empty", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "" }},
	{"key blank", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = " " }},
	{"key leading blank", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = " k" }},
	{"key trailing blank", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "k " }},
	{"key no-break space", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "k\u00a0" }},
	{"key NUL", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "a\x00b" }},
	{"key DEL", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "a\x7fb" }},
	{"key null", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "null" }},
	{"key undefined", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "undefined" }},
	{"key nil UUID", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "00000000-0000-0000-0000-000000000000" }},
	{"key Cyrillic", "", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "ключ" }},
	{"key path", "", func(r *oncedv1.ClaimRequest) { r.Ref.Key = "../x" }},
	{"key quoted", "", func(r *oncedv1.ClaimRequest) { r.Ref.Key = `"abc"` }},
	{"key 512", "", func(r *oncedv1.ClaimRequest) { r.Ref.Key = strings.Repeat("k", 512) }},
	{"key 513", "ref.key", func(r *oncedv1.ClaimRequest) { r.Ref.Key = strings.Repeat("k", 513) }},

	{"token 0", "claim_token", func(r *oncedv1.ClaimRequest) { r.ClaimToken = nil }},
	{"token 15", "claim_token", func(r *oncedv1.ClaimRequest) { r.ClaimToken = make([]byte, 15) }},
	{"token 16", "", func(r *oncedv1.ClaimRequest) { r.ClaimToken = make([]byte, 16) }},
	{"token 64", "", func(r *oncedv1.ClaimRequest) { r.ClaimToken = make([]byte, 64) }},
	{"token 65", "claim_token", func(r *oncedv1.ClaimRequest) { r.ClaimToken = make([]byte, 65) }},

	{"fingerprint without digest", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:"} }},
	{"fingerprint 15", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:" + hexes(15)} }},
	{"fingerprint 16", "", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:" + hexes(16)} }},
	{"fingerprint 64", "", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:" + hexes(64)} }},
	{"fingerprint 65", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:" + hexes(65)} }},
	{"fingerprint upper case", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:" + strings.ToUpper(hexes(32))} }},
	{"fingerprint odd", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"raw1:" + hexes(32) + "a"} }},
	{"fingerprint no scheme", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{hexes(32)} }},
	{"fingerprint scheme in capitals", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{"RAW:" + hexes(32)} }},
	{"fingerprint scheme 17", "fingerprints", func(r *oncedv1.ClaimRequest) {
		r.Fingerprints = []string{strings.Repeat("a", 17) + ":" + hexes(32)}
	}},
	{"three fingerprints", "", func(r *oncedv1.ClaimRequest) {
		r.Fingerprints = []string{"a:" + hexes(32), "b:" + hexes(32), "c:" + hexes(32)}
	}},
	{"four fingerprints", "fingerprints", func(r *oncedv1.ClaimRequest) {
		r.Fingerprints = []string{"a:" + hexes(32), "b:" + hexes(32), "c:" + hexes(32), "d:" + hexes(32)}
	}},
	{"two of one scheme", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = []string{fp("cj1", "x"), fp("cj1", "y")} }},

	{"subject 256", "", func(r *oncedv1.ClaimRequest) { r.Subject = strings.Repeat("s", 256) }},
	{"subject 257", "subject", func(r *oncedv1.ClaimRequest) { r.Subject = strings.Repeat("s", 257) }},
	{"subject blank", "subject", func(r *oncedv1.ClaimRequest) { r.Subject = " " }},
	{"holder 256", "", func(r *oncedv1.ClaimRequest) { r.Holder = strings.Repeat("h", 256) }},
	{"holder 257", "holder", func(r *oncedv1.ClaimRequest) { r.Holder = strings.Repeat("h", 257) }},
	{"16 labels", "", func(r *oncedv1.ClaimRequest) { r.Labels = manyLabels(16) }},
	{"17 labels", "labels", func(r *oncedv1.ClaimRequest) { r.Labels = manyLabels(17) }},
	{"label name empty", "labels", func(r *oncedv1.ClaimRequest) { r.Labels = map[string]string{"": "v"} }},
	{"label name 65", "labels", func(r *oncedv1.ClaimRequest) { r.Labels = map[string]string{strings.Repeat("l", 65): "v"} }},
	{"label 64 and 256", "", func(r *oncedv1.ClaimRequest) {
		r.Labels = map[string]string{strings.Repeat("l", 64): strings.Repeat("v", 256)}
	}},
	{"label value 257", "labels", func(r *oncedv1.ClaimRequest) { r.Labels = map[string]string{"l": strings.Repeat("v", 257)} }},

	{"wait negative", "wait", func(r *oncedv1.ClaimRequest) { r.Wait = durationpb.New(-1) }},
	{"wait with two signs", "wait", func(r *oncedv1.ClaimRequest) { r.Wait = &durationpb.Duration{Seconds: 1, Nanos: -1} }},
	{"wait of 10000 years", "", func(r *oncedv1.ClaimRequest) { r.Wait = &durationpb.Duration{Seconds: 315576000000} }},

	{"key_time before year 1", "key_time", func(r *oncedv1.ClaimRequest) { r.KeyTime = &timestamppb.Timestamp{Seconds: -62135596801} }},
	{"key_time that Go takes for none", "key_time", func(r *oncedv1.ClaimRequest) { r.KeyTime = &timestamppb.Timestamp{Seconds: -62135596800} }},
	{"key_time with too many nanos", "key_time", func(r *oncedv1.ClaimRequest) { r.KeyTime = &timestamppb.Timestamp{Nanos: 1e9} }},
	{"key_time in the future", "key_time", func(r *oncedv1.ClaimRequest) { r.KeyTime = timestamppb.New(start.Add(5*time.Minute + 1)) }},
	{"key_time in the future within skew", "", func(r *oncedv1.ClaimRequest) { r.KeyTime = timestamppb.New(start.Add(5 * time.Minute)) }},

	{"guard without block", "twin_guard.block", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Block = 0 }},
	{"guard with unknown block", "twin_guard.block", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Block = 3 }},
	{"guard without window", "twin_guard.window", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Window = nil }},
	{"guard window 999 ms", "twin_guard.window", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Window = durationpb.New(999 * time.Millisecond) }},
	{"guard window 1 s", "", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Window = durationpb.New(time.Second) }},
	{"guard window 24 h", "", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Window = durationpb.New(24 * time.Hour) }},
	{"guard window over 24 h", "twin_guard.window", func(r *oncedv1.ClaimRequest) { r.TwinGuard.Window = durationpb.New(24*time.Hour + 1) }},
	{"guard window overflow", "twin_guard.window", func(r *oncedv1.ClaimRequest) {
		r.TwinGuard.Window = &durationpb.Duration{Seconds: 315576000000}
	}},
	{"guard window not needed", "", func(r *oncedv1.ClaimRequest) {
		r.TwinGuard = &oncedv1.TwinGuard{Block: oncedv1.TwinGuard_BLOCK_UNSETTLED}
	}},
	{"guard window not needed and zero", "twin_guard.window", func(r *oncedv1.ClaimRequest) {
		r.TwinGuard = &oncedv1.TwinGuard{Block: oncedv1.TwinGuard_BLOCK_UNSETTLED, Window: durationpb.New(0)}
	}},
	{"guard confirms null", "twin_guard.confirmed_twin_key", func(r *oncedv1.ClaimRequest) { r.TwinGuard.ConfirmedTwinKey = "null" }},
	{"guard without fingerprint", "fingerprints", func(r *oncedv1.ClaimRequest) { r.Fingerprints = nil }},
}

var durationMinute = durationpb.New(time.Minute)

// start is where the clock of a new wire stands.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.UTC)

// leases are leases asked for under the default bounds, and under which ok.
var leases = []struct {
	name  string
	lease *durationpb.Duration
	ok    bool
}{
	{"0", durationpb.New(0), false},
	{"-1 s", durationpb.New(-time.Second), false},
	{"999 ms", durationpb.New(999 * time.Millisecond), false},
	{"999999999 ns", durationpb.New(time.Second - 1), false},
	{"1 s", durationpb.New(time.Second), true},
	{"1500 ms", durationpb.New(1500 * time.Millisecond), true},
	{"24 h", durationpb.New(24 * time.Hour), true},
	{"24 h and 1 ns", durationpb.New(24*time.Hour + 1), false},
	{"25 h", durationpb.New(25 * time.Hour), false},
	{"more than a time.Duration holds", &durationpb.Duration{Seconds: 9223372037}, false},
	{"the longest Duration", &durationpb.Duration{Seconds: 315576000000}, false},
	{"longer than a Duration", &durationpb.Duration{Seconds: 315576000001}, false},
	{"wraps to 30 s of nanoseconds", &durationpb.Duration{Seconds: 18446744103}, false},
	{"two signs", &durationpb.Duration{Seconds: 30, Nanos: -1}, false},
	{"too many nanos", &durationpb.Duration{Seconds: 30, Nanos: 1e9}, false},
}

func TestClaimBounds(t *testing.T) {
	for _, c := range claimBounds {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t)
			req := fullClaim()
			c.change(req)
			w.wantClaim(req, c.field)
		})
	}
	for _, c := range leases {
		t.Run("lease "+c.name, func(t *testing.T) {
			w := newWire(t)
			req := fullClaim()
			req.Lease = c.lease
			w.wantClaim(req, map[bool]string{false: "lease", true: ""}[c.ok])
		})
	}
}

// wantClaim sends a claim that is wrong in one field, or in none.
func (w *wire) wantClaim(req *oncedv1.ClaimRequest, field string) {
	w.Helper()
	resp, err := w.client.Claim(w.Context(), req)
	if field == "" {
		if err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_GRANTED {
			w.Fatalf("%v %v", resp, err)
		}
		if req.Lease != nil && !proto.Equal(resp.GetOperation().GetLease(), req.Lease) {
			w.Errorf("lease %v, want %v", resp.GetOperation().GetLease(), req.Lease)
		}
		return
	}
	wantViolation(w.T, err, field)
	if stored := w.records(); len(stored) > 0 {
		w.Errorf("a refused claim stored %+v", stored)
	}
}

// All that is wrong is said at once.
func TestClaimEveryViolation(t *testing.T) {
	w := newWire(t)
	_, err := w.client.Claim(t.Context(), &oncedv1.ClaimRequest{Ref: &oncedv1.OperationRef{}, Lease: durationpb.New(0)})
	for _, field := range []string{"ref.namespace", "ref.key", "ref.method", "claim_token", "lease"} {
		if !strings.Contains(err.Error(), field+":") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// Keys that differ in nothing but what a careless store would fold are two.
func TestKeysAreBytes(t *testing.T) {
	w := newWire(t)
	for _, id := range []*oncedv1.OperationRef{
		{Namespace: "n", Key: "k", Method: "m"},
		{Namespace: "n", Key: "K", Method: "m"},
		{Namespace: "n", Key: "a:b", Method: "c"},
		{Namespace: "n", Key: "a", Method: "b:c"},
		{Namespace: "n:a", Key: "b", Method: "c"},
		{Namespace: "n", Key: "order-1", Method: "m"},
		{Namespace: "n", Key: "order-10", Method: "m"},
		{Namespace: "n", Key: "abc", Method: "m"},
		{Namespace: "n", Key: `"abc"`, Method: "m"},
		{Namespace: "n", Key: "é", Method: "m"},       // one code point
		{Namespace: "n", Key: "e\u0301", Method: "m"}, // two
		{Namespace: "n", Key: "/tickets", Method: "/1"},
		{Namespace: "n", Key: "/tickets", Method: "/2"},
	} {
		w.claim(oncedv1.Outcome_OUTCOME_GRANTED, "", "a", func(r *oncedv1.ClaimRequest) { r.Ref = id })
	}
}

// reportBounds are changes of valid reports of the holder of "k".
var reportBounds = []struct {
	name  string
	field string
	send  func(h held) error
}{
	{"complete without ref", "ref", func(h held) error {
		return h.sendComplete(func(r *oncedv1.CompleteRequest) { r.Ref = nil })
	}},
	{"complete token 15", "claim_token", func(h held) error {
		return h.sendComplete(func(r *oncedv1.CompleteRequest) { r.ClaimToken = make([]byte, 15) })
	}},
	{"complete token 65", "claim_token", func(h held) error {
		return h.sendComplete(func(r *oncedv1.CompleteRequest) { r.ClaimToken = make([]byte, 65) })
	}},
	{"complete fence 0", "fence", func(h held) error {
		return h.sendComplete(func(r *oncedv1.CompleteRequest) { r.Fence = 0 })
	}},
	{"complete without result", "result", func(h held) error {
		return h.sendComplete(func(r *oncedv1.CompleteRequest) { r.Result = nil })
	}},
	{"complete content type 257", "stored.content_type", func(h held) error {
		return h.sendComplete(func(r *oncedv1.CompleteRequest) { r.GetStored().ContentType = strings.Repeat("c", 257) })
	}},
	{"complete omitted content type 257", "omitted.content_type", func(h held) error {
		return h.sendComplete(omitting(&oncedv1.OmittedResult{ContentType: strings.Repeat("c", 257), Sha256: make([]byte, 32)}))
	}},
	{"complete omitted digest 31", "omitted.sha256", func(h held) error {
		return h.sendComplete(omitting(&oncedv1.OmittedResult{Sha256: make([]byte, 31)}))
	}},
	{"complete omitted digest 33", "omitted.sha256", func(h held) error {
		return h.sendComplete(omitting(&oncedv1.OmittedResult{Sha256: make([]byte, 33)}))
	}},
	{"fail fence 0", "fence", func(h held) error {
		h.fence = 0
		_, err := h.fail(oncedv1.Disposition_DISPOSITION_UNKNOWN)
		return err
	}},
	{"fail unspecified", "disposition", func(h held) error {
		_, err := h.fail(oncedv1.Disposition_DISPOSITION_UNSPECIFIED)
		return err
	}},
	{"fail unknown disposition", "disposition", func(h held) error { _, err := h.fail(5); return err }},
	{"fail disposition that a byte would take for 1", "disposition", func(h held) error { _, err := h.fail(257); return err }},
	{"fail negative disposition", "disposition", func(h held) error { _, err := h.fail(-1); return err }},
	{"fail code 65", "failure.code", func(h held) error {
		return h.failFinal(&oncedv1.Failure{Code: strings.Repeat("c", 65)})
	}},
	{"fail message 4097", "failure.message", func(h held) error {
		return h.failFinal(&oncedv1.Failure{Message: strings.Repeat("m", 4097)})
	}},
	{"fail details content type 257", "failure.details.content_type", func(h held) error {
		return h.failFinal(&oncedv1.Failure{Details: &oncedv1.Payload{ContentType: strings.Repeat("c", 257)}})
	}},
	{"fail checkpoint 64 KiB and 1", "checkpoint.payload", func(h held) error {
		_, err := h.fail(oncedv1.Disposition_DISPOSITION_UNKNOWN, func(r *oncedv1.FailRequest) { r.Checkpoint = checkpoint(1, 64<<10+1) })
		return err
	}},
	{"renew fence 0", "fence", func(h held) error { h.fence = 0; _, err := h.renew(); return err }},
	{"renew checkpoint 64 KiB and 1", "checkpoint.payload", func(h held) error {
		_, err := h.renew(func(r *oncedv1.RenewRequest) { r.Checkpoint = checkpoint(1, 64<<10+1) })
		return err
	}},
	{"renew checkpoint content type 257", "checkpoint.payload.content_type", func(h held) error {
		_, err := h.renew(func(r *oncedv1.RenewRequest) {
			r.Checkpoint = &oncedv1.Checkpoint{Payload: &oncedv1.Payload{ContentType: strings.Repeat("c", 257)}}
		})
		return err
	}},
	{"lookup without ref", "ref", func(h held) error { return h.w.look(&oncedv1.LookupRequest{}) }},
	{"lookup key blank", "ref.key", func(h held) error { return h.w.look(&oncedv1.LookupRequest{Ref: ref(" ")}) }},
	{"lookup method control", "ref.method", func(h held) error {
		return h.w.look(&oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k", Method: "\t"}})
	}},
	{"lookup subject 257", "subject", func(h held) error {
		return h.w.look(&oncedv1.LookupRequest{Ref: ref("k"), Subject: strings.Repeat("s", 257)})
	}},
	{"lookup fingerprint", "fingerprints", func(h held) error {
		return h.w.look(&oncedv1.LookupRequest{Ref: ref("k"), Fingerprints: []string{"raw1:"}})
	}},
	{"lookup wait negative", "wait", func(h held) error {
		return h.w.look(&oncedv1.LookupRequest{Ref: ref("k"), Wait: durationpb.New(-time.Second)})
	}},
	{"lookup unknown view", "view", func(h held) error { return h.w.look(&oncedv1.LookupRequest{Ref: ref("k"), View: 3}) }},
	{"lookup key_time", "key_time", func(h held) error {
		return h.w.look(&oncedv1.LookupRequest{Ref: ref("k"), KeyTime: &timestamppb.Timestamp{Nanos: -1}})
	}},
	{"policy without namespace", "namespace", func(h held) error {
		_, err := h.w.client.GetPolicy(h.w.Context(), &oncedv1.GetPolicyRequest{})
		return err
	}},
}

func (h held) sendComplete(change func(*oncedv1.CompleteRequest)) error {
	req := h.completion("done")
	change(req)
	_, err := h.w.client.Complete(h.w.Context(), req)
	return err
}

func (h held) failFinal(f *oncedv1.Failure) error {
	_, err := h.fail(oncedv1.Disposition_DISPOSITION_FINAL, func(r *oncedv1.FailRequest) { r.Failure = f })
	return err
}

func (w *wire) look(req *oncedv1.LookupRequest) error {
	_, err := w.client.Lookup(w.Context(), req)
	return err
}

func omitting(o *oncedv1.OmittedResult) func(*oncedv1.CompleteRequest) {
	return func(r *oncedv1.CompleteRequest) { r.Result = &oncedv1.CompleteRequest_Omitted{Omitted: o} }
}

func checkpoint(seq uint64, bytes int) *oncedv1.Checkpoint {
	return &oncedv1.Checkpoint{Seq: seq, Payload: &oncedv1.Payload{Body: &oncedv1.Payload_Data{Data: make([]byte, bytes)}}}
}

func TestReportBounds(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	for _, c := range reportBounds {
		t.Run(c.name, func(t *testing.T) {
			w.unchanged(func() { wantViolation(t, c.send(h), c.field) })
		})
	}
	for _, c := range leases {
		t.Run("renew lease "+c.name, func(t *testing.T) {
			_, err := h.renew(func(r *oncedv1.RenewRequest) { r.Lease = c.lease })
			if c.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantViolation(t, err, "lease")
		})
	}
	// What lies on the bound is taken.
	_, err := h.renew(func(r *oncedv1.RenewRequest) { r.Checkpoint = checkpoint(1, 64<<10) })
	if err != nil {
		t.Error(err)
	}
	err = h.failFinal(&oncedv1.Failure{
		Code: strings.Repeat("c", 64), Message: strings.Repeat("m", 4096),
		Details: &oncedv1.Payload{ContentType: strings.Repeat("c", 256)},
	})
	if err != nil {
		t.Error(err)
	}
}

// A namespace's own bounds are those that count, and their refusal names them.
func TestNamespaceBounds(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) {
		p.MinLease, p.DefaultLease, p.MaxLease = 2*time.Second, 5*time.Second, 10*time.Second
		p.FingerprintRequired, p.KeyTimeRequired = true, true
		p.MaxCheckpointBytes = 8
	})
	valid := func(change func(*oncedv1.ClaimRequest)) *oncedv1.ClaimRequest {
		return claimOf("k", "a", withFingerprints(fp("cj1", "x")), func(r *oncedv1.ClaimRequest) { r.KeyTime = timestamppb.New(start) }, change)
	}
	for _, lease := range []time.Duration{1999 * time.Millisecond, 10*time.Second + 1} {
		_, err := w.client.Claim(t.Context(), valid(withLease(lease)))
		wantViolation(t, err, "lease")
		if !strings.Contains(err.Error(), "2s to 10s") {
			t.Errorf("%v does not name the bounds", err)
		}
	}
	_, err := w.client.Claim(t.Context(), valid(withFingerprints()))
	wantViolation(t, err, "fingerprints")
	_, err = w.client.Claim(t.Context(), valid(func(r *oncedv1.ClaimRequest) { r.KeyTime = nil }))
	wantViolation(t, err, "key_time")
	if len(w.records()) > 0 {
		t.Error("a refused claim was stored")
	}

	resp, err := w.client.Claim(t.Context(), valid(func(*oncedv1.ClaimRequest) {}))
	if err != nil || resp.GetOperation().GetLease().AsDuration() != 5*time.Second {
		t.Fatalf("the default lease is not echoed: %v %v", resp, err)
	}
	h := held{w: w, key: "k", token: "a", fence: resp.GetOperation().GetFence()}
	_, err = h.renew(func(r *oncedv1.RenewRequest) { r.Checkpoint = checkpoint(1, 9) })
	wantViolation(t, err, "checkpoint.payload")
	if op, err := h.renew(); err != nil || op.GetLease().AsDuration() != 5*time.Second {
		t.Errorf("renewed by %v, want the default: %v", op.GetLease(), err)
	}
}
