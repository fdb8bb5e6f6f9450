package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"github.com/onced/onced"
	"github.com/onced/onced/server"
	"github.com/onced/onced/server/ops"
	"github.com/onced/onced/storage/memory"
)

// Ready is the line that a server of a bench writes when it serves. Its names are
// those of the ready file of `onced serve`.
type Ready struct {
	GRPC string `json:"grpc"`
	Ops  string `json:"ops"`
	PID  int    `json:"pid"`
}

// machineClock is the clock of the machine. It does not count while the machine
// sleeps, which nobody waits for here.
type machineClock struct{ start time.Time }

func (machineClock) Wall() time.Time          { return time.Now() }
func (c machineClock) Elapsed() time.Duration { return time.Since(c.start) }

// stopTime is how long running calls have to end.
const stopTime = 5 * time.Second

// ServeNull serves the service of onced without a store until in ends: the real
// chain, with everything that stands in it, and canned answers with results of a
// size. It writes a [Ready] line to out, and logs to log.
func ServeNull(resultBytes int, in io.Reader, out, log io.Writer) error {
	server.KeepHeapFloor()                            // as onced serve does
	logger := slog.New(slog.NewTextHandler(log, nil)) // as onced's, by default
	registry := newRegistry()
	policies, err := server.NewPolicies(onced.DefaultPolicy(), nil)
	if err != nil {
		return err
	}
	store := memory.New(machineClock{time.Now()})
	defer store.Close() //nolint:errcheck // nothing was stored
	now := time.Now()
	s, err := server.New(context.Background(), server.Config{
		Store: store, Policies: policies, Metrics: server.NewMetrics(registry), Logger: logger,
		StandIn: newCanned(resultBytes, uint64(now.Unix()), now),
	})
	if err != nil {
		return err
	}
	return serve(s, ops.Config{Metrics: registry, Live: s.Health().Live, Ready: s.Health().Ready, Logger: logger}, in, out)
}

// ServeEmpty serves a bare gRPC server with one method, which takes nothing and
// answers nothing, until in ends. It writes a [Ready] line to out, and logs to log.
func ServeEmpty(in io.Reader, out, log io.Writer) error {
	server.KeepHeapFloor() // as onced serve does
	s := bareServer{grpc.NewServer(grpc.WaitForHandlers(true))}
	s.RegisterService(&emptyDesc, nil)
	always := func() error { return nil }
	return serve(s, ops.Config{Metrics: newRegistry(), Live: always, Ready: always, Logger: slog.New(slog.NewTextHandler(log, nil))}, in, out)
}

// newRegistry returns a registry with what onced shows of its process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// stoppable is a gRPC server as [server.Server] is one.
type stoppable interface {
	Serve(net.Listener) error
	Stop(context.Context)
}

// bareServer is a gRPC server without anything of onced.
type bareServer struct{ *grpc.Server }

// Stop cuts the calls off.
func (s bareServer) Stop(context.Context) { s.Server.Stop() }

// serve serves on free ports of the loopback until in ends, which it does when the
// process at its other end ends, however that happens.
func serve(s stoppable, operators ops.Config, in io.Reader, out io.Writer) error {
	calls, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	operation, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	second := ops.New(operators)
	served := make(chan error, 2)
	go func() { served <- s.Serve(calls) }()
	go func() { served <- second.Serve(operation) }()
	go func() {
		_, err := io.Copy(io.Discard, in)
		served <- err
	}()
	line, err := json.Marshal(Ready{GRPC: calls.Addr().String(), Ops: operation.Addr().String(), PID: os.Getpid()})
	if err == nil {
		_, err = fmt.Fprintln(out, string(line))
	}
	if err == nil {
		err = <-served
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	s.Stop(ctx)
	second.Stop(ctx)
	return err
}
