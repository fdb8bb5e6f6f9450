package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// lookupCall is a valid lookup.
type lookupCall struct {
	id      onced.Identity // Method may be empty
	policy  onced.Policy
	request onced.LookupRequest
	wait    time.Duration
	bytes   bool // the bytes of the outcome are wanted
}

// Lookup implements the RPC of this name.
func (s *Service) Lookup(ctx context.Context, req *oncedv1.LookupRequest) (*oncedv1.LookupResponse, error) {
	c, err := validateLookup(req, s.policies)
	if err != nil {
		return nil, err
	}
	if c.id.Method == "" {
		if c.id.Method, err = s.onlyMethod(ctx, c); err != nil {
			return nil, err
		}
	}
	var op *onced.Operation
	err = s.hold(ctx, c.id, c.wait, c.policy, func() (time.Duration, error) {
		err := s.withPayloads(ctx, c.id, func() (answer shown, err error) {
			if op, err = s.lookup(ctx, c); err == nil && c.bytes && op.State.Settled() {
				answer.payloads = op.Payloads()
			}
			return answer, err
		})
		if err != nil || op.State != onced.StatePending {
			return 0, err
		}
		return op.LeaseRemaining, nil
	})
	if err != nil {
		return nil, err
	}
	return &oncedv1.LookupResponse{Operation: operationToWire(op, c.bytes)}, nil
}

// lookup looks once.
func (s *Service) lookup(ctx context.Context, c *lookupCall) (*onced.Operation, error) {
	v, err := s.store.Get(ctx, c.id)
	if err != nil {
		return nil, err
	}
	op, err := onced.Lookup(v, c.policy, c.request)
	s.mismatch(err, v.Record, c.request.Fingerprints, "")
	return op, err
}

// A search for the methods of a key stops when it has enough methods to name.
const (
	methodPage    = 16
	methodsListed = 10
)

// onlyMethod returns the method of the only operation that the subject has under
// a key, "" when there is none, and a refusal that names them when there are
// several. A record that cannot be read may be anybody's and is refused.
func (s *Service) onlyMethod(ctx context.Context, c *lookupCall) (string, error) {
	prefix := onced.KeyPrefix(c.id.Namespace, c.id.Key)
	var methods []string
	for cursor := storage.Cursor(nil); ; {
		page, err := s.store.ScanIdentity(ctx, prefix, cursor, methodPage)
		if err != nil {
			return "", err
		}
		for _, v := range page.Views {
			switch found, err := visible(v, c); {
			case err != nil:
				return "", err
			case found:
				methods = append(methods, v.ID.Method)
			}
		}
		cursor = page.Next
		switch {
		case cursor != nil && len(methods) <= methodsListed:
		case len(methods) > 1:
			return "", refuseAmbiguous(methods)
		default:
			return strings.Join(methods, ""), nil
		}
	}
}

// visible reports whether the caller may know of an operation of its key: it is
// there, and of its subject.
func visible(v onced.View, c *lookupCall) (bool, error) {
	_, err := onced.Lookup(v, c.policy, onced.LookupRequest{Subject: c.request.Subject})
	var refusal *onced.Refusal
	if errors.As(err, &refusal) && (refusal.Reason == onced.RefusedNotFound || refusal.Reason == onced.RefusedSubject) {
		return false, nil
	}
	return err == nil, err
}

func refuseAmbiguous(methods []string) *onced.Refusal {
	more := ""
	if len(methods) > methodsListed {
		methods, more = methods[:methodsListed], " and others"
	}
	return &onced.Refusal{
		Reason:  refusedMethodAmbiguous,
		Message: fmt.Sprintf("the key has several operations; name the method of one: %q%s", methods, more),
	}
}
