package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// report is what a scenario has measured. Its JSON is the last line that the
// command prints.
type report struct {
	Scenario string         `json:"scenario"`
	OK       bool           `json:"ok"` // every bar is met
	Bars     []bar          `json:"bars"`
	Figures  map[string]any `json:"figures"`
}

// bar is one thing that must hold, and whether it did.
type bar struct {
	Name string `json:"bar"`
	OK   bool   `json:"ok"`
	// Always says that the bar is about no time, rate or size: it holds on every
	// machine, however busy, and at every scale. Tests look at these bars alone.
	Always bool   `json:"always"`
	Says   string `json:"says"` // what was measured, and what was asked
}

func newReport(scenario string) *report {
	r := &report{Scenario: scenario, OK: true, Bars: []bar{}, Figures: map[string]any{}}
	r.figure("load_average_at_start", loadAverage())
	return r
}

// figure notes something that was measured. Names end in their unit.
func (r *report) figure(name string, value any) {
	if f, ok := value.(float64); ok {
		value = rounded(f)
	}
	r.Figures[name] = value
}

// rounded keeps what is worth reading of a figure; what was not measured is null.
func rounded(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return math.Round(f*1000) / 1000
}

// atMost is a bar on a figure. What could not be measured misses it.
func (r *report) atMost(name string, measured, limit float64) {
	r.add(bar{Name: name, OK: measured <= limit, Says: fmt.Sprintf("%.4g, at most %.4g", measured, limit)})
}

// atLeast is a bar on a figure. What could not be measured misses it.
func (r *report) atLeast(name string, measured, limit float64) {
	r.add(bar{Name: name, OK: measured >= limit, Says: fmt.Sprintf("%.4g, at least %.4g", measured, limit)})
}

// holds is a bar that every machine must meet at every scale.
func (r *report) holds(name string, ok bool, format string, args ...any) {
	r.add(bar{Name: name, OK: ok, Always: true, Says: fmt.Sprintf(format, args...)})
}

// keeps is the bar that nothing of what was asked for is missing.
func (r *report) keeps(name string, asked int, missing []string) {
	if len(missing) == 0 {
		r.holds(name, asked > 0, "all %d are there", asked)
		return
	}
	r.holds(name, false, "%d of %d are not: %s", len(missing), asked, strings.Join(missing[:min(3, len(missing))], "; "))
}

func (r *report) add(b bar) {
	r.Bars = append(r.Bars, b)
	r.OK = r.OK && b.OK
}

// print writes the report for people, unless JSON alone was asked for, and its
// JSON as the last line.
func (r *report) print(w io.Writer, jsonAlone bool) error {
	if !jsonAlone {
		for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
			fmt.Fprintf(w, "%-44s %v\n", name, r.Figures[name])
		}
		for _, b := range r.Bars {
			fmt.Fprintf(w, "%-6s %s: %s\n", verdict(b.OK), b.Name, b.Says)
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

func verdict(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

// missed returns the names of the bars that were not met.
func (r *report) missed() []string {
	var names []string
	for _, b := range r.Bars {
		if !b.OK {
			names = append(names, b.Name+" ("+b.Says+")")
		}
	}
	return names
}

// loadAverage is how busy the machine has been in the last minute, as the kernel
// tells it; empty if it does not.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
