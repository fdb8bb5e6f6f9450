package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// programs are built once for all tests.
var programs *binaries

func TestMain(m *testing.M) { os.Exit(runMain(m)) }

func runMain(m *testing.M) int {
	if status, ok := inRole(os.Args[1:]); ok {
		return status
	}
	dir, err := os.MkdirTemp("", "onced-bench-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = &binaries{dir: dir, race: raceEnabled}
	// The race detector would have every process sleep for a second at its end.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	return m.Run()
}

// small is every scenario at a scale at which nothing that is about time or size
// means anything, with the figures that it must produce.
var small = map[string]struct {
	scenario scenario
	figures  []string
}{
	"overload": {
		&overload{Duration: 2 * time.Second, Phase: time.Second, Callers: 100, Connections: 4, Factor: 3},
		[]string{"accepted_pairs_per_s", "before_rss_anon_mib", "overload_rss_anon_mib", "offered_claims_per_s", "empty_p99_ms", "refused"},
	},
	"churn": {
		&churn{Keys: 10, Overwrites: 200, Bytes: 512, Writers: 4},
		[]string{"store_file_mib", "store_reads", "wire_file_mib", "wire_reads"},
	},
	"sweep": {
		&sweep{Expired: 3000, Live: 300, Before: time.Second, Rate: 50, Callers: 8},
		[]string{"paced_before_p99_ms", "paced_during_p99_ms", "saturating_before_p99_ms", "saturating_during_p99_ms", "deleted_after_kill"},
	},
	"full": {
		&full{MiB: 8, Open: 40, Settled: 1, Legs: []string{"ballast"}},
		[]string{"8 MiB, ballast: settled", "8 MiB, ballast: granting_after_s", "8 MiB, ballast: healthy_after_s"},
	},
	"open": {
		&open{Records: 2000, Load: time.Second},
		[]string{"settled_open_s", "unsettled_open_s", "settled_open_cold_s", "settled_bytes_per_record"},
	},
	"large": {
		&large{MiB: 1, Operations: 2, Burst: 8, Rounds: 2, Mismatches: 2, Neighbours: 4, Phase: time.Second},
		[]string{"burst_rss_anon_mib", "burst_answered", "alone_claims_per_s", "beside_small_claims_per_s", "beside_large_claims_per_s"},
	},
	"guard": {
		&guard{Callers: 2, Rounds: 10, Bytes: 64},
		[]string{"bare_p50_ms", "guarded_p50_ms", "claim_p50_ms", "complete_p50_ms", "replay_p50_ms"},
	},
}

// TestScenarios runs each scenario at a small scale. It asserts what holds on every
// machine, that nothing is lost and every answer is the right one, and that the
// figures are there; never what they are.
func TestScenarios(t *testing.T) {
	for name, s := range small {
		t.Run(name, func(t *testing.T) {
			if name == "full" {
				requireRoot(t)
			}
			var progress bytes.Buffer
			rep, err := runScenario(name, s.scenario, programs, &progress)
			if err != nil {
				t.Fatalf("%v\n%s", err, &progress)
			}
			always := 0
			for _, b := range rep.Bars {
				if b.Always && !b.OK {
					t.Errorf("%s: %s", b.Name, b.Says)
				}
				if b.Always {
					always++
				}
			}
			if always == 0 {
				t.Error("no bar of the scenario holds on every machine")
			}
			for _, figure := range s.figures {
				if _, ok := rep.Figures[figure]; !ok {
					t.Errorf("there is no figure %s among %v", figure, rep.Figures)
				}
			}
		})
	}
}

// requireRoot skips a test that mounts, unless everything must be run.
func requireRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("ONCED_REQUIRE_ALL") != "":
		t.Fatal("mounting a small disk needs root")
	default:
		t.Skip("NOT TESTED: mounting a small disk needs root")
	}
}

// TestSmallNamesEveryScenario keeps a new scenario from going untested.
func TestSmallNamesEveryScenario(t *testing.T) {
	var help bytes.Buffer
	if status := command([]string{"--help"}, programs, &help, &help); status != exitMet {
		t.Fatalf("--help ended with status %d", status)
	}
	for name := range small {
		if !strings.Contains(help.String(), "\n  "+name) {
			t.Errorf("there is no command %s in\n%s", name, &help)
		}
	}
	if n := strings.Count(help.String(), "[flags]"); n != len(small)+1 {
		t.Errorf("%d commands are tested, and the help names %d:\n%s", len(small), n-1, &help)
	}
}

// TestCommand looks at what scripts rely on: the last line and the exit status.
func TestCommand(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		status int
		says   string // on standard error
		missed []string
	}{
		{"met", []string{"churn", "--overwrites", "10", "-o", "json"}, exitMet, "overwrites", nil},
		{
			"missed",
			[]string{"churn", "--keys", "300", "--overwrites", "300", "--bytes", "60000"},
			exitMissed, "churn missed: store: MiB of the data file (",
			[]string{"store: MiB of the data file", "wire: MiB of the data file"},
		},
		{"wrong flag", []string{"churn", "--nothing"}, exitNotRun, "unknown flag", nil},
		{"no scenario", nil, exitNotRun, "expected one of", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := command(test.args, programs, &stdout, &stderr)
			if status != test.status || !strings.Contains(stderr.String(), test.says) {
				t.Fatalf("status %d and %q, want %d and %q", status, &stderr, test.status, test.says)
			}
			if status == exitNotRun {
				if stdout.Len() > 0 {
					t.Errorf("what could not be run printed %q", &stdout)
				}
				return
			}
			lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
			var rep report
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &rep); err != nil {
				t.Fatalf("the last line is no JSON: %v\n%s", err, &stdout)
			}
			if slices.Contains(test.args, "json") && len(lines) != 1 {
				t.Errorf("%d lines were printed where one was asked for", len(lines))
			}
			var missed []string
			for _, b := range rep.Bars {
				if !b.OK {
					missed = append(missed, b.Name)
				}
			}
			if !slices.Equal(missed, test.missed) || rep.OK != (status == exitMet) {
				t.Errorf("the report says ok=%t and misses %q, want %q", rep.OK, missed, test.missed)
			}
		})
	}
}
