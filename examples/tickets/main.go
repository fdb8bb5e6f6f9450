// Command tickets is a tool service over gRPC, as agents call it: it files tickets,
// comments on them and closes them. It is an example of a service that executes each call
// at most once. The lines that it has for that are marked "onced:"; all others are those
// of any gRPC service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncegrpc"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

const (
	stopTime  = 20 * time.Second // for calls under way, after the first signal
	closeTime = 5 * time.Second  // for reports to onced, after that
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 64
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole command as a function of its arguments and outputs. It serves until
// SIGTERM or SIGINT; a second one ends the process at once.
func run(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "tickets: %v; see tickets --help\n", err)
		return exitUsage
	}
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, release)
	defer release()
	if err := serve(ctx, cfg, slog.New(slog.NewTextHandler(stderr, nil))); err != nil {
		fmt.Fprintln(stderr, "tickets:", err)
		return exitFailed
	}
	return exitOK
}

// serve serves until ctx ends.
func serve(ctx context.Context, cfg config, log *slog.Logger) error {
	withdraw(cfg.readyFile) // of a process that was killed

	// onced: a connection to it, and a client for the whole process. Keepalive has a
	// connection that died without a word noticed before leases end, and short pauses have
	// it back in time after an outage. A real service has TLS here.
	pauses := backoff.DefaultConfig
	pauses.MaxDelay = 5 * time.Second
	conn, err := grpc.NewClient(cfg.onced,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}))
	if err != nil {
		return err
	}
	defer conn.Close()
	onced := client.New(conn, client.WithNamespace("tickets"), client.WithLogger(log))

	server, err := newServer(onced, &tickets{log: log, delay: cfg.delay}, cfg.wait, log)
	if err != nil {
		return err
	}
	healthy := health.NewServer()
	healthv1.RegisterHealthServer(server, healthy)
	reflection.Register(server)

	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer withdraw(cfg.readyFile)
	if err := announce(cfg.readyFile, listener.Addr()); err != nil {
		server.Stop()
		return fmt.Errorf("--ready-file: %w", err)
	}
	log.Info("serving", "grpc", listener.Addr(), "onced", cfg.onced)

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	healthy.Shutdown()
	stop(server, log)
	// onced: what was executed is reported before the process ends. Close logs what is
	// left, and nobody executes that again.
	closing, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	onced.Close(closing)
	return nil
}

// newServer makes the server of the tool, with the guard in it.
func newServer(onced *client.Client, tool ticketsv1.TicketsServer, wait time.Duration, log *slog.Logger) (*grpc.Server, error) {
	// onced: this program does not ask who calls, so that it can be tried on one machine:
	// whoever knows a key gets its answer. A real service authenticates in an interceptor
	// before the guard, and gives WithSubject, and WithNamespace if it has several
	// tenants, a function that takes from the context whom that has found.
	guard := oncegrpc.NewGuard(onced, oncegrpc.WithLogger(log), oncegrpc.WithWait(wait), oncegrpc.WithoutAuthentication())

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(guard.UnaryServerInterceptor()), // onced: after authentication
	)
	ticketsv1.RegisterTicketsServer(server, tool)

	// onced: a mistake in the wiring or in a method's option is an error of the start.
	unguarded, err := guard.Check(server)
	if len(unguarded) > 0 {
		log.Warn("methods with side effects are not guarded", "methods", strings.Join(unguarded, " "))
	}
	return server, err
}

// stop lets the calls under way end, and cuts off those that take too long. Handlers run
// on even then: a guarded one is not cancelled when its caller is gone.
func stop(server *grpc.Server, log *slog.Logger) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	select {
	case <-stopped:
	case <-time.After(stopTime):
		log.Warn("calls or connections did not end in time and are cut off")
		server.Stop()
	}
}
