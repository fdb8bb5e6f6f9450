package main

import (
	"bytes"
	"slices"
	"sync"
	"testing"
)

// walkStates is how many states the tests visit of one scenario; the small ones
// have fewer. leastStates is what all of them must come to.
const (
	walkStates  = 200_000 / raceFactor
	leastStates = 1_500_000 / raceFactor
)

// TestScenarios walks the real rules: no property breaks.
func TestScenarios(t *testing.T) {
	var mu sync.Mutex
	states := 0
	t.Run("walk", func(t *testing.T) {
		for _, s := range scenarios() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				b := s.in
				b.States = walkStates
				o := explore(newModel(b, realRules()), nil)
				t.Logf("%d states, %d transitions, depth %d, %.1f s, complete %v", o.States, o.Transitions, o.Depth, o.Seconds, o.Complete)
				failOnViolation(t, o)
				if s.whole && raceFactor == 1 && !o.Complete {
					t.Errorf("%d states did not complete the walk", o.States)
				}
				mu.Lock()
				defer mu.Unlock()
				states += o.States
			})
		}
	})
	t.Logf("%d states in all", states)
	if states < leastStates {
		t.Errorf("only %d states were visited, want at least %d", states, leastStates)
	}
}

func failOnViolation(t *testing.T, o outcome) {
	t.Helper()
	if o.Broken != nil {
		var text bytes.Buffer
		printWalk(&text, walk{outcome: o})
		t.Fatal(text.String())
	}
}

// TestMutants demands a counterexample for every rule that is off, and none for
// the real rules within as many states of the same bounds.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			o := explore(m.model(500_000), nil)
			if o.Broken == nil {
				t.Fatalf("nothing shows that this rule is needed: %s\n%d states, complete %v", m.rule, o.States, o.Complete)
			}
			if o.Broken.Property != m.breaks || len(o.Broken.Steps) < 3 {
				t.Errorf("broken is %s after %d steps, want %s", o.Broken.Property, len(o.Broken.Steps), m.breaks)
			}
			t.Logf("%s after %d steps, %d states: %s", o.Broken.Property, len(o.Broken.Steps), o.States, o.Broken.Text)
			b := m.in
			b.States = o.States / raceFactor
			failOnViolation(t, explore(newModel(b, realRules()), nil))
		})
	}
}

// TestMutantsBreakEveryProperty keeps each check from becoming one that nothing
// can fail.
func TestMutantsBreakEveryProperty(t *testing.T) {
	var names, broken []string
	for _, m := range mutants() {
		if slices.Contains(names, m.name) {
			t.Errorf("two mutants are called %s", m.name)
		}
		names = append(names, m.name)
		broken = append(broken, m.breaks)
	}
	for _, p := range properties {
		if !slices.Contains(broken, p.name) {
			t.Errorf("no mutant breaks %s: %s", p.name, p.text)
		}
	}
}
