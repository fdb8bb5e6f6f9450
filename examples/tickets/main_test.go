package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		exit int
		says string
	}{
		{"--help", exitOK, "-onced address"},
		{"-h", exitOK, "-delay time"},
		{"--listen nowhere", exitUsage, `--listen "nowhere" must be host:port`},
		{"--listen 127.0.0.1:70000", exitUsage, `--listen "127.0.0.1:70000" must be host:port`},
		{"--onced a:b:c", exitUsage, `--onced "a:b:c" must be host:port`},
		{"--delay -1s", exitUsage, "--delay -1s must not be negative"},
		{"--delay soon", exitUsage, "see tickets --help"},
		{"--unknown", exitUsage, "see tickets --help"},
		{"serve", exitUsage, `"serve" is not expected`},
		{"--listen 127.0.0.1:0 --ready-file /nowhere/at/all", exitFailed, "--ready-file: "},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(strings.Fields(c.args), &stdout, &stderr)
		said, other := &stderr, &stdout
		if c.exit == exitOK {
			said, other = other, said
		}
		if exit != c.exit || !strings.Contains(said.String(), c.says) || other.Len() > 0 {
			t.Errorf("tickets %s: exit %d, want %d and %q; it printed\n%s\n%s", c.args, exit, c.exit, c.says, &stdout, &stderr)
		}
	}
}

// What was read of a former ready file stays what it was: the file is replaced, not
// written over. Nothing else is left in its folder.
func TestReadyFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(path, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	former, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer former.Close()
	if err := announce(path, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7444}); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(former); err != nil || string(b) != "former" {
		t.Errorf("the former file reads %q, %v", b, err)
	}
	want := fmt.Sprintf(`{"grpc":"127.0.0.1:7444","pid":%d}`+"\n", os.Getpid())
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("the ready file reads %q, %v; want %q", b, err, want)
	}
	alone(t, path)
}

// A ready file that cannot be put in place leaves nothing behind.
func TestReadyFileInTheWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := announce(path, &net.TCPAddr{}); err == nil {
		t.Error("a folder was replaced")
	}
	withdraw(path)
	alone(t, path)
}

// alone demands that there is nothing but this file in its folder.
func alone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// The process serves until it is told to stop, whether onced is there or not.
func TestServe(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready.json")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log, serving := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, config{onced: "127.0.0.1:1", listen: "127.0.0.1:0", readyFile: ready}, slog.New(slog.NewTextHandler(serving, nil)))
		serving.Close()
	}()
	line := make([]byte, 4096)
	if n, err := log.Read(line); err != nil || !strings.Contains(string(line[:n]), "msg=serving") {
		t.Fatalf("it logged %q, %v", line[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()

	var at struct {
		GRPC string
		PID  int
	}
	if b, err := os.ReadFile(ready); err != nil || json.Unmarshal(b, &at) != nil || at.PID != os.Getpid() {
		t.Fatalf("the ready file reads %q, %v", b, err)
	}
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("its health is %v, %v", health, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := os.Stat(ready); !os.IsNotExist(err) {
		t.Errorf("the ready file is still there: %v", err)
	}
}
