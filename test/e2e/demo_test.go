package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// summary is the last line of a demonstration in JSON.
const summary = `{"calls":10,"executions":1,"replays":9,"unresolved_seen":1,"settled":2}`

// demonstration is a process of once demo with a folder for its temporary files.
func demonstration(t *testing.T, args ...string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	dir = t.TempDir()
	cmd = exec.CommandContext(ctx, binary("once"), append([]string{"demo"}, args...)...)
	// The settings of a user are not the demonstration's.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "ONCED_SERVER=127.0.0.1:1", "ONCED_CONFIG=/nonexistent", "ONCED_LISTEN=nonsense")
	return cmd, dir
}

// leavesNothing fails the test if a demonstration has left a file, or a process that
// has to do with its folder.
func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
	if running := processesOf(t, dir); len(running) > 0 {
		t.Errorf("still running: %q", running)
	}
}

// processesOf lists the command lines, of other processes, that name a folder.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(dir)) { // an error: it has ended
			found = append(found, string(line))
		}
	}
	return found
}

func TestDemoInJSON(t *testing.T) {
	cmd, dir := demonstration(t, "-o", "json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != summary {
		t.Errorf("the last line is %s, want %s", last, summary)
	}
	var steps []string
	for _, line := range lines[:len(lines)-1] {
		var step struct{ Step, Text string }
		if err := json.Unmarshal([]byte(line), &step); err != nil || step.Text == "" {
			t.Errorf("%v: %s", err, line)
		}
		steps = append(steps, step.Step)
	}
	told := strings.Join(steps, " ")
	// Whether the lease and the time after it are still running depends on the machine.
	for _, step := range []string{" in_progress", " not_yet"} {
		told = strings.Replace(told, step, "", 1)
	}
	if want := "server act calls calls replays crash killed next unresolved taken_over did_not_happen granted completed"; told != want {
		t.Errorf("the steps are %s, want %s", told, want)
	}
	leavesNothing(t, dir)
}

func TestDemoInText(t *testing.T) {
	cmd, dir := demonstration(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, text := range []string{
		"UNRESOLVED (LAPSED)", "TAKEN_OVER: attempt 2", "GRANTED: attempt 3",
		"\n10 calls, 1 execution, 9 replays; 1 operation was unresolved for a while; 2 are settled.\n",
	} {
		if !strings.Contains(string(out), text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	if n := bytes.Count(out, []byte("\n")); n > 25 {
		t.Errorf("%d lines are too many to be read", n)
	}
	leavesNothing(t, dir)
}

// A demonstration that is ended in the middle, by Ctrl-C or because its reader goes
// away, leaves nothing behind.
func TestDemoEndedEarly(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(cmd *exec.Cmd, out io.Closer) error
		says string
	}{
		"SIGINT":         {func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(syscall.SIGINT) }, "ended early: interrupt"},
		"SIGTERM":        {func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(syscall.SIGTERM) }, "ended early: terminated"},
		"no more reader": {func(_ *exec.Cmd, out io.Closer) error { return out.Close() }, "broken pipe"},
	} {
		for _, step := range []string{"server", "crash", "in_progress"} {
			t.Run(name+" at "+step, func(t *testing.T) {
				t.Parallel()
				cmd, dir := demonstration(t, "-o", "json")
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(out)
				for lines.Scan() && !strings.Contains(lines.Text(), `"step":"`+step+`"`) {
				}
				if err := errors.Join(lines.Err(), c.end(cmd, out)); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, out) // a reader that has gone away reads nothing
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 70 || !strings.Contains(stderr.String(), c.says) {
					t.Errorf("%v, stderr %s", err, &stderr)
				}
				leavesNothing(t, dir)
			})
		}
	}
}

// Without the server's program there is a sentence that says what to do.
func TestDemoWithoutAServer(t *testing.T) {
	cmd, dir := demonstration(t)
	program, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = filepath.Join(t.TempDir(), "once")
	if err := os.WriteFile(cmd.Path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PATH=/nonexistent")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 70 || !strings.Contains(string(out), "neither beside once nor in PATH") {
		t.Errorf("%v\n%s", err, out)
	}
	leavesNothing(t, dir)
}
