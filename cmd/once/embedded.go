//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// readyPoll is how often the ready file is looked for.
	readyPoll = 5 * time.Millisecond
	// stopGrace is how long an embedded server has to stop before it is killed.
	stopGrace = 10 * time.Second
)

// embedded is an onced that this command has started for itself: a process of its
// own, over a new store, on free ports of the loopback.
type embedded struct {
	addr, ops string // of its gRPC and its operators' listener
	pid       int
	data      string // folder of its store

	cmd    *exec.Cmd
	log    string        // file with what it prints
	exited chan struct{} // closed when it has ended
}

// startEmbedded makes a store in dir, which must exist, and starts `onced serve`
// on it; it returns when the server serves. config is the text of its
// configuration file and may be empty; flags are added to its command line. What
// dir holds afterwards is the caller's to remove, once stop has returned. Settings
// of this process's environment do not reach the server.
func startEmbedded(ctx context.Context, dir, config string, flags ...string) (*embedded, error) {
	program, err := findOnced()
	if err != nil {
		return nil, err
	}
	e := &embedded{data: filepath.Join(dir, "data"), log: filepath.Join(dir, "onced.log"), exited: make(chan struct{})}
	ready, settings := filepath.Join(dir, "ready.json"), filepath.Join(dir, "onced.yaml")
	if err := os.WriteFile(settings, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(e.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the server has it
	if err := e.prepare(program, log, "init", "--data", e.data).Run(); err != nil {
		return nil, e.failure("could not make a store", err)
	}
	e.cmd = e.prepare(program, log, append([]string{
		"serve", "--data", e.data, "--config", settings, "--ready-file", ready,
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
	}, flags...)...)
	if err := e.start(); err != nil {
		return nil, err
	}
	if err := e.awaitReady(ctx, ready); err != nil {
		e.kill()
		return nil, err
	}
	return e, nil
}

// temporaryFolder makes a folder for an embedded server and what else belongs to it.
func temporaryFolder(name string) (string, error) {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return "", fmt.Errorf("there is no place for a temporary folder: %w; name a folder that can be written in by TMPDIR", err)
	}
	return dir, nil
}

// untilSignal returns a context that ends with the first signal by which somebody
// ends a command, or that says that the reader of what it prints has gone away. A
// signal that the process was started to ignore, as nohup does, goes on being ignored.
func untilSignal() (ctx context.Context, release context.CancelFunc) {
	endings := []os.Signal{syscall.SIGTERM}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE} {
		if !signal.Ignored(sig) {
			endings = append(endings, sig)
		}
	}
	return signal.NotifyContext(context.Background(), endings...)
}

// findOnced finds the server's program: beside this one, as they are installed,
// else where the shell would find it.
func findOnced() (string, error) {
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "onced")); err == nil {
			return beside, nil
		}
	}
	program, err := exec.LookPath("onced")
	if err != nil {
		return "", errors.New("the server's program onced is neither beside once nor in PATH: install it there, or build both with `go install github.com/onced/onced/cmd/...`")
	}
	return program, nil
}

// prepare prepares a command of the server. It leads a process group of its own: a
// Ctrl-C at the terminal is for this process, which then stops it in order.
func (e *embedded) prepare(program string, log *os.File, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...) //nolint:gosec // onced, as it was found
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ONCED_") })
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// start starts the server, which ends with this process however that happens. The
// kernel takes the thread that has started it for its parent: this one stays for as
// long as the server runs.
func (e *embedded) start() error {
	endWithParent(e.cmd.SysProcAttr)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			_ = e.cmd.Wait() // its error is in the ProcessState
			close(e.exited)
		}
	}()
	return <-started
}

// awaitReady waits until the server says that it serves.
func (e *embedded) awaitReady(ctx context.Context, file string) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.exited:
			return e.failure("ended before it served", errors.New(e.cmd.ProcessState.String()))
		case <-poll.C:
		}
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var ready struct {
			GRPC string `json:"grpc"`
			Ops  string `json:"ops"`
			PID  int    `json:"pid"`
		}
		if err := cmp.Or(err, json.Unmarshal(b, &ready)); err != nil {
			return fmt.Errorf("the ready file of onced: %w", err)
		}
		e.addr, e.ops, e.pid = ready.GRPC, ready.Ops, ready.PID
		return nil
	}
}

// stop stops the server gracefully and returns when it has ended: nil, or what was
// wrong with the way it ended. It may be called again.
func (e *embedded) stop() error {
	_ = e.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-e.exited:
	case <-grace.C:
		e.kill()
	}
	if !e.cmd.ProcessState.Success() {
		return e.failure("did not stop well", errors.New(e.cmd.ProcessState.String()))
	}
	return nil
}

// kill ends the server without a word.
func (e *embedded) kill() {
	_ = e.cmd.Process.Kill()
	<-e.exited
}

// failure is an error with the server's own last words.
func (e *embedded) failure(what string, err error) error {
	log, _ := os.ReadFile(e.log)
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return fmt.Errorf("onced %s: %w: %s", what, err, lines[len(lines)-1])
}
