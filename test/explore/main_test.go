package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// explored runs the command and returns what it printed.
func explored(t *testing.T, want int, args ...string) (out, errs string) {
	t.Helper()
	var o, e strings.Builder
	if got := command(args, &o, &e); got != want {
		t.Fatalf("explore %s: status %d, want %d\n%s%s", strings.Join(args, " "), got, want, o.String(), e.String())
	}
	return o.String(), e.String()
}

func TestCommandPrintsOneObjectAWalk(t *testing.T) {
	out, _ := explored(t, exitSound, "-callers", "3", "-tokens", "1", "-states", "500", "-scenario", "all", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(scenarios()) {
		t.Fatalf("%d lines for %d scenarios", len(lines), len(scenarios()))
	}
	for _, line := range lines {
		var w walk
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			t.Fatal(err)
		}
		if w.Callers != 3 || w.Tokens != 1 || w.States == 0 || w.Transitions == 0 || w.Depth == 0 || w.Broken != nil {
			t.Errorf("unexpected walk: %s", line)
		}
	}
}

func TestCommandPrintsCounterexample(t *testing.T) {
	out, _ := explored(t, exitBroken, "-without", "used-token-granted")
	for _, want := range []string{
		"without used-token-granted: 2 callers, 2 tokens each",
		"S6 is broken: fences are unique",
		"1  A1: sends Claim  [tick 0, absent]",
		"2  A1: claim arrives → GRANTED  [tick 0, PENDING attempt 1 of A1]",
		"token A1 got a second attempt",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
	out, _ = explored(t, exitBroken, "-without", "used-token-granted", "-o", "json")
	var w walk
	if err := json.Unmarshal([]byte(out), &w); err != nil {
		t.Fatal(err)
	}
	if w.Without != "used-token-granted" || w.Broken == nil || w.Broken.Property != "S6" || len(w.Broken.Steps) != w.Depth {
		t.Errorf("unexpected walk: %s", out)
	}
}

func TestCommandSaysWhatAWalkVisited(t *testing.T) {
	out, _ := explored(t, exitSound, "-scenario", "builds")
	if !strings.Contains(out, "no property is broken; every state was visited") {
		t.Errorf("unexpected output:\n%s", out)
	}
	out, _ = explored(t, exitSound, "-states", "10")
	if !strings.Contains(out, "no property is broken; the bound on states ended the walk") {
		t.Errorf("unexpected output:\n%s", out)
	}
}

func TestCommandLists(t *testing.T) {
	out, _ := explored(t, exitSound, "-list")
	for _, s := range scenarios() {
		if !strings.Contains(out, s.name) {
			t.Errorf("scenario %s is not listed", s.name)
		}
	}
	for _, m := range mutants() {
		if !strings.Contains(out, m.name) || !strings.Contains(out, m.rule) {
			t.Errorf("rule %s is not listed", m.name)
		}
	}
}

func TestCommandRefusesWrongArguments(t *testing.T) {
	for want, args := range map[string][]string{
		`nothing is called "no-such"`:      {"-scenario", "no-such"},
		`nothing is called "no-such-rule"`: {"-without", "no-such-rule"},
		"4 callers with 1 tokens each":     {"-callers", "4", "-tokens", "1"},
		"3 callers with 4 tokens each":     {"-callers", "3", "-tokens", "4"},
		`-o must be text or json`:          {"-o", "xml"},
		`unexpected argument "extra"`:      {"extra"},
		"flag provided but not defined":    {"-no-such-flag"},
	} {
		if _, errs := explored(t, exitMisused, args...); !strings.Contains(errs, want) {
			t.Errorf("%v: %q does not say %q", args, errs, want)
		}
	}
}
