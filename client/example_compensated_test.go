package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onced/onced/client"
)

// airline reserves seats, and gives them back: doing that twice does no harm.
type airline struct{ reserved map[string]bool }

func (a *airline) Reserve(seat string)       { a.reserved[seat] = true }
func (a *airline) GiveBack(seat string)      { delete(a.reserved, seat) }
func (a *airline) Reserved(seat string) bool { return a.reserved[seat] }

// The operation has several steps, and each can be undone. Where it was left half way,
// do not go on: undo what there is, and say so. It has failed for good then, and who
// wants the trip after all asks for it under a new key.
func ExampleCompensated() {
	s, stop := exampleServer()
	defer stop()
	c, flight := s.Client(), &airline{reserved: map[string]bool{}}

	undo := func(_ context.Context, cl *client.Claim) client.Verdict {
		var seat string
		found, err := cl.LastCheckpoint(&seat)
		switch {
		case err != nil:
			return client.StillUnknown(err)
		case cl.FirstClaimedAt.IsZero(): // the operation is forgotten, and its checkpoint with it
			return client.StillUnknown(errors.New("whether a seat was reserved is not remembered"))
		case !found: // it died before the first step was begun
			return client.DidNotHappen()
		}
		flight.GiveBack(seat)
		return client.Compensated("seat " + seat + " was given back")
	}
	book := func() {
		out, err := client.Do(context.Background(), c, client.Call{Key: "trip-1", Method: "BookTrip"},
			func(ctx context.Context, cl *client.Claim) (string, error) {
				if err := cl.Checkpoint(ctx, "12A"); err != nil { // before the step: it is undone even if it is not known to have happened
					return "", client.NotExecuted(err)
				}
				flight.Reserve("12A")
				return "", errors.New("hotel: no answer")
			},
			client.WithReconcile(undo))
		var failed *client.Failed
		if errors.As(err, &failed) {
			fmt.Println(failed.Code, failed.Message)
			return
		}
		fmt.Println(out.Value, err)
	}

	book()
	fmt.Println("reserved:", flight.Reserved("12A"))
	s.Advance(time.Minute) // reconcile_after
	book()
	fmt.Println("reserved:", flight.Reserved("12A"))
	book()
	// Output:
	//  hotel: no answer
	// reserved: true
	// COMPENSATED seat 12A was given back
	// reserved: false
	// COMPENSATED seat 12A was given back
}
