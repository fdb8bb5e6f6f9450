package oncetest

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// conn is the connection that all callers come through. Over it calls and answers get
// lost, and what reaches a caller is counted.
type conn struct{ s *Server }

// Invoke makes one call. It implements [grpc.ClientConnInterface].
func (c *conn) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	c.s.tally.reported(req)
	lost, err := c.s.depart(req)
	if err != nil {
		return err
	}
	err = c.carry(ctx, method, req, reply, opts)
	switch {
	case lost && ctx.Err() == nil:
		forget(opts)
		return status.Errorf(codes.Unavailable, "oncetest: the answer of %s was lost, as the test asked for", method[strings.LastIndex(method, "/")+1:])
	case err == nil:
		c.s.arrive(req, reply)
	}
	return err
}

// NewStream begins a stream. It implements [grpc.ClientConnInterface]. Streams are not
// held, counted or lost.
func (c *conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	l, _ := c.s.current()
	if l == nil {
		return nil, errDown
	}
	return l.conn.NewStream(ctx, desc, method, opts...)
}

// carry brings a call to the server. While the server holds it, a change of the
// store's clock brings it there again: a server's timers run on the clock of the
// process, so that it does not see that a lease has ended early. Every call may be
// repeated, and for one that was answered meanwhile the answer is the same.
func (c *conn) carry(ctx context.Context, method string, req, reply any, opts []grpc.CallOption) error {
	sent, wait := time.Now(), waitOf(req)
	for {
		l, turn := c.s.current()
		if l == nil {
			return errDown
		}
		again, err := l.invoke(ctx, turn, method, req, reply, opts)
		switch {
		case status.Code(err) != codes.Canceled || ctx.Err() != nil:
			return err
		case wait == 0 || !again:
			return errBroken // by the end of the server
		}
		req = waiting(req, max(0, wait-time.Since(sent)))
	}
}

// invoke makes a call that ends with ctx or, if it asks to be held, with turn, which
// it tells.
func (l *life) invoke(ctx, turn context.Context, method string, req, reply any, opts []grpc.CallOption) (turned bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if waitOf(req) > 0 {
		defer context.AfterFunc(turn, cancel)()
	}
	err = l.conn.Invoke(ctx, method, req, reply, opts...)
	return turn.Err() != nil, err
}

var (
	errDown   = status.Error(codes.Unavailable, "oncetest: the coordinator is down, as the test asked for")
	errBroken = status.Error(codes.Unavailable, "oncetest: the coordinator went down, as the test asked for")
	errCutOff = status.Error(codes.Unavailable, "oncetest: the claim was made to lapse, and its renewals do not arrive")
)

// waitOf is how long a request asks to be held.
func waitOf(req any) time.Duration {
	if r, ok := req.(interface{ GetWait() *durationpb.Duration }); ok && r.GetWait() != nil {
		return r.GetWait().AsDuration()
	}
	return 0
}

// waiting is the same request with another wait.
func waiting(req any, wait time.Duration) any {
	switch r := req.(type) {
	case *oncedv1.ClaimRequest:
		r = proto.CloneOf(r)
		r.Wait = durationpb.New(wait)
		return r
	case *oncedv1.LookupRequest:
		r = proto.CloneOf(r)
		r.Wait = durationpb.New(wait)
		return r
	default:
		return req
	}
}

// forget takes away what came with an answer that was lost.
func forget(opts []grpc.CallOption) {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = nil
		case grpc.TrailerCallOption:
			*o.TrailerAddr = nil
		}
	}
}
