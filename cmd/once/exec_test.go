package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onced/onced"
)

// readStatus reads a status file, with the state of its operation.
func readStatus(t *testing.T, path string) (r statusRecord, state string) {
	t.Helper()
	must(t, json.Unmarshal([]byte(readFile(t, path)), &r))
	var operation struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	}
	if r.Operation != nil {
		must(t, json.Unmarshal(r.Operation, &operation))
	}
	return r, strings.TrimSuffix(operation.State+" "+operation.Reason, " ")
}

// TestExecReplaysStatusAndOutput: a status other than 0 is an outcome, and the
// second call gives out the same bytes and status without a run.
func TestExecReplaysStatusAndOutput(t *testing.T) {
	s, runs, file := newServer(t), inDir(t, "runs"), inDir(t, "status")
	script := `echo run >> "$1"; printf 'out\377\n<&>'; printf 'err\r\n' >&2; exit 7`
	args := []string{"exec", "--key", "k", "--status-file", file, "--", "sh", "-c", script, "sh", runs}

	first := s.once(args...).want(t, 7)
	status, state := readStatus(t, file)
	if !status.Executed || status.Replayed || status.Outcome != "OUTCOME_GRANTED" || status.ExitCode != 7 || state != "STATE_COMPLETED" {
		t.Errorf("status file of the run: %+v, %s", status, state)
	}
	second := s.once(args...).want(t, 7)
	if first.stdout != "out\xff\n<&>" || first.stderr != "err\r\n" || second != first {
		t.Errorf("the run gave %q, %q and the replay %q, %q", first.stdout, first.stderr, second.stdout, second.stderr)
	}
	status, _ = readStatus(t, file)
	if status.Executed || !status.Replayed || status.Outcome != "OUTCOME_REPLAYED" || status.ExitCode != 7 {
		t.Errorf("status file of the replay: %+v", status)
	}
	if n := lines(t, runs); n != 1 {
		t.Errorf("%d executions, want 1", n)
	} else {
		t.Logf("2 calls, %d execution", n)
	}
}

// TestExecOtherCommandUnderTheSameKey: it is refused before anything starts.
func TestExecOtherCommandUnderTheSameKey(t *testing.T) {
	s, started, file := newServer(t), inDir(t, "started"), inDir(t, "status")
	s.once("exec", "--key", "k", "--", "true").want(t, 0)
	r := s.once("exec", "--key", "k", "--status-file", file, "--", "touch", started).want(t, exitRefused)
	if exists(started) {
		t.Error("the other command was run")
	}
	if !strings.Contains(r.stderr, "FINGERPRINT_MISMATCH") || r.stdout != "" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	status, _ := readStatus(t, file)
	if status.Executed || status.Reason != "FINGERPRINT_MISMATCH" || status.Outcome != "" || status.ExitCode != exitRefused {
		t.Errorf("status file: %+v", status)
	}
	// An argument more, or the same bytes split otherwise, is another command.
	s.once("exec", "--key", "k2", "--", "echo", "a b").want(t, 0)
	s.once("exec", "--key", "k2", "--", "echo", "a", "b").want(t, exitRefused)
	s.once("exec", "--key", "k2", "--subject", "s", "--", "echo", "a b").want(t, exitDenied)
}

// TestExecKilled: what a command did that a signal has ended, nobody knows.
func TestExecKilled(t *testing.T) {
	s, runs, file := newServer(t), inDir(t, "runs"), inDir(t, "status")
	args := []string{"exec", "--key", "k", "--status-file", file, "--", "sh", "-c", `echo run >> "$1"; kill -KILL $$`, "sh", runs}
	s.once(args...).want(t, exitSignal+9)
	if status, state := readStatus(t, file); !status.Executed || state != "STATE_UNRESOLVED REASON_DECLARED" {
		t.Errorf("status file of the run: %+v, %s", status, state)
	}
	r := s.once(args...).want(t, exitExecUnresolved)
	if !strings.Contains(r.stderr, "DECLARED") || r.stdout != "" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if status, _ := readStatus(t, file); status.Executed || status.Outcome != "OUTCOME_UNRESOLVED" || status.ExitCode != exitExecUnresolved {
		t.Errorf("status file: %+v", status)
	}
	if n := lines(t, runs); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}

