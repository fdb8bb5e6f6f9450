package e2e

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server"
	"github.com/onced/onced/server/sweep"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt"
)

// lab is onced in this process, with its store on disk, its sweeper, and real
// clients, in a bubble in which time is fake: for what takes hours, and for what
// depends on a moment.
type lab struct {
	*testing.T
	caller
	network network
	runs    atomic.Int32 // executions, counted by the functions of the tests

	dir    string
	policy onced.Policy
	named  map[string]onced.Policy
	clock  bubbleClock
	conn   *grpc.ClientConn

	clients []*client.Client // to be closed, as a process that ends closes its own

	mu       sync.Mutex        // of what a restart makes anew
	listener *bufconn.Listener // nil while the server is down
	store    *bolt.Store
	server   *server.Server
	sweeper  *sweep.Sweeper
	served   chan error
}

// bubbleClock is the clock of the bubble.
type bubbleClock struct{ start time.Time }

func (bubbleClock) Wall() time.Time          { return time.Now() }
func (c bubbleClock) Elapsed() time.Duration { return time.Since(c.start) }

// inLab runs a test in a lab whose namespaces have the default policy, as changed,
// and demands that it leaves a sound store.
func inLab(t *testing.T, f func(l *lab), change ...func(*onced.Policy)) {
	t.Helper()
	isSound(t, inLabAnyhow(t, f, change...))
}

// inLabAnyhow is inLab for a test that spoils its store. It returns the store's
// folder.
func inLabAnyhow(t *testing.T, f func(l *lab), change ...func(*onced.Policy)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, dir: dir, policy: onced.DefaultPolicy(), clock: bubbleClock{time.Now()}}
		for _, c := range change {
			c(&l.policy)
		}
		rerun := l.policy
		rerun.SafeToRerun = true
		l.named = map[string]onced.Policy{"rerun": rerun}
		if err := bolt.Init(dir, bolt.Options{Clock: l.clock}); err != nil {
			t.Fatal(err)
		}
		l.conn = l.connect()
		l.caller = caller{t: t, stub: oncedv1.NewIdempotencyServiceClient(l.conn)}
		l.up()
		t.Cleanup(func() {
			for _, c := range l.clients {
				if left := c.Close(context.Background()); left != nil {
					t.Errorf("a client leaves %v", left)
				}
			}
			l.conn.Close()
			l.down()
		})
		f(l)
	})
	return dir
}

// connect returns a connection to whatever server is up. Calls on it pass the
// network of the lab.
func (l *lab) connect() *grpc.ClientConn {
	l.T.Helper()
	conn, err := grpc.NewClient("passthrough:///lab", grpc.WithContextDialer(l.dial), grpc.WithDisableServiceConfig(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(l.network.pass))
	if err != nil {
		l.T.Fatal(err)
	}
	return conn
}

func (l *lab) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	listener := l.listener
	l.mu.Unlock()
	if listener == nil {
		return nil, errors.New("the server is down")
	}
	return listener.DialContext(ctx)
}

// up starts the server, as cmd/onced does.
func (l *lab) up() {
	l.T.Helper()
	store, err := bolt.Open(l.dir, bolt.Options{Clock: l.clock})
	if err != nil {
		l.T.Fatal(err)
	}
	policies, err := server.NewPolicies(l.policy, l.named)
	if err != nil {
		l.T.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	metrics := server.NewMetrics(prometheus.NewRegistry())
	serving, err := server.New(l.Context(), server.Config{Store: store, Policies: policies, Metrics: metrics, Logger: log})
	if err != nil {
		l.T.Fatal(err)
	}
	sweeper := sweep.New(sweep.Config{
		Store: store, Policy: policies.For, Interval: sweep.Interval, Logger: log, Observe: metrics.Swept,
	})
	sweeper.Start()
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- serving.Serve(listener) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store, l.server, l.sweeper, l.listener, l.served = store, serving, sweeper, listener, served
}

// down stops the server at once.
func (l *lab) down() {
	l.T.Helper()
	l.mu.Lock()
	serving, listener := l.server, l.listener
	l.server, l.listener = nil, nil
	l.mu.Unlock()
	if listener == nil {
		return
	}
	ended, end := context.WithCancel(context.Background())
	end()
	serving.Stop(ended)
	l.sweeper.Stop()
	if err := errors.Join(<-l.served, l.store.Close()); err != nil {
		l.T.Error(err)
	}
}

// restart stops the server and starts it again.
func (l *lab) restart() {
	l.T.Helper()
	l.down()
	l.up()
}

// client returns one more client: another process, as far as onced can tell.
func (l *lab) client(opts ...client.Option) *client.Client {
	opts = append([]client.Option{client.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	c := client.New(l.conn, opts...)
	l.clients = append(l.clients, c)
	return c
}

// do runs a function that counts its executions and returns a result.
func (l *lab) do(key, result string) (client.Outcome[string], error) {
	return client.Do(l.Context(), l.client(), client.Call{Key: key, Method: "act"}, l.returning(result))
}

func (l *lab) returning(result string) func(context.Context, *client.Claim) (string, error) {
	return func(context.Context, *client.Claim) (string, error) {
		l.runs.Add(1)
		return result, nil
	}
}

// ran prints the number of executions and demands it.
func (l *lab) ran(want int32) {
	l.T.Helper()
	executed(l.T, int(l.runs.Load()), int(want))
}

// resolve decides an operation as an operator does.
func (l *lab) resolve(key string, q onced.ResolveRequest) {
	l.T.Helper()
	q.Evidence, q.Who = "seen", "operator"
	var refusal error
	err := l.store.Update(l.Context(), storage.Target{ID: identityOf(key)}, func(v onced.View) (p onced.Plan) {
		p, _, refusal = onced.Resolve(v, l.policy, q)
		return p
	})
	if err := errors.Join(err, refusal); err != nil {
		l.T.Fatal(err)
	}
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

// executed prints a number of executions and demands it.
func executed(t testing.TB, got, want int) {
	t.Helper()
	t.Logf("executions=%d", got)
	if got != want {
		t.Errorf("%d executions, want %d", got, want)
	}
}

// network stands between the clients of a lab and its server.
type network struct {
	mu    sync.Mutex
	cut   string   // RPC whose calls are lost, "*" for all; "": none is
	seen  []string // keys of the claims that were sent
	error codes.Code
}

// lose makes calls of an RPC fail with a code before they arrive. "" ends it.
func (n *network) lose(rpc string, code codes.Code) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut, n.error = rpc, code
}

// keys returns the keys of all the claims that were sent.
func (n *network) keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.seen...)
}

// pass is the interceptor of the clients' connection.
func (n *network) pass(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	rpc := method[strings.LastIndexByte(method, '/')+1:]
	n.mu.Lock()
	if claim, ok := req.(*oncedv1.ClaimRequest); ok {
		n.seen = append(n.seen, claim.GetRef().GetKey())
	}
	lost, code := n.cut == "*" || n.cut == rpc, n.error
	n.mu.Unlock()
	if lost {
		return status.Error(code, "from the network")
	}
	return invoke(ctx, method, req.(proto.Message), reply, cc, opts...)
}
