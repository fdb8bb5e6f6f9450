package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/server"
	"github.com/onced/onced/storage/memory"
)

type Ticket struct {
	ID    int
	Title string
}

// A mutation that is called again, because its caller got no answer the first time, is
// not executed again: the second caller gets the first ticket.
func ExampleDo() {
	conn, stop := exampleServer() // in a program: grpc.NewClient("127.0.0.1:7443", …)
	defer stop()
	c := client.New(conn, client.WithNamespace("helpdesk"))
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
// arguments it is found, and nothing runs.
func ExampleCall_fingerprints() {
	conn, stop := exampleServer()
	defer stop()
	c := client.New(conn)

	pay := func(digest string) error {
		f, err := onced.ParseFingerprint("raw1:" + digest)
		if err != nil {
			return err
		}
		call := client.Call{Key: "payment-1", Method: "Pay", Fingerprints: []onced.Fingerprint{f}}
		_, err = client.Do(context.Background(), c, call, func(context.Context, *client.Claim) (string, error) {
			return "paid", nil
		})
		return err
	}
	fmt.Println(pay("9b74c9897bac770ffc029102a200c5de9b74c9897bac770ffc029102a200c5de"))
	if err, ok := pay("0000000000000000000000000000000000000000000000000000000000000000").(*client.Mismatch); ok {
		fmt.Println(err.Key, err.Reason)
	}
	// Output:
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

// exampleServer is an onced in this process, and a connection to it.
func exampleServer() (conn *grpc.ClientConn, stop func()) {
	policies, err := server.NewPolicies(onced.DefaultPolicy(), nil)
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.New(context.Background(), server.Config{
		Store: memory.New(machineClock{time.Now()}), Policies: policies,
		Metrics: server.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	go func() {
		if err := s.Serve(l); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	conn, err = grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() {
		conn.Close()
		s.Stop(context.Background())
	}
}
