package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// 64 goroutines in 8 processes claim one key at a barrier: exactly one is
// granted, in every one of 200 rounds.
func TestR59_OneGrantARound(t *testing.T) {
	s := serve(t, newStore(t))
	var players []*player
	for range 8 {
		players = append(players, startRole(t, "claim", s))
	}
	granted := 0
	for round := range 200 {
		for _, p := range players {
			p.tell(fmt.Sprintf("round-%d", round))
		}
		count := map[string]int{}
		for _, p := range players {
			for outcome, n := range p.answer() {
				count[outcome] += n
			}
		}
		want := map[string]int{"OUTCOME_GRANTED": 1, "OUTCOME_IN_PROGRESS": 63}
		if !maps.Equal(count, want) {
			t.Fatalf("round %d: outcomes %v, want %v", round, count, want)
		}
		granted++
	}
	t.Logf("rounds=%d executions=%d", 200, granted)
}

// Ten calls of one act from two processes: one execution, nine replays.
func TestTenCallsFromTwoProcesses(t *testing.T) {
	s := serve(t, newStore(t))
	ledger := filepath.Join(t.TempDir(), "ledger")
	players := []*player{
		startRole(t, "do", s, "ONCED_LEDGER="+ledger), startRole(t, "do", s, "ONCED_LEDGER="+ledger),
	}
	for _, p := range players {
		p.tell("the-act")
	}
	count := map[string]int{}
	for _, p := range players {
		for what, n := range p.answer() {
			count[what] += n
		}
	}
	if want := map[string]int{"executions": 1, "replays": 9}; !maps.Equal(count, want) {
		t.Errorf("ten calls gave %v, want %v", count, want)
	}
	if n := lines(t, ledger); n != 1 {
		t.Errorf("the act ran %d times, want once", n)
	}
	t.Logf("calls=10 executions=%d replays=%d", count["executions"], count["replays"])
}

// lines counts the lines of a ledger: the executions of an act.
func lines(t testing.TB, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}
