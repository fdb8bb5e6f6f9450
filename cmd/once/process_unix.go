//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipeCapacity is the most that a pipe can hold by default settings, in bytes.
const pipeCapacity = 1 << 20

// notStarted is the error of a command that could not be started: it has
// certainly had no effect.
type notStarted struct {
	status int // as a shell has it
	err    error
}

func (e *notStarted) Error() string { return e.err.Error() }

// killed is the error of a command that ended by a signal, or that was ended
// because its claim was lost. What it did until then, nobody knows.
type killed struct{ text string }

func (e *killed) Error() string { return e.text }

// process is one run of a command. Unless it is attended, it leads a process
// group of its own, so that signals reach its children too. An attended one stays
// in the terminal's foreground group, as any command of a shell: it may read the
// keyboard, and what is typed there, Ctrl-C and Ctrl-Z too, reaches it without our
// help.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *tee
	attended       bool
	budgets        budgets
	pipes          []*os.File    // our ends of the outputs
	exited         chan struct{} // closed when the command has ended
	ended          chan struct{} // closed when its outputs have ended, too
}

// newProcess prepares a run with the session's streams, of whose outputs up to
// limit bytes each are kept.
func newProcess(argv []string, s *session, limit uint64) *process {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // running it is the purpose
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // a PATH with "." in it means it, as for a shell
	}
	cmd.Stdin = s.in
	p := &process{
		cmd: cmd, stdout: newTee(s.out, limit), stderr: newTee(s.err, limit),
		attended: inForeground(s.in), budgets: s.budgets,
		exited: make(chan struct{}), ended: make(chan struct{}),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !p.attended}
	return p
}

// inForeground tells whether stdin is the terminal whose foreground group we are
// in. A group of its own would be stopped there as soon as it reads.
func inForeground(stdin *os.File) bool {
	group, err := unix.IoctlGetInt(int(stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// start starts the command. Its outputs are pipes of ours and not of os/exec,
// whose way out of a pipe that stays open loses what a slow reader of ours has
// not taken yet.
func (p *process) start() error {
	theirs := make([]*os.File, 0, 2)
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	for _, out := range []*io.Writer{&p.cmd.Stdout, &p.cmd.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return p.unstarted(err)
		}
		p.pipes, theirs, *out = append(p.pipes, r), append(theirs, w), w
	}
	if err := p.cmd.Start(); err != nil {
		return p.unstarted(err)
	}
	p.collect()
	return nil
}

// unstarted closes our pipes.
func (p *process) unstarted(err error) error {
	for _, f := range p.pipes {
		_ = f.Close()
	}
	return cannotStart(err)
}

// cannotStart is the error of a command that could not be started, with the exit
// status that a shell would give it.
func cannotStart(err error) error {
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNoCommand
	}
	return &notStarted{status: status, err: err}
}

// findProgram finds out whether there is a program to start. It is asked before the
// claim: a claim that ends without a start uses up one of the operation's attempts.
func findProgram(name string) error {
	_, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) { // see newProcess
		return nil
	}
	return cannotStart(fmt.Errorf("%w; nothing was claimed", err))
}

// collect takes the outputs and the exit status as they come.
func (p *process) collect() {
	var outputs sync.WaitGroup
	for i, t := range []*tee{p.stdout, p.stderr} {
		outputs.Go(func() { t.pump(p.pipes[i]) })
	}
	go func() {
		_ = p.cmd.Wait() // its error is in the ProcessState
		close(p.exited)
		outputs.Wait()
		close(p.ended)
	}()
}

// wait waits for the end of the command. When ctx ends first, the claim is lost:
// somebody else may be given it, so the command and its children are told to end,
// and killed if they do not.
func (p *process) wait(ctx context.Context) (execResult, error) {
	lost := false
	select {
	case <-p.exited:
	case <-ctx.Done():
		lost = true
		p.terminate()
	}
	for _, pipe := range p.pipes {
		_ = pipe.SetReadDeadline(time.Now().Add(p.budgets.drain))
	}
	<-p.exited
	<-p.ended
	return p.result(lost)
}

// terminate ends the command's process group.
func (p *process) terminate() {
	p.signal(syscall.SIGTERM)
	grace := time.NewTimer(p.budgets.kill)
	defer grace.Stop()
	select {
	case <-p.ended:
	case <-grace.C:
		p.signal(syscall.SIGKILL)
	}
}

// signal sends a signal to the command, and to its children where it leads a
// group.
func (p *process) signal(sig syscall.Signal) {
	if p.attended {
		_ = p.cmd.Process.Signal(sig) // it may have ended
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
}

// forward sends a signal on that we have got.
func (p *process) forward(sig syscall.Signal) {
	if p.attended && (sig == syscall.SIGINT || sig == syscall.SIGQUIT) {
		return // typed at the terminal, which has sent it to the command as well
	}
	select {
	case <-p.exited: // its number may be another's by now
	default:
		p.signal(sig)
	}
}

func (p *process) result(lost bool) (execResult, error) {
	state, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	status := state.ExitStatus()
	if state.Signaled() {
		status = exitSignal + int(state.Signal())
	}
	switch {
	case lost:
		return execResult{ExitStatus: status}, &killed{"the claim was lost while the command ran, so the command was told to end"}
	case state.Signaled():
		return execResult{ExitStatus: status}, &killed{"the command was ended by " + unix.SignalName(state.Signal())}
	}
	return execResult{ExitStatus: status, Stdout: p.stdout.output(), Stderr: p.stderr.output()}, nil
}

// pump reads a stream to its end, or to its deadline and what is in the pipe then.
func (t *tee) pump(r *os.File) {
	defer r.Close() //nolint:errcheck // it was only read
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		t.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.drain(r, buf)
		}
		if err != nil {
			return
		}
	}
}

// drain takes what is in the pipe and does not wait for more. While we waited for
// our own reader the deadline may have passed over bytes that the command wrote.
func (t *tee) drain(r *os.File, buf []byte) {
	_ = r.SetReadDeadline(time.Time{})
	conn, err := r.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		for left := pipeCapacity; left > 0; {
			n, err := syscall.Read(int(fd), buf)
			if err == syscall.EINTR {
				continue
			}
			if n <= 0 {
				break
			}
			t.write(buf[:n])
			left -= n
		}
		return true
	})
}
