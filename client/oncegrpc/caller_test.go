package oncegrpc

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// neverInvoked fails the test when a call is sent.
func neverInvoked(t *testing.T) grpc.UnaryInvoker {
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		t.Error("a call was sent")
		return nil
	}
}

// wire is what the tries of calls bring to a server, and what it lets through.
type wire struct {
	mu   sync.Mutex
	came []metadata.MD
	fail int // tries that are answered UNAVAILABLE before the guard sees them
}

func (w *wire) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	w.mu.Lock()
	w.came = append(w.came, incoming(ctx))
	failing := w.fail > 0
	if failing {
		w.fail--
	}
	w.mu.Unlock()
	if failing {
		return nil, status.Error(codes.Unavailable, "a proxy says so")
	}
	return handler(ctx, req)
}

// keys are those that came, in order, each behind the name of its header.
func (w *wire) keys() (keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, md := range w.came {
		none := true
		for _, name := range []string{MetadataKey, MetadataKeyBin} {
			for _, key := range md.Get(name) {
				keys, none = append(keys, name+": "+key), false
			}
		}
		if none {
			keys = append(keys, "")
		}
	}
	w.came = nil
	return keys
}

// callerRig is a tool whose callers use the client interceptor.
type callerRig struct {
	*rig
	wire *wire
	conn *grpc.ClientConn // with the interceptor, and with retries of what is UNAVAILABLE
}

func newCallerRig(t *testing.T, onced *oncetest.Server, opts ...Option) *callerRig {
	t.Helper()
	w := &wire{}
	r := &callerRig{newRigOn(t, onced, []grpc.UnaryServerInterceptor{w.intercept}, opts...), w, nil}
	r.conn = r.dial(grpc.WithUnaryInterceptor(UnaryClientInterceptor()), grpc.WithDefaultServiceConfig(retryUnavailable))
	t.Cleanup(func() { _ = r.conn.Close() })
	return r
}

func (r *callerRig) do(method string, req *dynamicpb.Message, opts ...grpc.CallOption) answer {
	return invoke(r.t.Context(), r.conn, method, req, opts...)
}

// with calls with metadata of the caller's own.
func (r *callerRig) with(pairs []string, method string, req *dynamicpb.Message, opts ...grpc.CallOption) answer {
	return invoke(metadata.NewOutgoingContext(r.t.Context(), metadata.Pairs(pairs...)), r.conn, method, req, opts...)
}

// wantCame fails the test unless these keys came.
func (r *callerRig) wantCame(want ...string) {
	r.t.Helper()
	if got := r.wire.keys(); !slices.Equal(got, want) {
		r.t.Errorf("there came %q, want %q", got, want)
	}
}

// wantNotSent fails the test unless a call was refused on the caller's side.
func (r *callerRig) wantNotSent(a answer) {
	r.t.Helper()
	if status.Code(a.err) != codes.InvalidArgument || !strings.Contains(a.err.Error(), "nothing was sent") {
		r.t.Errorf("got %v", a.err)
	}
	r.wantCame()
}

func TestWithKey(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for _, key := range []string{"k", "a b", "~", strings.Repeat("k", 512)} {
		r.do("Pay", request(), WithKey(key)).wantOutcome(t, OutcomeExecuted)
		r.do("Pay", request(), WithKey(key)).wantOutcome(t, OutcomeReplayed)
		r.wantCame(MetadataKey+": "+key, MetadataKey+": "+key)
	}
	for _, key := range []string{"ключ", "é", "\U0001f600", "k\u00a0y"} {
		r.do("Pay", request(), WithKey(key)).wantOutcome(t, OutcomeExecuted)
		r.do("Pay", request(), WithKey(key)).wantOutcome(t, OutcomeReplayed)
		r.wantCame(MetadataKeyBin+": "+key, MetadataKeyBin+": "+key)
	}
	for _, keys := range []map[string]string{asciiKeys, binaryKeys} {
		for _, key := range keys {
			r.wantNotSent(r.do("Pay", request(), WithKey(key)))
			r.wantNotSent(r.do("Off", request(), WithKey(key)))
		}
	}
	r.wantRuns(8)
}

// A key that the caller gives goes to every method; what the server thinks of it is the
// caller's to know.
func TestWithKeyWhereNoneIsNeeded(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	r.do("Read", request(), WithKey("k")).wantOutcome(t, "")
	r.do("Off", request(), WithKey("k")).wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
	r.wantCame(MetadataKey+": k", MetadataKey+": k")
}

