package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit statuses.
const (
	exitSound   = 0
	exitBroken  = 1 // a property does not hold
	exitMisused = 64
)

func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

// walk is one walk and what came of it, as it is printed.
type walk struct {
	Scenario string `json:"scenario,omitempty"`
	Without  string `json:"without,omitempty"` // the rule that is off
	Callers  int    `json:"callers"`
	Tokens   int    `json:"tokens"`
	outcome
}

// command walks what the arguments ask for and returns the exit status.
func command(args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("explore", flag.ContinueOnError)
	flags.SetOutput(errs)
	name := flags.String("scenario", "everything", "the events that may happen, or all: one scenario after the other")
	without := flags.String("without", "", "walk with this rule off, and stop at a counterexample")
	callers := flags.Int("callers", 0, fmt.Sprintf("callers at once, up to %d (default: the scenario's)", maxCallers))
	tokens := flags.Int("tokens", 0, "claim tokens that each caller mints (default: the scenario's)")
	states := flags.Int("states", 1_000_000, "end each walk after so many states")
	format := flags.String("o", "text", "text or json, one object a line")
	list := flags.Bool("list", false, "list the scenarios, the properties and the rules that can be off")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitSound
		}
		return exitMisused
	}
	if *list {
		printList(out)
		return exitSound
	}
	models, err := choose(*name, *without, *callers, *tokens, *states)
	if err == nil && *format != "text" && *format != "json" {
		err = fmt.Errorf("-o must be text or json, not %q", *format)
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(errs, "explore:", err)
		return exitMisused
	}
	return walkAll(models, *format, out)
}

// chosen is a walk that has not been made yet.
type chosen struct {
	walk
	model *model
}

// choose finds the walks that are asked for.
func choose(name, without string, callers, tokens, states int) ([]chosen, error) {
	var walks []chosen
	if without != "" {
		for _, m := range mutants() {
			if m.name == without {
				walks = append(walks, chosen{walk{Without: without}, m.model(states)})
			}
		}
	} else {
		for _, s := range scenarios() {
			if s.name == name || name == "all" {
				b := s.in
				b.States = states
				walks = append(walks, chosen{walk{Scenario: s.name}, newModel(b, realRules())})
			}
		}
	}
	if len(walks) == 0 {
		return nil, fmt.Errorf("nothing is called %q: -list names what there is", cmp.Or(without, name))
	}
	for i, w := range walks {
		b := w.model.bounds
		if callers != 0 {
			b.Callers = callers
		}
		if tokens != 0 {
			b.Tokens = tokens
		}
		if b.Callers < 1 || b.Callers > maxCallers || b.Tokens < 1 || b.Callers*b.Tokens > maxRuns {
			return nil, fmt.Errorf("%d callers with %d tokens each: there may be %d callers and %d tokens in all", b.Callers, b.Tokens, maxCallers, maxRuns)
		}
		walks[i].model = newModel(b, w.model.rules)
		walks[i].Callers, walks[i].Tokens = b.Callers, b.Tokens
	}
	return walks, nil
}

func walkAll(walks []chosen, format string, out io.Writer) int {
	status := exitSound
	for _, w := range walks {
		w.outcome = explore(w.model, nil)
		if w.Broken != nil {
			status = exitBroken
		}
		if format == "json" {
			// A walk has nothing that cannot be encoded; a writer that fails ends the output.
			if json.NewEncoder(out).Encode(w.walk) != nil {
				return exitBroken
			}
			continue
		}
		printWalk(out, w.walk)
	}
	return status
}

func printWalk(out io.Writer, w walk) {
	title := w.Scenario
	if w.Without != "" {
		title = "without " + w.Without
	}
	extent := "the bound on states ended the walk"
	if w.Complete {
		extent = "every state was visited"
	}
	fmt.Fprintf(out, "%s: %d callers, %d tokens each\n", title, w.Callers, w.Tokens)
	fmt.Fprintf(out, "  %d states, %d transitions, depth %d, %.1f s\n", w.States, w.Transitions, w.Depth, w.Seconds)
	if w.Broken == nil {
		fmt.Fprintf(out, "  no property is broken; %s\n", extent)
		return
	}
	fmt.Fprintf(out, "  %s is broken: %s\n  %s\n", w.Broken.Property, meaning(w.Broken.Property), w.Broken.Text)
	for i, s := range w.Broken.Steps {
		fmt.Fprintf(out, "  %3d  %s\n", i+1, s)
	}
}

func printList(out io.Writer) {
	fmt.Fprintln(out, "scenarios:")
	for _, s := range scenarios() {
		fmt.Fprintf(out, "  %-26s %s\n", s.name, s.what)
	}
	fmt.Fprintln(out, "properties:")
	for _, p := range properties {
		fmt.Fprintf(out, "  %-4s %s\n", p.name, p.text)
	}
	fmt.Fprintln(out, "rules that can be off, and what then breaks:")
	for _, m := range mutants() {
		fmt.Fprintf(out, "  %-34s %-4s %s\n", m.name, m.breaks, m.rule)
	}
}
