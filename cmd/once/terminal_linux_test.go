package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal: our side, and the side of a process.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = ours.Close() })
	must(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	must(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// TestExecAtATerminal: the command may read the keyboard, and Ctrl-C reaches it
// once, and not twice.
func TestExecAtATerminal(t *testing.T) {
	s, ints := newServer(t), inDir(t, "ints")
	ours, theirs := terminal(t)
	script := `trap 'echo int >> "$1"' INT; read line; echo "got $line"; until read line < "$2"; do :; done; exit 6`
	gate := inDir(t, "gate")
	must(t, syscall.Mkfifo(gate, 0o600))
	cmd := s.command("exec", "--key", "k", "--", "sh", "-c", script, "sh", ints, gate)
	cmd.Stdin = theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = io.WriteString(ours, "hello\n")
	must(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "got hello" {
		t.Fatalf("%q, %v", line, err)
	}
	_, err = io.WriteString(ours, "\x03")
	must(t, err)
	eventually(t, "SIGINT", func() bool { return lines(t, ints) > 0 })
	must(t, os.WriteFile(gate, []byte("go\n"), 0o600))
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 6 || lines(t, ints) != 1 {
		t.Errorf("exit status %d, %d times SIGINT", status, lines(t, ints))
	}
}
