package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Outcomes and dispositions, by short names.
const (
	grantedOutcome    = oncedv1.Outcome_OUTCOME_GRANTED
	replayedOutcome   = oncedv1.Outcome_OUTCOME_REPLAYED
	inProgressOutcome = oncedv1.Outcome_OUTCOME_IN_PROGRESS
	unresolvedOutcome = oncedv1.Outcome_OUTCOME_UNRESOLVED
	takenOverOutcome  = oncedv1.Outcome_OUTCOME_TAKEN_OVER

	notExecuted  = oncedv1.Disposition_DISPOSITION_NOT_EXECUTED
	unknown      = oncedv1.Disposition_DISPOSITION_UNKNOWN
	didNotHappen = oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN
)

// refOf names an operation of the tests by its key.
func refOf(key string) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: client.DefaultNamespace, Key: key, Method: "act"}
}

// claimOf returns a claim of a key under a new token.
func claimOf(key string) *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{Ref: refOf(key), ClaimToken: client.NewToken()}
}

// leased returns a claim of a key under a new token, with a lease.
func leased(key string, lease time.Duration) *oncedv1.ClaimRequest {
	req := claimOf(key)
	req.Lease = durationpb.New(lease)
	return req
}

// takeover returns a claim of a key under a new token, which takes an attempt
// over.
func takeover(key string, attempt uint32) *oncedv1.ClaimRequest {
	req := leased(key, time.Hour)
	req.TakeOverAttempt = attempt
	return req
}

// text returns a stored result.
func text(s string) *oncedv1.CompleteRequest_Stored {
	return &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{
		ContentType: "application/json", Body: &oncedv1.Payload_Text{Text: s},
	}}
}

// completion returns the report of a result on a claim.
func completion(req *oncedv1.ClaimRequest, granted *oncedv1.ClaimResponse, result string) *oncedv1.CompleteRequest {
	return &oncedv1.CompleteRequest{
		Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: granted.GetOperation().GetFence(), Result: text(result),
	}
}

// failing returns a report on a claim that has no result.
func failing(req *oncedv1.ClaimRequest, granted *oncedv1.ClaimResponse, d oncedv1.Disposition) *oncedv1.FailRequest {
	return &oncedv1.FailRequest{
		Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: granted.GetOperation().GetFence(), Disposition: d,
	}
}

// renewal returns a renewal of a claim.
func renewal(req *oncedv1.ClaimRequest, granted *oncedv1.ClaimResponse) *oncedv1.RenewRequest {
	return &oncedv1.RenewRequest{Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: granted.GetOperation().GetFence()}
}

// caller speaks with a server through a bare stub, and fails its test on errors
// that the test does not expect.
type caller struct {
	t    testing.TB
	stub oncedv1.IdempotencyServiceClient
}

func (s *process) caller() caller { return caller{t: s.t, stub: s.stub()} }

func (c caller) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

func (c caller) claim(req *oncedv1.ClaimRequest) *oncedv1.ClaimResponse {
	c.t.Helper()
	resp, err := c.stub.Claim(c.ctx(), req)
	if err != nil {
		c.t.Fatalf("claim of %s: %v", req.GetRef().GetKey(), err)
	}
	return resp
}

// answered claims and demands an outcome.
func (c caller) answered(req *oncedv1.ClaimRequest, want oncedv1.Outcome) *oncedv1.ClaimResponse {
	c.t.Helper()
	resp := c.claim(req)
	if resp.GetOutcome() != want {
		c.t.Fatalf("claim of %s answered %v, want %v", req.GetRef().GetKey(), resp, want)
	}
	return resp
}

// granted claims and demands that it may execute.
func (c caller) granted(req *oncedv1.ClaimRequest) *oncedv1.ClaimResponse {
	c.t.Helper()
	return c.answered(req, grantedOutcome)
}

func (c caller) complete(req *oncedv1.CompleteRequest) *oncedv1.Operation {
	c.t.Helper()
	resp, err := c.stub.Complete(c.ctx(), req)
	if err != nil {
		c.t.Fatalf("complete of %s: %v", req.GetRef().GetKey(), err)
	}
	return resp.GetOperation()
}

func (c caller) fail(req *oncedv1.FailRequest) *oncedv1.Operation {
	c.t.Helper()
	resp, err := c.stub.Fail(c.ctx(), req)
	if err != nil {
		c.t.Fatalf("fail of %s: %v", req.GetRef().GetKey(), err)
	}
	return resp.GetOperation()
}

