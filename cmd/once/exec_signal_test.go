package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onced/onced/storage/memory"
)

// TestExecInterrupted: SIGINT is the command's. If that ends it, nobody knows what
// it did.
func TestExecInterrupted(t *testing.T) {
	s, started := newServer(t), inDir(t, "started")
	// The child of the shell holds it in wait: a signal to the group reaches both.
	args := []string{"exec", "--key", "k", "--", "sh", "-c", `echo > "$1"; sleep 1000`, "sh", started}
	b := s.background(args...)
	eventually(t, "the command", func() bool { return exists(started) })
	b.signal(syscall.SIGINT)
	b.wait().want(t, exitSignal+int(syscall.SIGINT))
	s.once(args...).want(t, exitExecUnresolved)
}

// TestExecHandlesItsSignal: a command that ends by itself upon a signal has an
// outcome.
func TestExecHandlesItsSignal(t *testing.T) {
	hangUpCounts(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		s, started := newServer(t), inDir(t, "started")
		script := `trap 'kill $!; echo cleaned up; exit 9' INT TERM HUP; sleep 1000 & echo > "$1"; wait`
		args := []string{"exec", "--key", "k", "--", "sh", "-c", script, "sh", started}
		b := s.background(args...)
		eventually(t, "the command", func() bool { return exists(started) })
		b.signal(sig)
		for _, r := range []run{b.wait(), s.once(args...)} {
			if r.want(t, 9); r.stdout != "cleaned up\n" {
				t.Errorf("%v: stdout %q", sig, r.stdout)
			}
		}
	}
}

// hangUpCounts gives SIGHUP its effect on what a test starts. Under nohup the tests are
// run with it ignored, and what they start would keep that; one that is caught is not
// ignored there.
func hangUpCounts(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
}

// TestExecKeepsIgnoredSignals: what is ignored in our process, as under nohup, is
// ignored in the command.
func TestExecKeepsIgnoredSignals(t *testing.T) {
	s := newServer(t)
	once := s.command("exec", "--key", "k", "--", "sh", "-c", "kill -HUP $$; kill -INT $$; exit 5")
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `trap "" HUP INT; exec "$@"`, "sh"}, once.Args...)...)
	cmd.Env = once.Env
	finish(t, cmd).want(t, 5)
	// By default they have their effect.
	hangUpCounts(t)
	s.once("exec", "--key", "k2", "--", "sh", "-c", "kill -HUP $$; exit 5").want(t, exitSignal+int(syscall.SIGHUP))
	s.once("exec", "--key", "k3", "--", "sh", "-c", "kill -PIPE $$; exit 5").want(t, exitSignal+int(syscall.SIGPIPE))
}

// TestExecInterruptedWhileWaiting: a call that is still waiting runs nothing.
func TestExecInterruptedWhileWaiting(t *testing.T) {
	s, token, started := newServer(t), inDir(t, "token"), inDir(t, "started")
	fingerprint := words{"touch", started}.fingerprint().String()
	s.once("claim", "--key", "k", "--method", "exec", "--fingerprint", fingerprint, "--token-file", token).want(t, 0)
	b := s.background("exec", "--key", "k", "--wait", "1h", "--", "touch", started)
	eventually(t, "the waiting call", func() bool { return s.waiters() > 0 })
	b.signal(syscall.SIGTERM)
	b.wait().want(t, exitSignal+int(syscall.SIGTERM))
	s.once("fail", "--key", "k", "--method", "exec", "--token-file", token, "--disposition", "not-executed").want(t, 0)
	if exists(started) {
		t.Error("the command was run")
	}
	s.once("exec", "--key", "k", "--", "touch", started).want(t, 0)
}

