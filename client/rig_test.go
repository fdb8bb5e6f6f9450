package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
)

// rig is a real server over the memory store, a client of it over a connection
// whose calls can be lost and held up, and a bubble in which time is fake: the
// server's and the client's alike.
type rig struct {
	*testing.T
	*client.Client
	store  *memory.Store
	policy onced.Policy
	conn   *grpc.ClientConn
	faults *faults
	log    *syncBuffer
	runs   atomic.Int32 // executions, counted by the functions of the tests

	mu       sync.Mutex
	clients  []*client.Client  // to be closed at the end
	listener *bufconn.Listener // nil while the server is down
	server   *server.Server
	served   chan error
}

// inBubble runs a test with a rig whose namespace has the default policy, as
// changed.
func inBubble(t *testing.T, f func(r *rig), change ...func(*onced.Policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, store: memory.New(machineClock{time.Now()}), policy: onced.DefaultPolicy(), faults: &faults{}, log: &syncBuffer{}}
		for _, c := range change {
			c(&r.policy)
		}
		r.conn = r.connect()
		r.Client = r.newClient()
		r.up()
		t.Cleanup(r.end)
		f(r)
	})
}

// connect makes a connection to the server, whether that is up or not.
func (r *rig) connect() *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithContextDialer(r.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(r.faults.intercept))
	if err != nil {
		r.Fatal(err)
	}
	return conn
}