// TestExecNotStarted: a command that is not there to be started claims nothing,
// however often it is tried; one that could not be started has had no effect, and is
// tried again.
func TestExecNotStarted(t *testing.T) {
	s, dir, file := newServer(t), t.TempDir(), inDir(t, "status")
	command := filepath.Join(dir, "command")
	args := []string{"exec", "--key", "k", "--status-file", file, "--", command}
	for range onced.MaxAttempts {
		if r := s.once(args...).want(t, exitNoCommand); !strings.Contains(r.stderr, command) || !strings.Contains(r.stderr, "nothing was claimed") {
			t.Errorf("stderr %q", r.stderr)
		}
	}
	if status, state := readStatus(t, file); status.Executed || status.Outcome != "" || status.ExitCode != exitNoCommand || state != "" {
		t.Errorf("status file: %+v, %s", status, state)
	}
	if r := s.once("exec", "--key", "other", "--", "no-such-command-anywhere").want(t, exitNoCommand); !strings.Contains(r.stderr, "no-such-command-anywhere") {
		t.Errorf("stderr %q", r.stderr)
	}
	must(t, os.WriteFile(command, []byte("#!/bin/sh\necho ran\n"), 0o600))
	s.once(args...).want(t, exitNotExecutable)
	s.once("lookup", "--key", "k").want(t, exitNotFound)

	must(t, os.WriteFile(command, []byte("#!/nonexistent/interpreter\n"), 0o600))
	must(t, os.Chmod(command, 0o700))
	s.once(args...).want(t, exitNoCommand)
	if status, state := readStatus(t, file); status.Executed || status.Outcome != "OUTCOME_GRANTED" || state != "STATE_RELEASED" {
		t.Errorf("status file: %+v, %s", status, state)
	}
	must(t, os.WriteFile(command, []byte("#!/bin/sh\necho ran\n"), 0o600))
	if r := s.once(args...).want(t, 0); r.stdout != "ran\n" {
		t.Errorf("stdout %q", r.stdout)
	}
}

// TestExecReplaysWithoutTheProgram: what was run is replayed where there is no such
// program, and what is unresolved is unresolved there too.
func TestExecReplaysWithoutTheProgram(t *testing.T) {
	s, command := newServer(t), filepath.Join(t.TempDir(), "command")
	for key, c := range map[string]struct {
		script string
		status int
		next   int
	}{
		"done":   {"echo ran; exit 3", 3, 3},
		"killed": {"kill -KILL $$", exitSignal + 9, exitExecUnresolved},
	} {
		must(t, os.WriteFile(command, []byte("#!/bin/sh\n"+c.script+"\n"), 0o600))
		must(t, os.Chmod(command, 0o700))
		first := s.once("exec", "--key", key, "--", command).want(t, c.status)
		must(t, os.Remove(command))
		if second := s.once("exec", "--key", key, "--", command).want(t, c.next); second.stdout != first.stdout {
			t.Errorf("%s: the run gave %q, the replay %q", key, first.stdout, second.stdout)
		}
	}

	// Where the namespace would have it run again, the program is needed.
	s = newServer(t, func(p *onced.Policy) { p.SafeToRerun = true })
	must(t, os.WriteFile(command, []byte("#!/bin/sh\nkill -KILL $$\n"), 0o600))
	must(t, os.Chmod(command, 0o700))
	s.once("exec", "--key", "k", "--", command).want(t, exitSignal+9)
	must(t, os.Remove(command))
	s.once("exec", "--key", "k", "--", command).want(t, exitNoCommand)
	if got := at(t, jsonOf(t, s.once("lookup", "--key", "k", "-o", "json")), "operation.attempt"); got != float64(1) {
		t.Errorf("the next attempt was used up: %v", got)
	}
}

// TestExecLargeOutput: it goes through unharmed, and the status is replayed even
// where the output was too large to be kept.
func TestExecLargeOutput(t *testing.T) {
	s, file := newServer(t), inDir(t, "big")
	big := make([]byte, 10<<20)
	_, _ = rand.Read(big)
	must(t, os.WriteFile(file, big, 0o600))
	args := []string{"exec", "--key", "k", "--", "sh", "-c", `cat "$1"; echo done >&2; exit 3`, "sh", file}
	first := s.once(args...).want(t, 3)
	if first.stdout != string(big) || first.stderr != "done\n" {
		t.Fatalf("%d bytes of stdout of %d, stderr %q", len(first.stdout), len(big), cut(first.stderr))
	}
	second := s.once(args...).want(t, 3)
	missing := fmt.Sprintf("done\nonce: stdout of the run was too large to be kept and is not replayed: %d bytes, SHA-256 %x\n", len(big), sha256.Sum256(big))
	if second.stdout != "" || second.stderr != missing {
		t.Errorf("replay: stdout of %d bytes, stderr %q", len(second.stdout), cut(second.stderr))
	}
	// Within the limit, binary output is replayed byte by byte.
	must(t, os.WriteFile(file, big[:700<<10], 0o600))
	args = []string{"exec", "--key", "k2", "--", "cat", file}
	for range 2 {
		if r := s.once(args...).want(t, 0); r.stdout != string(big[:700<<10]) {
			t.Errorf("%d bytes of stdout", len(r.stdout))
		}
	}
}

