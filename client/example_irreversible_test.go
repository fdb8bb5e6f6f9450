package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// wires is a bank's interface that knows no keys, cannot be asked, and takes nothing
// back.
type wires struct{ sent int }

func (w *wires) Send(context.Context, int) error {
	w.sent++
	return errors.New("bank: the connection broke")
}

// The effect cannot be recognised, found or undone. Then nothing but a person can tell
// what became of a lost answer: the namespace's policy is takeover nobody, and the
// operation stays unresolved, for everybody and for as long as it takes, until somebody
// has asked the bank and an operator enters the outcome.
func ExampleDo_irreversible() {
	s, stop := exampleServer(func(p *onced.Policy) { p.Takeover = onced.TakeoverByNobody })
	defer stop()
	c, bank := s.Client(), &wires{}

	send := func() {
		_, err := client.Do(context.Background(), c, client.Call{Key: "invoice-7", Method: "WireTransfer"},
			func(ctx context.Context, _ *client.Claim) (string, error) {
				return "", bank.Send(ctx, 500)
			},
			// Were there one by mistake, it would not be asked.
			client.WithReconcile(func(context.Context, *client.Claim) client.Verdict { return client.DidNotHappen() }))
		var unresolved *client.Unresolved
		if errors.As(err, &unresolved) {
			fmt.Printf("unresolved since attempt %d: ask the bank about %s; takeover refused: %v\n",
				unresolved.Attempt, unresolved.Key, unresolved.TakeoverRefused)
			return
		}
		fmt.Println(err)
	}

	send()
	send()
	s.Advance(365 * 24 * time.Hour) // it is not forgotten either
	send()
	fmt.Println(bank.sent, "transfer sent")
	// Output:
	// bank: the connection broke
	// unresolved since attempt 1: ask the bank about invoice-7; takeover refused: TAKEOVER_REFUSED_POLICY
	// unresolved since attempt 1: ask the bank about invoice-7; takeover refused: TAKEOVER_REFUSED_POLICY
	// 1 transfer sent
}
