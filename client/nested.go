package client

import (
	"context"
	"fmt"
)

// running is an operation that a function runs for, in the context that it is given.
type running struct {
	client      *Client
	key, method string
	outer       *running
}

type runningKey struct{}

// running returns the context of a function that runs for an operation.
func (c *Client) running(ctx context.Context, call *Call) context.Context {
	outer, _ := ctx.Value(runningKey{}).(*running)
	return context.WithValue(ctx, runningKey{}, &running{c, call.Key, call.Method, outer})
}

// nested refuses a call about an operation by the function that runs for it: it would
// wait for itself while its own claim is renewed.
func (c *Client) nested(ctx context.Context, call *Call) error {
	h, _ := ctx.Value(runningKey{}).(*running)
	for ; h != nil; h = h.outer {
		if h.client == c && h.key == call.Key && h.method == call.Method {
			return fmt.Errorf("client: nothing was sent and nothing was executed: %s is what the calling function runs for, and would wait for itself: give the inner call a key of its own, see Child",
				operation(call.Key, call.Method))
		}
	}
	return nil
}