var uuid7 = regexp.MustCompile(`^idempotency-key: [0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestMintedKeys(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	var all []string
	for _, method := range []string{"Pay", "Pay", "Optional", "ReadKeyed", "Idempotent", "Field", "NestedField"} {
		r.do(method, request()).wantOutcome(t, OutcomeExecuted)
		all = append(all, r.wire.keys()...)
	}
	if len(all) != 7 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 7 {
		t.Errorf("keys: %q", all)
	}
	for _, key := range all {
		if !uuid7.MatchString(key) {
			t.Errorf("%q is no UUID of version 7 in its header", key)
		}
	}
	for _, method := range []string{"Read", "Off"} {
		r.do(method, request()).wantOutcome(t, "")
		r.wantCame("")
	}
	if err := r.conn.Invoke(t.Context(), "/grpc.health.v1.Health/Check", request(), response()); status.Code(err) != codes.Unimplemented {
		t.Errorf("health: %v", err)
	}
}

// gRPC's own retries of one call are tries of one intent.
func TestMintedKeyIsKeptAcrossRetries(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	r.wire.fail = 3
	a := r.do("Pay", request())
	a.wantOutcome(t, OutcomeExecuted)
	keys := r.wire.keys()
	if len(keys) != 4 || len(slices.Compact(keys)) != 1 || !uuid7.MatchString(keys[0]) {
		t.Errorf("there came %q", keys)
	}
	// The same where the guard itself, or a released operation, says that it may be tried again.
	released := 0
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		if released++; released < 3 {
			return nil, client.NotExecuted(status.Error(codes.Unavailable, "not yet"))
		}
		return response("id", "first"), nil
	})
	r.do("Pay", request()).wantOutcome(t, OutcomeExecuted)
	again := r.wire.keys()
	if len(again) != 3 || len(slices.Compact(slices.Clone(again))) != 1 || again[0] == keys[0] {
		t.Errorf("there came %q after %q", again, keys)
	}
	if ops := r.storedKeys(); len(ops) != 2 {
		t.Errorf("stored: %q", ops)
	}
}

func TestKeyInTheCallersMetadata(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for want, pairs := range map[string][]string{
		MetadataKey + ": k1":      {MetadataKey, "k1"},
		MetadataKey + ": k2":      {"Idempotency-Key", "k2"},
		MetadataKey + ": k3":      {MetadataKeyBin, "k3"}, // ASCII needs no encoding
		MetadataKeyBin + ": ключ": {MetadataKeyBin, "ключ"},
		MetadataKeyBin + ": имя":  {MetadataKey, "имя"}, // gRPC would refuse it with INTERNAL
	} {
		r.with(append(pairs, "x", "y"), "Pay", request("account", want)).wantOutcome(t, OutcomeExecuted)
		if md := r.wire.came; len(md) != 1 || !slices.Equal(md[0].Get("x"), []string{"y"}) {
			t.Errorf("%q: the rest of the metadata came as %v", want, md)
		}
		r.wantCame(want)
	}
	r.with([]string{MetadataKey, "k5"}, "Pay", request(), WithKey("k5")).wantOutcome(t, OutcomeExecuted)
	r.with([]string{MetadataKey, "k5", MetadataKeyBin, "k5"}, "Pay", request()).wantOutcome(t, OutcomeReplayed)
	r.wantCame(MetadataKey+": k5", MetadataKey+": k5")
}

func TestKeysThatDisagree(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for _, a := range []answer{
		r.with([]string{MetadataKey, "k1"}, "Pay", request(), WithKey("k2")),
		r.with([]string{MetadataKeyBin, "k1"}, "Pay", request(), WithKey("k2")),
		r.with([]string{MetadataKey, "k1"}, "Pay", request(), WithKey("")),
		r.with([]string{MetadataKey, "k1", MetadataKey, "k1"}, "Pay", request()),
		r.with([]string{MetadataKey, "k1", MetadataKeyBin, "k2"}, "Pay", request()),
		r.with([]string{MetadataKey, ""}, "Pay", request()),
		r.with([]string{MetadataKey, "null"}, "Pay", request()),
		r.with([]string{MetadataKeyBin, "\xff"}, "Pay", request()),
		r.with([]string{MetadataKey, "k1"}, "Field", request("request_id", "k2")),
		r.do("Field", request("request_id", "k1"), WithKey("k2")),
		r.do("Field", request("request_id", " ")),
		r.do("NestedField", request("header.request_id", "k1"), WithKey("k2")),
		r.do("NestedField", request("header.request_id", "undefined")),
	} {
		r.wantNotSent(a)
	}
	r.wantNothing()
}

func TestKeyInTheCallersRequest(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for method, field := range map[string]string{"Field": "request_id", "NestedField": "header.request_id"} {
		req := request(field, "k", "account", "a")
		was := proto.CloneOf(req)
		r.do(method, req).wantOutcome(t, OutcomeExecuted)
		r.do(method, req, WithKey("k")).wantOutcome(t, OutcomeReplayed)
		r.do(method, request("account", "a"), WithKey("k")).wantOutcome(t, OutcomeReplayed)
		if !proto.Equal(req, was) {
			t.Errorf("the caller's request became %v", req)
		}
	}
	r.wantRuns(2)
	if keys := r.storedKeys(); !slices.Equal(keys, []string{"k", "k"}) {
		t.Errorf("stored: %q", keys)
	}
}

// The metadata and the options of a caller stay as they are.
func TestCallersMetadataIsNotChanged(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	md := metadata.Pairs("x", "y")
	ctx := metadata.NewOutgoingContext(t.Context(), md)
	for range 2 {
		invoke(ctx, r.conn, "Pay", request()).wantOutcome(t, OutcomeExecuted)
	}
	if len(md) != 1 {
		t.Errorf("the metadata became %v", md)
	}
	if keys := r.wire.keys(); len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("there came %q", keys)
	}
}

// A method that the caller's program does not know is called with a key: there is no
// harm in one too many.
func TestKeysForUnknownMethods(t *testing.T) {
	var came metadata.MD
	err := UnaryClientInterceptor()(t.Context(), "/some.v1.Service/Method", request(), nil, nil,
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			came, _ = metadata.FromOutgoingContext(ctx)
			return nil
		})
	if err != nil || len(came.Get(MetadataKey)) != 1 {
		t.Errorf("got %v, %v", came, err)
	}
}

func TestOptionsOfCallsAreTheLastOnes(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	r.do("Pay", request(), WithKey("k1"), WithKey("k2"), WithStep("of no handler")).wantOutcome(t, OutcomeExecuted)
	r.wantCame(MetadataKey + ": k2")
}
