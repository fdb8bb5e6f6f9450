package oncegrpc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

var errTooMuch = errors.New("amount: at most 10 since this release")

// atMostTen is the validation that a later release has.
func atMostTen(_ context.Context, req any) error {
	if amountOf(req) > 10 {
		return errTooMuch
	}
	return nil
}

func amountOf(req any) int64 {
	return req.(proto.Message).ProtoReflect().Get(requestDesc.Fields().ByName("amount")).Int()
}

// wantRejected fails the test unless an answer is that of the validation.
func wantRejected(t *testing.T, a answer) {
	t.Helper()
	if s := status.Convert(a.err); s.Code() != codes.InvalidArgument || s.Message() != errTooMuch.Error() || len(s.Details()) != 0 {
		t.Errorf("got %v, want what validation says", a.err)
	}
	if len(a.header) != 0 || a.outcome() != "" {
		t.Errorf("a rejection says more: %v, %v", a.header, a.trailer)
	}
}

// record is the one operation that is stored, without what passes by itself.
func (r *rig) record() *oncedv1.OperationDetails {
	op := r.only()
	op.GetOperation().LeaseRemaining = nil
	return op
}

// A request that was executed, and that a later release would refuse, has its answer all
// the same.
func TestTightenedValidation(t *testing.T) {
	final := status.New(codes.FailedPrecondition, "the account is closed")
	final, err := final.WithDetails(&errdetails.ErrorInfo{Domain: "shop", Reason: "CLOSED"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		outcome error // of the first try
		check   func(*testing.T, answer)
	}{
		"completed": {nil, func(t *testing.T, a answer) {
			a.wantOutcome(t, OutcomeReplayed)
			if text(a.resp, "id") != "first" || !replayedIn(a.resp) {
				t.Errorf("the answer is %v", a.resp)
			}
		}},
		"failed": {client.Final(final.Err()), func(t *testing.T, a answer) {
			a.wantStatus(t, final)
			a.wantMarked(t, OutcomeReplayed, "k")
		}},
		"unresolved": {errors.New("lost"), func(t *testing.T, a answer) { a.wantUnresolved(t, "DECLARED") }},
		"released":   {client.NotExecuted(status.Error(codes.NotFound, "not now")), wantRejected},
	} {
		t.Run(name, func(t *testing.T) {
			before := newRig(t)
			before.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
				return response("id", "first"), c.outcome
			})
			_ = before.send("Flagged", request("amount", 50), MetadataKey, "k")
			was := before.record()
			after := newRigOn(t, before.onced, nil, WithValidation(atMostTen))
			for range 2 {
				c.check(t, after.send("Flagged", request("amount", 50), MetadataKey, "k"))
			}
			after.wantRuns(0)
			if is := after.record(); !proto.Equal(was, is) {
				t.Errorf("the record was\n%v and is\n%v", was, is)
			}
			// Other arguments under the key are told so, valid or not; a released one too.
			a := after.send("Flagged", request("amount", 60), MetadataKey, "k")
			a.wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
			if is := after.record(); !proto.Equal(was, is) {
				t.Errorf("after a mismatch, the record is\n%v", is)
			}
		})
	}
}

func TestTightenedValidationWhileInProgress(t *testing.T) {
	before := newRig(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	before.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		close(begun)
		<-finish
		return response("id", "first"), nil
	})
	first := make(chan answer)
	go func() { first <- before.send("Pay", request("amount", 50), MetadataKey, "k") }()
	<-begun
	after := newRigOn(t, before.onced, nil, WithValidation(atMostTen))
	a := after.send("Pay", request("amount", 50), MetadataKey, "k")
	a.wantRefused(t, codes.Aborted, reasonInProgress)
	if retry, ok := detailOf(a.err, func(*errdetails.RetryInfo) bool { return true }); !ok || retry.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("RetryInfo: %v", retry)
	}
	close(finish)
	(<-first).wantOutcome(t, OutcomeExecuted)
	after.send("Pay", request("amount", 50), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	after.wantRuns(0)
}

