package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// payments is a provider with idempotency keys: it answers a key that it knows with
// the charge that it made the first time, for 24 h.
type payments struct {
	charges    map[string]string
	loseAnswer bool
}

func (p *payments) Charge(_ context.Context, key string, cents int) (string, error) {
	if p.charges[key] == "" {
		p.charges[key] = fmt.Sprintf("charge %d of %d cents", len(p.charges)+1, cents)
	}
	if p.loseAnswer {
		p.loseAnswer = false
		return "", errors.New("payments: the connection broke")
	}
	return p.charges[key], nil
}

// The outside system has idempotency keys of its own. Send it a child of the
// operation's key, and let the namespace's policy run the function again after a lost
// answer (safe_to_rerun): the provider makes of all tries one charge, as long as it
// keeps the key. After that nobody sends it again.
func ExampleDo_nativeKey() {
	s, stop := exampleServer(func(p *onced.Policy) { p.SafeToRerun = true })
	defer stop()
	c, provider := s.Client(), &payments{charges: map[string]string{}}

	pay := func(order string) {
		out, err := client.Do(context.Background(), c, client.Call{Key: order, Method: "Pay"},
			func(ctx context.Context, cl *client.Claim) (string, error) {
				key, err := cl.Child("charge") // the same in every attempt
				if err != nil {
					return "", client.NotExecuted(err)
				}
				return provider.Charge(ctx, key, 500)
			},
			client.WithDownstreamWindow(24*time.Hour-time.Minute)) // a minute is what a try may take
		if unresolved := (*client.Unresolved)(nil); errors.As(err, &unresolved) {
			fmt.Println(order, "is unresolved, and was not sent again")
			return
		}
		fmt.Println(order, "attempt", out.Attempt, out.Value, err)
	}

	provider.loseAnswer = true
	pay("order-1")
	pay("order-1")
	pay("order-1")

	provider.loseAnswer = true
	pay("order-2")
	s.Advance(24 * time.Hour) // a day later the provider knows the key no more
	pay("order-2")
	fmt.Println(len(provider.charges), "charges")
	// Output:
	// order-1 attempt 1  payments: the connection broke
	// order-1 attempt 2 charge 1 of 500 cents <nil>
	// order-1 attempt 2 charge 1 of 500 cents <nil>
	// order-2 attempt 1  payments: the connection broke
	// order-2 is unresolved, and was not sent again
	// 2 charges
}
