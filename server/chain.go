package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// generationHeader stands on every answer, errors included: a client that sees
// it change knows that the store was restored, or is another one.
const generationHeader = "onced-generation"

// place is a named place of the chain through which every call goes. stats
// handlers stand outside of all interceptors.
type place struct {
	name   string
	stats  stats.Handler
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor // nil where it concerns only calls that read or write the store
}

// chain is what the places of the chain work with.
type chain struct {
	service   *Service
	metrics   *Metrics
	admission *admission
	replies   *replies
	log       *slog.Logger
}

// places returns the chain, outermost first. What refuses a call stands inside
// of what counts and logs it; recovery is innermost, so that a panic is a status
// that all others see. Traces belong between metrics and the first interceptor:
// they too are a stats handler.
func (c *chain) places() []place {
	generation := metadata.Pairs(generationHeader, strconv.FormatUint(c.service.Generation(), 10))
	return []place{
		{name: "metrics", stats: rpcStats{c.metrics}},
		{name: "generation", unary: headerUnary(generation), stream: headerStream(generation)},
		{name: "replies", unary: c.boundReplies},
		{
			name:   "logging",
			unary:  interceptors.UnaryServerInterceptor(callLogger{c.log}),
			stream: interceptors.StreamServerInterceptor(callLogger{c.log}),
		},
		{
			name:   "authentication",
			unary:  auth.UnaryServerInterceptor(authenticate),
			stream: auth.StreamServerInterceptor(authenticate),
		},
		{name: "authorisation", unary: c.authorizeUnary, stream: authorizeStream},
		{name: "validation", unary: c.inTime},
		{name: "admission", unary: c.admit},
		{name: "errors", unary: c.mapErrors, stream: mapStreamErrors},
		{
			name:   "recovery",
			unary:  recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(c.recovered)),
			stream: recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(c.recovered)),
		},
	}
}

// chainOptions returns the options that put a chain into a gRPC server.
func chainOptions(places []place) []grpc.ServerOption {
	var (
		options []grpc.ServerOption
		unary   []grpc.UnaryServerInterceptor
		stream  []grpc.StreamServerInterceptor
	)
	for _, p := range places {
		if p.stats != nil {
			options = append(options, grpc.StatsHandler(p.stats))
		}
		if p.unary != nil {
			unary = append(unary, p.unary)
		}
		if p.stream != nil {
			stream = append(stream, p.stream)
		}
	}
	return append(options, grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...))
}

// refuse gives an error that the chain itself answers with its form on the wire,
// and counts it.
func (c *chain) refuse(ctx context.Context, fullMethod string, req any, err error) error {
	_, rpc := splitMethod(fullMethod)
	return c.service.refused(ctx, rpc, req, err)
}

// headerUnary puts a header on every answer. Setting it fails only where there
// is no answer to put it on.
func headerUnary(md metadata.MD) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_ = grpc.SetHeader(ctx, md)
		return handler(ctx, req)
	}
}

func headerStream(md metadata.MD) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		_ = stream.SetHeader(md)
		return handler(srv, stream)
	}
}

func (c *chain) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := authorize(ctx, info.FullMethod); err != nil {
		return nil, c.refuse(ctx, info.FullMethod, req, err)
	}
	return handler(ctx, req)
}

func authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := authorize(stream.Context(), info.FullMethod); err != nil {
		return toStatus(err)
	}
	return handler(srv, stream)
}

// inTime drops a call whose caller has given up already, before it writes
// anything. Handlers validate what is in a request themselves.
func (c *chain) inTime(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.refuse(ctx, info.FullMethod, req, err)
	}
	return handler(ctx, req)
}

// admit sheds calls that there is no room for. Health is answered however many
// calls there are.
func (c *chain) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, ours := requiredRoles(info.FullMethod); !ours {
		return handler(ctx, req)
	}
	if !c.admission.enter(info.FullMethod) {
		return nil, c.refuse(ctx, info.FullMethod, req, refuseOverloaded("the server works on as many calls as it can"))
	}
	defer c.admission.leave()
	if info.FullMethod == oncedv1.OperatorService_ListOperations_FullMethodName {
		if !c.admission.list() {
			return nil, c.refuse(ctx, info.FullMethod, req, refuseOverloaded("the server works on as many listings as it may"))
		}
		defer c.admission.endList()
	}
	if report, ok := req.(proto.Message); ok && isReport(info.FullMethod) {
		size := int64(proto.Size(report))
		if !c.admission.carry(size) {
			return nil, c.refuse(ctx, info.FullMethod, req, refuseOverloaded("the calls that the server works on bring as many bytes as it can hold"))
		}
		defer c.admission.putDown(size)
	}
	return handler(ctx, req)
}

// mapErrors gives errors that have no form on the wire yet their form. Those of
// onced's own handlers have theirs when they come here; a panic's has not.
func (c *chain) mapErrors(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if _, ok := status.FromError(err); !ok {
		return nil, c.refuse(ctx, info.FullMethod, req, err)
	}
	return resp, err
}

func mapStreamErrors(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(srv, stream)
	if _, ok := status.FromError(err); !ok {
		return toStatus(err)
	}
	return err
}

// recovered makes a panic an error. What was panicked with may hold what a
// caller sent, so only the runtime's own words are logged.
func (c *chain) recovered(ctx context.Context, p any) error {
	what := fmt.Sprintf("a value of type %T", p)
	var fault runtime.Error
	if err, ok := p.(error); ok && errors.As(err, &fault) {
		what = fault.Error()
	}
	c.log.ErrorContext(ctx, "a handler panicked", slog.String("panic", what), slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("panic: %s", what)
}
