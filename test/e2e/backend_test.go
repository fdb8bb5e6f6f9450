package e2e

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client"
)

// act is a function that a tool backend protects.
type act func(context.Context, *client.Claim) (string, error)

// backend is a tool backend as people build one: a gRPC service whose method runs
// an act under the key that its request names.
type backend struct {
	conn  *grpc.ClientConn
	calls atomic.Int32 // that arrived at the backend
}

// toolMethod is the method of the backend.
const toolMethod = "/tool.v1.Tool/Act"

// retryUnavailable is what many callers configure: gRPC itself tries again.
const retryUnavailable = `{"methodConfig": [{"name": [{"service": "tool.v1.Tool"}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// newBackend serves a backend over a client until the test ends.
func newBackend(t *testing.T, c *client.Client, f act) *backend {
	t.Helper()
	b := &backend{}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "tool.v1.Tool", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Act", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			key := new(wrapperspb.StringValue)
			if err := decode(key); err != nil {
				return nil, err
			}
			b.calls.Add(1)
			out, err := client.Do(ctx, c, client.Call{Key: key.GetValue(), Method: "act"}, f)
			return wrapperspb.String(out.Value), toolError(err)
		}}},
	}, struct{}{})
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///backend", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultServiceConfig(retryUnavailable))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	b.conn = conn
	return b
}

// call calls the backend as its callers do, who know nothing of onced.
func (b *backend) call(ctx context.Context, key string) (string, error) {
	out := new(wrapperspb.StringValue)
	err := b.conn.Invoke(ctx, toolMethod, wrapperspb.String(key), out)
	return out.GetValue(), err
}

// toolError gives the errors of client.Do that are not the act's own to the
// backend's callers, as codes that nobody retries by himself.
func toolError(err error) error {
	switch {
	case errors.As(err, new(*client.Unresolved)):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.As(err, new(*client.InProgress)):
		return status.Error(codes.Aborted, err.Error())
	}
	return err
}
