package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced/client"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

// archive is a project that takes no tickets any more.
const archive = "archive"

// tickets is the service. It keeps everything in memory; only its pauses are there for
// the sake of the example. It is safe for concurrent use.
type tickets struct {
	ticketsv1.UnimplementedTicketsServer
	log   *slog.Logger
	delay time.Duration // between an effect and the end of its call

	mu       sync.Mutex
	tickets  []*ticketsv1.Ticket  // oldest first
	comments []*ticketsv1.Comment // oldest first
}

// CreateTicket files a ticket.
func (t *tickets) CreateTicket(ctx context.Context, req *ticketsv1.CreateTicketRequest) (*ticketsv1.CreateTicketResponse, error) {
	if req.GetTitle() == "" {
		return nil, status.Error(codes.InvalidArgument, "a ticket needs a title")
	}
	if req.GetProject() == archive {
		return nil, archived(req.GetProject())
	}
	created := t.create(req)
	t.done(ctx, "ticket created", "id", created.GetId())
	if err := t.pause(ctx); err != nil {
		return nil, err
	}
	return &ticketsv1.CreateTicketResponse{Ticket: created}, nil
}

// archived is the failure of a ticket for a project that takes none.
func archived(project string) error {
	s, err := status.New(codes.FailedPrecondition, fmt.Sprintf("project %q takes no tickets any more; file it in another one", project)).
		WithDetails(&errdetails.ErrorInfo{Domain: "tickets.example.com", Reason: "PROJECT_ARCHIVED", Metadata: map[string]string{"project": project}})
	if err != nil {
		return err
	}
	// onced: asking again would not change it, so it is the outcome, and is replayed.
	return client.Final(s.Err())
}

func (t *tickets) create(req *ticketsv1.CreateTicketRequest) *ticketsv1.Ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket := &ticketsv1.Ticket{
		Id: fmt.Sprintf("T-%d", len(t.tickets)+1), Project: req.GetProject(), Title: req.GetTitle(), Body: req.GetBody(),
		CreateTime: timestamppb.Now(),
	}
	t.tickets = append(t.tickets, ticket)
	return proto.CloneOf(ticket)
}

// AddComment adds a comment to a ticket.
func (t *tickets) AddComment(ctx context.Context, req *ticketsv1.AddCommentRequest) (*ticketsv1.AddCommentResponse, error) {
	if req.GetText() == "" {
		return nil, status.Error(codes.InvalidArgument, "a comment needs a text")
	}
	added, err := t.comment(req)
	if err != nil {
		return nil, err
	}
	t.done(ctx, "comment added", "id", added.GetId(), "ticket", added.GetTicketId())
	if err := t.pause(ctx); err != nil {
		return nil, err
	}
	return &ticketsv1.AddCommentResponse{Comment: added}, nil
}

func (t *tickets) comment(req *ticketsv1.AddCommentRequest) (*ticketsv1.Comment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.find(req.GetTicketId()); err != nil {
		return nil, err
	}
	comment := &ticketsv1.Comment{
		Id: fmt.Sprintf("C-%d", len(t.comments)+1), TicketId: req.GetTicketId(), Text: req.GetText(), CreateTime: timestamppb.Now(),
	}
	t.comments = append(t.comments, comment)
	return proto.CloneOf(comment), nil
}

// CloseTicket closes a ticket.
func (t *tickets) CloseTicket(ctx context.Context, req *ticketsv1.CloseTicketRequest) (*ticketsv1.CloseTicketResponse, error) {
	closed, err := t.close(req.GetTicketId())
	if err != nil {
		return nil, err
	}
	t.done(ctx, "ticket closed", "id", closed.GetId())
	if err := t.pause(ctx); err != nil {
		return nil, err
	}
	return &ticketsv1.CloseTicketResponse{Ticket: closed}, nil
}

func (t *tickets) close(id string) (*ticketsv1.Ticket, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket, err := t.find(id)
	if err != nil {
		return nil, err
	}
	ticket.Closed = true
	return proto.CloneOf(ticket), nil
}

// GetTicket returns a ticket and its comments.
func (t *tickets) GetTicket(_ context.Context, req *ticketsv1.GetTicketRequest) (*ticketsv1.GetTicketResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket, err := t.find(req.GetTicketId())
	if err != nil {
		return nil, err
	}
	resp := &ticketsv1.GetTicketResponse{Ticket: proto.CloneOf(ticket)}
	for _, c := range t.comments {
		if c.GetTicketId() == ticket.GetId() {
			resp.Comments = append(resp.Comments, c) // nobody changes one
		}
	}
	return resp, nil
}

// ListTickets returns the tickets of a project, or of all.
func (t *tickets) ListTickets(_ context.Context, req *ticketsv1.ListTicketsRequest) (*ticketsv1.ListTicketsResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	resp := &ticketsv1.ListTicketsResponse{}
	for _, ticket := range t.tickets {
		if req.GetProject() == "" || req.GetProject() == ticket.GetProject() {
			resp.Tickets = append(resp.Tickets, proto.CloneOf(ticket))
		}
	}
	return resp, nil
}

// find finds a ticket while mu is held.
func (t *tickets) find(id string) (*ticketsv1.Ticket, error) {
	for _, ticket := range t.tickets {
		if ticket.GetId() == id {
			return ticket, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no ticket %q", id)
}

// done logs an effect, with the attempt that had it.
func (t *tickets) done(ctx context.Context, effect string, what ...any) {
	attempt := uint32(0) // without a guard
	if claim := client.ClaimFromContext(ctx); claim != nil {
		attempt = claim.Attempt
	}
	t.log.InfoContext(ctx, effect, append(what, "attempt", attempt)...)
}

// pause waits between an effect and the end of its call. Under a guard, ctx ends when
// the claim is lost, and not when the caller leaves.
func (t *tickets) pause(ctx context.Context) error {
	if t.delay == 0 {
		return nil
	}
	select {
	case <-time.After(t.delay):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