// lookup shows an operation, which must be there.
func (c caller) lookup(key string) *oncedv1.Operation {
	c.t.Helper()
	resp, err := c.stub.Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: refOf(key)})
	if err != nil {
		c.t.Fatalf("lookup of %s: %v", key, err)
	}
	return resp.GetOperation()
}

// absent demands that there is no operation of the key.
func (c caller) absent(key string) {
	c.t.Helper()
	resp, err := c.stub.Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: refOf(key)})
	if status.Code(err) != codes.NotFound {
		c.t.Errorf("lookup of %s answered %v, %v; want NOT_FOUND", key, resp, err)
	}
}

// replayed claims under a new token and demands the first result.
func (c caller) replayed(key, result string, first *oncedv1.ClaimResponse) {
	c.t.Helper()
	op := c.answered(claimOf(key), replayedOutcome).GetOperation()
	if op.GetResult().GetStored().GetText() != result {
		c.t.Errorf("the replay of %s has %v, want %q", key, op.GetResult(), result)
	}
	if !proto.Equal(op.GetFirstClaimTime(), first.GetOperation().GetFirstClaimTime()) {
		c.t.Errorf("the replay of %s has the first claim time %v, want %v", key, op.GetFirstClaimTime(), first.GetOperation().GetFirstClaimTime())
	}
}

// unchanged demands that an operation stands as it did, the lease that goes by
// aside.
func (c caller) unchanged(before *oncedv1.Operation) {
	c.t.Helper()
	now, was := proto.CloneOf(c.lookup(before.GetRef().GetKey())), proto.CloneOf(before)
	now.LeaseRemaining, was.LeaseRemaining = nil, nil
	if !proto.Equal(now, was) {
		c.t.Errorf("the operation was\n%v\nand is\n%v", was, now)
	}
}

// refused demands that an error is a refusal of onced for a reason.
func refused(t testing.TB, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code || reasonOf(err) != reason {
		t.Errorf("got %v (%s), want %v %s", err, reasonOf(err), code, reason)
	}
}

// reasonOf returns the reason of the ErrorInfo in an error, or "".
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// flight is a call whose answer is not waited for.
type flight struct {
	what string
	over chan struct{} // closed when it is answered
	resp proto.Message
	err  error
}

// send makes a call in the background.
func send(what string, call func() (proto.Message, error)) *flight {
	f := &flight{what: what, over: make(chan struct{})}
	go func() {
		defer close(f.over)
		f.resp, f.err = call()
	}()
	return f
}

func (c caller) sendClaim(what string, req *oncedv1.ClaimRequest) *flight {
	ctx := c.ctx()
	return send(what, func() (proto.Message, error) { return c.stub.Claim(ctx, req) })
}

func (c caller) sendComplete(what string, req *oncedv1.CompleteRequest) *flight {
	ctx := c.ctx()
	return send(what, func() (proto.Message, error) { return c.stub.Complete(ctx, req) })
}

func (c caller) sendLookup(what, key string, wait time.Duration) *flight {
	ctx := c.ctx()
	return send(what, func() (proto.Message, error) {
		return c.stub.Lookup(ctx, &oncedv1.LookupRequest{Ref: refOf(key), Wait: durationpb.New(wait)})
	})
}

// flights are calls on their way.
type flights []*flight

// answered names the calls that have an answer.
func (fs flights) answered() string {
	var names []string
	for _, f := range fs {
		select {
		case <-f.over:
			names = append(names, fmt.Sprintf("%s: %v, %v", f.what, f.resp, f.err))
		default:
		}
	}
	return strings.Join(names, "\n")
}

// outcome waits for the answer of a claim, which must be no error.
func (f *flight) outcome(t testing.TB) oncedv1.Outcome {
	t.Helper()
	<-f.over
	if f.err != nil {
		t.Fatalf("%s: %v", f.what, f.err)
	}
	return f.resp.(*oncedv1.ClaimResponse).GetOutcome()
}

// operation waits for the operation in an answer, which must be no error.
func (f *flight) operation(t testing.TB) *oncedv1.Operation {
	t.Helper()
	<-f.over
	if f.err != nil {
		t.Fatalf("%s: %v", f.what, f.err)
	}
	return f.resp.(interface{ GetOperation() *oncedv1.Operation }).GetOperation()
}
