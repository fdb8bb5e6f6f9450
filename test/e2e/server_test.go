package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// patience bounds every wait for something that must happen. It decides no
// result: a test that runs into it has failed.
const patience = 60 * time.Second

// ready is what a server writes when it serves.
type ready struct {
	GRPC       string `json:"grpc"`
	Ops        string `json:"ops"`
	PID        int    `json:"pid"`
	Generation uint64 `json:"generation"`
}

// process is a running server: an onced, or a tool.
type process struct {
	ready
	t         testing.TB
	readyFile string
	cmd       *exec.Cmd
	log       *lockedBuffer
	exited    chan struct{} // closed when the process has been waited for
}

// newStore makes a store in a folder of the test's own.
func newStore(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if out, status := runOnced(t, "init", "--data", dir); status != 0 {
		t.Fatalf("onced init: status %d\n%s", status, out)
	}
	return dir
}

// runOnced runs a command of onced that ends by itself, and returns what it prints
// and its exit status.
func runOnced(t testing.TB, args ...string) (output string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary("onced"), args...)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("onced %v: %v\n%s", args, err, out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// isSound fails the test unless onced check finds nothing in a store that nobody
// serves.
func isSound(t testing.TB, dir string) {
	t.Helper()
	if out, status := runOnced(t, "check", "--data", dir); status != 0 {
		t.Fatalf("onced check ended with status %d:\n%s", status, out)
	}
}

// serve starts onced on a store and waits until it serves.
func serve(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	return serveWith(t, binary("onced"), nil, dir, args...)
}

// serveWith starts a particular build of onced, with additions to its
// environment.
func serveWith(t testing.TB, program string, env []string, dir string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(program, "serve", "--data", dir)
	cmd.Env = append(os.Environ(), env...)
	return launch(t, cmd, args...)
}

// launch starts a server with further arguments and waits until it serves. Of a
// flag that stands twice the last one counts.
func launch(t testing.TB, cmd *exec.Cmd, args ...string) *process {
	t.Helper()
	cmd.Args = append(cmd.Args, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
	cmd.Args = append(cmd.Args, args...)
	return start(t, cmd)
}

// start starts a server of any kind and waits until it serves.
func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	s := &process{t: t, cmd: cmd, readyFile: filepath.Join(t.TempDir(), "ready.json"), log: &lockedBuffer{}, exited: make(chan struct{})}
	cmd.Args = append(cmd.Args, "--ready-file", s.readyFile)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() {
		s.kill()
		if strings.Contains(s.log.String(), "DATA RACE") {
			t.Error("the server has a data race")
		}
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", s.log.tail(50))
		}
	})
	eventually(t, "the server's ready file", func() bool {
		if s.isExited() {
			t.Fatalf("the server ended before it served:\n%s", s.log)
		}
		b, err := os.ReadFile(s.readyFile)
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		return json.Unmarshal(b, &s.ready) == nil
	})
	return s
}

// serveAt starts onced on a store at an address that another server had before.
func serveAt(t testing.TB, dir, address string) *process {
	t.Helper()
	return serve(t, dir, "--listen", address)
}

func (s *process) isExited() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// kill ends the server as a power cut of the process would: without a word.
func (s *process) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.exited
}

// stop ends the server gracefully and fails the test if it does not end well.
func (s *process) stop() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if status := s.wait(); status != 0 {
		s.t.Fatalf("the server ended with status %d:\n%s", status, s.log)
	}
}

// wait waits for the server to end and returns its exit status, -1 if a signal
// ended it.
func (s *process) wait() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Fatalf("the server did not end:\n%s", s.log)
	}
	return s.cmd.ProcessState.ExitCode()
}

// dial returns a connection to an address. It tries again at short intervals,
// where gRPC would by default let seconds pass.
func dial(t testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, append(dialOptions(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
}

// conn returns a connection to the server that the test closes.
func (s *process) conn() *grpc.ClientConn {
	s.t.Helper()
	return dial(s.t, s.GRPC)
}

// stub returns a bare stub: no re-sending, no rules.
func (s *process) stub() oncedv1.IdempotencyServiceClient {
	return oncedv1.NewIdempotencyServiceClient(s.conn())
}

// get fetches a page of the operators' listener.
func (s *process) get(path string) (status int, body string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Ops+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// metric reads one series, named as on the page of the metrics. A series that is
// not there yet is zero.
func (s *process) metric(series string) float64 {
	s.t.Helper()
	_, page := s.get("/metrics")
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

// eventually polls until ok, and fails the test when patience runs out.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// freeAddress returns an address of this machine that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// lockedBuffer collects a process's output while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what has been written.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tail returns the last lines.
func (l *lockedBuffer) tail(n int) string {
	all := strings.SplitAfter(l.String(), "\n")
	return strings.Join(all[max(0, len(all)-n):], "")
}
