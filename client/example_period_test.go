package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onced/onced/client"
)

// A nightly job. The day that it is for is an argument of whoever calls it: the
// scheduler has it, and so has a person who runs it again in the morning. Read from a
// clock, it would be another day for the run that is late or repeated after midnight,
// and the same day twice where clocks are set back.
func ExamplePerRequest() {
	s, stop := exampleServer()
	defer stop()
	c := s.Client()

	closeBooks := func(why, day string) {
		key, err := client.PerRequest("acme", day, "CloseBooks")
		if err != nil {
			log.Fatal(err)
		}
		out, err := client.Do(context.Background(), c, client.Call{Key: key, Method: "CloseBooks"},
			func(context.Context, *client.Claim) (string, error) { return "closed " + day, nil })
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s, replayed: %v\n", why, out.Value, out.Replayed)
	}

	closeBooks("the scheduler, at 23:59", "2026-10-31")
	closeBooks("the scheduler again, after a restart, at 00:01", "2026-10-31")
	closeBooks("by hand, in the morning", "2026-10-31")
	closeBooks("the next night", "2026-11-01")

	_, err := client.PerRequest("acme", "", "CloseBooks") // the caller does not know the day
	fmt.Println(err)
	// Output:
	// the scheduler, at 23:59: closed 2026-10-31, replayed: false
	// the scheduler again, after a restart, at 00:01: closed 2026-10-31, replayed: true
	// by hand, in the morning: closed 2026-10-31, replayed: true
	// the next night: closed 2026-11-01, replayed: false
	// client: a key cannot be derived from an absent part; refuse the call, or take the part from where it is known
}
