package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func TestLookupViews(t *testing.T) {
	w := newWire(t)
	w.must(completed)(w.grant("done", "a").complete("done"))
	err := w.grant("failed", "a").failFinal(&oncedv1.Failure{
		Code: "C", Message: "m", Details: &oncedv1.Payload{ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: "details"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for view, shown := range map[oncedv1.LookupView]bool{
		oncedv1.LookupView_LOOKUP_VIEW_UNSPECIFIED: true,
		oncedv1.LookupView_LOOKUP_VIEW_BASIC:       false,
		oncedv1.LookupView_LOOKUP_VIEW_FULL:        true,
	} {
		look := func(key string) *oncedv1.Operation {
			resp, err := w.client.Lookup(t.Context(), &oncedv1.LookupRequest{Ref: ref(key), View: view})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetOperation()
		}
		result := look("done").GetResult()
		if (result.GetStored().GetText() == "done") != shown || result.GetStored().GetContentType() != "text/plain" || result.GetSize() != 4 || len(result.GetSha256()) != 32 {
			t.Errorf("%v: %v", view, result)
		}
		failure := look("failed").GetFailure()
		if (failure.GetDetails().GetText() == "details") != shown || failure.GetDetails().GetContentType() != "text/plain" || failure.GetDetailsDropped() || failure.GetCode() != "C" {
			t.Errorf("%v: %v", view, failure)
		}
	}
}

// Fingerprints are compared only when they are given.
func TestLookupFingerprints(t *testing.T) {
	w := newWire(t)
	w.grant("k", "a", withFingerprints(fp("cj1", "x")))
	for _, c := range []struct {
		given  []string
		reason string
	}{
		{nil, ""},
		{[]string{fp("cj1", "x")}, ""},
		{[]string{fp("cj1", "y")}, "FINGERPRINT_MISMATCH"},
		{[]string{fp("raw1", "x")}, "FINGERPRINT_SCHEME"},
	} {
		err := w.look(&oncedv1.LookupRequest{Ref: ref("k"), Fingerprints: c.given})
		if c.reason == "" {
			if err != nil {
				t.Errorf("%q: %v", c.given, err)
			}
			continue
		}
		wantError(t, err, precondition, c.reason, "no")
	}
}

// NOT_FOUND says what was asked, and whether the key may have been forgotten.
func TestLookupNotFound(t *testing.T) {
	w := newWire(t)
	w.clock.Advance(100 * 24 * time.Hour)
	for _, c := range []struct {
		name    string
		keyTime *timestamppb.Timestamp
		older   string
	}{
		{"without key_time", nil, "false"},
		{"remembered", timestamppb.New(start.Add(71 * 24 * time.Hour)), "false"},
		{"forgotten", timestamppb.New(start.Add(69 * 24 * time.Hour)), "true"},
	} {
		for _, method := range []string{"m", ""} {
			err := w.look(&oncedv1.LookupRequest{
				Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k", Method: method}, KeyTime: c.keyTime,
			})
			st := wantError(t, err, codes.NotFound, "NOT_FOUND", "no")
			if older := detail[*errdetails.ErrorInfo](st).GetMetadata()["older_than_memory"]; older != c.older {
				t.Errorf("%s: older_than_memory = %q, want %q", c.name, older, c.older)
			}
			if !strings.Contains(st.Message(), `namespace "n" key "k"`) {
				t.Errorf("%s does not say what was asked", st.Message())
			}
		}
	}
}

// Without a method: the key's only operation, among those of the subject.
func TestLookupWithoutMethod(t *testing.T) {
	w := newWire(t)
	claim := func(namespace, key, method, subject string) {
		w.claim(granted, key, "a", withSubject(subject), func(r *oncedv1.ClaimRequest) {
			r.Ref = &oncedv1.OperationRef{Namespace: namespace, Key: key, Method: method}
		})
	}
	look := func(subject string) (*oncedv1.LookupResponse, error) {
		return w.client.Lookup(t.Context(), &oncedv1.LookupRequest{
			Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k"}, Subject: subject,
		})
	}
	claim("n", "k2", "elsewhere", "alice")
	claim("n2", "k", "elsewhere", "alice")
	_, err := look("alice")
	wantError(t, err, codes.NotFound, "NOT_FOUND", "no")

	for i := range 20 { // more than a page
		claim("n", "k", fmt.Sprint("bob ", i), "bob")
	}
	_, err = look("alice")
	wantError(t, err, codes.NotFound, "NOT_FOUND", "no")
	claim("n", "k", "z only", "alice")
	resp, err := look("alice")
	if err != nil || resp.GetOperation().GetRef().GetMethod() != "z only" {
		t.Fatalf("%v %v", resp, err)
	}
	claim("n", "k", "a other", "alice")
	_, err = look("alice")
	st := wantError(t, err, precondition, "METHOD_AMBIGUOUS", "no")
	if !strings.Contains(st.Message(), "a other") || !strings.Contains(st.Message(), "z only") || strings.Contains(st.Message(), "bob") {
		t.Errorf("%s does not name the methods of the subject alone", st.Message())
	}
	_, err = look("bob")
	st = wantError(t, err, precondition, "METHOD_AMBIGUOUS", "no")
	if !strings.Contains(st.Message(), "and others") || len(st.Message()) > 300 {
		t.Errorf("%s", st.Message())
	}
}

// The refusal of a lookup without a method names ten methods, and says when there
// are more.
func TestLookupNamesTenMethods(t *testing.T) {
	w := newWire(t)
	for n := 1; n <= 12; n++ {
		w.claim(granted, "", "a", func(r *oncedv1.ClaimRequest) {
			r.Ref = &oncedv1.OperationRef{Namespace: "n", Key: "k", Method: fmt.Sprintf("m%02d", n)}
		})
		if n == 1 {
			continue
		}
		err := w.look(&oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k"}})
		text := wantError(t, err, precondition, "METHOD_AMBIGUOUS", "no").Message()
		if named := strings.Count(text, `"m`); named != min(n, 10) || strings.Contains(text, "and others") != (n > 10) {
			t.Errorf("of %d methods it names %d: %s", n, named, text)
		}
	}
}

// An expired operation is not there, swept or not.
func TestLookupExpired(t *testing.T) {
	w := newWire(t)
	w.must(completed)(w.grant("k", "a").complete("done"))
	w.clock.Advance(onced.DefaultPolicy().KeyRetention - 1)
	w.lookup(completed, "k")
	w.clock.Advance(1)
	for _, method := range []string{"m", ""} {
		err := w.look(&oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "n", Key: "k", Method: method}})
		wantError(t, err, codes.NotFound, "NOT_FOUND", "no")
	}
}

// A lookup changes nothing, and shows a lapse that nobody wrote.
func TestLookupShowsTheLapse(t *testing.T) {
	w := newWire(t)
	w.grant("k", "a")
	w.unchanged(func() {
		w.lookup(pending, "k")
		w.clock.Advance(time.Hour)
		if op := w.lookup(stateUnresolved, "k"); op.GetReason() != lapsed || op.GetHolder() != "holder a" {
			t.Errorf("%v", op)
		}
	})
}
