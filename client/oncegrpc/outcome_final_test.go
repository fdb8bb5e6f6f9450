package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	"github.com/onced/onced/fingerprint"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A stored failure is the status that the first caller got, as long as it fits; if it
// does not, its code and message are, and it is settled all the same.
func TestFinalDetailsThatAreHuge(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name          string
		message, fact int // their sizes
		kept          bool
	}{
		{"small", 10, 10, true},
		{"long message", 100_000, 0, true},
		{"large", 10, 1 << 17, true},
		{"over the namespace's limit", 10, 1<<20 + 1, false},
		{"over every limit", 10, 17 << 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := status.New(codes.ResourceExhausted, strings.Repeat("m", c.message)).WithDetails(
				&errdetails.ErrorInfo{Domain: "d", Reason: "R", Metadata: map[string]string{"fact": strings.Repeat("f", c.fact)}})
			if err != nil {
				t.Fatal(err)
			}
			// Without a server, which takes long for trailers of this size.
			_, err = intercepted(t.Context(), r.guard, c.name, func(context.Context, any) (any, error) { return nil, client.Final(s.Err()) })
			answer{err: err}.wantStatus(t, s)
			want := s
			if !c.kept {
				want = status.New(s.Code(), s.Message())
			}
			for range 2 {
				a := r.call(t.Context(), "Pay", c.name, request())
				a.wantStatus(t, want)
				a.wantMarked(t, OutcomeReplayed, c.name)
			}
			r.wantRuns(0)
		})
	}
}

// Details are kept as long as results are, and code and message as long as keys.
func TestFinalOutlivesItsDetails(t *testing.T) {
	r := newRig(t)
	r.fail(client.Final(detailedStatus(codes.NotFound, "no such account")))
	r.call(t.Context(), "Pay", "k", request())
	r.onced.Advance(8 * 24 * time.Hour)
	a := r.call(t.Context(), "Pay", "k", request())
	a.wantStatus(t, status.New(codes.NotFound, "no such account"))
	a.wantMarked(t, OutcomeReplayed, "k")
	r.wantRuns(1)
}

// other is a process of another kind that claims the same operations as a guard does.
type other struct {
	t     *testing.T
	stub  oncedv1.IdempotencyServiceClient
	claim *oncedv1.ClaimRequest
	fence uint64
}

// payClaim is the claim of an operation of the method Pay.
func payClaim(t *testing.T, key string, req proto.Message) *oncedv1.ClaimRequest {
	t.Helper()
	print, err := fingerprint.Message(req)
	if err != nil {
		t.Fatal(err)
	}
	return &oncedv1.ClaimRequest{
		Ref:        payRef(key),
		ClaimToken: client.NewToken(), Holder: "another", Fingerprints: []string{print.String()},
	}
}

func payRef(key string) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: client.DefaultNamespace, Key: key, Method: toolsService + "/Pay"}
}

// claims claims an operation of the method Pay, and fails the test unless it is granted.
func claims(t *testing.T, s *oncetest.Server, key string, req proto.Message) *other {
	t.Helper()
	o := &other{t: t, stub: oncedv1.NewIdempotencyServiceClient(s.Conn()), claim: payClaim(t, key, req)}
	o.gets(oncedv1.Outcome_OUTCOME_GRANTED)
	return o
}

// gets sends the claim and fails the test unless it has this outcome.
func (o *other) gets(want oncedv1.Outcome) {
	o.t.Helper()
	resp, err := o.stub.Claim(o.t.Context(), o.claim)
	if err != nil || resp.GetOutcome() != want {
		o.t.Fatalf("the claim: %v, %v; want %v", resp, err, want)
	}
	o.fence = resp.GetOperation().GetFence()
}

func (o *other) fails(d oncedv1.Disposition, f *oncedv1.Failure) error {
	o.t.Helper()
	_, err := o.stub.Fail(o.t.Context(), &oncedv1.FailRequest{Ref: o.claim.GetRef(), ClaimToken: o.claim.GetClaimToken(), Fence: o.fence, Disposition: d, Failure: f})
	return err
}

func (o *other) completes(p *oncedv1.Payload) error {
	o.t.Helper()
	_, err := o.stub.Complete(o.t.Context(), &oncedv1.CompleteRequest{
		Ref: o.claim.GetRef(), ClaimToken: o.claim.GetClaimToken(), Fence: o.fence,
		Result: &oncedv1.CompleteRequest_Stored{Stored: p},
	})
	return err
}

func textPayload(text string) *oncedv1.Payload {
	return &oncedv1.Payload{ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: text}}
}

func statusPayload(t *testing.T, s *rpcstatus.Status) *oncedv1.Payload {
	return &oncedv1.Payload{ContentType: "application/x-protobuf; messagetype=google.rpc.Status", Body: &oncedv1.Payload_Data{Data: bytesOf(t, s)}}
}

