package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onced/onced/client"
)

// postbox is a mail server that finds what it has sent by a header.
type postbox struct{ sent map[string]string }

func (p *postbox) Send(_ context.Context, header string) (string, error) {
	p.sent[header] = fmt.Sprintf("message %d", len(p.sent)+1)
	return "", errors.New("postbox: no answer")
}

// Some callers never come back to find out what became of their operation. A
// Reconciler, beside the program or in it, does so for the whole backlog.
func ExampleReconciler() {
	s, stop := exampleServer()
	defer stop()
	c, box := s.Client(), &postbox{sent: map[string]string{}}
	call := client.Call{Key: "welcome-1", Method: "SendMail"}
	send := func(ctx context.Context, cl *client.Claim) (string, error) { return box.Send(ctx, cl.Key) }

	_, err := client.Do(context.Background(), c, call, send)
	fmt.Println(err)
	s.Advance(time.Minute) // reconcile_after; nobody asks again

	ctx, finish := context.WithCancel(context.Background())
	found := make(chan struct{})
	reconciler := &client.Reconciler{Client: s.Client(), Methods: map[string]client.Reconciliation{
		"SendMail": {Ask: func(_ context.Context, cl *client.Claim) client.Verdict {
			defer close(found)
			if id := box.sent[cl.Key]; id != "" {
				return client.Happened(id)
			}
			return client.DidNotHappen() // the next call sends it: a Reconciler executes nothing
		}},
	}}
	stopped := make(chan error)
	go func() { stopped <- reconciler.Run(ctx) }()
	<-found
	finish()
	if err := <-stopped; err != nil {
		log.Fatal(err)
	}

	out, err := client.Do(context.Background(), c, call, send)
	fmt.Println(out.Value, out.Replayed, err)
	fmt.Println(len(box.sent), "mail")
	// Output:
	// postbox: no answer
	// message 1 true <nil>
	// 1 mail
}