// Where there is no earlier answer, the rejection stands and leaves nothing behind: the
// corrected request is the first one.
func TestRejectedRequestsAreNotStored(t *testing.T) {
	r := newRig(t, WithValidation(atMostTen))
	for range 2 {
		wantRejected(t, r.send("Pay", request("amount", 50), MetadataKey, "k"))
	}
	r.wantNothing()
	r.send("Pay", request("amount", 5), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.send("Pay", request("amount", 50), MetadataKey, "k").wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	r.wantRuns(1)
}

// The guard validates what it does not guard as well.
func TestValidationWithoutAGuard(t *testing.T) {
	r := newRig(t, WithValidation(atMostTen))
	for _, method := range []string{"Read", "Off", "Optional"} {
		wantRejected(t, r.send(method, request("amount", 50)))
	}
	wantRejected(t, r.send("Read", request("amount", 50), MetadataKey, "k"))
	wantRejected(t, r.send("Optional", request("amount", 50), MetadataKey, "k"))
	r.wantNothing()
	for _, method := range []string{"Read", "Off", "Optional"} {
		if a := r.send(method, request("amount", 5)); a.err != nil {
			t.Errorf("%s: %v", method, a.err)
		}
	}
	r.wantRuns(3)
}

func TestErrorsOfValidation(t *testing.T) {
	detailedError, err := status.New(codes.OutOfRange, "amount").WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "amount"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		want *status.Status
	}{
		"an error":             {errTooMuch, status.New(codes.InvalidArgument, errTooMuch.Error())},
		"a status":             {detailedError.Err(), detailedError},
		"an error that has OK": {&okError{}, status.New(codes.InvalidArgument, "it says OK")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, WithValidation(func(context.Context, any) error { return c.err }))
			for _, method := range []string{"Pay", "Read", "Off", "Optional"} {
				a := r.send(method, request())
				if method == "Pay" {
					a.wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
					a = r.send(method, request(), MetadataKey, "k")
				}
				a.wantStatus(t, c.want)
			}
			r.wantNothing()
		})
	}
}

// A call that cannot be looked up gets neither the rejection nor an answer: one of them
// would be wrong.
func TestValidationWhileOncedIsDown(t *testing.T) {
	r := newRig(t, WithValidation(atMostTen), WithClaimTimeout(50*time.Millisecond))
	r.onced.Down()
	a := r.send("Pay", request("amount", 50), MetadataKey, "k")
	a.wantRefused(t, codes.Unavailable, reasonUnavailable)
	wantRejected(t, r.send("Off", request("amount", 50))) // needs no onced
	r.onced.Up()
	wantRejected(t, r.send("Pay", request("amount", 50), MetadataKey, "k"))
	r.wantNothing()
}

// Who calls comes before what is asked.
func TestValidationComesAfterTheCaller(t *testing.T) {
	var validated atomic.Int64
	counting := func(ctx context.Context, req any) error {
		validated.Add(1)
		return atMostTen(ctx, req)
	}
	known := staff()
	r := newStaffedRig(t, oncetest.New(t), known, WithSubject(userOf), WithNamespace(tenantOf), WithValidation(counting))
	if a := r.as("none", "Pay", "k", request("amount", 50)); status.Code(a.err) != codes.PermissionDenied {
		t.Errorf("a caller without a namespace: %v", a.err)
	}
	if n := validated.Load(); n != 0 {
		t.Errorf("validated %d times for nobody", n)
	}
	r.as("a1", "Pay", "k", request("amount", 5)).wantOutcome(t, OutcomeExecuted)
	a := r.as("b", "Pay", "k", request("amount", 50))
	a.wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH")
	wantRejected(t, r.as("g", "Pay", "k", request("amount", 50)))
}

// What makes the identity of a request is taken before validation could change it, and
// before the handler can.
func TestChangingRequestsChangesNoIdentity(t *testing.T) {
	turn := int64(0)
	change := func(req any) {
		turn++
		m := req.(*dynamicpb.Message)
		m.Set(requestDesc.Fields().ByName("account"), protoreflect.ValueOfString("changed"))
		m.Set(requestDesc.Fields().ByName("amount"), protoreflect.ValueOfInt64(turn))
		m.Set(requestDesc.Fields().ByName("request_id"), protoreflect.ValueOfString("another key"))
	}
	r := newRig(t, WithValidation(func(_ context.Context, req any) error { change(req); return nil }))
	r.handle(func(_ context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
		if text(req, "account") != "changed" {
			t.Errorf("the handler sees %v", req)
		}
		change(req)
		return response("id", "first"), nil
	})
	for _, want := range []string{OutcomeExecuted, OutcomeReplayed, OutcomeReplayed} {
		r.send("Field", request("account", "a", "amount", 5, "request_id", "k")).wantOutcome(t, want)
	}
	r.wantRuns(1)
}