// TestExecLeavesAProcessBehind: a process that holds the outputs does not hold the
// call.
func TestExecLeavesAProcessBehind(t *testing.T) {
	s := newServer(t)
	s.budgets.drain = 50 * time.Millisecond
	args := []string{"exec", "--key", "k", "--", "sh", "-c", "sleep 1000 & echo $!"}
	first := s.once(args...).want(t, 0)
	var pid int
	_, err := fmt.Sscan(first.stdout, &pid)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	must(t, syscall.Kill(pid, 0)) // it goes on
	if second := s.once(args...).want(t, 0); second != first {
		t.Errorf("run %+v, replay %+v", first, second)
	}
}

// TestExecSlowReader: what the command has written before it ended is not lost on
// a reader that takes its time.
func TestExecSlowReader(t *testing.T) {
	s, file, done := newServer(t), inDir(t, "file"), inDir(t, "done")
	s.budgets.drain = time.Millisecond
	// More than two pipes hold, and little enough for the command to end first.
	want := bytes.Repeat([]byte("0123456789abcde\n"), 160<<10/16)
	must(t, os.WriteFile(file, want, 0o600))
	cmd := s.command("exec", "--key", "k", "--", "sh", "-c", `cat "$1"; echo > "$2"`, "sh", file, done)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	eventually(t, "the end of the command", func() bool { return exists(done) })
	var got bytes.Buffer
	_, err = got.ReadFrom(out)
	must(t, err)
	must(t, cmd.Wait())
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes of %d", got.Len(), len(want))
	}
}

// TestExecReaderGoesAway: a reader that leaves early neither stops the command nor
// loses its outcome.
func TestExecReaderGoesAway(t *testing.T) {
	s, gate, done := newServer(t), inDir(t, "gate"), inDir(t, "done")
	must(t, syscall.Mkfifo(gate, 0o600))
	cmd := s.command("exec", "--key", "k", "--", "sh", "-c", `read line < "$1"; echo out; echo done > "$2"; exit 5`, "sh", gate, done)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	must(t, out.Close())
	must(t, os.WriteFile(gate, []byte("go\n"), 0o600))
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 5 || !exists(done) {
		t.Errorf("exit status %d, command ended: %v", status, exists(done))
	}
	if r := s.once(cmd.Args[1:]...).want(t, 5); r.stdout != "out\n" {
		t.Errorf("replay gave %q", r.stdout)
	}
}

// TestExecInProgress: a second call does not run, and waits if it is told to.
func TestExecInProgress(t *testing.T) {
	s, gate, runs, file := newServer(t), inDir(t, "gate"), inDir(t, "runs"), inDir(t, "status")
	must(t, syscall.Mkfifo(gate, 0o600))
	s.budgets.answer = time.Hour // what answers earlier answers at once
	command := []string{"--", "sh", "-c", `echo run >> "$1"; read line < "$2"; echo "$line"`, "sh", runs, gate}
	call := func(flags ...string) []string {
		return append(append([]string{"exec", "--key", "k"}, flags...), command...)
	}
	first := s.background(call("--holder", "the first")...)
	eventually(t, "the first run", func() bool { return exists(runs) })

	r := s.once(call("--status-file", file)...).want(t, exitExecInProgress)
	if !strings.Contains(r.stderr, `in progress by "the first"`) || r.stdout != "" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if status, state := readStatus(t, file); status.Executed || status.Outcome != "OUTCOME_IN_PROGRESS" || state != "STATE_PENDING" {
		t.Errorf("status file: %+v, %s", status, state)
	}
	s.once(call("--wait", "300ms")...).want(t, exitExecInProgress)

	waiting := s.background(call("--wait", "1m")...)
	must(t, os.WriteFile(gate, []byte("through\n"), 0o600))
	for _, b := range []*background{first, waiting} {
		if r := b.wait().want(t, 0); r.stdout != "through\n" {
			t.Errorf("stdout %q", r.stdout)
		}
	}
	if n := lines(t, runs); n != 1 {
		t.Errorf("%d executions, want 1", n)
	} else {
		t.Logf("4 calls, %d execution", n)
	}
}

