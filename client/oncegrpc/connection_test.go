package oncegrpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onced/onced/client/oncetest"
)

// retryEverything is a service config by which a client of gRPC tries four times after
// every error.
const retryEverything = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.002s", "backoffMultiplier": 1,
	"retryableStatusCodes": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}}]}`

// retryUnavailable is the retry policy that most clients have.
const retryUnavailable = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.002s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// connection is a connection of a caller whose way to the tool can be cut.
type connection struct {
	*grpc.ClientConn
	mu   sync.Mutex
	ways []net.Conn
	cuts int
}

// connect gives a rig's tool one more caller, with a service config.
func (r *rig) connect(config string) *connection { return connectTo(r.t, config, r) }

// connectTo makes a caller that comes to the first rig at first, and to the next one
// whenever its connection was cut; to the last one from then on.
func connectTo(t *testing.T, config string, rigs ...*rig) *connection {
	t.Helper()
	c := &connection{}
	conn, err := grpc.NewClient("passthrough:///tool", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(config), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			way, err := rigs[min(c.cuts, len(rigs)-1)].listener.DialContext(ctx)
			c.ways = append(c.ways, way)
			return way, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	c.ClientConn = conn
	t.Cleanup(func() { _ = conn.Close() })
	return c
}

// cut breaks the connection: calls under way lose their answers. The next try makes a
// new one.
func (c *connection) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, way := range c.ways {
		if way != nil {
			_ = way.Close()
		}
	}
	c.ways = nil
	c.cuts++
}

// counted is an interceptor outside of a guard that counts the calls which come in.
func counted(calls *atomic.Int64) []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		calls.Add(1)
		return handler(ctx, req)
	}}
}

// inBubbleOf runs a test that depends on how much time passes.
func inBubbleOf(t *testing.T, test func(t *testing.T, s *oncetest.Server), opts ...oncetest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, oncetest.New(t, opts...)) })
}

// passing waits in a bubble, while everybody else goes on.
func passing(d time.Duration) { <-time.After(d) }
