package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// Reasons for which a server does not serve, as the probes of an orchestrator
// are told them.
var (
	errNotReady    = errors.New("the server is not ready yet")
	errStopping    = errors.New("the server is stopping")
	errStoreFailed = errors.New("the store has failed: the process must be restarted")
)

// Health tells the truth about a server, by the gRPC health service and to the
// probes of the ops listener. It has an answer for each question:
//
//   - "" and [Health.Ready]: should calls be sent here at all? No before the
//     server is ready, while it stops, and once its store has failed.
//   - onced.v1.IdempotencyService: are new claims taken? Not while the disk is
//     full either, although reads are answered then, and reports are stored if
//     there is room for them. A client that is to settle in that state must not
//     be kept away by this answer.
//   - onced.v1.OperatorService: are operators answered? Whenever calls are.
//
// It is safe for concurrent use.
type Health struct {
	grpc *health.Server
	log  *slog.Logger

	ending context.Context // ends when the server begins to stop
	end    context.CancelFunc

	mu                            sync.Mutex
	serving, stopping, dead, full bool
}

func newHealth(log *slog.Logger) *Health {
	h := &Health{grpc: health.NewServer(), log: log}
	h.ending, h.end = context.WithCancel(context.Background())
	h.change(func() {}) // NOT_SERVING, where the library's server begins with SERVING
	return h
}

// Ready returns why calls should not be sent to the server; nil when they may be.
func (h *Health) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready()
}

// Live returns why the process must be restarted; nil when it need not be.
func (h *Health) Live() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return errStoreFailed
	}
	return nil
}

func (h *Health) ready() error {
	switch {
	case h.dead:
		return errStoreFailed
	case h.stopping:
		return errStopping
	case !h.serving:
		return errNotReady
	default:
		return nil
	}
}

// change makes a change of the conditions and publishes what follows.
func (h *Health) change(set func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	set()
	ready := h.ready() == nil
	h.grpc.SetServingStatus("", servingStatus(ready))
	h.grpc.SetServingStatus(oncedv1.IdempotencyService_ServiceDesc.ServiceName, servingStatus(ready && !h.full))
	h.grpc.SetServingStatus(oncedv1.OperatorService_ServiceDesc.ServiceName, servingStatus(ready))
}

func servingStatus(serving bool) healthpb.HealthCheckResponse_ServingStatus {
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

func (h *Health) setServing() { h.change(func() { h.serving = true }) }

// setStopping also ends the streams of those who watch the health: they would
// keep the server from stopping gracefully for as long as they stay.
func (h *Health) setStopping() {
	h.change(func() { h.stopping = true })
	h.end()
}

func (h *Health) setFailed() {
	h.change(func() { h.dead = true })
	h.log.Error("the store has failed, and whether its last writes are durable is not known; nothing more is answered")
}

func (h *Health) setFull(full bool) {
	h.change(func() {
		if h.full == full {
			return
		}
		h.full = full
		if full {
			h.log.Error("the store is full: new claims are refused until there is room")
		} else {
			h.log.Warn("the store has room again: new claims are taken")
		}
	})
}

// register registers the health service.
func (h *Health) register(s grpc.ServiceRegistrar) {
	healthpb.RegisterHealthServer(s, &healthService{Server: h.grpc, ending: h.ending})
}

// healthService is the library's health service with streams that end when the
// server begins to stop.
type healthService struct {
	*health.Server
	ending context.Context
}

// Watch implements the RPC of this name. The last thing that it says to those
// who watch when the server stops is NOT_SERVING.
func (s *healthService) Watch(req *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	err := s.Server.Watch(req, &watchStream{Health_WatchServer: stream, ctx: ctx})
	if s.ending.Err() == nil {
		return err
	}
	if err := stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}); err != nil {
		return err
	}
	return refuseStopping()
}

type watchStream struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

// Context returns the context that ends with the watch.
func (s *watchStream) Context() context.Context { return s.ctx }

// healthStore is a store that tells the health when claims find no room in it.
type healthStore struct {
	storage.Store
	health *Health
}

// Update implements [storage.Store]. That a report is refused says nothing of claims:
// a great result may want more room than is kept for all of them.
func (s *healthStore) Update(ctx context.Context, t storage.Target, fn storage.UpdateFunc) error {
	err := s.Store.Update(ctx, t, fn)
	if t.Class == storage.ClassClaim && errors.Is(err, storage.ErrFull) {
		s.health.setFull(true)
	}
	return err
}

// probe asks the store whether claims find room, so that the health is true also
// when nobody claims.
func (s *healthStore) probe(ctx context.Context) {
	switch err := s.Room(ctx); {
	case err == nil:
		s.health.setFull(false)
	case errors.Is(err, storage.ErrFull):
		s.health.setFull(true)
	}
}
