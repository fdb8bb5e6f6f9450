// Package ops is the second listener of a server, for those who operate it:
// metrics, the two probes of an orchestrator, and profiles. It has no access
// control of its own and belongs on an address that only operators reach.
package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Time-outs of the listener. A peer that trickles its request in, or its answer
// out, cannot hold a connection for longer. A profile adds its own length to
// writeTimeout.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10 // bytes
)

// Config is what a [Server] shows. Every field must be set; the functions must be
// safe for concurrent use.
type Config struct {
	Metrics prometheus.Gatherer
	// Live returns why the process must be restarted; nil when it need not be.
	Live func() error
	// Ready returns why no calls should be sent; nil when they may be.
	Ready  func() error
	Logger *slog.Logger
}

// Server serves
//
//	/metrics       in Prometheus' text format, or OpenMetrics for who asks
//	/livez         200 ok, or 503 and the reason
//	/readyz        200 ok, or 503 and the reason
//	/debug/pprof/  profiles; the command line is not among them
type Server struct {
	http *http.Server
}

// New returns a server that does not serve yet.
func New(cfg Config) *Server {
	errorLog := slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{
		ErrorLog: errorLog, EnableOpenMetrics: true,
	}))
	mux.Handle("GET /livez", probe(cfg.Live))
	mux.Handle("GET /readyz", probe(cfg.Ready))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	// What stands on a command line is nobody's business over the network.
	mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler())
	return &Server{http: &http.Server{
		Handler: mux, ErrorLog: errorLog, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}}
}

// Serve serves on a listener, which it closes, until Stop. It returns nil when it
// was stopped, and otherwise why it can serve no longer.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve operators on %v: %w", l.Addr(), err)
	}
	return nil
}

// Stop lets running requests end for as long as ctx lets them, then cuts them
// off. It may be called more than once, and before Serve, which then returns at
// once.
func (s *Server) Stop(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}

// probe answers 200 while check finds nothing, and otherwise 503 with what it
// found, for people.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
