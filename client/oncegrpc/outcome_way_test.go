package oncegrpc

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// happens is what happens to one call on the way from a guard to onced: send lets it
// through.
type happens func(ctx context.Context, send func(context.Context) error) error

// way is the way from a guard to onced, on which calls get lost.
type way struct {
	grpc.ClientConnInterface
	mu   sync.Mutex
	rule func(rpc string) happens // nil: the call goes through
	sent []proto.Message
}

// Invoke makes a call.
func (w *way) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	rpc := method[strings.LastIndex(method, "/")+1:]
	w.mu.Lock()
	w.sent = append(w.sent, proto.Clone(req.(proto.Message)))
	var happen happens
	if w.rule != nil {
		happen = w.rule(rpc)
	}
	w.mu.Unlock()
	send := func(ctx context.Context) error { return w.ClientConnInterface.Invoke(ctx, method, req, reply, opts...) }
	if happen == nil {
		return send(ctx)
	}
	return happen(ctx, send)
}

// always makes the same happen to all calls of some RPCs, or of all of them; nil ends it.
func (w *way) always(h happens, rpcs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = func(rpc string) happens {
		if len(rpcs) == 0 || strings.Contains(strings.Join(rpcs, " "), rpc) {
			return h
		}
		return nil
	}
}

// sentOf returns the requests of one type that were sent.
func sentOf[T proto.Message](w *way) (list []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.sent {
		if m, ok := m.(T); ok {
			list = append(list, m)
		}
	}
	return list
}

// broken: the call is carried out, and its answer is lost with the connection.
func broken(ctx context.Context, send func(context.Context) error) error {
	_ = send(ctx)
	return status.Error(codes.Unavailable, "the connection broke")
}

// swallowed: the call is carried out, and its answer never comes.
func swallowed(ctx context.Context, send func(context.Context) error) error {
	_ = send(ctx)
	return silence(ctx, send)
}

// silence: the call never arrives, and nobody says so.
func silence(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// answeredWith: the call never arrives, and something on the way answers.
func answeredWith(code codes.Code) happens {
	return func(context.Context, func(context.Context) error) error { return status.Error(code, "from the way") }
}

// newRigOver starts a tool whose way to onced may fail. What its client cannot report is
// not logged.
func newRigOver(t *testing.T, s *oncetest.Server, opts ...Option) (*rig, *way) {
	t.Helper()
	w := &way{ClientConnInterface: s.Conn()}
	c := client.New(w, client.WithHolder("over a way"), client.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	t.Cleanup(func() {
		w.always(nil)
		if left := c.Close(context.Background()); left != nil {
			t.Errorf("left: %v", left)
		}
	})
	return newRigOn(t, s, nil, append([]Option{func(g *Guard) { g.client = c }}, opts...)...), w
}
