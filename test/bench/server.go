package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// server is a running onced.
type server struct {
	GRPC string `json:"grpc"`
	Ops  string `json:"ops"`

	startup time.Duration // from its start to its ready file
	cmd     *exec.Cmd
	log     string        // path of what it printed
	exited  chan struct{} // closed when the process has been waited for
}

// setup says how a server is started.
type setup struct {
	tags   string // of its build
	config string // path of its configuration; "" for none
	faults string // folder of the fault switches
}

// newStore makes an empty store in a folder, which it makes too.
func (r *rig) newStore(dir string) error {
	return r.run("init", "--data", dir)
}

// soundAfter stops a server and asks onced itself whether its store is sound.
func (r *rig) soundAfter(s *server, dir string, rep *report, name string) error {
	if err := s.stop(); err != nil {
		return err
	}
	if err := r.run("check", "--data", dir); err != nil {
		rep.holds(name, false, "%v", err)
		return nil
	}
	rep.holds(name, true, "onced check finds nothing")
	return nil
}

// run runs a command of onced that ends by itself.
func (r *rig) run(args ...string) error {
	program, err := r.binaries.server("")
	if err != nil {
		return err
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("onced %s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// serve starts a server on a store and returns when it serves.
func (r *rig) serve(ctx context.Context, dir string, o setup) (*server, error) {
	program, err := r.binaries.server(o.tags)
	if err != nil {
		return nil, err
	}
	ready := r.name("ready")
	s := &server{log: r.name("log"), exited: make(chan struct{})}
	s.cmd = exec.Command(program, "serve", "--data", dir, "--ready-file", ready,
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--log-level", "warn")
	if o.config != "" {
		s.cmd.Args = append(s.cmd.Args, "--config", o.config)
	}
	s.cmd.Env = append(os.Environ(), "ONCED_FAULTS="+o.faults)
	output, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	s.cmd.Stdout, s.cmd.Stderr = output, output
	started := time.Now()
	if err := s.start(); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, s.kill)
	return s, poll(ctx, time.Millisecond, patience, "the server's ready file", func() (bool, error) {
		if err := s.running(); err != nil {
			return false, err
		}
		b, err := os.ReadFile(ready)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		s.startup = time.Since(started)
		return true, errors.Join(err, json.Unmarshal(b, s))
	})
}

// start starts the process, which the kernel kills when this one is killed. It takes
// the thread that has started it for its parent: this one stays as long.
func (s *server) start() error {
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
			close(s.exited)
		}
	}()
	return <-started
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// running reports that the server has ended, with the last of what it printed.
func (s *server) running() error {
	select {
	case <-s.exited:
		out, _ := os.ReadFile(s.log)
		return fmt.Errorf("the server ended, %v: %s", s.cmd.ProcessState, bytes.TrimSpace(out[max(0, len(out)-2000):]))
	default:
		return nil
	}
}

// kill ends the server as a power cut of the process would.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.exited
}

// stop ends the server gracefully.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(patience):
		return fmt.Errorf("%w for the server's end", errLate)
	}
	if !s.cmd.ProcessState.Success() {
		return s.running()
	}
	return nil
}

// metric reads one series of the page of the metrics; zero if it is not there.
func (s *server) metric(series string) (float64, error) {
	resp, err := http.Get("http://" + s.Ops + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// serving reports whether the health of the service invites new claims.
func (s *server) serving(ctx context.Context, conn *grpc.ClientConn) bool {
	resp, err := healthpb.NewHealthClient(conn).Check(ctx,
		&healthpb.HealthCheckRequest{Service: oncedv1.IdempotencyService_ServiceDesc.ServiceName})
	return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

// greatestMessage stands above the greatest result.
const greatestMessage = 17 << 20

// connect returns connections to an address, which are closed with the rig.
func (r *rig) connect(address string, n int) ([]*grpc.ClientConn, error) {
	conns := make([]*grpc.ClientConn, n)
	for i := range conns {
		c, err := grpc.NewClient(address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(greatestMessage)))
		if err != nil {
			return nil, err
		}
		r.undo = append(r.undo, func() { _ = c.Close() })
		conns[i] = c
	}
	return conns, nil
}

// stubs returns bare stubs on connections of their own: no re-sending, no rules.
func (r *rig) stubs(s *server, n int) (stubs, error) {
	conns, err := r.connect(s.GRPC, n)
	if err != nil {
		return nil, err
	}
	all := make(stubs, n)
	for i, c := range conns {
		all[i] = oncedv1.NewIdempotencyServiceClient(c)
	}
	return all, nil
}

// stubs are shared by callers: the n-th caller has the n-th, counted round.
type stubs []oncedv1.IdempotencyServiceClient

func (s stubs) of(caller int) oncedv1.IdempotencyServiceClient { return s[caller%len(s)] }
