package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// wire is a service over the memory store, and a client of it on a real
// connection.
type wire struct {
	*testing.T
	clock  *storagetest.Clock
	store  storage.Store
	svc    *server.Service
	client oncedv1.IdempotencyServiceClient
	conn   *grpc.ClientConn
	seen   *recorder
	logged *syncBuffer
}

// newWire returns a wire whose namespaces have the default policy, but for the
// namespace "n", whose policy change may change.
func newWire(t *testing.T, change ...func(*onced.Policy)) *wire {
	clock := storagetest.NewClock()
	return newWireOver(t, memory.New(clock), clock, change...)
}

func newWireOver(t *testing.T, store storage.Store, clock *storagetest.Clock, change ...func(*onced.Policy)) *wire {
	t.Helper()
	policy := onced.DefaultPolicy()
	for _, c := range change {
		c(&policy)
	}
	policies, err := server.NewPolicies(onced.DefaultPolicy(), map[string]onced.Policy{"n": policy})
	if err != nil {
		t.Fatal(err)
	}
	if err := policies.Remember(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	w := &wire{T: t, clock: clock, store: store, seen: &recorder{}, logged: &syncBuffer{}}
	w.svc, err = server.NewService(t.Context(), server.ServiceConfig{
		Store: store, Policies: policies, Observer: w.seen,
		Logger: slog.New(slog.NewTextHandler(w.logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.serve()
	return w
}

func (w *wire) serve(opts ...grpc.ServerOption) {
	listener := bufconn.Listen(1 << 16)
	s := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	server.Register(s, w.svc)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		w.Fatal(err)
	}
	w.conn, w.client = conn, oncedv1.NewIdempotencyServiceClient(conn)
	w.Cleanup(func() {
		conn.Close()
		s.Stop()
		if err := <-served; err != nil {
			w.Error(err)
		}
	})
}

func ref(key string) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: "n", Key: key, Method: "m"}
}

func identity(key string) onced.Identity {
	return onced.Identity{Namespace: "n", Key: key, Method: "m"}
}

// token returns the claim token that goes by a name in these tests.
func token(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:16]
}

// fp returns a fingerprint of some arguments under a scheme.
func fp(scheme, arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return onced.Fingerprint{Scheme: scheme, Digest: string(sum[:])}.String()
}

func claimOf(key, tok string, change ...func(*oncedv1.ClaimRequest)) *oncedv1.ClaimRequest {
	req := &oncedv1.ClaimRequest{Ref: ref(key), ClaimToken: token(tok), Holder: "holder " + tok}
	for _, c := range change {
		c(req)
	}
	return req
}

func takeOver(attempt uint32) func(*oncedv1.ClaimRequest) {
	return func(r *oncedv1.ClaimRequest) { r.TakeOverAttempt = attempt }
}

func withFingerprints(list ...string) func(*oncedv1.ClaimRequest) {
	return func(r *oncedv1.ClaimRequest) { r.Fingerprints = list }
}

func withLease(d time.Duration) func(*oncedv1.ClaimRequest) {
	return func(r *oncedv1.ClaimRequest) { r.Lease = durationpb.New(d) }
}

func withSubject(s string) func(*oncedv1.ClaimRequest) {
	return func(r *oncedv1.ClaimRequest) { r.Subject = s }
}

// claim claims and fails the test unless the outcome is the wanted one.
func (w *wire) claim(want oncedv1.Outcome, key, tok string, change ...func(*oncedv1.ClaimRequest)) *oncedv1.ClaimResponse {
	w.Helper()
	resp, err := w.client.Claim(w.Context(), claimOf(key, tok, change...))
	if err != nil {
		w.Fatalf("claim of %s by %s: %v", key, tok, err)
	}
	if resp.GetOutcome() != want {
		w.Fatalf("claim of %s by %s: %v, want %v\n%v", key, tok, resp.GetOutcome(), want, resp)
	}
	return resp
}

func (w *wire) tryClaim(key, tok string, change ...func(*oncedv1.ClaimRequest)) error {
	_, err := w.client.Claim(w.Context(), claimOf(key, tok, change...))
	return err
}

// held is a claim that somebody holds.
type held struct {
	w     *wire
	key   string
	token string
	fence uint64
}

// grant claims a key that is free to be claimed.
func (w *wire) grant(key, tok string, change ...func(*oncedv1.ClaimRequest)) held {
	w.Helper()
	resp := w.claim(oncedv1.Outcome_OUTCOME_GRANTED, key, tok, change...)
	return held{w: w, key: key, token: tok, fence: resp.GetOperation().GetFence()}
}

// takeOver takes over an operation that is unresolved at an attempt, once that is due.
func (w *wire) takeOver(key, tok string, attempt uint32) held {
	w.Helper()
	w.clock.Advance(time.Hour)
	resp := w.claim(oncedv1.Outcome_OUTCOME_TAKEN_OVER, key, tok, takeOver(attempt))
	return held{w: w, key: key, token: tok, fence: resp.GetOperation().GetFence()}
}

func (h held) complete(text string) (*oncedv1.Operation, error) {
	resp, err := h.w.client.Complete(h.w.Context(), h.completion(text))
	return resp.GetOperation(), err
}

func (h held) completion(text string) *oncedv1.CompleteRequest {
	return &oncedv1.CompleteRequest{
		Ref: ref(h.key), ClaimToken: token(h.token), Fence: h.fence,
		Result: &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{
			ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: text},
		}},
	}
}

