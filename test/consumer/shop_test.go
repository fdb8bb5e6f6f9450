package shop_test

import (
	"context"
	"fmt"
	"testing"

	"example.com/shop"

	"github.com/onced/onced/client/oncetest"
)

// fakePayments counts the charges, and may have something happen right after one.
type fakePayments struct {
	charges int
	after   func()
}

func (p *fakePayments) Charge(context.Context, int) (string, error) {
	p.charges++
	p.after()
	return fmt.Sprintf("receipt %d", p.charges), nil
}

func TestALostAnswerDoesNotChargeTwice(t *testing.T) {
	onced := oncetest.New(t)
	payments := &fakePayments{after: onced.LoseNextAnswer} // the answer to what we report
	first := shop.Shop{Onced: onced.Client(), Payments: payments}
	second := shop.Shop{Onced: onced.Client(), Payments: payments}

	onced.LoseNextAnswer() // the answer that we may charge
	for _, s := range []shop.Shop{first, first, second} {
		receipt, err := s.Pay(t.Context(), "order-1", 4200)
		if err != nil || receipt != "receipt 1" {
			t.Errorf("got %q, %v", receipt, err)
		}
	}
	if payments.charges != 1 || onced.Executions("order-1") != 1 {
		t.Errorf("charged %d times, executed %d times, want once", payments.charges, onced.Executions("order-1"))
	}
}
