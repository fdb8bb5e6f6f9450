package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/onced/onced"
	"github.com/onced/onced/server"
	"github.com/onced/onced/server/ops"
	"github.com/onced/onced/server/sweep"
	"github.com/onced/onced/storage/bolt"
)

// stopTime is how long running calls have to end after the first signal.
const stopTime = 30 * time.Second

type serveCommand struct {
	configFlags
	ReadyFile string `help:"Write {grpc, ops, pid, generation} as JSON here when serving; removed at the end." type:"path" env:"ONCED_READY_FILE" placeholder:"FILE"`
}

// Help is shown by onced serve --help.
func (*serveCommand) Help() string {
	return "Example: onced serve --data /var/lib/onced --ops-listen 127.0.0.1:9443. " +
		"Without --data the store is ./onced-data, for development on this machine. " +
		"SIGTERM or SIGINT stops gracefully; a second one stops at once."
}

// Run serves until a signal, or until the store fails. Read it top to bottom:
// this is all that a server is made of.
func (c *serveCommand) Run(std *streams) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	server.KeepHeapFloor()
	log := newLogger(std.err, cfg.LogLevel)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go onSignals(cancel, log)

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := server.NewMetrics(registry)
	store, err := openStore(cfg.Data, bolt.Options{Clock: machineClock{}, Observe: metrics.Committed}, log)
	if err != nil {
		return err
	}
	defer closeStore(store, log)
	if err := compareClocks(ctx, store, log); err != nil {
		return err
	}
	removeReadyFile(c.ReadyFile, log) // of a process that was killed

	grpc, err := server.New(ctx, server.Config{Store: store, Policies: cfg.policies, Metrics: metrics, Logger: log})
	if err != nil {
		return err
	}
	operators := ops.New(ops.Config{Metrics: registry, Live: grpc.Health().Live, Ready: grpc.Health().Ready, Logger: log})
	sweeper := sweep.New(sweep.Config{
		Store: store, Policy: cfg.policies.For, Interval: sweep.Interval, Logger: log, Observe: metrics.Swept,
	})

	listeners, err := listen(cfg)
	if err != nil {
		return err
	}
	go until(cancel, func() error { return grpc.Serve(listeners.grpc) })
	if listeners.ops != nil {
		go until(cancel, func() error { return operators.Serve(listeners.ops) })
	}
	go until(cancel, func() error { return storeFailure(ctx, store) })
	sweeper.Start()
	log.Info("serving", slog.String("grpc", listeners.address(listeners.grpc)), slog.String("ops", listeners.address(listeners.ops)),
		slog.Uint64("generation", grpc.Generation()), slog.String("version", version))
	if err := listeners.announce(c.ReadyFile, grpc.Generation()); err != nil {
		cancel(fmt.Errorf("--ready-file: %w", err))
	}

	<-ctx.Done()
	stopping, stop := context.WithTimeout(context.Background(), stopTime)
	defer stop()
	removeReadyFile(c.ReadyFile, log)
	grpc.Stop(stopping)
	sweeper.Stop()
	operators.Stop(stopping)
	if cause := context.Cause(ctx); !errors.Is(cause, errSignal) {
		return cause
	}
	return nil
}

// errSignal is the cause of a stop that was asked for.
var errSignal = errors.New("stopped by a signal")

// onSignals stops the server at the first signal, and the process at the second.
func onSignals(cancel context.CancelCauseFunc, log *slog.Logger) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	log.Info("stopping", slog.String("signal", (<-signals).String()))
	cancel(errSignal)
	log.Warn("stopping at once", slog.String("signal", (<-signals).String()))
	os.Exit(exitRefused)
}

// until runs f, and ends the server with its error.
func until(cancel context.CancelCauseFunc, f func() error) {
	if err := f(); err != nil {
		cancel(err)
	}
}

// storeFailure waits until the store has failed, after which nothing can be
// answered truthfully: the process must end and be started again.
func storeFailure(ctx context.Context, store *bolt.Store) error {
	select {
	case <-store.Failed():
		return errors.New("the store has failed; what was not answered may or may not be stored: start onced again")
	case <-ctx.Done():
		return nil
	}
}

// openStore opens the store in dir. Without a dir it is the development store,
// which is made on first use.
func openStore(dir string, options bolt.Options, log *slog.Logger) (*bolt.Store, error) {
	options = withFaults(options)
	if dir != "" {
		return bolt.Open(dir, options)
	}
	store, err := bolt.Open(defaultData, options)
	if errors.Is(err, bolt.ErrNoStore) {
		if err := bolt.Init(defaultData, options); err != nil {
			return nil, err
		}
		log.Warn("no --data given: made a store for development", slog.String("data", defaultData))
		return bolt.Open(defaultData, options)
	}
	if err == nil {
		log.Warn("no --data given: using the store for development", slog.String("data", defaultData))
	}
	return store, err
}

// compareClocks says so when the machine's clock and the store's newest time do
// not fit together: then store time is not what people take it for.
func compareClocks(ctx context.Context, store *bolt.Store, log *slog.Logger) error {
	now, err := store.Get(ctx, onced.Identity{})
	if err != nil {
		return err
	}
	if behind := now.Now.Sub(machineClock{}.Wall()); behind > time.Second {
		log.Error("the machine's clock is behind the newest time in the store; store time, and with it every lease, stands still until it has caught up: set the clock right and start onced again",
			slog.Duration("behind", behind))
	}
	if held := now.Now.Sub(now.ExpiryTime); held > 0 {
		log.Warn("the machine's clock is far ahead of the newest time in the store; nothing expires for an hour, in case the clock is wrong",
			slog.Duration("ahead", held))
	}
	return nil
}

func closeStore(store *bolt.Store, log *slog.Logger) {
	if err := store.Close(); err != nil {
		log.Error("closing the store", slog.Any("error", err))
	}
}

// listeners are bound before anything serves, so that a taken port is an error
// of the start.
type listeners struct{ grpc, ops net.Listener }

func listen(cfg *config) (*listeners, error) {
	var (
		l   listeners
		err error
	)
	if l.grpc, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, err
	}
	if cfg.OpsListen != "" {
		if l.ops, err = net.Listen("tcp", cfg.OpsListen); err != nil {
			return nil, errors.Join(err, l.grpc.Close())
		}
	}
	return &l, nil
}

func (l *listeners) address(of net.Listener) string {
	if of == nil {
		return ""
	}
	return of.Addr().String()
}

// announce writes the ready file, whole or not at all.
func (l *listeners) announce(path string, generation uint64) error {
	if path == "" {
		return nil
	}
	b, err := json.Marshal(struct {
		GRPC       string `json:"grpc"`
		Ops        string `json:"ops,omitempty"`
		PID        int    `json:"pid"`
		Generation uint64 `json:"generation"`
	}{l.address(l.grpc), l.address(l.ops), os.Getpid(), generation})
	if err != nil {
		return err
	}
	return writeFile(path, append(b, '\n'))
}

// writeFile replaces a file atomically.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// removeReadyFile removes the file, and nothing else that may stand under its name.
func removeReadyFile(path string, log *slog.Logger) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if err := os.Remove(path); err != nil {
		log.Warn("removing the ready file", slog.Any("error", err))
	}
}

func newLogger(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // checked with the configuration
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l}))
}

// findings prints what a check found, a sentence a line.
func findings(w io.Writer, found []string) {
	for _, sentence := range found {
		fmt.Fprintln(w, sentence)
	}
}
