package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncegrpc"
	"github.com/onced/onced/client/oncetest"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

// rig is the service behind its guard, with an onced of the test, and a caller.
type rig struct {
	ticketsv1.TicketsClient
	t     *testing.T
	onced *oncetest.Server
	log   *logBuffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, func(tool *tickets) ticketsv1.TicketsServer { return tool })
}

// newRigOf lets a test put something of its own in front of the service.
func newRigOf(t *testing.T, wrap func(*tickets) ticketsv1.TicketsServer) *rig {
	t.Helper()
	r := &rig{t: t, onced: oncetest.New(t), log: &logBuffer{}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	server, err := newServer(r.onced.Client(client.WithNamespace("tickets")), wrap(&tickets{log: log}), 0, log)
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///tickets", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	r.TicketsClient = ticketsv1.NewTicketsClient(conn)
	return r
}

// under is the context of a call under a key.
func (r *rig) under(key string) context.Context {
	return metadata.AppendToOutgoingContext(r.t.Context(), oncegrpc.MetadataKey, key)
}

// file creates a ticket, which must work.
func (r *rig) file(key, project string) *ticketsv1.Ticket {
	r.t.Helper()
	resp, err := r.CreateTicket(r.under(key), &ticketsv1.CreateTicketRequest{Project: project, Title: "a title"})
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.GetTicket()
}

// logged demands how many lines of the service's log have all of the words.
func (r *rig) logged(want int, words ...string) {
	r.t.Helper()
	n := 0
	for line := range strings.Lines(r.log.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			n++
		}
	}
	if n != want {
		r.t.Errorf("%d lines of the log have %q, want %d:\n%s", n, words, want, r.log.String())
	}
}

// answered is the metadata of an answer, filled in by its options.
type answered struct{ header, trailer metadata.MD }

func (a *answered) options() []grpc.CallOption {
	return []grpc.CallOption{grpc.Header(&a.header), grpc.Trailer(&a.trailer)}
}

// as demands what the answer says that it is, in its headers or trailers.
func (a *answered) as(t *testing.T, want string) {
	t.Helper()
	if got := append(a.header.Get(oncegrpc.HeaderOutcome), a.trailer.Get(oncegrpc.HeaderOutcome)...); len(got) != 1 || got[0] != want {
		t.Errorf("the answer says %q of itself, want %q", got, want)
	}
}

// refused demands an error with a code, and with an ErrorInfo of this reason unless that
// is empty.
func refused(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	info := &errdetails.ErrorInfo{}
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*errdetails.ErrorInfo); ok {
			info = d
		}
	}
	if status.Code(err) != code || info.GetReason() != reason {
		t.Errorf("got %v with the reason %q, want %v with %q", err, info.GetReason(), code, reason)
	}
}

// logBuffer is a log that is written and read at once.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns what was written so far.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
