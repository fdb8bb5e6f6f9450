package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	inFlight = "onced_reply_bytes_in_flight"

	largeResult = 256 << 10
	fitting     = 3 // replies with a large result that find room
	smallLimit  = fitting*largeResult + largeResult/2
)

// slowConn is a connection whose reads stop.
type slowConn struct {
	net.Conn
	stopped, closed chan struct{}
	close           func()
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.stopped:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *slowConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// slowClient connects to the rig's server. Streams of it that nobody receives
// from let the server send no more than the least window; after stop, nothing at
// all is read.
func (r *rig) slowClient() (conn *grpc.ClientConn, stop func()) {
	r.Helper()
	const window = 64 << 10
	listener := bufconn.Listen(window)
	go r.server.Serve(listener)
	stopped := make(chan struct{})
	conn, err := grpc.NewClient("passthrough:///slow",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := listener.DialContext(ctx)
			closed := make(chan struct{})
			return &slowConn{Conn: c, stopped: stopped, closed: closed, close: sync.OnceFunc(func() { close(closed) })}, err
		}),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	return conn, func() { close(stopped) }
}

func lookupRequest(key string) *oncedv1.LookupRequest {
	return &oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "n", Key: key, Method: "m"}}
}

// ask sends a lookup of the large result and leaves its reply to be received.
func (r *rig) ask(ctx context.Context, conn *grpc.ClientConn) grpc.ClientStream {
	r.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, oncedv1.IdempotencyService_Lookup_FullMethodName)
	if err != nil {
		r.Fatal(err)
	}
	if err := stream.SendMsg(lookupRequest("large")); err != nil {
		r.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		r.Fatal(err)
	}
	return stream
}

// lookLarge looks the large result up and wants to see it.
func (r *rig) lookLarge() {
	r.Helper()
	resp, err := r.client.Lookup(r.Context(), lookupRequest("large"))
	if err != nil || len(resp.GetOperation().GetResult().GetStored().GetText()) != largeResult {
		r.Fatalf("a large lookup when there is room again: %v", err)
	}
}

