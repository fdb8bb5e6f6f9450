package oncetest

import (
	"context"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/onced/onced/server"
)

// bufferSize of the connection, in bytes each way.
const bufferSize = 1 << 20

// life is one run of a server, with the connection to it.
type life struct {
	server *server.Server
	conn   *grpc.ClientConn
	served chan error
}

// start begins a life, unless there is one.
func (s *Server) start() error {
	s.switching.Lock()
	defer s.switching.Unlock()
	if l, _ := s.current(); l != nil || s.over() {
		return nil
	}
	ctx := context.Background()
	if err := s.store.serve(ctx); err != nil {
		return err
	}
	policies, err := server.NewPolicies(s.policy, nil)
	if err != nil {
		return err
	}
	listener := bufconn.Listen(bufferSize)
	conn, err := grpc.NewClient("passthrough:///onced",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		return err
	}
	srv, err := server.New(ctx, server.Config{
		Store: s.store, Policies: policies, Logger: s.log.logger("onced", slog.LevelError),
		Metrics: server.NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		conn.Close()
		return err
	}
	l := &life{server: srv, conn: conn, served: make(chan error, 1)}
	go func() { l.served <- srv.Serve(listener) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = l
	return nil
}

// over tells whether the test is over: nothing is started any more.
func (s *Server) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// stop ends the life, if there is one, and returns why it could have ended by itself.
func (s *Server) stop() error {
	s.switching.Lock()
	defer s.switching.Unlock()
	l, _ := s.current()
	if l == nil {
		return nil
	}
	s.mu.Lock()
	s.life = nil
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.server.Stop(ctx)
	l.conn.Close()
	return <-l.served
}
