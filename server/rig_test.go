package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// rig is a whole server over a memory store, and a client of it.
type rig struct {
	*testing.T
	clock    *storagetest.Clock
	store    *oddStore
	registry *prometheus.Registry
	metrics  *Metrics
	log      *logBuffer
	server   *Server
	served   chan error // what Serve returned
	conn     *grpc.ClientConn
	client   oncedv1.IdempotencyServiceClient
}

// newRig serves with one configured namespace, "n", and logs at a level.
func newRig(t *testing.T, level slog.Level) *rig {
	t.Helper()
	r := &rig{
		T: t, clock: storagetest.NewClock(), registry: prometheus.NewPedanticRegistry(),
		log: &logBuffer{}, served: make(chan error, 1),
	}
	inner := memory.New(r.clock)
	r.store = &oddStore{Store: inner}
	inner.OnSync = r.store.gate.Sync
	r.metrics = NewMetrics(r.registry)
	policies, err := NewPolicies(onced.DefaultPolicy(), map[string]onced.Policy{"n": onced.DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	r.server, err = New(t.Context(), Config{
		Store: r.store, Policies: policies, Metrics: r.metrics,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.serve()
	return r
}

func (r *rig) serve() {
	listener := bufconn.Listen(1 << 16)
	go func() { r.served <- r.server.Serve(listener) }()
	r.Cleanup(func() { r.server.Stop(context.Background()) })
	r.conn = dial(r.T, listener)
	r.client = oncedv1.NewIdempotencyServiceClient(r.conn)
}

// dial connects to a listener, until the test ends.
func dial(t *testing.T, listener *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func tokenOf(key string) []byte {
	sum := sha256.Sum256([]byte("token of " + key))
	return sum[:]
}

func claimRequest(key string) *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{
		Ref: &oncedv1.OperationRef{Namespace: "n", Key: key, Method: "m"}, ClaimToken: tokenOf(key),
	}
}

func completeRequest(key string, fence uint64, text string) *oncedv1.CompleteRequest {
	return &oncedv1.CompleteRequest{
		Ref: &oncedv1.OperationRef{Namespace: "n", Key: key, Method: "m"}, ClaimToken: tokenOf(key), Fence: fence,
		Result: &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{
			ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: text},
		}},
	}
}

// grant claims a free key and returns its fence.
func (r *rig) grant(key string) uint64 {
	r.Helper()
	resp, err := r.client.Claim(r.Context(), claimRequest(key))
	if err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_GRANTED {
		r.Fatalf("claim of %s: %v, %v", key, resp, err)
	}
	return resp.GetOperation().GetFence()
}

// waitFor claims a key that somebody else holds, and waits for it.
func (r *rig) waitFor(ctx context.Context, key string, opts ...grpc.CallOption) (*oncedv1.ClaimResponse, error) {
	req := claimRequest(key)
	req.ClaimToken, req.Wait = tokenOf("another"), durationpb.New(20*time.Second)
	return r.client.Claim(ctx, req, opts...)
}

// wantReason checks the code of an error and the reason and metadata of its
// ErrorInfo.
func (r *rig) wantReason(err error, code codes.Code, reason, claimed string) *status.Status {
	r.Helper()
	st := status.Convert(err)
	var info *errdetails.ErrorInfo
	for _, d := range st.Details() {
		if found, ok := d.(*errdetails.ErrorInfo); ok {
			info = found
		}
	}
	if st.Code() != code || info.GetReason() != reason || info.GetMetadata()["claimed"] != claimed {
		r.Fatalf("%v with %v; want %v, %s, claimed %s", err, info, code, reason, claimed)
	}
	return st
}

// counted waits until count returns want. Calls are counted when they have ended
// on the server, which may be after the client has its answer.
func (r *rig) counted(want float64, name string, values ...string) {
	r.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.count(name, values...) != want {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			r.Fatalf("%s%q is %v, want %v", name, values, r.count(name, values...), want)
		}
	}
}

// count returns the sum of the series of a counter or gauge that have all the
// given label values, in any label.
func (r *rig) count(name string, values ...string) float64 {
	r.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			all := true
			for _, v := range values {
				all = all && has[v]
			}
			if all {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// observed returns how many observations a histogram has, and their sum.
func (r *rig) observed(name string) (n, sum float64) {
	r.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n, sum = n+float64(m.GetHistogram().GetSampleCount()), sum+m.GetHistogram().GetSampleSum()
			}
		}
	}
	return n, sum
}

// series returns how many series a scrape has.
func (r *rig) series() int {
	r.Helper()
	n, err := testutil.GatherAndCount(r.registry)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

var errPanicText = errors.New("a text that nobody may see")

// oddStore is a store that can be in trouble.
type oddStore struct {
	storage.Store
	gate storagetest.Gate
	full atomic.Bool // updates find no room
	mad  atomic.Bool // updates panic

	stuck atomic.Bool // reads and questions for room wait until their context ends

	scans atomic.Pointer[chan struct{}] // scans by identity wait until it is closed

	payload func(context.Context, onced.Identity, onced.Digest) ([]byte, error) // in the place of Payload, unless nil
}

func (s *oddStore) Get(ctx context.Context, id onced.Identity) (onced.View, error) {
	if s.stuck.Load() {
		<-ctx.Done()
		return onced.View{}, ctx.Err()
	}
	return s.Store.Get(ctx, id)
}

// holdScans holds scans by identity until release is called.
func (s *oddStore) holdScans() (release func()) {
	held := make(chan struct{})
	s.scans.Store(&held)
	return func() { close(held) }
}

func (s *oddStore) ScanIdentity(ctx context.Context, prefix []byte, cursor storage.Cursor, limit int) (storage.Page, error) {
	if held := s.scans.Load(); held != nil {
		<-*held
	}
	return s.Store.ScanIdentity(ctx, prefix, cursor, limit)
}

func (s *oddStore) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	if s.mad.Load() {
		panic(errPanicText)
	}
	if s.full.Load() {
		return storage.ErrFull
	}
	return s.Store.Update(ctx, t, fn)
}

func (s *oddStore) UpdateMeta(ctx context.Context, fn func(storage.Meta) storage.Meta) error {
	if s.full.Load() {
		return storage.ErrFull
	}
	return s.Store.UpdateMeta(ctx, fn)
}

func (s *oddStore) Payload(ctx context.Context, id onced.Identity, d onced.Digest) ([]byte, error) {
	if s.payload != nil {
		return s.payload(ctx, id, d)
	}
	return s.Store.Payload(ctx, id, d)
}

func (s *oddStore) Room(ctx context.Context) error {
	if s.stuck.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.full.Load() {
		return storage.ErrFull
	}
	return s.Store.Room(ctx)
}

// Stats is what a store may offer.
func (s *oddStore) Stats() storage.Stats {
	return storage.Stats{Size: 4096, Used: 3072, Free: 1024, Queued: [storage.Classes]int{1, 2, 3}}
}

// logBuffer holds what was logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
