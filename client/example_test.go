package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	"github.com/onced/onced/fingerprint"
)

type Ticket struct {
	ID    int
	Title string
}

// A mutation that is called again, because its caller got no answer the first time, is
// not executed again: the second caller gets the first ticket.
func ExampleDo() {
	s, stop := exampleServer() // in a program: conn, err := grpc.NewClient("127.0.0.1:7443", …)
	defer stop()
	c := s.Client(client.WithNamespace("helpdesk")) // and c := client.New(conn, …)
	defer c.Close(context.Background())

	tickets := 0
	createTicket := func(requestID, title string) {
		key, err := client.PerRequest("acme", requestID, "CreateTicket")
		if err != nil {
			log.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		out, err := client.Do(ctx, c, client.Call{Key: key, Method: "CreateTicket"},
			func(context.Context, *client.Claim) (Ticket, error) {
				tickets++
				return Ticket{ID: tickets, Title: title}, nil
			})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("ticket %d %q, replayed: %v\n", out.Value.ID, out.Value.Title, out.Replayed)
	}

	createTicket("request-1", "printer on fire")
	createTicket("request-1", "printer on fire")
	createTicket("request-2", "printer drowned")
	// Output:
	// ticket 1 "printer on fire", replayed: false
	// ticket 1 "printer on fire", replayed: true
	// ticket 2 "printer drowned", replayed: false
}

// Changed arguments under one key are a bug of the caller. With a fingerprint of the
// arguments it is found, and nothing runs. The same arguments in another spelling are
// the same.
func ExampleCall_fingerprints() {
	s, stop := exampleServer()
	defer stop()
	c := s.Client()

	pay := func(arguments string) error {
		f, err := fingerprint.JSON([]byte(arguments))
		if err != nil {
			return err
		}
		call := client.Call{Key: "payment-1", Method: "Pay", Fingerprints: []onced.Fingerprint{f}}
		_, err = client.Do(context.Background(), c, call, func(context.Context, *client.Claim) (string, error) {
			return "paid", nil
		})
		return err
	}
	fmt.Println(pay(`{"to": "acme", "amount": 5.0}`))
	fmt.Println(pay(`{"amount": 5, "to": "acme"}`))
	var mismatch *client.Mismatch
	if errors.As(pay(`{"to": "acme", "amount": 500}`), &mismatch) {
		fmt.Println(mismatch.Key, mismatch.Reason)
	}
	// Output:
	// <nil>
	// <nil>
	// payment-1 FINGERPRINT_MISMATCH
}

func ExampleChild() {
	key, err := client.Child("order-1", "charge")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(key)
	// Output: child-4a1720d24ee95767e831eebd5337b3a7b2e0095d6aacc6329b492b478e1beed2
}

// exampleServer is an onced in this process, in a namespace with the default policy,
// as changed. Its clock can be moved, so that examples wait for nothing. A program has
//
//	conn, err := grpc.NewClient("onced.internal:7443", …)
//	c := client.New(conn)
//
// instead of the server's Client.
func exampleServer(change ...func(*onced.Policy)) (s *oncetest.Server, stop func()) {
	t := &exampleTB{}
	var options []oncetest.Option
	for _, c := range change {
		options = append(options, oncetest.WithPolicy(c))
	}
	return oncetest.New(t, options...), t.stop
}

// exampleTB stands for the test that an example does not have.
type exampleTB struct {
	testing.TB
	ends []func()
}

func (*exampleTB) Helper()                        {}
func (*exampleTB) Log(...any)                     {}
func (*exampleTB) Errorf(format string, a ...any) { log.Printf(format, a...) }
func (*exampleTB) Fatalf(format string, a ...any) { log.Fatalf(format, a...) }
func (t *exampleTB) Cleanup(end func())           { t.ends = append(t.ends, end) }

func (t *exampleTB) stop() {
	for _, end := range t.ends {
		end()
	}
}