func (h held) fail(d oncedv1.Disposition, change ...func(*oncedv1.FailRequest)) (*oncedv1.Operation, error) {
	req := &oncedv1.FailRequest{Ref: ref(h.key), ClaimToken: token(h.token), Fence: h.fence, Disposition: d}
	for _, c := range change {
		c(req)
	}
	resp, err := h.w.client.Fail(h.w.Context(), req)
	return resp.GetOperation(), err
}

func (h held) renew(change ...func(*oncedv1.RenewRequest)) (*oncedv1.Operation, error) {
	req := &oncedv1.RenewRequest{Ref: ref(h.key), ClaimToken: token(h.token), Fence: h.fence}
	for _, c := range change {
		c(req)
	}
	resp, err := h.w.client.Renew(h.w.Context(), req)
	return resp.GetOperation(), err
}

// must takes the answer of a report that has to be accepted and checks the state.
func (w *wire) must(want oncedv1.State) func(*oncedv1.Operation, error) *oncedv1.Operation {
	return func(op *oncedv1.Operation, err error) *oncedv1.Operation {
		w.Helper()
		if err != nil {
			w.Fatalf("report refused: %v", err)
		}
		if op.GetState() != want {
			w.Fatalf("the operation is %v, want %v\n%v", op.GetState(), want, op)
		}
		return op
	}
}

// refused takes the answer of a report that has to be refused.
func (w *wire) refused(code codes.Code, reason string) func(*oncedv1.Operation, error) {
	return func(op *oncedv1.Operation, err error) {
		w.Helper()
		wantError(w.T, err, code, reason, "no")
	}
}

func (w *wire) lookup(want oncedv1.State, key string) *oncedv1.Operation {
	w.Helper()
	resp, err := w.client.Lookup(w.Context(), &oncedv1.LookupRequest{Ref: ref(key)})
	if err != nil {
		w.Fatalf("lookup of %s: %v", key, err)
	}
	if got := resp.GetOperation().GetState(); got != want {
		w.Fatalf("%s is %v, want %v\n%v", key, got, want, resp)
	}
	return resp.GetOperation()
}

// wantError checks an error's code, and the reason and the metadata claimed of
// its ErrorInfo, and returns the status.
func wantError(t *testing.T, err error, code codes.Code, reason, claimed string) *status.Status {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code {
		t.Fatalf("code %v, want %v %s: %v", st.Code(), code, reason, err)
	}
	info := detail[*errdetails.ErrorInfo](st)
	if info.GetDomain() != "onced" || info.GetReason() != reason || info.GetMetadata()["claimed"] != claimed {
		t.Fatalf("ErrorInfo %v, want reason %s and claimed=%s: %v", info, reason, claimed, err)
	}
	if len(st.Message()) < 20 {
		t.Errorf("the message %q is no sentence", st.Message())
	}
	return st
}

// wantViolation checks that an error is INVALID_ARGUMENT for one field.
func wantViolation(t *testing.T, err error, field string) {
	t.Helper()
	st := wantError(t, err, codes.InvalidArgument, "INVALID_ARGUMENT", "no")
	var fields []string
	for _, v := range detail[*errdetails.BadRequest](st).GetFieldViolations() {
		fields = append(fields, v.GetField())
		if v.GetDescription() == "" {
			t.Errorf("field %s has no description", v.GetField())
		}
	}
	if !slices.Equal(fields, []string{field}) {
		t.Fatalf("violations of %q, want of %q alone: %v", fields, field, err)
	}
}

func detail[T any](st *status.Status) T {
	var none T
	for _, d := range st.Details() {
		if found, ok := d.(T); ok {
			return found
		}
	}
	return none
}

// records returns all that the store holds.
func (w *wire) records() []onced.View {
	w.Helper()
	page, err := w.store.ScanIdentity(w.Context(), nil, nil, 1000)
	if err != nil {
		w.Fatal(err)
	}
	for i := range page.Views {
		page.Views[i].Now, page.Views[i].ExpiryTime = time.Time{}, time.Time{}
	}
	return page.Views
}

// unchanged runs f and fails the test if it changed anything that is stored.
func (w *wire) unchanged(f func()) {
	w.Helper()
	before := w.records()
	f()
	if after := w.records(); !reflect.DeepEqual(before, after) {
		w.Fatalf("the store was changed:\n%+v\n%+v", before, after)
	}
}

// put stores a record as it is, whatever it says.
func (w *wire) put(r *onced.Record) {
	w.Helper()
	err := w.store.Update(w.Context(), storage.Target{ID: r.ID}, func(onced.View) onced.Plan { return onced.Plan{Put: r} })
	if err != nil {
		w.Fatal(err)
	}
}

// recorder is an observer that remembers.
type recorder struct {
	mu      sync.Mutex
	events  []string
	waiters int
}

func (r *recorder) add(parts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p)
	}
	r.events = append(r.events, b.String())
}

func (r *recorder) Claimed(namespace string, o onced.Outcome) {
	r.add("claimed", namespace, o.String())
}

func (r *recorder) Refused(namespace, rpc, reason string) { r.add("refused", namespace, rpc, reason) }

func (r *recorder) Settled(namespace string, s onced.State, by onced.SettledBy) {
	r.add("settled", namespace, s.String(), by.String())
}
func (r *recorder) Alarm(namespace string, a onced.Alarm) { r.add("alarm", namespace, a.String()) }
func (r *recorder) KeyTimeChanged(namespace string)       { r.add("key_time_changed", namespace) }

func (r *recorder) Waiters(delta int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiters += delta
}

func (r *recorder) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiters
}

// count returns how often an event was recorded.
func (r *recorder) count(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e == event {
			n++
		}
	}
	return n
}

// syncBuffer is a buffer for a logger.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
