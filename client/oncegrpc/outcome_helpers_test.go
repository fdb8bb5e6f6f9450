package oncegrpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client/oncetest"
)

// retryEverything is a service config by which a client of gRPC tries four times after
// every error.
const retryEverything = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.002s", "backoffMultiplier": 1,
	"retryableStatusCodes": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}}]}`

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

// on calls a method over another connection, under a key.
func on(ctx context.Context, conn grpc.ClientConnInterface, method, key string, req *dynamicpb.Message) answer {
	return invoke(metadata.AppendToOutgoingContext(ctx, MetadataKey, key), conn, method, req)
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

// infoOf is the guard's own ErrorInfo in an error, and whether there is one.
func infoOf(err error) (info *errdetails.ErrorInfo, ok bool) {
	return detailOf(err, func(i *errdetails.ErrorInfo) bool { return i.GetDomain() == errorDomain })
}

// detailOf finds a detail of an error.
func detailOf[T any](err error, is func(T) bool) (found T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(T); ok && is(d) {
			return d, true
		}
	}
	return found, false
}

// wantStatus fails the test unless an answer has exactly this status.
func (a answer) wantStatus(t *testing.T, want *status.Status) {
	t.Helper()
	if got := status.Convert(a.err); !proto.Equal(got.Proto(), want.Proto()) {
		t.Errorf("the status is %v, want %v", brief(got), brief(want))
	}
}

func brief(s *status.Status) string {
	text := fmt.Sprint(s.Proto())
	return text[:min(len(text), 600)]
}

// wantMarked fails the test unless the headers of an answer say what it is, for which
// key, and since when; and nothing else does.
func (a answer) wantMarked(t *testing.T, outcome, key string) time.Time {
	t.Helper()
	if got := a.header.Get(HeaderOutcome); !slices.Equal(got, []string{outcome}) {
		t.Errorf("the headers say %q, want %q; trailers %v, error %v", got, outcome, a.trailer, a.err)
	}
	if got := a.header.Get(HeaderKey); !slices.Equal(got, []string{key}) {
		t.Errorf("the headers name the key %q, want %q", got, key)
	}
	if got := a.trailer.Get(HeaderOutcome); len(got) != 0 {
		t.Errorf("the trailers say %q as well", got)
	}
	at, err := time.Parse(time.RFC3339Nano, first(a.header.Get(HeaderFirstClaimTime)))
	if err != nil || at.IsZero() {
		t.Errorf("the headers' first claim time: %v, %v", at, err)
	}
	return at
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// wantRefused fails the test unless an answer is the guard's refusal, without headers,
// and stops a client's retry policy.
func (a answer) wantRefused(t *testing.T, code codes.Code, reason string) *errdetails.ErrorInfo {
	t.Helper()
	info, _ := infoOf(a.err)
	if status.Code(a.err) != code || info.GetReason() != reason {
		t.Errorf("got %v with reason %q, want %v with %q", a.err, info.GetReason(), code, reason)
	}
	if len(a.header) != 0 {
		t.Errorf("a refusal has headers: %v", a.header)
	}
	if got := a.trailer.Get("grpc-retry-pushback-ms"); (code != codes.Unavailable) != slices.Equal(got, []string{"-1"}) {
		t.Errorf("the pushback of %v is %q", code, got)
	}
	return info
}

// wantUnresolved fails the test unless an answer is that the operation is unresolved.
func (a answer) wantUnresolved(t *testing.T, why string) {
	t.Helper()
	info := a.wantRefused(t, codes.FailedPrecondition, "UNRESOLVED")
	if got := info.GetMetadata()["unresolved_reason"]; got != why {
		t.Errorf("unresolved because %q, want %q", got, why)
	}
	if info.GetMetadata()["key"] == "" || info.GetMetadata()["method"] == "" {
		t.Errorf("the operation is not named: %v", info)
	}
}

// wantMismatch fails the test unless an answer is that the key was used otherwise.
func (a answer) wantMismatch(t *testing.T) {
	t.Helper()
	a.wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
}

// wantResponse fails the test unless an answer is this response, byte for byte.
func (a answer) wantResponse(t *testing.T, want proto.Message) {
	t.Helper()
	if a.err != nil {
		t.Errorf("got the error %v, want a response", a.err)
		return
	}
	if got, want := bytesOf(t, a.resp), bytesOf(t, want); !slices.Equal(got, want) {
		t.Errorf("got the response %x, want %x", got, want)
	}
}

func bytesOf(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
