package server

import (
	"context"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// standIn answers in place of a [Service], behind the same chain. What belongs to
// the chain and stands in the handlers is done here: they validate their requests
// themselves. It does so for the calls of which there are as many as operations.
type standIn struct {
	oncedv1.IdempotencyServiceServer
	policies *Policies
}

// Claim answers a valid claim.
func (s standIn) Claim(ctx context.Context, req *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	if _, err := validateClaim(req, s.policies); err != nil {
		return nil, err
	}
	return s.IdempotencyServiceServer.Claim(ctx, req)
}

// Complete answers a valid completion.
func (s standIn) Complete(ctx context.Context, req *oncedv1.CompleteRequest) (*oncedv1.CompleteResponse, error) {
	if _, _, err := validateComplete(req, s.policies); err != nil {
		return nil, err
	}
	return s.IdempotencyServiceServer.Complete(ctx, req)
}
