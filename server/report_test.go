package server_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Each of these is a rule on doubt, takeover, the last holder or a fenced
// holder, told as a history through the wire.
func TestReportRules(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(w *wire)
	}{
		{"NOT_EXECUTED releases, and the next claim is granted", func(w *wire) {
			w.must(released)(w.grant("k", "a").fail(notExecuted))
			if op := w.claim(granted, "k", "b").GetOperation(); op.GetAttempt() != 2 {
				w.Errorf("%v", op)
			}
		}},
		{"UNKNOWN declares doubt, and nobody runs", func(w *wire) {
			op := w.must(stateUnresolved)(w.grant("k", "a").fail(unknown))
			if op.GetReason() != declared {
				w.Errorf("%v", op)
			}
			w.claim(unresolved, "k", "b")
		}},
		{"the last holder does not take declared doubt back", func(w *wire) {
			h := w.grant("k", "a")
			w.must(stateUnresolved)(h.fail(unknown))
			w.refused(precondition, "REPORT_REFUSED")(h.fail(notExecuted))
			w.refused(precondition, "REPORT_REFUSED")(h.fail(didNotHappen))
			w.refused(precondition, "CLAIM_LOST")(h.renew())
			w.must(completed)(h.complete("done"))
		}},
		{"the last holder adds a fact after its release", func(w *wire) {
			h := w.grant("k", "a")
			w.must(released)(h.fail(notExecuted))
			w.must(stateUnresolved)(h.fail(unknown))
			w.must(completed)(h.complete("done"))
		}},
		{"the last holder completes after its lapse", func(w *wire) {
			h := w.grant("k", "a")
			w.clock.Advance(time.Hour)
			w.must(completed)(h.complete("done"))
		}},
		{"the last holder says after its lapse that it never began", func(w *wire) {
			h := w.grant("k", "a")
			w.clock.Advance(time.Hour)
			w.must(released)(h.fail(notExecuted))
		}},
		{"NOT_EXECUTED under doubt leaves doubt", func(w *wire) {
			w.grant("k", "a")
			op := w.must(stateUnresolved)(w.takeOver("k", "b", 1).fail(notExecuted))
			if op.GetReason() != declared {
				w.Errorf("%v", op)
			}
		}},
		{"DID_NOT_HAPPEN by the taker removes doubt", func(w *wire) {
			w.grant("k", "a")
			w.must(released)(w.takeOver("k", "b", 1).fail(didNotHappen))
			w.claim(granted, "k", "c")
		}},
		{"DID_NOT_HAPPEN by the taker after its own lapse", func(w *wire) {
			w.grant("k", "a")
			taker := w.takeOver("k", "b", 1)
			w.clock.Advance(time.Hour)
			w.must(released)(taker.fail(didNotHappen))
		}},
		{"DID_NOT_HAPPEN without a takeover is refused", func(w *wire) {
			h := w.grant("k", "a")
			w.unchanged(func() { w.refused(precondition, "REPORT_REFUSED")(h.fail(didNotHappen)) })
		}},
		{"the taker completes, and doubt is gone", func(w *wire) {
			w.grant("k", "a")
			w.must(completed)(w.takeOver("k", "b", 1).complete("found"))
			w.claim(replayed, "k", "c")
		}},
		{"a fenced Complete contradicts, and blocks DID_NOT_HAPPEN", func(w *wire) {
			h := w.grant("k", "a")
			taker := w.takeOver("k", "b", 1)
			w.refused(precondition, "CLAIM_LOST")(h.complete("done"))
			if w.seen.count("alarm n contradicted") != 1 || !strings.Contains(w.logged.String(), "alarm=contradicted") {
				w.Errorf("%q %s", w.seen.events, w.logged)
			}
			w.refused(precondition, "REPORT_REFUSED")(taker.fail(didNotHappen))
			op := w.must(stateUnresolved)(taker.fail(unknown))
			if op.GetReason() != contradicted {
				w.Errorf("%v", op)
			}
			w.must(completed)(taker.complete("found"))
		}},
		{"a fenced Complete on RELEASED takes the release away", func(w *wire) {
			h := w.grant("k", "a")
			w.must(released)(w.takeOver("k", "b", 1).fail(didNotHappen))
			w.refused(precondition, "CLAIM_LOST")(h.complete("done"))
			if op := w.claim(unresolved, "k", "c").GetOperation(); op.GetReason() != contradicted {
				w.Errorf("%v", op)
			}
		}},
		{"a fenced Complete on a settled operation is an alarm", func(w *wire) {
			h := w.grant("k", "a")
			w.must(completed)(w.takeOver("k", "b", 1).complete("found"))
			w.unchanged(func() { w.refused(precondition, "CLAIM_LOST")(h.complete("done")) })
			if w.seen.count("alarm n report_after_settled") != 1 {
				w.Errorf("%q", w.seen.events)
			}
		}},
		{"a fenced UNKNOWN takes NOT_EXECUTED back", func(w *wire) {
			first := w.grant("k", "a")
			w.must(released)(first.fail(notExecuted))
			second := w.grant("k", "b")
			w.must(released)(second.fail(notExecuted))
			w.refused(precondition, "CLAIM_LOST")(first.fail(unknown))
			if op := w.claim(unresolved, "k", "c").GetOperation(); op.GetReason() != declared {
				w.Errorf("%v", op)
			}
		}},
		{"a lost grant is not given again once an effect was reported", func(w *wire) {
			first := w.grant("k", "a")
			w.must(released)(first.fail(notExecuted))
			w.grant("k", "b")
			w.refused(precondition, "CLAIM_LOST")(first.complete("done"))
			resp := w.claim(unresolved, "k", "b")
			if !resp.GetYours() || resp.GetOperation().GetReason() != contradicted {
				w.Errorf("%v", resp)
			}
		}},
		{"a former token claims nothing but what is settled", func(w *wire) {
			w.grant("k", "a")
			taker := w.takeOver("k", "b", 1)
			wantError(w.T, w.tryClaim("k", "a"), precondition, "CLAIM_LOST", "no")
			w.must(completed)(taker.complete("found"))
			w.claim(replayed, "k", "a")
		}},
		{"a used token is not granted what it released", func(w *wire) {
			w.must(released)(w.grant("k", "a").fail(notExecuted))
			w.unchanged(func() { wantError(w.T, w.tryClaim("k", "a"), precondition, "CLAIM_LOST", "no") })
		}},
		{"a token never seen, or under another fence, reports nothing", func(w *wire) {
			h := w.grant("k", "a")
			w.unchanged(func() {
				for _, stranger := range []held{
					{w: w, key: "k", token: "z", fence: h.fence},
					{w: w, key: "k", token: "a", fence: h.fence + 1},
					{w: w, key: "absent", token: "a", fence: h.fence},
				} {
					w.refused(precondition, "CLAIM_LOST")(stranger.complete("done"))
					w.refused(precondition, "CLAIM_LOST")(stranger.fail(notExecuted))
					w.refused(precondition, "CLAIM_LOST")(stranger.renew())
				}
			})
		}},
		{"Renew never shortens, and revives after a lapse", func(w *wire) {
			h := w.grant("k", "a", withLease(time.Hour))
			op := w.must(pending)(h.renew(func(r *oncedv1.RenewRequest) { r.Lease = durationpb.New(time.Second) }))
			if op.GetLeaseRemaining().AsDuration() != time.Hour {
				w.Errorf("%v", op)
			}
			w.clock.Advance(2 * time.Hour)
			w.lookup(stateUnresolved, "k")
			op = w.must(pending)(h.renew(func(r *oncedv1.RenewRequest) { r.Lease = durationpb.New(1500 * time.Millisecond) }))
			if op.GetLeaseRemaining().AsDuration() != 1500*time.Millisecond {
				w.Errorf("%v", op)
			}
		}},
		{"Renew of what was taken over or settled", func(w *wire) {
			h := w.grant("k", "a")
			taker := w.takeOver("k", "b", 1)
			w.refused(precondition, "CLAIM_LOST")(h.renew())
			w.must(completed)(taker.complete("found"))
			w.refused(precondition, "ALREADY_SETTLED")(taker.renew())
		}},
		{"a restored RELEASED is nobody's to run", func(w *wire) {
			h := w.grant("k", "a")
			w.must(released)(h.fail(notExecuted))
			w.restore("k")
			if op := w.claim(unresolved, "k", "b").GetOperation(); op.GetReason() != historyLost {
				w.Errorf("%v", op)
			}
		}},
		{"a restored claim counts as lapsed and carries doubt", func(w *wire) {
			h := w.grant("k", "a")
			w.restore("k")
			w.claim(unresolved, "k", "b")
			w.must(stateUnresolved)(h.fail(notExecuted))
		}},
		{"the last holder's outcome after an operator's release is an alarm", func(w *wire) {
			h := w.grant("k", "a")
			w.release("k")
			w.must(completed)(h.complete("done"))
			if w.seen.count("alarm n settled_after_resolve") != 1 {
				w.Errorf("%q", w.seen.events)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newWire(t)) })
	}
}

