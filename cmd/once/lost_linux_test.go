package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// fullDisk runs `once` with a standard output that takes nothing.
func (s *testServer) fullDisk(args ...string) run {
	s.t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(s.t, err)
	defer full.Close() //nolint:errcheck // nothing is in it
	cmd := s.command(args...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run() // its error is in the ProcessState
	return run{status: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
}

// TestExecOutputLost: an output that cannot be passed on, of a run or of a replay, is
// no success, and is not lost.
func TestExecOutputLost(t *testing.T) {
	s, file := newServer(t), inDir(t, "status")
	for key, c := range map[string]struct {
		script       string
		status, lost int
	}{
		"success": {"echo out", 0, exitOther},
		"failure": {"echo out; exit 3", 3, 3},
	} {
		args := []string{"exec", "--key", key, "--status-file", file, "--", "sh", "-c", c.script}
		for range 2 {
			r := s.fullDisk(args...).want(t, c.lost)
			if !strings.Contains(r.stderr, "stdout of the command could not be passed on") || !strings.Contains(r.stderr, "no space left") {
				t.Errorf("%s: stderr %q", key, r.stderr)
			}
			if status, state := readStatus(t, file); status.ExitCode != c.lost || state != "STATE_COMPLETED" {
				t.Errorf("%s: status file: %+v, %s", key, status, state)
			}
		}
		if r := s.once(args...).want(t, c.status); r.stdout != "out\n" || r.stderr != "" {
			t.Errorf("%s: replay %q, %q", key, r.stdout, r.stderr)
		}
	}
}

// TestAnswerLost: an answer that cannot be printed is no success.
func TestAnswerLost(t *testing.T) {
	s := newServer(t)
	for _, args := range [][]string{
		{"claim", "--key", "k", "--method", "m"},
		{"claim", "--key", "j", "--method", "m", "-o", "json"},
		{"lookup", "--key", "k"},
	} {
		if r := s.fullDisk(args...).want(t, exitOther); !strings.Contains(r.stderr, "no space left") {
			t.Errorf("%q: stderr %q", args, r.stderr)
		}
	}
}
