package oncetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// testOutage is a user's test in a bubble, where an outage of ten minutes takes none:
// what was charged while nobody was there to be told is not charged again.
func testOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := oncetest.New(t) // within the bubble
		first, second := s.Client(), s.Client()
		call := client.Call{Key: "order-1", Method: "shop.v1/Pay"}
		out, err := client.Do(t.Context(), first, call, func(context.Context, *client.Claim) (string, error) {
			s.Down()
			return "receipt", nil
		})
		if err != nil || out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}

		time.AfterFunc(10*time.Minute, s.Up)
		out, err = client.Do(t.Context(), second, call, func(context.Context, *client.Claim) (string, error) {
			t.Error("charged again")
			return "", nil
		})
		if err != nil || !out.Replayed || out.Value != "receipt" {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

func Example_synctest() {
	_ = testOutage
}
