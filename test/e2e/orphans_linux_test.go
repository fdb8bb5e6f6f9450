package e2e

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A bench whose reader goes away leaves nothing behind: here that of its lines of
// progress, which come first.
func TestBenchWithoutAReader(t *testing.T) {
	cmd, dir := benchProcess(t, "--embedded", "--callers", "4", "--duration", "100ms")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if first, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.Contains(first, "callers 4") {
		t.Fatalf("%q %v", first, err)
	}
	if err := stderr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it ended as if it had been seen to the end")
	}
	benchLeavesNothing(t, dir)
}

// A bench that is ended by SIGHUP would not be one under nohup.
func TestBenchUnderNohup(t *testing.T) {
	cmd, dir := benchProcess(t, "--embedded", "--callers", "2", "--duration", "300ms", "--rounds", "1", "-o", "json")
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, cmd.Args...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	if first, err := lines.ReadString('\n'); err != nil || !strings.Contains(first, "callers 2") {
		t.Fatalf("%q %v", first, err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil || stdout.Len() == 0 {
		t.Errorf("%v: %s", err, rest)
	}
	benchLeavesNothing(t, dir)
}

// A bench or demonstration that is killed leaves its folder, and no process.
func TestKilledLeavesNoServer(t *testing.T) {
	start := func(t *testing.T, cmd *exec.Cmd, from func() (io.ReadCloser, error), until string) {
		t.Helper()
		r, err := from()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(r); !strings.Contains(lines.Text(), until); {
			if !lines.Scan() {
				t.Fatalf("it ended before %q", until)
			}
		}
	}
	for name, c := range map[string]struct {
		command func(*testing.T, ...string) (*exec.Cmd, string)
		args    []string
		begin   func(*testing.T, *exec.Cmd)
	}{
		"bench": {benchProcess, []string{"--embedded", "--callers", "4", "--duration", "1h"}, func(t *testing.T, cmd *exec.Cmd) {
			start(t, cmd, cmd.StderrPipe, "callers 4")
		}},
		"demo": {demonstration, nil, func(t *testing.T, cmd *exec.Cmd) {
			start(t, cmd, cmd.StdoutPipe, "2. A crash")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, dir := c.command(t, c.args...)
			c.begin(t, cmd)
			if servers := benchServers(t, dir); len(servers) < 2 {
				t.Fatalf("only %q run", servers)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its error is that it was killed
			eventually(t, "the end of its processes", func() bool { return len(benchServers(t, dir)) == 0 })
		})
	}
}
