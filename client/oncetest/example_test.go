package oncetest_test

import (
	"context"
	"testing"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// testLostAnswer is a user's test: what was charged, with both answers lost, is not
// charged again when another process is asked to. It begins with a capital letter where
// it stands among one's own tests.
func testLostAnswer(t *testing.T) {
	s := oncetest.New(t)
	charges := 0
	pay := func(c *client.Client) (string, error) {
		call := client.Call{Key: "order-1", Method: "shop.v1/Pay"}
		out, err := client.Do(t.Context(), c, call, func(context.Context, *client.Claim) (string, error) {
			charges++
			s.LoseNextAnswer() // to the report
			return "receipt", nil
		})
		return out.Value, err
	}

	s.LoseNextAnswer() // to the claim
	for _, process := range []*client.Client{s.Client(), s.Client()} {
		if receipt, err := pay(process); err != nil || receipt != "receipt" {
			t.Errorf("got %q, %v", receipt, err)
		}
	}
	if charges != 1 || s.Executions("order-1") != 1 {
		t.Errorf("charged %d times", charges)
	}
}

func Example() {
	_ = testLostAnswer
}
