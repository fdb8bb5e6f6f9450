package server

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// BenchmarkCall measures a call of 64 callers over one connection: of an empty
// method on a bare server, of a claim through the chain that is answered at once,
// and of a claim on a store in memory.
func BenchmarkCall(b *testing.B) {
	b.Run("empty", func(b *testing.B) {
		s := grpc.NewServer()
		s.RegisterService(&grpc.ServiceDesc{ServiceName: "bare", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
			MethodName: "Nothing",
			Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return &emptypb.Empty{}, dec(&emptypb.Empty{})
			},
		}}}, nil)
		conn := serveLoopback(b, s)
		inParallel(b, func(int64) error {
			return conn.Invoke(b.Context(), "/bare/Nothing", &emptypb.Empty{}, &emptypb.Empty{})
		})
	})
	for name, standIn := range map[string]oncedv1.IdempotencyServiceServer{"chain": atOnce{}, "memory": nil} {
		b.Run(name, func(b *testing.B) {
			policies, err := NewPolicies(onced.DefaultPolicy(), nil)
			if err != nil {
				b.Fatal(err)
			}
			s, err := New(b.Context(), Config{
				Store: memory.New(storagetest.NewClock()), Policies: policies, Metrics: NewMetrics(prometheus.NewRegistry()),
				Logger: slog.New(slog.DiscardHandler), StandIn: standIn,
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Stop(context.Background()) })
			stub := oncedv1.NewIdempotencyServiceClient(serveLoopback(b, s.grpc))
			inParallel(b, func(n int64) error {
				_, err := stub.Claim(b.Context(), claimRequest(time.Duration(n).String()))
				return err
			})
		})
	}
}

// atOnce answers claims with what a grant looks like.
type atOnce struct {
	oncedv1.UnimplementedIdempotencyServiceServer
}

var then = timestamppb.Now()

func (atOnce) Claim(_ context.Context, req *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	return &oncedv1.ClaimResponse{Outcome: oncedv1.Outcome_OUTCOME_GRANTED, Operation: &oncedv1.Operation{
		Ref: req.GetRef(), Attempt: 1, Fence: 1, Etag: "1-1-1", FirstClaimTime: then, ClaimTime: then, LeaseEnd: then,
	}}, nil
}

// serveLoopback serves over TCP and returns a connection.
func serveLoopback(b *testing.B, s *grpc.Server) *grpc.ClientConn {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close(); s.Stop() })
	return conn
}

// inParallel calls fn b.N times from 64 goroutines.
func inParallel(b *testing.B, fn func(n int64) error) {
	b.ReportAllocs()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := fn(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
