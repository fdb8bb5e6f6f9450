// Package shop is a user's module: it charges orders with onced, and its test does so
// with oncetest. It stands apart from onced's own module, as every user's does, so that
// what users import is what is tried.
package shop

import (
	"context"
	"fmt"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/fingerprint"
)

// Payments is the outside system. A charge that is made twice is paid twice.
type Payments interface {
	Charge(ctx context.Context, cents int) (receipt string, err error)
}

// Shop charges orders. It is safe for concurrent use if its payments are.
type Shop struct {
	Onced    *client.Client
	Payments Payments
}

// Pay charges an order once, however often it is called, and returns the receipt of
// that charge. Another amount for the same order is refused.
func (s *Shop) Pay(ctx context.Context, order string, cents int) (string, error) {
	args, err := fingerprint.JSON(fmt.Appendf(nil, `{"cents":%d}`, cents))
	if err != nil {
		return "", err
	}
	call := client.Call{Key: order, Method: "shop.v1/Pay", Fingerprints: []onced.Fingerprint{args}}
	out, err := client.Do(ctx, s.Onced, call, func(ctx context.Context, _ *client.Claim) (string, error) {
		return s.Payments.Charge(ctx, cents)
	})
	return out.Value, err
}
