package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onced/onced/client/oncegrpc"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

// What a tool logs when something has had its effect.
const (
	ticketCreated = `msg="ticket created"`
	commentAdded  = `msg="comment added"`
	ticketClosed  = `msg="ticket closed"`
)

// forever is how long the handlers of a tool run that is to be killed meanwhile.
const forever = "1h"

// tool is a process of the tickets service: a tool backend as the example shows it.
type tool struct{ *process }

// startTool starts a tool that claims at an address, and waits until it serves.
func startTool(t testing.TB, onced string, args ...string) *tool {
	t.Helper()
	cmd := exec.Command(binary("tickets"), append([]string{"--onced", onced, "--listen", "127.0.0.1:0"}, args...)...)
	return &tool{start(t, cmd)}
}

// logged waits until the tool has logged something for the first time.
func (p *tool) logged(what string) {
	p.t.Helper()
	eventually(p.t, what, func() bool { return strings.Contains(p.log.String(), what) })
}

// effected stops the tools that still run, and demands how often all of them together
// had an effect. Only then has all been read that they logged.
func effected(t testing.TB, what string, want int, tools ...*tool) {
	t.Helper()
	n := 0
	for _, p := range tools {
		if !p.isExited() {
			p.stop()
		}
		n += strings.Count(p.log.String(), what)
	}
	executed(t, n, want)
}

// agent calls tools, as those do who know nothing of onced.
type agent struct {
	t       testing.TB
	tickets ticketsv1.TicketsClient
}

// agent returns a caller of the tool.
func (p *tool) agent(opts ...grpc.DialOption) agent {
	p.t.Helper()
	return agentAt(p.t, p.GRPC, opts...)
}

func agentAt(t testing.TB, address string, opts ...grpc.DialOption) agent {
	t.Helper()
	return agent{t, ticketsv1.NewTicketsClient(dial(t, address, opts...))}
}

// retries has gRPC itself try calls again that end with one of the codes.
func retries(codes string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"methodConfig": [{"name": [{"service": "tickets.v1.Tickets"}], "retryPolicy": {
		"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": [%s]}}]}`, codes))
}

// filing is what a caller sees of a call.
type filing struct {
	ticket          *ticketsv1.Ticket
	replayed        bool // as the response says
	err             error
	header, trailer metadata.MD
}

// aTicket is what is asked for where a test does not say.
func aTicket() *ticketsv1.CreateTicketRequest {
	return &ticketsv1.CreateTicketRequest{Project: "onced", Title: "once", Body: "and not twice"}
}

// create creates a ticket under a key.
func (a agent) create(ctx context.Context, key string, opts ...grpc.CallOption) (f filing) {
	return a.ask(ctx, key, aTicket(), opts...)
}

// ask creates the ticket that is asked for.
func (a agent) ask(ctx context.Context, key string, req *ticketsv1.CreateTicketRequest, opts ...grpc.CallOption) (f filing) {
	ctx, cancel := withKey(ctx, key)
	defer cancel()
	resp, err := a.tickets.CreateTicket(ctx, req, append(opts, grpc.Header(&f.header), grpc.Trailer(&f.trailer))...)
	f.ticket, f.replayed, f.err = resp.GetTicket(), resp.GetReplayed(), err
	return f
}

// close closes a ticket under a key.
func (a agent) close(ctx context.Context, key, id string) (f filing) {
	ctx, cancel := withKey(ctx, key)
	defer cancel()
	resp, err := a.tickets.CloseTicket(ctx, &ticketsv1.CloseTicketRequest{TicketId: id}, grpc.Header(&f.header), grpc.Trailer(&f.trailer))
	f.ticket, f.err = resp.GetTicket(), err
	return f
}

// withKey is the context of a call under a key.
func withKey(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	return context.WithTimeout(metadata.AppendToOutgoingContext(ctx, oncegrpc.MetadataKey, key), patience)
}

// insist calls again for as long as somebody else executes, until ctx ends.
func insist(ctx context.Context, call func(context.Context) filing) filing {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		f := call(ctx)
		if status.Code(f.err) != codes.Aborted {
			return f
		}
		select {
		case <-ctx.Done():
			return f
		case <-tick.C:
		}
	}
}

// insist creates a ticket and calls again for as long as somebody else creates it.
func (a agent) insist(key string) filing {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return insist(ctx, func(ctx context.Context) filing { return a.create(ctx, key) })
}

// outcome is what the headers of an answer say that it is.
func (f filing) outcome() string { return strings.Join(f.header.Get(oncegrpc.HeaderOutcome), ", ") }

// is demands an answer that is executed or replayed, and says so in all its places.
func (f filing) is(t testing.TB, outcome string) *ticketsv1.Ticket {
	t.Helper()
	if f.err != nil || f.outcome() != outcome || f.replayed != (outcome == oncegrpc.OutcomeReplayed) {
		t.Fatalf("got %v, %v (%s, replayed %v), want a ticket that is %s", f.ticket, f.err, f.outcome(), f.replayed, outcome)
	}
	if len(f.header.Get(oncegrpc.HeaderKey)) != 1 || len(f.header.Get(oncegrpc.HeaderFirstClaimTime)) != 1 {
		t.Errorf("the headers %v do not name the key and its first claim", f.header)
	}
	return f.ticket
}

// inProgress demands that a call is told that somebody else executes, and when to come
// back.
func (f filing) inProgress(t testing.TB) {
	t.Helper()
	refused(t, f.err, codes.Aborted, "IN_PROGRESS")
	for _, d := range status.Convert(f.err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().AsDuration() > 0 {
			return
		}
	}
	t.Errorf("%v does not say when to try again", f.err)
}

// filed is a call on its way.
type filed struct {
	over chan struct{}
	filing
}

// later makes a call in the background.
func later(call func() filing) *filed {
	f := &filed{over: make(chan struct{})}
	go func() {
		defer close(f.over)
		f.filing = call()
	}()
	return f
}

// wait waits for the answer.
func (f *filed) wait(t testing.TB) filing {
	t.Helper()
	select {
	case <-f.over:
	case <-time.After(patience):
		t.Fatal("a call was not answered")
	}
	return f.filing
}
