package client

import (
	"context"
	"fmt"
)

// running is an operation that a function runs for, in the context that it is given.
type running struct {
	client *Client
	claim  *Claim
	outer  *running
}

type runningKey struct{}

// running returns the context of a function that runs under a claim.
func (cl *Claim) running(ctx context.Context) context.Context {
	outer, _ := ctx.Value(runningKey{}).(*running)
	return context.WithValue(ctx, runningKey{}, &running{cl.c, cl, outer})
}

// ClaimFromContext returns the claim under which a function runs, from the context that
// it was given or one made from it, and nil elsewhere. It is how code that a guard calls,
// a gRPC handler for example, comes to its claim; of nested operations it is the inner
// one's.
func ClaimFromContext(ctx context.Context) *Claim {
	if h, ok := ctx.Value(runningKey{}).(*running); ok {
		return h.claim
	}
	return nil
}

// nested refuses a call about an operation by the function that runs for it: it would
// wait for itself while its own claim is renewed.
func (c *Client) nested(ctx context.Context, call *Call) error {
	h, _ := ctx.Value(runningKey{}).(*running)
	for ; h != nil; h = h.outer {
		if h.client == c && h.claim.Namespace == c.namespaceOf(call) && h.claim.Key == call.Key && h.claim.Method == call.Method {
			return fmt.Errorf("client: nothing was sent and nothing was executed: %s is what the calling function runs for, and would wait for itself: give the inner call a key of its own, see Child",
				operation(call.Key, call.Method))
		}
	}
	return nil
}