// TestExecLosesItsLease: when the lease cannot be renewed the command is told to
// end, and killed when it does not; the outcome is reported as unknown as soon as
// onced can be reached.
func TestExecLosesItsLease(t *testing.T) {
	t.Parallel()
	s, started, told := newServer(t), inDir(t, "started"), inDir(t, "told")
	s.budgets.kill = 200 * time.Millisecond
	// It notes SIGTERM and goes on, and so does its child.
	script := `trap 'echo >> "$2"' TERM; echo > "$1"; while :; do sh -c 'trap "" TERM; sleep 1000'; done`
	args := []string{"exec", "--key", "k", "--lease", "2s", "--", "sh", "-c", script, "sh", started, told}
	b := s.background(args...)
	eventually(t, "the command", func() bool { return exists(started) })
	s.stop()
	b.says("has ended with status 137, and onced has not taken that yet")
	s.start()
	r := b.wait().want(t, exitSignal+int(syscall.SIGKILL))
	if !strings.Contains(r.stderr, "the claim was lost") {
		t.Errorf("stderr %q", r.stderr)
	}
	s.once(args...).want(t, exitExecUnresolved)
}

// TestExecIsRefusedItsClaim: when onced says that the claim is lost the command is
// told to end, and the refusal is shown.
func TestExecIsRefusedItsClaim(t *testing.T) {
	t.Parallel()
	s, started := newServer(t), inDir(t, "started")
	script := `trap 'kill $!; exit 3' TERM; sleep 1000 & echo > "$1"; wait`
	b := s.background("exec", "--key", "k", "--lease", "2s", "--", "sh", "-c", script, "sh", started)
	eventually(t, "the command", func() bool { return exists(started) })
	s.stop()
	s.store = memory.New(machineClock{}) // a store that has never heard of the claim
	s.start()
	r := b.wait().want(t, 3)
	for _, text := range []string{"the claim was lost", "CLAIM_LOST"} {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("no %q in %q", text, r.stderr)
		}
	}
}

// TestExecSettlesLater: an outcome that onced cannot take at once is reported when
// it can.
func TestExecSettlesLater(t *testing.T) {
	t.Parallel()
	s, gate := newServer(t), inDir(t, "gate")
	must(t, syscall.Mkfifo(gate, 0o600))
	args := []string{"exec", "--key", "k", "--", "sh", "-c", `read line < "$1"; echo late; exit 4`, "sh", gate}
	b := s.background(args...)
	openGate(t, gate, s.stop)
	b.says("has ended with status 4")
	s.start()
	b.wait().want(t, 4)
	if r := s.once(args...).want(t, 4); r.stdout != "late\n" {
		t.Errorf("replay gave %q", r.stdout)
	}
}

// TestExecGivesUpSettling: a second signal ends the wait for onced. Nothing is run
// again.
func TestExecGivesUpSettling(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) { givesUpSettling(t, sig) })
	}
}

func givesUpSettling(t *testing.T, sig syscall.Signal) {
	t.Parallel()
	s, gate := newServer(t), inDir(t, "gate")
	must(t, syscall.Mkfifo(gate, 0o600))
	args := []string{"exec", "--key", "k", "--lease", "1s", "--", "sh", "-c", `read line < "$1"; exit 4`, "sh", gate}
	b := s.background(args...)
	openGate(t, gate, s.stop)
	b.says("has ended with status 4")
	b.signal(sig)
	b.says("the outcome has yet to be reported to onced; a second signal gives that up")
	b.signal(sig)
	if r := b.wait().want(t, 4); !strings.Contains(r.stderr, "given up") {
		t.Errorf("stderr %q", r.stderr)
	}
	s.start()
	eventually(t, "the lapse", func() bool { return s.once(args...).status == exitExecUnresolved })
}

// openGate waits until the command reads the gate, does something, and lets the
// command go on.
func openGate(t *testing.T, gate string, first func()) {
	t.Helper()
	f, err := os.OpenFile(gate, os.O_WRONLY, 0)
	must(t, err)
	first()
	_, err = f.WriteString("go\n")
	must(t, err)
	must(t, f.Close())
}
