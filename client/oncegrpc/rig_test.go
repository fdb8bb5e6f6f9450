package oncegrpc

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// toolFunc handles a call of a method of the test service.
type toolFunc func(ctx context.Context, method string, req *dynamicpb.Message) (proto.Message, error)

// rig is an onced and one process of a tool: a real gRPC server behind a guard.
type rig struct {
	t      *testing.T
	onced  *oncetest.Server
	client *client.Client // of the tool
	guard  *Guard
	conn   *grpc.ClientConn // of the callers
	server *grpc.Server

	listener *bufconn.Listener

	ran     atomic.Int64 // how often a handler ran
	mu      sync.Mutex
	handler toolFunc
}

// newRig starts a tool whose callers are not authenticated, unless the options say how.
func newRig(t *testing.T, opts ...Option) *rig {
	t.Helper()
	return newRigOn(t, oncetest.New(t), nil, opts...)
}

// newRigOn starts a tool on an onced that others may share, with interceptors outside
// of the guard.
func newRigOn(t *testing.T, onced *oncetest.Server, outside []grpc.UnaryServerInterceptor, opts ...Option) *rig {
	t.Helper()
	return newRigServing(t, onced, outside, nil, opts...)
}

// newRigServing starts a tool that has further services; register adds them.
func newRigServing(t *testing.T, onced *oncetest.Server, outside []grpc.UnaryServerInterceptor, register func(*rig), opts ...Option) *rig {
	t.Helper()
	r := &rig{t: t, onced: onced, client: onced.Client()}
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		return response("id", "first"), nil
	})
	quiet := WithLogger(slog.New(slog.DiscardHandler))
	r.guard = NewGuard(r.client, append([]Option{quiet, WithoutAuthentication()}, opts...)...)
	chain := append(append([]grpc.UnaryServerInterceptor{recoverPanics}, outside...), r.guard.UnaryServerInterceptor())
	r.server = grpc.NewServer(grpc.ChainUnaryInterceptor(chain...), grpc.ChainStreamInterceptor(r.guard.StreamServerInterceptor()), grpc.WaitForHandlers(true))
	r.server.RegisterService(r.service("Tools", toolMethods), r)
	if register != nil {
		register(r)
	}
	r.listener = bufconn.Listen(1 << 20)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.Serve(r.listener)
	}()
	r.conn = r.dial()
	t.Cleanup(func() {
		_ = r.conn.Close()
		r.server.Stop()
		<-served
	})
	return r
}

// dial connects a caller to the tool.
func (r *rig) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///tool", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.listener.DialContext(ctx) }),
	}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// recoverPanics makes a status of a panic, as a server's outermost interceptor does.
func recoverPanics(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "panic: %v", p)
		}
	}()
	return handler(ctx, req)
}

// handle sets what the tool does.
func (r *rig) handle(f toolFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handler = f
}

// fail has a rig's handlers fail.
func (r *rig) fail(err error) {
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) { return nil, err })
}

func (r *rig) run(ctx context.Context, method string, req *dynamicpb.Message) (proto.Message, error) {
	r.ran.Add(1)
	r.mu.Lock()
	f := r.handler
	r.mu.Unlock()
	return f(ctx, method, req)
}

// service describes a service to a server as generated code does.
func (r *rig) service(name string, methods []toolMethod) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: "oncegrpc.test.v1." + name, HandlerType: (*any)(nil)}
	for _, m := range methods {
		full := "/" + desc.ServiceName + "/" + m.name
		if m.streams {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: m.name, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
				req := dynamicpb.NewMessage(requestDesc)
				if err := s.RecvMsg(req); err != nil {
					return err
				}
				resp, err := r.run(s.Context(), m.name, req)
				if err != nil {
					return err
				}
				return s.SendMsg(resp)
			}})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: m.name, Handler: func(_ any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			req := dynamicpb.NewMessage(requestDesc)
			if err := dec(req); err != nil {
				return nil, err
			}
			handler := func(ctx context.Context, req any) (any, error) { return r.run(ctx, m.name, req.(*dynamicpb.Message)) }
			return intercept(ctx, req, &grpc.UnaryServerInfo{Server: r, FullMethod: full}, handler)
		}})
	}
	return desc
}

// call calls a method of the test service under a key; "" sends none.
func (r *rig) call(ctx context.Context, method, key string, req *dynamicpb.Message, opts ...grpc.CallOption) answer {
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, MetadataKey, key)
	}
	return invoke(ctx, r.conn, method, req, opts...)
}

func invoke(ctx context.Context, conn grpc.ClientConnInterface, method string, req *dynamicpb.Message, opts ...grpc.CallOption) answer {
	return invokeOn(ctx, conn, toolsService+"/"+method, req, opts...)
}

// invokeOn calls a method of any service by its full name.
func invokeOn(ctx context.Context, conn grpc.ClientConnInterface, full string, req *dynamicpb.Message, opts ...grpc.CallOption) answer {
	a := answer{resp: dynamicpb.NewMessage(responseDesc)}
	a.err = conn.Invoke(ctx, "/"+full, req, a.resp, append(opts, grpc.Header(&a.header), grpc.Trailer(&a.trailer))...)
	return a
}

// send calls a method with metadata, in pairs of name and value.
func (r *rig) send(method string, req *dynamicpb.Message, pairs ...string) answer {
	return invoke(metadata.NewOutgoingContext(r.t.Context(), metadata.Pairs(pairs...)), r.conn, method, req)
}

// calling makes a call in the background; the channel has its answer.
func (r *rig) calling(ctx context.Context, method, key string, req *dynamicpb.Message) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- r.call(ctx, method, key, req) }()
	return got
}

// on calls a method over another connection, under a key.
func on(ctx context.Context, conn grpc.ClientConnInterface, method, key string, req *dynamicpb.Message) answer {
	return invoke(metadata.AppendToOutgoingContext(ctx, MetadataKey, key), conn, method, req)
}

// stored lists the operations of a namespace.
func (r *rig) stored(namespace string) []*oncedv1.OperationDetails {
	r.t.Helper()
	list, err := oncedv1.NewOperatorServiceClient(r.onced.Conn()).ListOperations(r.t.Context(), &oncedv1.ListOperationsRequest{Namespace: namespace, PageSize: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.GetOperations()
}

// storedKeys are the keys of the operations of the default namespace.
func (r *rig) storedKeys() (keys []string) {
	r.t.Helper()
	for _, op := range r.stored("default") {
		keys = append(keys, op.GetOperation().GetRef().GetKey())
	}
	return keys
}

// only returns the one operation that is stored.
func (r *rig) only() *oncedv1.OperationDetails {
	r.t.Helper()
	list := r.stored("default")
	if len(list) != 1 {
		r.t.Fatalf("%d operations are stored, want one: %v", len(list), list)
	}
	return list[0]
}

// wantRuns fails the test unless handlers ran so often.
func (r *rig) wantRuns(n int64) {
	r.t.Helper()
	if got := r.ran.Load(); got != n {
		r.t.Errorf("handlers ran %d times, want %d", got, n)
	}
}

// wantNothing fails the test if anything was executed or stored.
func (r *rig) wantNothing() {
	r.t.Helper()
	r.wantRuns(0)
	if keys := r.storedKeys(); len(keys) != 0 {
		r.t.Errorf("stored: %q", keys)
	}
}
