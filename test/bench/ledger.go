package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// ledger has what a server acknowledged, in order to find out what of it was lost.
// It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	entries map[string]*entry // by namespace and key
}

// entry is an operation of which a claim was granted.
type entry struct {
	ref       *oncedv1.OperationRef
	token     []byte
	fence     uint64 // 0: not known
	size      int    // of the result that was or will be reported
	reported  bool   // a Complete was sent
	completed bool   // it was acknowledged
}

func newLedger() *ledger { return &ledger{entries: map[string]*entry{}} }

// granted notes a grant that was acknowledged.
func (l *ledger) granted(req *oncedv1.ClaimRequest, fence uint64, size int) *entry {
	e := &entry{ref: req.GetRef(), token: req.GetClaimToken(), fence: fence, size: size}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[e.ref.GetNamespace()+" "+e.ref.GetKey()] = e
	return e
}

// settle reports the result of a grant, and notes what became of that.
func (l *ledger) settle(ctx context.Context, stub oncedv1.IdempotencyServiceClient, e *entry) error {
	l.mu.Lock()
	e.reported = true
	l.mu.Unlock()
	req := &oncedv1.ClaimRequest{Ref: e.ref, ClaimToken: e.token}
	err := complete(ctx, stub, completion(req, e.fence, contentOf(e.ref.GetKey(), e.size)))
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		e.completed = true
	}
	return err
}

// all returns the entries of a namespace; "" stands for every one.
func (l *ledger) all(namespace string) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []entry
	for _, k := range slices.Sorted(maps.Keys(l.entries)) {
		if e := *l.entries[k]; namespace == "" || e.ref.GetNamespace() == namespace {
			all = append(all, e)
		}
	}
	return all
}

// verifiers is how many entries are looked at at once.
const verifiers = 32

// lost looks every entry of a namespace up and returns how many there are, and a
// sentence for each that the server does not know as it acknowledged it.
func (l *ledger) lost(ctx context.Context, stubs stubs, namespace string) (looked int, lost []string) {
	entries := l.all(namespace)
	var mu sync.Mutex
	each(len(entries), verifiers, func(i int) {
		if err := entries[i].verify(ctx, stubs.of(i)); err != nil {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, fmt.Sprintf("%s: %v", entries[i].ref.GetKey(), err))
		}
	})
	return len(entries), lost
}

// verify asks for an operation. A Complete that was acknowledged must be replayed
// with its bytes, a grant must be held still under its fence, or settled if that
// was asked for.
func (e entry) verify(ctx context.Context, stub oncedv1.IdempotencyServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if e.completed {
		resp, err := stub.Claim(ctx, &oncedv1.ClaimRequest{Ref: e.ref, ClaimToken: client.NewToken()})
		if err != nil {
			return err
		}
		op := resp.GetOperation()
		switch {
		case resp.GetOutcome() != replayedOutcome:
			return fmt.Errorf("was completed, and a claim is answered %v", resp.GetOutcome())
		case e.fence != 0 && op.GetFence() != e.fence:
			return fmt.Errorf("was completed under fence %d, and has %d", e.fence, op.GetFence())
		case op.GetResult().GetStored().GetText() != contentOf(e.ref.GetKey(), e.size):
			return errors.New("is replayed with other bytes")
		}
		return nil
	}
	resp, err := stub.Lookup(ctx, &oncedv1.LookupRequest{Ref: e.ref})
	if err != nil {
		return err
	}
	op := resp.GetOperation()
	state := op.GetState()
	switch {
	case e.fence != 0 && op.GetFence() != e.fence:
		return fmt.Errorf("was granted under fence %d, and has %d", e.fence, op.GetFence())
	case state == oncedv1.State_STATE_PENDING, state == oncedv1.State_STATE_COMPLETED && e.reported:
		return nil
	}
	return fmt.Errorf("was granted, and is %v", state)
}
