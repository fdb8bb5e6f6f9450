package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client/oncegrpc"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

func TestCreateTicket(t *testing.T) {
	r := newRig(t)
	var first, second answered
	created, err := r.CreateTicket(r.under("k"), &ticketsv1.CreateTicketRequest{Project: "crm", Title: "a title", TraceId: "1"}, first.options()...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.CreateTicket(r.under("k"), &ticketsv1.CreateTicketRequest{Project: "crm", Title: "a title", TraceId: "2"}, second.options()...)
	if err != nil {
		t.Fatal(err)
	}
	first.as(t, oncegrpc.OutcomeExecuted)
	second.as(t, oncegrpc.OutcomeReplayed)
	if created.GetReplayed() || !again.GetReplayed() || !proto.Equal(created.GetTicket(), again.GetTicket()) {
		t.Errorf("got %v, then %v", created, again)
	}
	_, err = r.CreateTicket(r.under("k"), &ticketsv1.CreateTicketRequest{Project: "crm", Title: "another title"})
	refused(t, err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	_, err = r.CreateTicket(t.Context(), &ticketsv1.CreateTicketRequest{Project: "crm", Title: "a title"})
	refused(t, err, codes.InvalidArgument, "KEY_REQUIRED")
	r.logged(1, "ticket created", "id=T-1", "attempt=1")
	if other := r.file("k2", "crm"); other.GetId() != "T-2" {
		t.Errorf("another key has created %v", other)
	}
	r.logged(2, "ticket created")
}

// The service has said that it did nothing, so the same call may be made again. Another
// one under its key is a mistake even then.
func TestCreateTicketWithoutTitle(t *testing.T) {
	r := newRig(t)
	for range 2 {
		var a answered
		_, err := r.CreateTicket(r.under("k"), &ticketsv1.CreateTicketRequest{Project: "crm"}, a.options()...)
		refused(t, err, codes.InvalidArgument, "")
		a.as(t, oncegrpc.OutcomeNotExecuted)
	}
	_, err := r.CreateTicket(r.under("k"), &ticketsv1.CreateTicketRequest{Project: "crm", Title: "a title"})
	refused(t, err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	r.file("k2", "crm")
	r.logged(1, "ticket created")
}

func TestCreateTicketInArchive(t *testing.T) {
	r := newRig(t)
	var first, second answered
	req := &ticketsv1.CreateTicketRequest{Project: "archive", Title: "a title"}
	_, err := r.CreateTicket(r.under("k"), req, first.options()...)
	_, again := r.CreateTicket(r.under("k"), req, second.options()...)
	first.as(t, oncegrpc.OutcomeExecuted)
	second.as(t, oncegrpc.OutcomeReplayed)
	refused(t, err, codes.FailedPrecondition, "PROJECT_ARCHIVED")
	if !proto.Equal(status.Convert(err).Proto(), status.Convert(again).Proto()) {
		t.Errorf("got %v, then %v", status.Convert(err).Proto(), status.Convert(again).Proto())
	}
	r.logged(0, "ticket created")
}

func TestAddComment(t *testing.T) {
	r := newRig(t)
	ticket := r.file("k", "crm")
	req := &ticketsv1.AddCommentRequest{TicketId: ticket.GetId(), Text: "a text", RequestId: "c"}
	added, err := r.AddComment(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var byField, byMetadata answered
	again, err := r.AddComment(t.Context(), req, byField.options()...)
	if err != nil {
		t.Fatal(err)
	}
	byField.as(t, oncegrpc.OutcomeReplayed)
	// The same key in the metadata is the same call.
	if _, err := r.AddComment(r.under("c"), &ticketsv1.AddCommentRequest{TicketId: ticket.GetId(), Text: "a text"}, byMetadata.options()...); err != nil {
		t.Fatal(err)
	}
	byMetadata.as(t, oncegrpc.OutcomeReplayed)
	_, err = r.AddComment(r.under("another"), req)
	refused(t, err, codes.InvalidArgument, "KEY_AMBIGUOUS")
	_, err = r.AddComment(t.Context(), &ticketsv1.AddCommentRequest{TicketId: ticket.GetId(), Text: "a text"})
	refused(t, err, codes.InvalidArgument, "KEY_REQUIRED")
	_, err = r.AddComment(r.under("d"), &ticketsv1.AddCommentRequest{TicketId: ticket.GetId()})
	refused(t, err, codes.InvalidArgument, "")

	got, err := r.GetTicket(t.Context(), &ticketsv1.GetTicketRequest{TicketId: ticket.GetId()})
	if err != nil || len(got.GetComments()) != 1 || !proto.Equal(got.GetComments()[0], added.GetComment()) || !proto.Equal(added, again) {
		t.Errorf("added %v, then %v; the ticket is %v, %v", added, again, got, err)
	}
	r.logged(1, "comment added", "id=C-1", "ticket=T-1", "attempt=1")
}

// A comment that found no ticket is made by the same call once there is one.
func TestAddCommentTooEarly(t *testing.T) {
	r := newRig(t)
	req := &ticketsv1.AddCommentRequest{TicketId: "T-1", Text: "a text", RequestId: "c"}
	var first, second answered
	_, err := r.AddComment(t.Context(), req, first.options()...)
	refused(t, err, codes.NotFound, "")
	first.as(t, oncegrpc.OutcomeNotExecuted)
	r.file("k", "crm")
	if _, err := r.AddComment(t.Context(), req, second.options()...); err != nil {
		t.Fatal(err)
	}
	second.as(t, oncegrpc.OutcomeExecuted)
	r.logged(1, "comment added", "attempt=2")
}

// unsure does not know at first whether tickets were closed.
type unsure struct {
	*tickets
	sure atomic.Bool
}

func (u *unsure) CloseTicket(ctx context.Context, req *ticketsv1.CloseTicketRequest) (*ticketsv1.CloseTicketResponse, error) {
	resp, err := u.tickets.CloseTicket(ctx, req)
	if !u.sure.Swap(true) {
		return nil, status.Error(codes.Internal, "the answer of the database was lost")
	}
	return resp, err
}

// Closing is safe to run again: an attempt of unknown outcome is followed by another one
// once the first can have nothing under way any more.
func TestCloseTicket(t *testing.T) {
	r := newRigOf(t, func(tool *tickets) ticketsv1.TicketsServer { return &unsure{tickets: tool} })
	req := &ticketsv1.CloseTicketRequest{TicketId: r.file("k", "crm").GetId()}
	_, err := r.CloseTicket(r.under("c"), req)
	refused(t, err, codes.Internal, "")
	_, err = r.CloseTicket(r.under("c"), req)
	refused(t, err, codes.FailedPrecondition, "UNRESOLVED")
	r.logged(1, "ticket closed")

	r.onced.Advance(2 * time.Minute)
	for _, want := range []string{oncegrpc.OutcomeExecuted, oncegrpc.OutcomeReplayed} {
		var a answered
		closed, err := r.CloseTicket(r.under("c"), req, a.options()...)
		if err != nil || !closed.GetTicket().GetClosed() {
			t.Fatalf("got %v, %v", closed, err)
		}
		a.as(t, want)
	}
	r.logged(1, "ticket closed", "attempt=1")
	r.logged(1, "ticket closed", "attempt=2")
	_, err = r.CloseTicket(r.under("d"), &ticketsv1.CloseTicketRequest{TicketId: "T-9"})
	refused(t, err, codes.NotFound, "")
}

// Reading needs no key, and is not replayed for one.
func TestReading(t *testing.T) {
	r := newRig(t)
	ticket := r.file("k", "crm")
	r.file("k2", "erp")
	for project, want := range map[string]int{"crm": 1, "erp": 1, "other": 0, "": 2} {
		got, err := r.ListTickets(t.Context(), &ticketsv1.ListTicketsRequest{Project: project})
		if err != nil || len(got.GetTickets()) != want {
			t.Errorf("project %q has %v, %v", project, got.GetTickets(), err)
		}
	}
	get := &ticketsv1.GetTicketRequest{TicketId: ticket.GetId()}
	if got, err := r.GetTicket(r.under("g"), get); err != nil || got.GetTicket().GetClosed() {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := r.CloseTicket(r.under("c"), &ticketsv1.CloseTicketRequest{TicketId: ticket.GetId()}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.GetTicket(r.under("g"), get); err != nil || !got.GetTicket().GetClosed() {
		t.Errorf("got %v, %v", got, err)
	}
	_, err := r.GetTicket(t.Context(), &ticketsv1.GetTicketRequest{TicketId: "T-9"})
	refused(t, err, codes.NotFound, "")
}

// The start finds nothing wrong and nothing unguarded.
func TestCheck(t *testing.T) {
	r := newRig(t) // fails if the check does
	r.logged(0, "level=WARN")
}

// A pause ends with the context of its call.
func TestPause(t *testing.T) {
	tool := &tickets{log: slog.New(slog.DiscardHandler), delay: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tool.pause(ctx); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}
