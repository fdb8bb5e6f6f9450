package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// benchFigures are what a bench of a server of its own knows, without records and
// replays. All of them are above zero, whatever the machine.
var benchFigures = []string{
	"pairs_per_s", "null_pairs_per_s", "empty_pairs_per_s",
	"claim_p50", "claim_p99", "complete_p50", "complete_p99", "null_claim_p50", "null_claim_p99", "empty_p50", "empty_p99",
	"commit_batch", "rss_anon", "bytes_per_record", "write_amplification", "fdatasync_p50",
}

// benchProcess is a process of once bench, with a folder for its temporary files.
func benchProcess(t *testing.T, args ...string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	dir = t.TempDir()
	cmd = exec.CommandContext(ctx, binary("once"), append([]string{"bench"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "ONCED_CONFIG=/nonexistent")
	return cmd, dir
}

// runBench runs a bench that ends well, and returns its report.
func runBench(t *testing.T, args ...string) map[string]any {
	t.Helper()
	cmd, dir := benchProcess(t, append([]string{"--callers", "4", "--duration", "200ms", "--rounds", "1", "-o", "json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	object := json.NewDecoder(bytes.NewReader(out))
	var report map[string]any
	if err := object.Decode(&report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := object.Token(); err != io.EOF {
		t.Errorf("more than one object on standard output: %s", out)
	}
	for line := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(line, "once bench: ") {
			t.Errorf("no line of progress: %q", line)
		}
	}
	benchLeavesNothing(t, dir)
	return report
}

// benchLeavesNothing fails the test if a bench has left a file, or a process with
// its environment.
func benchLeavesNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if running := benchServers(t, dir); len(running) > 0 {
		t.Errorf("still running: %q", running)
	}
}

// benchServers lists the command lines of the processes that a bench has started.
func benchServers(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil || runtime.GOOS == "linux" && len(files) == 0 {
		t.Fatal("no processes", err)
	}
	for _, file := range files {
		if env, err := os.ReadFile(file); err != nil || !bytes.Contains(env, []byte("TMPDIR="+dir+"\x00")) {
			continue // an error: it has ended, or is somebody else's
		}
		if line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")); err == nil && len(line) > 0 {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}

// above fails the test unless all of the figures are there, and above zero.
func above(t *testing.T, report map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		if v, ok := report[name].(float64); !ok || v <= 0 {
			t.Errorf("%s is %v", name, report[name])
		}
	}
}

func TestBenchEmbedded(t *testing.T) {
	report := runBench(t, "--embedded")
	figures := benchFigures
	if runtime.GOOS != "linux" {
		figures = slices.DeleteFunc(slices.Clone(figures), func(name string) bool { return name == "rss_anon" || name == "write_amplification" })
	}
	above(t, report, figures...)
	settings := map[string]any{
		"callers": 4.0, "connections": 1.0, "duration_s": 0.2, "rounds": 1.0, "records": 0.0,
		"result_bytes": 256.0, "replay_share": 0.0, "leave_unsettled": false,
		"replay_p50": nil, "replay_p99": nil,
	}
	for name, want := range settings {
		if got, there := report[name]; !there || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	want := slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(settings)), benchFigures...)))
	if got := slices.Sorted(maps.Keys(report)); !slices.Equal(got, want) {
		t.Errorf("the report has\n%q, want\n%q", got, want)
	}
}

// Records are there before the rounds, and replays are of them.
func TestBenchRecords(t *testing.T) {
	report := runBench(t, "--embedded", "--records", "300", "--replay-share", "0.5", "--result-bytes", "5000")
	above(t, report, append(slices.Clone(benchFigures[:7]),
		"replay_p50", "replay_p99", "empty_store_pairs_per_s", "prefill_s", "prefill_records_per_s")...)
}

// Of a server that was there before, what can be known is told; and the bench has
// really claimed and settled there.
func TestBenchServer(t *testing.T) {
	s := serve(t, newStore(t))
	report := runBench(t, "--server", s.GRPC, "--leave-unsettled", "--records", "100")
	above(t, report, "pairs_per_s", "null_pairs_per_s", "empty_pairs_per_s", "claim_p50", "prefill_s")
	for _, name := range []string{"complete_p50", "commit_batch", "rss_anon", "bytes_per_record", "write_amplification", "fdatasync_p50"} {
		if got, there := report[name]; !there || got != nil {
			t.Errorf("%s is %v", name, got)
		}
	}
	if n := s.metric(`onced_settlements_total{by="HOLDER",namespace="other",state="COMPLETED"}`); n != 100 {
		t.Errorf("%v operations were settled, not 100", n)
	}
	s.stop()
}

// For people there is a table.
func TestBenchText(t *testing.T) {
	cmd, dir := benchProcess(t, "--embedded", "--callers", "2", "--duration", "100ms", "--rounds", "1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"pairs/s", "store / null", "null / empty", "fdatasync p50"} {
		if !bytes.Contains(out, []byte(text)) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	benchLeavesNothing(t, dir)
}

// A bench that is ended early stops its servers, removes its folder and reports
// nothing. A Ctrl-C reaches all of its process group.
func TestBenchEndedEarly(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, dir := benchProcess(t, "--embedded", "--callers", "4", "--duration", "1h", "-o", "json")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
			if first, err := lines.ReadString('\n'); err != nil || !strings.Contains(first, "callers 4") {
				t.Fatalf("%q %v", first, err)
			}
			if servers := benchServers(t, dir); runtime.GOOS == "linux" && len(servers) != 4 {
				t.Errorf("the bench and its servers are %q", servers)
			}
			if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(lines)
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 70 || !bytes.Contains(rest, []byte("ended early")) || stdout.Len() > 0 {
				t.Errorf("status %d, %q, %q", cmd.ProcessState.ExitCode(), rest, &stdout)
			}
			benchLeavesNothing(t, dir)
		})
	}
}

// A bench that makes no sense, or has nothing to measure, says so.
func TestBenchRefused(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		text   string
	}{
		{[]string{"--callers", "0"}, 64, "--callers 0 must be"},
		{[]string{"--callers", "many"}, 64, "--callers"},
		{[]string{"--duration", "0s"}, 64, "--duration 0s must be"},
		{[]string{"--rounds", "0"}, 64, "--rounds 0 must be"},
		{[]string{"--records=-1"}, 64, "--records -1 must"},
		{[]string{"--result-bytes", "1048577"}, 64, "--result-bytes 1048577 must be"},
		{[]string{"--replay-share", "1.5"}, 64, "--replay-share 1.5 must be"},
		{[]string{"--server", "nowhere"}, 64, "--server"},
		{[]string{"--server", freeAddress(t), "--callers", "2"}, 69, "the store's server refused a claim"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			cmd, dir := benchProcess(t, append(tt.args, "-o", "json")...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(stderr.String(), tt.text) || len(out) > 0 {
				t.Errorf("status %d, %s%s; want %d and %q", got, &stderr, out, tt.status, tt.text)
			}
			benchLeavesNothing(t, dir)
		})
	}
}
