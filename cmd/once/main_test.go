package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onced/onced"
	"github.com/onced/onced/server"
	"github.com/onced/onced/storage/memory"
)

// actAsOnce makes the test binary be the command, so that the tests run the very
// program, with its signals and file descriptors, under the race detector too.
// Its value is the budgets, in the order of their fields.
const actAsOnce = "ONCE_TEST_ACT_AS_ONCE"

func TestMain(m *testing.M) {
	if given := os.Getenv(actAsOnce); given != "" {
		_ = os.Unsetenv(actAsOnce)
		s := &session{streams: streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, budgets: parseBudgets(given)}
		os.Exit(s.run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// machineClock is the clock of the machine.
type machineClock struct{}

var started = time.Now()

func (machineClock) Wall() time.Time        { return time.Now() }
func (machineClock) Elapsed() time.Duration { return time.Since(started) }

// testServer is an onced on loopback that can be stopped and started again at the
// same address over the same store.
type testServer struct {
	t       *testing.T
	addr    string
	policy  onced.Policy
	store   *memory.Store
	metrics *prometheus.Registry
	stop    func()
	budgets budgets
}

func newServer(t *testing.T, change ...func(*onced.Policy)) *testServer {
	t.Helper()
	s := &testServer{t: t, addr: "127.0.0.1:0", policy: onced.DefaultPolicy(), budgets: usualBudgets}
	for _, f := range change {
		f(&s.policy)
	}
	s.store = memory.New(machineClock{})
	s.start()
	t.Cleanup(func() {
		s.stop()
		_ = s.store.Close()
	})
	return s
}

func (s *testServer) start() {
	s.t.Helper()
	policies, err := server.NewPolicies(s.policy, nil)
	must(s.t, err)
	s.metrics = prometheus.NewRegistry()
	srv, err := server.New(s.t.Context(), server.Config{
		Store: s.store, Policies: policies,
		Metrics: server.NewMetrics(s.metrics), Logger: slog.New(slog.DiscardHandler),
	})
	must(s.t, err)
	l, err := net.Listen("tcp", s.addr)
	must(s.t, err)
	s.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	s.stop = func() {
		at, cancel := context.WithCancel(context.Background())
		cancel() // no grace: connections are cut off
		srv.Stop(at)
		if err := <-served; err != nil {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
}

// waiters is the number of calls that the server holds.
func (s *testServer) waiters() float64 {
	s.t.Helper()
	families, err := s.metrics.Gather()
	must(s.t, err)
	for _, f := range families {
		if f.GetName() == "onced_waiters" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	s.t.Fatal("no such metric")
	return 0
}

// run is a finished process.
type run struct {
	status         int
	stdout, stderr string
}

// command prepares `once` with these arguments.
func (s *testServer) command(args ...string) *exec.Cmd {
	s.t.Helper()
	self, err := os.Executable()
	must(s.t, err)
	cmd := exec.CommandContext(s.t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "ONCED_SERVER="+s.addr, actAsOnce+"="+s.budgets.String(),
		"GORACE=atexit_sleep_ms=0") // the race detector would let each process sleep for a second at its end
	return cmd
}

// once runs `once` with these arguments.
func (s *testServer) once(args ...string) run {
	s.t.Helper()
	return finish(s.t, s.command(args...))
}

func finish(t *testing.T, cmd *exec.Cmd) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return run{status: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// want ends the test unless the process ended with this status.
func (r run) want(t *testing.T, status int) run {
	t.Helper()
	if r.status != status {
		t.Fatalf("exit status %d, want %d\nstdout: %s\nstderr: %s", r.status, status, cut(r.stdout), cut(r.stderr))
	}
	return r
}

func cut(s string) string { return s[:min(len(s), 2000)] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inDir is the path of a new file of the test.
func inDir(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(t.TempDir(), name)
}

// eventually waits until something that another process brings about is there.
func eventually(t *testing.T, what string, there func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for tick := time.NewTicker(5 * time.Millisecond); !there(); {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("waited in vain: " + what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lines is the number of lines of a file; how often a command was run.
func lines(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// String and parseBudgets carry budgets through the environment.
func (b budgets) String() string { return fmt.Sprint(b.answer, " ", b.kill, " ", b.drain) }

func parseBudgets(s string) (b budgets) {
	for i, word := range strings.Fields(s) {
		d, err := time.ParseDuration(word)
		if err != nil {
			log.Fatal(err)
		}
		*[]*time.Duration{&b.answer, &b.kill, &b.drain}[i] = d
	}
	return b
}

// background is a process that runs beside the test.
type background struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr string // files
}

func (s *testServer) background(args ...string) *background {
	s.t.Helper()
	return inBackground(s.t, s.command(args...))
}

// inBackground starts a process whose outputs go into files.
func inBackground(t *testing.T, cmd *exec.Cmd) *background {
	t.Helper()
	b := &background{t: t, cmd: cmd, stdout: inDir(t, "stdout"), stderr: inDir(t, "stderr")}
	for name, out := range map[string]*io.Writer{b.stdout: &cmd.Stdout, b.stderr: &cmd.Stderr} {
		f, err := os.Create(name)
		must(t, err)
		defer f.Close() //nolint:errcheck // the process has it
		*out = f
	}
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return b
}

func (b *background) signal(sig os.Signal) {
	b.t.Helper()
	must(b.t, b.cmd.Process.Signal(sig))
}

// says waits until the process has written this to its stderr.
func (b *background) says(text string) {
	b.t.Helper()
	eventually(b.t, "stderr with "+text, func() bool { return strings.Contains(readFile(b.t, b.stderr), text) })
}

func (b *background) wait() run {
	b.t.Helper()
	var exit *exec.ExitError
	if err := b.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	return run{status: b.cmd.ProcessState.ExitCode(), stdout: readFile(b.t, b.stdout), stderr: readFile(b.t, b.stderr)}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}
