package server

import (
	"context"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// reportCall is what all valid reports of a holder have in common.
type reportCall struct {
	id     onced.Identity
	policy onced.Policy
	holder onced.Holder
}

// holderRequest is what all requests that report have in common.
type holderRequest interface {
	GetRef() *oncedv1.OperationRef
	GetClaimToken() []byte
	GetFence() uint64
}

// renewCall is a valid renewal.
type renewCall struct {
	reportCall
	lease      time.Duration
	checkpoint *onced.Checkpoint
}

// Complete implements the RPC of this name.
func (s *Service) Complete(ctx context.Context, req *oncedv1.CompleteRequest) (*oncedv1.CompleteResponse, error) {
	c, result, err := validateComplete(req, s.policies)
	if err != nil {
		return nil, err
	}
	op, err := s.report(ctx, c, func(v onced.View) (onced.Plan, *onced.Operation, error) {
		return onced.Complete(v, c.policy, c.holder, result)
	})
	if err != nil {
		return nil, err
	}
	return &oncedv1.CompleteResponse{Operation: op}, nil
}

// Fail implements the RPC of this name.
func (s *Service) Fail(ctx context.Context, req *oncedv1.FailRequest) (*oncedv1.FailResponse, error) {
	c, fail, err := validateFail(req, s.policies)
	if err != nil {
		return nil, err
	}
	op, err := s.report(ctx, c, func(v onced.View) (onced.Plan, *onced.Operation, error) {
		return onced.Fail(v, c.policy, c.holder, fail)
	})
	if err != nil {
		return nil, err
	}
	return &oncedv1.FailResponse{Operation: op}, nil
}

// Renew implements the RPC of this name.
func (s *Service) Renew(ctx context.Context, req *oncedv1.RenewRequest) (*oncedv1.RenewResponse, error) {
	c, err := validateRenew(req, s.policies)
	if err != nil {
		return nil, err
	}
	op, err := s.report(ctx, &c.reportCall, func(v onced.View) (onced.Plan, *onced.Operation, error) {
		return onced.Renew(v, c.policy, c.holder, c.lease, c.checkpoint)
	})
	if err != nil {
		return nil, err
	}
	return &oncedv1.RenewResponse{Operation: op}, nil
}

// report decides a report and shows what it has led to, without the bytes: the
// holder has just sent them.
func (s *Service) report(ctx context.Context, c *reportCall, decide func(onced.View) (onced.Plan, *onced.Operation, error)) (*oncedv1.Operation, error) {
	var op *onced.Operation
	target := storage.Target{ID: c.id, Class: storage.ClassSettlement}
	err := s.updateWithTwin(ctx, target, func(v onced.View) (plan onced.Plan, err error) {
		plan, op, err = decide(v)
		return plan, err
	})
	if err != nil {
		return nil, err
	}
	return operationToWire(op, false), nil
}