// record returns a stored record.
func (w *wire) record(key string) *onced.Record {
	w.Helper()
	v, err := w.store.Get(w.Context(), identity(key))
	if err != nil || v.Record == nil {
		w.Fatalf("%+v %v", v, err)
	}
	return v.Record
}

// restore makes a record one of an earlier generation, as a restore does.
func (w *wire) restore(key string) {
	r := w.record(key)
	r.Generation--
	w.put(r)
}

// release lets an operator release an operation.
func (w *wire) release(key string) {
	w.Helper()
	v, err := w.store.Get(w.Context(), identity(key))
	if err != nil {
		w.Fatal(err)
	}
	plan, _, err := onced.Resolve(v, onced.DefaultPolicy(), onced.ResolveRequest{Resolution: onced.ResolveReleased, Evidence: "asked", Force: true})
	if err != nil {
		w.Fatal(err)
	}
	w.put(plan.Put)
}

// Every report may be repeated blindly: it answers OK, changes nothing, and
// another one under the same token is refused.
func TestRepeats(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	w.must(completed)(h.complete("done"))
	w.unchanged(func() {
		w.must(completed)(h.complete("done"))
		w.refused(precondition, "ALREADY_SETTLED")(h.complete("other"))
		w.refused(precondition, "ALREADY_SETTLED")(h.fail(final))
		w.refused(precondition, "ALREADY_SETTLED")(h.fail(unknown))
		w.refused(precondition, "ALREADY_SETTLED")(h.fail(notExecuted))
	})
	for _, d := range []oncedv1.Disposition{notExecuted, unknown, final} {
		h := w.grant("k"+d.String(), "a")
		op, err := h.fail(d)
		if err != nil {
			t.Fatal(err)
		}
		w.unchanged(func() { w.must(op.GetState())(h.fail(d)) })
	}
	if n := w.seen.count("settled n COMPLETED HOLDER"); n != 1 {
		t.Errorf("a repeat was counted: %d", n)
	}
}

