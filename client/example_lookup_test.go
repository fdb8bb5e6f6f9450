package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onced/onced/client"
)

// helpdesk has no idempotency keys. It has a field for a foreign id, and finds tickets
// by it.
type helpdesk struct {
	foreignIDs []string // of ticket 1 and so on
	down       bool
}

var errHelpdesk = errors.New("helpdesk: no answer")

func (h *helpdesk) Create(_ context.Context, foreignID string) (int, error) {
	if h.down {
		return 0, errHelpdesk
	}
	h.foreignIDs = append(h.foreignIDs, foreignID)
	return 0, errHelpdesk // created, and the answer is lost
}

func (h *helpdesk) Find(_ context.Context, foreignID string) (ids []int, err error) {
	for i, id := range h.foreignIDs {
		if id == foreignID {
			ids = append(ids, i+1)
		}
	}
	return ids, nil
}

// The outside system has no idempotency keys, but can be asked. Write the operation's
// key into what is created, and look it up when an answer was lost: what is found is
// the result; the function runs again only where nothing is found.
func ExampleWithReconcile_lookup() {
	s, stop := exampleServer()
	defer stop()
	c, desk := s.Client(), &helpdesk{}

	lookUp := func(ctx context.Context, cl *client.Claim) client.Verdict {
		switch ids, err := desk.Find(ctx, cl.Key); {
		case err != nil:
			return client.StillUnknown(err)
		case len(ids) == 0:
			return client.DidNotHappen()
		case len(ids) == 1:
			return client.Happened(ids[0])
		default:
			return client.StillUnknown(fmt.Errorf("tickets %v have the same foreign id", ids))
		}
	}
	create := func(request string) {
		out, err := client.Do(context.Background(), c, client.Call{Key: request, Method: "CreateTicket"},
			func(ctx context.Context, cl *client.Claim) (int, error) { return desk.Create(ctx, cl.Key) },
			client.WithReconcile(lookUp))
		fmt.Println(request, "ticket", out.Value, "replayed", out.Replayed, err)
	}

	create("request-1")
	s.Advance(time.Minute) // the policy's reconcile_after: Do would wait for it
	create("request-1")

	desk.down = true
	create("request-2")
	desk.down = false
	s.Advance(time.Minute)
	create("request-2")        // nothing was found, so it is created, and this answer is lost too
	s.Advance(2 * time.Minute) // more attempts, longer rests
	create("request-2")
	fmt.Println(len(desk.foreignIDs), "tickets")
	// Output:
	// request-1 ticket 0 replayed false helpdesk: no answer
	// request-1 ticket 1 replayed true <nil>
	// request-2 ticket 0 replayed false helpdesk: no answer
	// request-2 ticket 0 replayed false helpdesk: no answer
	// request-2 ticket 2 replayed true <nil>
	// 2 tickets
}