// TestExecFailsClosed: without onced nothing is run.
func TestExecFailsClosed(t *testing.T) {
	s, started, file := newServer(t), inDir(t, "started"), inDir(t, "status")
	s.stop()
	s.budgets.answer = 300 * time.Millisecond
	r := s.once("exec", "--key", "k", "--status-file", file, "--", "touch", started).want(t, exitUnreachable)
	if exists(started) || !strings.Contains(r.stderr, "not run") {
		t.Errorf("started: %v, stderr %q", exists(started), r.stderr)
	}
	if status, _ := readStatus(t, file); status.Executed || status.ExitCode != exitUnreachable {
		t.Errorf("status file: %+v", status)
	}
}

// TestExecUsage: what makes no sense is refused before anything is claimed.
func TestExecUsage(t *testing.T) {
	s, started := newServer(t), inDir(t, "started")
	for _, args := range [][]string{
		{"exec", "--key", "k"},
		{"exec", "--", "touch", started},
		{"exec", "--key", "--", "touch", started}, // an unset variable in place of the key
		{"exec", "--key", "", "--", "touch", started},
		{"exec", "--key", "null", "--", "touch", started},
		{"exec", "--key", "k", "--lease", "0", "--", "touch", started},
		{"exec", "--key", "k", "--lease", "25h", "--", "touch", started},
		{"exec", "--key", "k", "--wait=-1s", "--", "touch", started},
		{"exec", "--key", "k", "--status-file", "/nonexistent/status", "--", "touch", started},
	} {
		s.once(args...).want(t, exitUsage)
	}
	if exists(started) {
		t.Error("a command was run")
	}
	s.once("lookup", "--key", "k", "--method", "exec").want(t, exitNotFound)
}

// TestExecPassesArguments: every byte of the command line is the command's.
func TestExecPassesArguments(t *testing.T) {
	s := newServer(t)
	args := []string{"--", "-x", "--key=other", "a,b", "", " ", "$HOME", "\xff", "\n"}
	r := s.once(append([]string{"exec", "--key", "k", "--", "printf", "[%s]"}, args...)...).want(t, 0)
	if want := "[" + strings.Join(args, "][") + "]"; r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
}

// TestExecStdin: the command reads what `once` is given.
func TestExecStdin(t *testing.T) {
	s := newServer(t)
	cmd := s.command("exec", "--key", "k", "--", "cat")
	cmd.Stdin = strings.NewReader("from outside")
	if r := finish(t, cmd).want(t, 0); r.stdout != "from outside" {
		t.Errorf("stdout %q", r.stdout)
	}
}

// TestExecSafeToRerun: where the namespace says so, a run whose outcome nobody
// knows is repeated.
func TestExecSafeToRerun(t *testing.T) {
	s := newServer(t, func(p *onced.Policy) { p.SafeToRerun = true })
	runs, file := inDir(t, "runs"), inDir(t, "status")
	args := []string{"exec", "--key", "k", "--status-file", file, "--", "sh", "-c", `echo run >> "$1"; test "$(wc -l < "$1")" -gt 1 || kill -KILL $$`, "sh", runs}
	s.once(args...).want(t, exitSignal+9)
	s.once(args...).want(t, 0)
	if status, _ := readStatus(t, file); !status.Executed || status.Outcome != "OUTCOME_TAKEN_OVER" {
		t.Errorf("status file: %+v", status)
	}
	s.once(args...).want(t, 0)
	if n := lines(t, runs); n != 2 {
		t.Errorf("%d executions, want 2", n)
	}
}

// TestExecOfAnotherResult: an operation that was not completed by exec is not run,
// and its result is not taken for a status.
func TestExecOfAnotherResult(t *testing.T) {
	s, token, started := newServer(t), inDir(t, "token"), inDir(t, "started")
	fingerprint := words{"touch", started}.fingerprint().String()
	s.once("claim", "--key", "k", "--method", "exec", "--fingerprint", fingerprint, "--token-file", token).want(t, 0)
	s.once("complete", "--key", "k", "--method", "exec", "--token-file", token, "--text", `{"exit_status":0}`, "--content-type", "application/json").want(t, 0)
	s.once("exec", "--key", "k", "--", "touch", started).want(t, exitOther)
	if exists(started) {
		t.Error("the command was run")
	}
}