// What an operator has settled is not settled again by its holder, who comes late
// with the same result: the report is kept, and not counted.
func TestLateRepeatIsNoSettlement(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	v, err := w.store.Get(t.Context(), identity("k"))
	if err != nil {
		t.Fatal(err)
	}
	plan, _, err := onced.Resolve(v, onced.DefaultPolicy(), onced.ResolveRequest{
		Resolution: onced.ResolveCompleted, Evidence: "seen", Force: true, Result: onced.NewResult("text/plain", true, []byte("done")),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.put(plan.Put)
	before := w.records()[0].Record.Revision
	w.must(completed)(h.complete("done"))
	if w.records()[0].Record.Revision == before {
		t.Error("the report was not kept")
	}
	for _, by := range []string{"HOLDER", "OPERATOR"} {
		if n := w.seen.count("settled n COMPLETED " + by); n != 0 {
			t.Errorf("%d settlements by %s are counted of a report that settled nothing", n, by)
		}
	}
}

// The same result is the same however it travels: as text or data, stored or
// omitted.
func TestSameResult(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	w.must(completed)(h.complete("done"))
	sum := sha256.Sum256([]byte("done"))
	same := []func(*oncedv1.CompleteRequest){
		func(r *oncedv1.CompleteRequest) {
			r.GetStored().Body = &oncedv1.Payload_Data{Data: []byte("done")}
		},
		omitting(&oncedv1.OmittedResult{ContentType: "text/plain", Size: 4, Sha256: sum[:]}),
	}
	w.unchanged(func() {
		for _, change := range same {
			if err := h.sendComplete(change); err != nil {
				t.Error(err)
			}
		}
		other := h.sendComplete(func(r *oncedv1.CompleteRequest) { r.GetStored().ContentType = "text/html" })
		wantError(t, other, precondition, "ALREADY_SETTLED", "no")
	})
}

// Results that are empty, or look like nothing, are results (R25).
func TestEmptyResults(t *testing.T) {
	for name, body := range map[string]*oncedv1.Payload{
		"empty data": {ContentType: "application/protobuf", Body: &oncedv1.Payload_Data{}},
		"empty text": {ContentType: "text/plain", Body: &oncedv1.Payload_Text{}},
		"no body":    {},
		"false":      {Body: &oncedv1.Payload_Text{Text: "false"}},
		"0":          {Body: &oncedv1.Payload_Text{Text: "0"}},
		"null":       {Body: &oncedv1.Payload_Text{Text: "null"}},
		"[]":         {Body: &oncedv1.Payload_Text{Text: "[]"}},
		`""`:         {Body: &oncedv1.Payload_Text{Text: `""`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			h := w.grant("k", "a")
			err := h.sendComplete(func(r *oncedv1.CompleteRequest) { r.Result = &oncedv1.CompleteRequest_Stored{Stored: body} })
			if err != nil {
				t.Fatal(err)
			}
			want := proto.Clone(body).(*oncedv1.Payload)
			if want.GetBody() == nil {
				want.Body = &oncedv1.Payload_Data{}
			}
			stored := w.claim(replayed, "k", "b").GetOperation().GetResult().GetStored()
			if !proto.Equal(stored, want) {
				t.Errorf("replayed %v, want %v", stored, want)
			}
		})
	}
	t.Log("R25: executions=1 each")
}

// Over the limit the operation completes and says what is not there; that is
// never a licence to run again.
func TestResultOverTheLimit(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) { p.MaxResultBytes = 8 })
	for _, c := range []struct {
		key, text string
		omitted   bool
	}{{"on the limit", "12345678", false}, {"over", "123456789", true}} {
		h := w.grant(c.key, "a")
		op := w.must(completed)(h.complete(c.text))
		sum := sha256.Sum256([]byte(c.text))
		for _, result := range []*oncedv1.Result{op.GetResult(), w.claim(replayed, c.key, "b").GetOperation().GetResult()} {
			if result.GetSize() != uint64(len(c.text)) || !bytes.Equal(result.GetSha256(), sum[:]) {
				t.Errorf("%s: %v", c.key, result)
			}
			if omitted := result.GetOmitted(); (omitted != nil) != c.omitted ||
				c.omitted && (omitted.GetContentType() != "text/plain" || omitted.GetSize() != 9 || !bytes.Equal(omitted.GetSha256(), sum[:])) {
				t.Errorf("%s: %v", c.key, result)
			}
		}
		w.unchanged(func() { w.must(completed)(h.complete(c.text)) })
	}
}

