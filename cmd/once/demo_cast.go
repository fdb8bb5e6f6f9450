//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/onced/onced/client"
)

// The parts of the processes that the demonstration starts. Each waits for its cue,
// a line on its standard input, and says on its standard output, in JSON, what
// became of it. The end of its standard input ends it.
const (
	partCaller = "caller" // calls the first act, see demoCaller
	partHolder = "holder" // claims the second one, see demoHolder
)

// demoCount is what a caller has got.
type demoCount struct {
	Executed, Replayed int
	Result             string // that all of its calls have
}

// demoGrant is what the holder has got.
type demoGrant struct{ Attempt uint32 }

// demoCaller calls the first act five times at once.
func demoCaller(s *session, outbox string) error {
	c, closeConn, err := s.dial()
	if err != nil {
		return err
	}
	defer closeConn()
	if err := awaitCue(s); err != nil {
		return err
	}
	var (
		all      sync.WaitGroup
		outcomes [demoCalls]client.Outcome[string]
		errs     [demoCalls]error
	)
	for i := range demoCalls {
		all.Go(func() {
			call := client.Call{Key: demoAct, Method: demoMethod}
			outcomes[i], errs[i] = client.Do(context.Background(), c, call, func(context.Context, *client.Claim) (string, error) {
				return send(outbox, demoAct)
			})
		})
	}
	all.Wait()
	count := demoCount{Result: outcomes[0].Value}
	for i, out := range outcomes {
		switch {
		case errs[i] != nil:
			return errs[i]
		case out.Value != count.Result:
			return fmt.Errorf("one call has the result %q, another %q", count.Result, out.Value)
		case out.Replayed:
			count.Replayed++
		default:
			count.Executed++
		}
	}
	return json.NewEncoder(s.out).Encode(count)
}

// demoHolder claims the second act, says so, and comes to nothing more.
func demoHolder(s *session) error {
	c, closeConn, err := s.dial()
	if err != nil {
		return err
	}
	defer closeConn()
	if err := awaitCue(s); err != nil {
		return err
	}
	call := client.Call{Key: demoCrash, Method: demoMethod, Lease: demoLease}
	_, err = client.Do(context.Background(), c, call, func(_ context.Context, cl *client.Claim) (string, error) {
		if err := json.NewEncoder(s.out).Encode(demoGrant{cl.Attempt}); err != nil {
			return "", client.NotExecuted(err)
		}
		select {} // until it is killed
	})
	return err
}

// awaitCue waits for the cue. From then on the process ends with its standard input,
// so that none is left behind by a demonstration that was killed.
func awaitCue(s *session) error {
	in := bufio.NewReader(s.in)
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("waiting for the cue: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(exitOther)
	}()
	return nil
}

// send is the effect of the demonstration: a line in the outbox, which stands for
// any system that has no idea of onced.
func send(outbox, what string) (receipt string, err error) {
	receipt = fmt.Sprintf("%s, sent by process %d", what, os.Getpid())
	f, err := os.OpenFile(outbox, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(f, receipt)
	return receipt, errors.Join(err, f.Close())
}

// sent counts how often it was sent.
func sent(outbox, what string) (int, error) {
	b, err := os.ReadFile(outbox)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return strings.Count("\n"+string(b), "\n"+what+","), err
}

// demoProcess is a process of the demonstration, as its director sees it.
type demoProcess struct {
	cmd *exec.Cmd
	in  io.Writer
	out *json.Decoder
}

// start starts a process. It ends with ctx at the latest; kill must be called.
func (d *demo) start(ctx context.Context, part string) (*demoProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "demo", "--part", part, "--outbox", d.outbox, "--server", d.commandLine.Server) //nolint:gosec // this program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                                 // Ctrl-C is for the director
	cmd.Stderr = d.err
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &demoProcess{cmd: cmd, in: in, out: json.NewDecoder(out)}, cmd.Start()
}

func (p *demoProcess) pid() int { return p.cmd.Process.Pid }

// cue lets the process begin.
func (p *demoProcess) cue() error {
	_, err := io.WriteString(p.in, "go\n")
	return err
}

// hear waits for what the process says.
func (p *demoProcess) hear(what any) error {
	if err := p.out.Decode(what); err != nil {
		return fmt.Errorf("process %d ended before it had said what it did: %w", p.pid(), err)
	}
	return nil
}

// kill ends the process by SIGKILL, if it still runs, and waits for its end.
func (p *demoProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