// Failures that something else than a guard has settled are replayed as well as can be:
// as failures in any case.
func TestFailuresOfOthers(t *testing.T) {
	r := newRig(t)
	garbage := &oncedv1.Payload{ContentType: "application/x-protobuf; messagetype=google.rpc.Status", Body: &oncedv1.Payload_Data{Data: []byte{0xff}}}
	for i, c := range []struct {
		failure *oncedv1.Failure
		code    codes.Code
		named   string // in the guard's own ErrorInfo; "-" where it has none
	}{
		{&oncedv1.Failure{Code: "X", Message: "m"}, codes.FailedPrecondition, "X"},
		{&oncedv1.Failure{Code: "", Message: "m"}, codes.FailedPrecondition, ""},
		{&oncedv1.Failure{Code: "OK", Message: "m"}, codes.FailedPrecondition, "OK"},
		{&oncedv1.Failure{Code: "not_found", Message: "m"}, codes.FailedPrecondition, "not_found"},
		{&oncedv1.Failure{Code: "17", Message: "m"}, codes.FailedPrecondition, "17"},
		{&oncedv1.Failure{Code: client.CodeCompensated, Message: "m"}, codes.FailedPrecondition, client.CodeCompensated},
		{&oncedv1.Failure{Code: "NOT_FOUND", Message: "m"}, codes.NotFound, "-"},
		{&oncedv1.Failure{Code: "CANCELLED", Message: "m"}, codes.Canceled, "-"},
		{&oncedv1.Failure{Code: "UNAVAILABLE", Message: "m"}, codes.Unavailable, "-"},
		{&oncedv1.Failure{Code: "NOT_FOUND", Message: "m", Details: textPayload("d")}, codes.NotFound, "-"},
		{&oncedv1.Failure{Code: "X", Message: "m", Details: textPayload("d")}, codes.FailedPrecondition, "X"},
		{&oncedv1.Failure{Code: "NOT_FOUND", Message: "m", Details: garbage}, codes.NotFound, "-"},
		{&oncedv1.Failure{Code: "NOT_FOUND", Message: "m", Details: statusPayload(t, &rpcstatus.Status{Message: "fine"})}, codes.NotFound, "-"},
		{&oncedv1.Failure{Code: "X", Message: "?", Details: statusPayload(t, &rpcstatus.Status{Code: 5, Message: "m"})}, codes.NotFound, "-"},
	} {
		key := fmt.Sprint("k", i)
		if err := claims(t, r.onced, key, request("amount", 1)).fails(oncedv1.Disposition_DISPOSITION_FINAL, c.failure); err != nil {
			t.Fatal(err)
		}
		a := r.call(t.Context(), "Pay", key, request("amount", 1))
		info, given := infoOf(a.err)
		if status.Code(a.err) != c.code || given != (c.named != "-") || !given && status.Convert(a.err).Message() != "m" || given && !strings.Contains(status.Convert(a.err).Message(), ": m (first called") {
			t.Errorf("%v: got %v, details %v", c.failure, a.err, status.Convert(a.err).Details())
		}
		if given && (info.GetReason() != "FAILED" || info.GetMetadata()["code"] != c.named || info.GetMetadata()["key"] != key) {
			t.Errorf("%v: got %v", c.failure, info)
		}
		a.wantMarked(t, OutcomeReplayed, key)
		r.call(t.Context(), "Pay", key, request("amount", 2)).wantMismatch(t)
	}
	r.wantRuns(0)
}

// What was undone is a failure for good, and says so.
func TestCompensated(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil)
		r.fail(status.Error(codes.Internal, "after the effect"))
		r.call(t.Context(), "Pay", "k", request())
		passing(2 * time.Minute)
		print, err := fingerprint.Message(request())
		if err != nil {
			t.Fatal(err)
		}
		reconciling := client.WithReconcile(func(context.Context, *client.Claim) client.Verdict {
			return client.Compensated("the payment was paid back")
		})
		_, err = client.Do(t.Context(), s.Client(), client.Call{Key: "k", Method: toolsService + "/Pay", Fingerprints: []onced.Fingerprint{print}},
			func(context.Context, *client.Claim) (proto.Message, error) { return nil, errors.New("must not run") }, reconciling)
		if failed := new(client.Failed); !errors.As(err, &failed) {
			t.Fatalf("the reconciler got %v", err)
		}
		a := r.call(t.Context(), "Pay", "k", request())
		a.wantMarked(t, OutcomeReplayed, "k")
		info, _ := infoOf(a.err)
		if status.Code(a.err) != codes.FailedPrecondition || !strings.Contains(status.Convert(a.err).Message(), "the payment was paid back") || info.GetMetadata()["code"] != client.CodeCompensated {
			t.Errorf("got %v with %v", a.err, info)
		}
		r.wantRuns(1)
	})
}

// What something else has completed is executed, whether or not its result is a response.
func TestResultsOfOthers(t *testing.T) {
	r := newRig(t)
	proto3 := func(name string, body []byte) *oncedv1.Payload {
		return &oncedv1.Payload{ContentType: "application/x-protobuf; messagetype=" + name, Body: &oncedv1.Payload_Data{Data: body}}
	}
	for i, c := range []struct {
		result *oncedv1.Payload
		resp   proto.Message // nil: there is none
	}{
		{proto3("oncegrpc.test.v1.Response", bytesOf(t, response("id", "7"))), response("id", "7")},
		{proto3("oncegrpc.test.v1.Response", nil), response()},
		{proto3("oncegrpc.test.v1.Response", []byte{0xff}), nil},
		{proto3("oncegrpc.test.v1.Request", nil), nil},
		{proto3("google.rpc.Status", nil), nil},
		{proto3("of.nobody.Message", nil), nil},
		{textPayload("done by hand"), nil},
		{&oncedv1.Payload{ContentType: "application/json", Body: &oncedv1.Payload_Text{Text: `{"id": "7"}`}}, nil},
		{&oncedv1.Payload{ContentType: "no type", Body: &oncedv1.Payload_Data{}}, nil},
	} {
		key := fmt.Sprint("k", i)
		if err := claims(t, r.onced, key, request("amount", 1)).completes(c.result); err != nil {
			t.Fatal(err)
		}
		a := r.call(t.Context(), "Pay", key, request("amount", 1))
		a.wantMarked(t, OutcomeReplayed, key)
		if c.resp != nil {
			a.wantResponse(t, c.resp)
			continue
		}
		wantInfo(t, a.err, codes.FailedPrecondition, "RESULT_UNAVAILABLE")
	}
	r.wantRuns(0)
}