// newLargeRig is a rig with a large result and little room for replies.
func newLargeRig(t *testing.T, limit int64) *rig {
	t.Helper()
	r := newRig(t, slog.LevelError+1)
	r.server.replies.limit = limit
	if _, err := r.client.Complete(t.Context(), completeRequest("large", r.grant("large"), strings.Repeat("x", largeResult))); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRepliesInFlight: callers that do not read get as many replies as there is
// room for. Everyone is refused further large ones, and given small ones, until
// they read, cancel or leave.
func TestRepliesInFlight(t *testing.T) {
	const asked = 10
	type slow struct {
		*rig
		conn    *grpc.ClientConn
		streams []grpc.ClientStream
		stop    func()
		cancel  context.CancelFunc
	}
	nothing := func(*slow) {}
	for _, tt := range []struct {
		name       string
		begin, end func(*slow)
	}{
		{"read on", nothing, func(s *slow) {
			answered := 0
			for _, stream := range s.streams {
				if err := stream.RecvMsg(new(oncedv1.LookupResponse)); err != nil {
					s.wantReason(err, codes.Unavailable, "OVERLOADED", "unknown")
				} else {
					answered++
				}
			}
			if answered != fitting {
				s.Errorf("%d were answered, want %d", answered, fitting)
			}
		}},
		{"cancelled", nothing, func(s *slow) { s.cancel() }},
		{"connection closed", nothing, func(s *slow) { s.conn.Close() }},
		{"connection closed that is not read", func(s *slow) { s.stop() }, func(s *slow) { s.conn.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newLargeRig(t, smallLimit)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &slow{rig: r, cancel: cancel}
			s.conn, s.stop = r.slowClient()
			if _, err := oncedv1.NewIdempotencyServiceClient(s.conn).Claim(ctx, claimRequest("first")); err != nil {
				t.Fatal(err)
			}
			tt.begin(s)
			for range asked {
				s.streams = append(s.streams, r.ask(ctx, s.conn))
			}
			r.counted(asked-fitting, "onced_refusals_total", "n", "Lookup", "OVERLOADED")
			if got := r.count(inFlight); got < fitting*largeResult || got > smallLimit {
				t.Errorf("%v bytes are in flight, of %d", got, smallLimit)
			}

			_, err := r.client.Lookup(t.Context(), lookupRequest("large"))
			st := r.wantReason(err, codes.Unavailable, "OVERLOADED", "unknown")
			if !strings.Contains(st.Message(), "was carried out") {
				t.Errorf("%s", st.Message())
			}
			fence := r.grant("small")
			if _, err := r.client.Complete(t.Context(), completeRequest("small", fence, "x")); err != nil {
				t.Errorf("a small report beside them: %v", err)
			}
			if _, err := r.client.Lookup(t.Context(), lookupRequest("small")); err != nil {
				t.Errorf("a small lookup beside them: %v", err)
			}

			tt.end(s)
			r.counted(0, inFlight)
			r.lookLarge()
			r.counted(0, inFlight)
		})
	}
}

// TestRepliesCancelledAnywhere cancels lookups wherever they are on their way.
// Their connection stays open, so that its end gives nothing back.
func TestRepliesCancelledAnywhere(t *testing.T) {
	const calls = 100
	r := newLargeRig(t, calls*2*largeResult)
	conn, _ := r.slowClient()
	random := rand.New(rand.NewPCG(1, 2))
	var all sync.WaitGroup
	for range calls {
		ctx, cancel := context.WithCancel(t.Context())
		stream := r.ask(ctx, conn)
		yields, answered := random.IntN(2000), random.IntN(3) == 0
		all.Go(func() {
			defer cancel()
			if answered {
				stream.Header()
				return
			}
			for range yields {
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	r.counted(calls, "onced_rpcs_total", "Lookup")
	r.counted(0, inFlight)
	if _, err := oncedv1.NewIdempotencyServiceClient(conn).Lookup(t.Context(), lookupRequest("large")); err != nil {
		t.Errorf("on the same connection: %v", err)
	}
	r.counted(0, inFlight)
}

// TestReplyAboveLimit: gRPC refuses to send it, and frees it before it says so.
func TestReplyAboveLimit(t *testing.T) {
	r := newRig(t, slog.LevelError+1)
	c := &chain{service: r.server.service, replies: &replies{limit: 2 * largeResult}}
	large := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return completeRequest("k", 1, strings.Repeat("x", largeResult)), nil
	}
	s := grpc.NewServer(append(c.replies.options(),
		grpc.ChainUnaryInterceptor(c.boundReplies, large), grpc.MaxSendMsgSize(largeResult))...)
	Register(s, r.server.service)
	listener := bufconn.Listen(1 << 16)
	go s.Serve(listener)
	defer s.Stop()
	_, err := oncedv1.NewIdempotencyServiceClient(dial(t, listener)).Lookup(t.Context(), lookupRequest("k"))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	if got := c.replies.inFlight.Load(); got != 0 {
		t.Errorf("%d bytes are in flight", got)
	}
}

// beginReply takes a reply through the chain and the codec, as on a connection of
// its own.
func beginReply(t *testing.T, r *replies, message proto.Message) (context.Context, *reply, mem.BufferSlice, error) {
	t.Helper()
	ctx := replyStats{r}.TagConn(t.Context(), nil)
	c := &chain{replies: r}
	answer, err := c.boundReplies(ctx, nil, nil, func(context.Context, any) (any, error) { return message, nil })
	if err != nil {
		t.Fatal(err)
	}
	sent := answer.(*reply)
	data, err := newCodec().Marshal(sent)
	return ctx, sent, data, err
}

// TestReplyGivenBackOnce: whatever comes of a reply, and in whatever order, its
// room is given back, once.
func TestReplyGivenBackOnce(t *testing.T) {
	message := completeRequest("k", 1, strings.Repeat("x", largeResult))
	sent := func(ctx context.Context, reply *reply) {
		replyStats{}.HandleRPC(ctx, &stats.OutPayload{Payload: reply})
	}
	reset := func(ctx context.Context, reply *reply, _ mem.BufferSlice) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		sent(ctx, reply)
	}
	ended := func(ctx context.Context, _ *reply, _ mem.BufferSlice) { replyStats{}.HandleConn(ctx, &stats.ConnEnd{}) }
	freed := func(_ context.Context, _ *reply, data mem.BufferSlice) { data.Free() }
	type step = func(context.Context, *reply, mem.BufferSlice)
	for name, steps := range map[string][]step{
		"written":                         {freed},
		"written, then the end":           {freed, ended},
		"queued at the end, never freed":  {ended},
		"dropped, never freed":            {reset},
		"reset while queued, then freed":  {reset, freed, ended},
		"the end before gRPC has told it": {ended, reset, freed},
	} {
		r := &replies{limit: 2 * largeResult}
		ctx, reply, data, err := beginReply(t, r, message)
		if err != nil {
			t.Fatal(err)
		}
		sent(ctx, reply) // in order: gives nothing back
		if got, want := r.inFlight.Load(), int64(proto.Size(message)); got != want {
			t.Errorf("%s: %d bytes are in flight, want %d", name, got, want)
		}
		if again := new(oncedv1.CompleteRequest); proto.Unmarshal(data.Materialize(), again) != nil || !proto.Equal(again, message) {
			t.Errorf("%s: encoded is another message", name)
		}
		for _, step := range steps {
			step(ctx, reply, data)
			if got := r.inFlight.Load(); got != 0 {
				t.Errorf("%s: %d bytes are in flight", name, got)
			}
		}
	}
}

// TestReplyNotEncoded: a reply that cannot be encoded gives its room back.
func TestReplyNotEncoded(t *testing.T) {
	r := &replies{limit: 2 * largeResult}
	_, _, _, err := beginReply(t, r, completeRequest("k", 1, strings.Repeat("\xff", largeResult)))
	if err == nil || r.inFlight.Load() != 0 {
		t.Errorf("%v, and %d bytes are in flight", err, r.inFlight.Load())
	}
}

// TestNoCompressor: what a compressor makes of a reply would not be bounded.
func TestNoCompressor(t *testing.T) {
	for _, name := range []string{"gzip", "snappy", "zstd", "deflate"} {
		if encoding.GetCompressor(name) != nil {
			t.Errorf("%s is registered", name)
		}
	}
}
