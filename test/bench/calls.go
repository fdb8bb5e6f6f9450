package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The outcomes that scenarios look for.
const (
	grantedOutcome  = oncedv1.Outcome_OUTCOME_GRANTED
	replayedOutcome = oncedv1.Outcome_OUTCOME_REPLAYED
)

// The reasons of refusals that scenarios look for.
const (
	overloaded  = "OVERLOADED"
	storageFull = "STORAGE_FULL"
	mismatch    = "FINGERPRINT_MISMATCH"
)

const (
	benchMethod = "bench.act"
	longLease   = 24 * time.Hour // nothing lapses while a scenario runs

	// callTime bounds a call. No scenario expects one to take so long.
	callTime = time.Minute
)

func refOf(namespace, key string) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: namespace, Key: key, Method: benchMethod}
}

// claimOf returns a claim under a new token.
func claimOf(namespace, key string) *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{
		Ref: refOf(namespace, key), ClaimToken: client.NewToken(), Lease: durationpb.New(longLease),
	}
}

// completion returns the report of a result on a claim.
func completion(req *oncedv1.ClaimRequest, fence uint64, result string) *oncedv1.CompleteRequest {
	return &oncedv1.CompleteRequest{
		Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: fence,
		Result: &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{
			ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: result},
		}},
	}
}

// claim claims and returns the fence of a grant. Any other outcome is an error.
func claim(ctx context.Context, stub oncedv1.IdempotencyServiceClient, req *oncedv1.ClaimRequest) (fence uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := stub.Claim(ctx, req)
	if err != nil {
		return 0, err
	}
	if resp.GetOutcome() != grantedOutcome {
		return 0, fmt.Errorf("the claim of %s was answered %v", req.GetRef().GetKey(), resp.GetOutcome())
	}
	return resp.GetOperation().GetFence(), nil
}

// complete reports a result on a claim.
func complete(ctx context.Context, stub oncedv1.IdempotencyServiceClient, req *oncedv1.CompleteRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := stub.Complete(ctx, req)
	return err
}

// reasonOf returns the reason of a refusal; "" if an error is none.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// contentOf is the result that an operation is given: its key, repeated up to a
// size, so that bytes of another operation are recognised.
func contentOf(key string, size int) string {
	line := key + "\n"
	return strings.Repeat(line, size/len(line)+1)[:max(size, 1)]
}
