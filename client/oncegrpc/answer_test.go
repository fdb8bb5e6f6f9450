package oncegrpc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// answer is what a caller got.
type answer struct {
	resp            *dynamicpb.Message
	err             error
	header, trailer metadata.MD
}

// outcome is what the answer says that it is, in its headers or trailers.
func (a answer) outcome() string {
	for _, md := range []metadata.MD{a.header, a.trailer} {
		if v := md.Get(HeaderOutcome); len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// infoOf is the guard's own ErrorInfo in an error, and whether there is one.
func infoOf(err error) (info *errdetails.ErrorInfo, ok bool) {
	return detailOf(err, func(i *errdetails.ErrorInfo) bool { return i.GetDomain() == errorDomain })
}

// detailOf finds a detail of an error.
func detailOf[T any](err error, is func(T) bool) (found T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok && is(d) {
			return d, true
		}
	}
	return found, false
}

// wantStatus fails the test unless an answer has exactly this status.
func (a answer) wantStatus(t *testing.T, want *status.Status) {
	t.Helper()
	if got := status.Convert(a.err); !proto.Equal(got.Proto(), want.Proto()) {
		t.Errorf("the status is %v, want %v", brief(got), brief(want))
	}
}

func brief(s *status.Status) string {
	text := fmt.Sprint(s.Proto())
	return text[:min(len(text), 600)]
}

// wantMarked fails the test unless the headers of an answer say what it is, for which
// key, and since when; and nothing else does.
func (a answer) wantMarked(t *testing.T, outcome, key string) time.Time {
	t.Helper()
	if got := a.header.Get(HeaderOutcome); !slices.Equal(got, []string{outcome}) {
		t.Errorf("the headers say %q, want %q; trailers %v, error %v", got, outcome, a.trailer, a.err)
	}
	if got := a.header.Get(HeaderKey); !slices.Equal(got, []string{key}) {
		t.Errorf("the headers name the key %q, want %q", got, key)
	}
	if got := a.trailer.Get(HeaderOutcome); len(got) != 0 {
		t.Errorf("the trailers say %q as well", got)
	}
	at, err := time.Parse(time.RFC3339Nano, first(a.header.Get(HeaderFirstClaimTime)))
	if err != nil || at.IsZero() {
		t.Errorf("the headers' first claim time: %v, %v", at, err)
	}
	return at
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// wantOutcome fails the test unless an answer is a response that says this of itself.
func (a answer) wantOutcome(t *testing.T, outcome string) {
	t.Helper()
	if a.err != nil || a.outcome() != outcome {
		t.Errorf("got outcome %q and error %v, want %q", a.outcome(), a.err, outcome)
	}
}

// wantInfo fails the test unless an error is the guard's own for a reason, and returns
// its facts.
func wantInfo(t *testing.T, err error, code codes.Code, want reason) map[string]string {
	t.Helper()
	info, ok := infoOf(err)
	if status.Code(err) != code || !ok || info.GetReason() != string(want) {
		t.Errorf("got %v with %v, want %v %s", err, info, code, want)
	}
	return info.GetMetadata()
}

// wantRefused fails the test unless an answer is the guard's refusal, without headers,
// and stops a client's retry policy. It returns the facts.
func (a answer) wantRefused(t *testing.T, code codes.Code, why reason) map[string]string {
	t.Helper()
	facts := wantInfo(t, a.err, code, why)
	if len(a.header) != 0 || a.outcome() != "" {
		t.Errorf("a refusal has the headers %v and the outcome %q", a.header, a.outcome())
	}
	if got := a.trailer.Get("grpc-retry-pushback-ms"); (code != codes.Unavailable) != slices.Equal(got, []string{"-1"}) {
		t.Errorf("the pushback of %v is %q", code, got)
	}
	return facts
}

// wantUnresolved fails the test unless an answer is that the operation is unresolved.
func (a answer) wantUnresolved(t *testing.T, why string) {
	t.Helper()
	facts := a.wantRefused(t, codes.FailedPrecondition, reasonUnresolved)
	if got := facts["unresolved_reason"]; got != why {
		t.Errorf("unresolved because %q, want %q", got, why)
	}
	if facts["key"] == "" || facts["method"] == "" {
		t.Errorf("the operation is not named: %v", facts)
	}
}

// wantMismatch fails the test unless an answer is that the key was used otherwise.
func (a answer) wantMismatch(t *testing.T) {
	t.Helper()
	a.wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
}

// wantResponse fails the test unless an answer is this response, byte for byte.
func (a answer) wantResponse(t *testing.T, want proto.Message) {
	t.Helper()
	if a.err != nil {
		t.Errorf("got the error %v, want a response", a.err)
		return
	}
	if got, want := bytesOf(t, a.resp), bytesOf(t, want); !slices.Equal(got, want) {
		t.Errorf("got the response %x, want %x", got, want)
	}
}

func bytesOf(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
