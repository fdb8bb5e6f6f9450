package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Claim asks for the right to execute an operation. An error, and every outcome
// but GRANTED and TAKEN_OVER, means: do not execute. A claim that was given up
// unanswered may have been granted; it lapses, unless it is sent again under its
// token and reported.
func (c *Client) Claim(ctx context.Context, req *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	resp, _, err := exchange(ctx, c, untilAnswered(held(req.GetWait())), c.stub.Claim, req)
	return resp, err
}

// Complete reports that the operation was executed, with its result.
func (c *Client) Complete(ctx context.Context, req *oncedv1.CompleteRequest) (*oncedv1.CompleteResponse, error) {
	resp, _, err := exchange(ctx, c, untilAnswered(0), c.stub.Complete, req)
	return resp, err
}

// Fail reports an execution that did not end in a result.
func (c *Client) Fail(ctx context.Context, req *oncedv1.FailRequest) (*oncedv1.FailResponse, error) {
	resp, _, err := exchange(ctx, c, untilAnswered(0), c.stub.Fail, req)
	return resp, err
}

// Lookup shows an operation and changes nothing. It gives no right to execute.
func (c *Client) Lookup(ctx context.Context, req *oncedv1.LookupRequest) (*oncedv1.LookupResponse, error) {
	resp, _, err := exchange(ctx, c, untilAnswered(held(req.GetWait())), c.stub.Lookup, req)
	return resp, err
}

// Renew makes the lease of a claim longer and stores a checkpoint.
func (c *Client) Renew(ctx context.Context, req *oncedv1.RenewRequest) (*oncedv1.RenewResponse, error) {
	resp, _, err := exchange(ctx, c, untilAnswered(0), c.stub.Renew, req)
	return resp, err
}

// GetPolicy tells the retentions, bounds and rules of the client's namespace.
func (c *Client) GetPolicy(ctx context.Context) (*oncedv1.Policy, error) {
	req := &oncedv1.GetPolicyRequest{Namespace: c.namespace}
	resp, _, err := exchange(ctx, c, untilAnswered(0), c.stub.GetPolicy, req)
	return resp.GetPolicy(), err
}

// held is how long a server may hold a call that asked it to wait.
func held(wait *durationpb.Duration) time.Duration {
	if wait == nil {
		return 0
	}
	return min(max(0, wait.AsDuration()), longestWait)
}