// What was omitted stays omitted: bytes that come later are not stored.
func TestOmittedStaysOmitted(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	sum := sha256.Sum256([]byte("done"))
	err := h.sendComplete(omitting(&oncedv1.OmittedResult{ContentType: "text/plain", Size: 4, Sha256: sum[:]}))
	if err != nil {
		t.Fatal(err)
	}
	w.must(completed)(h.complete("done"))
	if result := w.claim(replayed, "k", "b").GetOperation().GetResult(); result.GetOmitted() == nil {
		t.Errorf("%v", result)
	}
}

func TestFailures(t *testing.T) {
	w := newWire(t, func(p *onced.Policy) { p.MaxResultBytes = 8 })
	details := func(text string) *oncedv1.Failure {
		return &oncedv1.Failure{
			Code: "DECLINED", Message: "no funds",
			Details: &oncedv1.Payload{ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: text}},
		}
	}
	for _, c := range []struct {
		name        string
		given, want *oncedv1.Failure
	}{
		{"with details", details("12345678"), details("12345678")},
		{
			"details over the limit", details("123456789"),
			&oncedv1.Failure{Code: "DECLINED", Message: "no funds", DetailsDropped: true},
		},
		{"unset", nil, &oncedv1.Failure{}},
		{"output only is ignored", &oncedv1.Failure{DetailsDropped: true}, &oncedv1.Failure{}},
	} {
		h := w.grant(c.name, "a")
		op := w.must(stateFailed)(h.fail(final, func(r *oncedv1.FailRequest) { r.Failure = c.given }))
		if op.GetResult() != nil || op.GetSettledBy() != oncedv1.SettledBy_SETTLED_BY_HOLDER {
			t.Errorf("%s: %v", c.name, op)
		}
		if got := w.claim(failed, c.name, "b").GetOperation().GetFailure(); !proto.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if w.seen.count("settled n FAILED HOLDER") != 4 {
		t.Errorf("%q", w.seen.events)
	}
	// With any other disposition a failure is not even looked at.
	h := w.grant("k", "a")
	tooLong := &oncedv1.Failure{Code: strings.Repeat("c", 65)}
	op := w.must(stateUnresolved)(h.fail(unknown, func(r *oncedv1.FailRequest) { r.Failure = tooLong }))
	if op.GetFailure() != nil {
		t.Errorf("%v", op)
	}
}