// newClient returns one more client over the rig's connection: another process.
func (r *rig) newClient(opts ...client.Option) *client.Client {
	log := slog.New(slog.NewTextHandler(r.log, nil))
	c := client.New(r.conn, append([]client.Option{client.WithLogger(log), client.WithHolder("holder-1")}, opts...)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// end lets everything come to its end: nothing may be left in the bubble.
func (r *rig) end() {
	r.faults.set(nil)
	for _, c := range r.clients {
		c.Close(context.Background())
	}
	r.conn.Close()
	r.down()
}

// up starts a server over the store.
func (r *rig) up() {
	r.Helper()
	policies, err := server.NewPolicies(r.policy, nil)
	if err != nil {
		r.Fatal(err)
	}
	s, err := server.New(r.Context(), server.Config{
		Store: r.store, Policies: policies, Metrics: server.NewMetrics(prometheus.NewRegistry()),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	l := bufconn.Listen(1 << 20)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.server, r.served = l, s, make(chan error, 1)
	go func(served chan error) { served <- s.Serve(l) }(r.served)
}

// down stops the server at once; the store stays.
func (r *rig) down() {
	r.mu.Lock()
	s, served := r.server, r.served
	r.listener, r.server = nil, nil
	r.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Stop(ctx)
	if err := <-served; err != nil {
		r.Error(err)
	}
}

func (r *rig) dial(ctx context.Context, _ string) (net.Conn, error) {
	r.mu.Lock()
	l := r.listener
	r.mu.Unlock()
	if l == nil {
		return nil, errors.New("the server is down")
	}
	return l.DialContext(ctx)
}

// machineClock is the clock of the bubble.
type machineClock struct{ start time.Time }

func (machineClock) Wall() time.Time          { return time.Now() }
func (c machineClock) Elapsed() time.Duration { return time.Since(c.start) }

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

// saw returns the calls of an RPC so far and fails the test unless they are n.
func (r *rig) saw(rpc string, n int) []sent {
	r.Helper()
	var calls []sent
	for _, s := range r.faults.all() {
		if s.rpc == rpc {
			calls = append(calls, s)
		}
	}
	if len(calls) != n {
		r.Fatalf("%d calls of %s were sent, want %d", len(calls), rpc, n)
	}
	return calls
}

// call names the operation that most tests are about.
func call(key string) client.Call { return client.Call{Key: key, Method: "m"} }

// once is a function that counts its executions and returns a result.
func (r *rig) once(result string) func(context.Context, *client.Claim) (string, error) {
	return func(context.Context, *client.Claim) (string, error) {
		r.runs.Add(1)
		return result, nil
	}
}

// failing is a function that counts its executions and returns an error.
func (r *rig) failing(err error) func(context.Context, *client.Claim) (string, error) {
	return func(context.Context, *client.Claim) (string, error) {
		r.runs.Add(1)
		return "", err
	}
}

// slow is a function that counts its executions and takes its time, without heed to
// its context.
func (r *rig) slow(d time.Duration, result string) func(context.Context, *client.Claim) (string, error) {
	return func(context.Context, *client.Claim) (string, error) {
		r.runs.Add(1)
		pass(d)
		return result, nil
	}
}

// ran prints the number of executions and fails the test unless it is n.
func (r *rig) ran(n int32) {
	r.Helper()
	got := r.runs.Load()
	r.Logf("executions=%d", got)
	if got != n {
		r.Errorf("%d executions, want %d", got, n)
	}
}

// run is Do without an error.
func (r *rig) run(key, result string) client.Outcome[string] {
	r.Helper()
	out, err := client.Do(r.Context(), r.Client, call(key), r.once(result))
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// operation looks the operation up.
func (r *rig) operation(key string) *oncedv1.Operation {
	r.Helper()
	resp, err := r.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: r.Ref(key, "m")})
	if err != nil {
		r.Fatal(err)
	}
	return resp.GetOperation()
}

// resolve decides an operation as an operator does.
func (r *rig) resolve(key string, q onced.ResolveRequest) {
	r.Helper()
	id := onced.Identity{Namespace: client.DefaultNamespace, Key: key, Method: "m"}
	q.Evidence, q.Force = "seen", true
	var refused error
	err := r.store.Update(r.Context(), storage.Target{ID: id}, func(v onced.View) (p onced.Plan) {
		p, _, refused = onced.Resolve(v, r.policy, q)
		return p
	})
	if err := errors.Join(err, refused); err != nil {
		r.Fatal(err)
	}
}

// isIn fails the test unless the operation is in a state.
func (r *rig) isIn(key string, want oncedv1.State) {
	r.Helper()
	if got := r.operation(key).GetState(); got != want {
		r.Errorf("key %s is %v, want %v", key, got, want)
	}
}

// rival claims as another process does that knows nothing of this client.
func (r *rig) rival(key string, change func(*oncedv1.ClaimRequest)) *rival {
	r.Helper()
	req := &oncedv1.ClaimRequest{Ref: r.Ref(key, "m"), ClaimToken: client.NewToken(), Holder: "rival"}
	if change != nil {
		change(req)
	}
	resp, err := r.Claim(r.Context(), req)
	if err != nil {
		r.Fatal(err)
	}
	return &rival{r: r, req: req, answer: resp}
}

type rival struct {
	r      *rig
	req    *oncedv1.ClaimRequest
	answer *oncedv1.ClaimResponse
}

func (v *rival) got(want oncedv1.Outcome) *rival {
	v.r.Helper()
	if v.answer.GetOutcome() != want {
		v.r.Fatalf("the rival got %v, want %v", v.answer.GetOutcome(), want)
	}
	return v
}

func (v *rival) complete(text string) error {
	_, err := v.r.Complete(v.r.Context(), &oncedv1.CompleteRequest{
		Ref: v.req.GetRef(), ClaimToken: v.req.GetClaimToken(), Fence: v.answer.GetOperation().GetFence(),
		Result: &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{
			ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: text},
		}},
	})
	return err
}

func (v *rival) fail(d oncedv1.Disposition) error {
	_, err := v.r.Fail(v.r.Context(), &oncedv1.FailRequest{
		Ref: v.req.GetRef(), ClaimToken: v.req.GetClaimToken(), Fence: v.answer.GetOperation().GetFence(), Disposition: d,
	})
	return err
}

func withLease(d time.Duration) func(*oncedv1.ClaimRequest) {
	return func(req *oncedv1.ClaimRequest) { req.Lease = durationpb.New(d) }
}

func takingOver(attempt uint32) func(*oncedv1.ClaimRequest) {
	return func(req *oncedv1.ClaimRequest) { req.TakeOverAttempt = attempt }
}

// as finds an error of type E, or fails the test.
func as[E error](t testing.TB, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a %T", err, e)
	}
	return e
}

// says fails the test unless the error says all of this.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
