package ops_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onced/onced/server/ops"
)

// served is an ops server on a port of this machine.
type served struct {
	*ops.Server
	url  string
	done chan error // what Serve returned
}

func serve(t *testing.T, cfg ops.Config) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Server: ops.New(cfg), url: "http://" + l.Addr().String(), done: make(chan error, 1)}
	go func() { s.done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(t.Context()) })
	return s
}

func config(live, ready error) ops.Config {
	return ops.Config{
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Live: func() error { return live }, Ready: func() error { return ready },
	}
}

func (s *served) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	r, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestPaths(t *testing.T) {
	cfg := config(nil, errors.New("the server is stopping"))
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "onced_test_total", Help: "For this test."})
	counter.Add(7)
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter)
	cfg.Metrics = registry
	s := serve(t, cfg)
	for _, tt := range []struct {
		path   string
		status int
		body   string
	}{
		{"/livez", http.StatusOK, "ok\n"},
		{"/readyz", http.StatusServiceUnavailable, "the server is stopping\n"},
		{"/metrics", http.StatusOK, "onced_test_total 7\n"},
		{"/debug/pprof/", http.StatusOK, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", http.StatusOK, "ops_test"},
		{"/debug/pprof/cmdline", http.StatusNotFound, ""},
		{"/", http.StatusNotFound, ""},
	} {
		if status, body := s.get(t, tt.path); status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s: %d %q; want %d with %q", tt.path, status, body, tt.status, tt.body)
		}
	}
}

func TestNotLive(t *testing.T) {
	s := serve(t, config(errors.New("storage failed"), nil))
	if status, body := s.get(t, "/livez"); status != http.StatusServiceUnavailable || body != "storage failed\n" {
		t.Errorf("/livez: %d %q", status, body)
	}
	if status, body := s.get(t, "/readyz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
}

func TestStop(t *testing.T) {
	s := serve(t, config(nil, nil))
	s.get(t, "/livez")
	s.Stop(t.Context())
	s.Stop(t.Context())
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := http.Get(s.url + "/livez"); err == nil {
		t.Error("answered after Stop")
	}
}

// TestStopUnderADeadline: a request that does not end is cut off.
func TestStopUnderADeadline(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	cfg := config(nil, nil)
	cfg.Ready = func() error {
		close(entered)
		<-release
		return nil
	}
	s := serve(t, cfg)
	cut := make(chan error, 1)
	go func() {
		_, err := http.Get(s.url + "/readyz")
		cut <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Stop(ctx)
	if err := <-s.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}

func TestServeFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ops.New(config(nil, nil)).Serve(l); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
}
