package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// Limits of the transport. Each bounds what one peer can cost.
const (
	// maxMessage stands above the greatest result, 16 MiB, with room for what
	// travels beside it: a result within its limit is never refused for its frame.
	maxMessage = 17 << 20
	// maxHeader is for metadata, which carries no payload.
	maxHeader = 64 << 10
	// maxStreams of one connection: its held calls must never take the streams
	// that the reports need which would end them.
	maxStreams = greatestWaiters + greatestCalls

	// pingTime and pingTimeout find callers that are gone without a word, whose
	// held calls take up room.
	pingTime    = 30 * time.Second
	pingTimeout = 10 * time.Second
	// minPing lets callers behind a NAT or a proxy, idle ones too, keep their
	// connection open; by default gRPC cuts off who pings within five minutes.
	minPing = 10 * time.Second
)

// probeInterval is how often the store is asked whether claims find room.
const probeInterval = time.Second

// Config is what a [Server] needs. All of it is required but StandIn.
type Config struct {
	Store    storage.Store // stays the caller's to close, after Stop
	Policies *Policies
	Metrics  *Metrics
	Logger   *slog.Logger
	// StandIn answers in place of the service over the store, if it is set. Of
	// claims and completions it gets the valid ones only. Everything else is as
	// ever, so what calls cost without a store can be measured.
	StandIn oncedv1.IdempotencyServiceServer
}

// Server is a gRPC server with the services of onced, health and reflection. It
// is safe for concurrent use.
type Server struct {
	grpc      *grpc.Server
	service   *Service
	replies   *replies
	admission *admission
	store     *healthStore
	health    *Health
	log       *slog.Logger

	watching sync.WaitGroup // the goroutine that watches the store
}

// New returns a server that is ready to serve, and that must be stopped whether
// it has served or not. It brings the store's memories in line with the policies
// and counts its unsettled operations, for as long as ctx lets it. One set of
// metrics is for one server.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Metrics == nil || cfg.Store == nil || cfg.Policies == nil || cfg.Logger == nil {
		return nil, errors.New("server: store, policies, metrics and logger are required")
	}
	if err := cfg.Policies.Remember(ctx, cfg.Store); err != nil {
		return nil, err
	}
	health := newHealth(cfg.Logger)
	store := &healthStore{Store: cfg.Store, health: health}
	admission := newAdmission(greatestCalls, reservedForReports)
	service, err := NewService(ctx, ServiceConfig{
		Store: store, Policies: cfg.Policies, Logger: cfg.Logger, Observer: observer{cfg.Metrics, admission},
	})
	if err != nil {
		return nil, err
	}
	replies := &replies{limit: greatestReplies}
	if err := cfg.Metrics.watch(cfg.Store, service, admission, replies); err != nil {
		return nil, err
	}
	chain := &chain{service: service, metrics: cfg.Metrics, admission: admission, replies: replies, log: cfg.Logger}
	s := &Server{
		grpc:    grpc.NewServer(slices.Concat(transportOptions(), replies.options(), chainOptions(chain.places()))...),
		service: service, replies: replies, admission: admission, store: store, health: health, log: cfg.Logger,
	}
	if cfg.StandIn == nil {
		Register(s.grpc, service)
	} else {
		service.register(s.grpc, standIn{cfg.StandIn, cfg.Policies})
	}
	health.register(s.grpc)
	reflection.Register(s.grpc)
	s.watching.Go(s.watchStore)
	return s, nil
}

func transportOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingTime, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
}

// observer counts, and lets the admission know of held calls.
type observer struct {
	*Metrics
	admission *admission
}

// Waiters implements [Observer].
func (o observer) Waiters(delta int) {
	o.Metrics.Waiters(delta)
	o.admission.hold(delta)
}

// Health returns what tells whether the server serves.
func (s *Server) Health() *Health { return s.health }

// Generation returns the generation of the server's store.
func (s *Server) Generation() uint64 { return s.service.Generation() }

// Serve serves on a listener, which it closes, until Stop. It returns nil when it
// was stopped, and otherwise why it can serve no longer.
func (s *Server) Serve(l net.Listener) error {
	s.health.setServing()
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve on %v: %w", l.Addr(), err)
	}
	return nil
}

// watchStore keeps the health true to the state of the store.
func (s *Server) watchStore() {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.store.Failed():
			s.health.setFailed()
			return
		case <-s.health.ending.Done():
			return
		case <-ticker.C:
			s.store.probe(s.health.ending)
		}
	}
}

// Stop tells everyone that the server stops, answers the calls that are held
// UNAVAILABLE, takes no new connections, and lets what runs end for as long as
// ctx lets it; then it cuts the connections off. It returns when no handler runs
// any more, as the graceful stop does in either case, so that the store is not closed
// under one. It may be called more than once.
func (s *Server) Stop(ctx context.Context) {
	s.health.setStopping()
	s.service.Drain()
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.log.Warn("calls or connections did not end in time and are cut off")
		s.grpc.Stop()
		<-stopped
	}
	s.watching.Wait()
}