// A report is not answered with the bytes that it brought.
func TestReportsDoNotEcho(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	op := w.must(completed)(h.complete("done"))
	if stored := op.GetResult().GetStored(); stored.GetBody() != nil || stored.GetContentType() != "text/plain" || op.GetResult().GetSize() != 4 {
		t.Errorf("%v", op.GetResult())
	}
}

// A Fail leaves progress for who takes over.
func TestFailCheckpoint(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	w.must(stateUnresolved)(h.fail(unknown, func(r *oncedv1.FailRequest) {
		r.Checkpoint = &oncedv1.Checkpoint{Seq: 3, Attempt: 99, Payload: &oncedv1.Payload{Body: &oncedv1.Payload_Text{Text: "order 17"}}}
	}))
	w.clock.Advance(time.Hour)
	got := w.claim(takenOver, "k", "b", takeOver(1)).GetCheckpoint()
	if got.GetAttempt() != 1 || got.GetSeq() != 3 || got.GetPayload().GetText() != "order 17" {
		t.Errorf("%v", got)
	}
}

// No token is ever stored, logged or shown.
func TestTokensStayInside(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	taker := w.takeOver("k", "b", 1)
	_, err := h.complete("done")
	wantError(t, err, codes.FailedPrecondition, "CLAIM_LOST", "no")
	w.must(completed)(taker.complete("found"))
	shown, err2 := w.client.Claim(t.Context(), claimOf("k", "a"))
	if err2 != nil {
		t.Fatal(err2)
	}
	wireBytes, _ := proto.Marshal(shown)
	digest := onced.TokenDigest(token("a"))
	for _, secret := range [][]byte{token("a"), token("b"), digest[:]} {
		if bytes.Contains(wireBytes, secret) || strings.Contains(w.logged.String()+err.Error(), string(secret)) {
			t.Errorf("%x is shown", secret)
		}
	}
}
