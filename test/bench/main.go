// Command bench shows how onced stands load, churn, full disks and large stores:
// each scenario drives real servers with real calls, prints what it measured, and
// says which of its bars were met. Bars on time belong here and not into tests,
// which run on machines that do other things besides.
//
//	go -C test/bench run . SCENARIO [flags] -o json|text
//
// The last line on standard output is one JSON object. The exit status is 0 when
// all bars were met, 1 when one was missed, and 2 when the scenario could not be
// run. docs/benchmarks.md describes the scenarios.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit statuses.
const (
	exitMet    = 0
	exitMissed = 1 // a bar was missed
	exitNotRun = 2 // the scenario could not be run, or the command line is wrong
)

type commandLine struct {
	Output string `short:"o" help:"text: figures and bars for people, then the JSON; json: the JSON alone." enum:"text,json" default:"text"`

	Overload overload `cmd:"" help:"Ten times more claims than a slow store accepts."`
	Churn    churn    `cmd:"" help:"Few keys, overwritten all the time, while somebody reads."`
	Sweep    sweep    `cmd:"" help:"Very many records expire at once, while claims go on."`
	Full     full     `cmd:"" help:"A disk runs full and is given room again. Needs root, for a small tmpfs."`
	Open     open     `cmd:"" help:"A store with very many records is opened after kill -9."`
	Large    large    `cmd:"" help:"Very large results are replayed, and claims of them are refused."`
	Guard    guard    `cmd:"" help:"A gRPC service is called bare and behind a guard."`
}

// scenario is one of the commands.
type scenario interface {
	// measure runs the scenario and adds to the report. Its error says why it could
	// not be run to the end.
	measure(ctx context.Context, r *rig, rep *report) error
}

func main() {
	if status, ok := inRole(os.Args[1:]); ok {
		os.Exit(status)
	}
	dir, err := os.MkdirTemp("", "onced-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitNotRun)
	}
	status := command(os.Args[1:], &binaries{dir: dir}, os.Stdout, os.Stderr)
	os.RemoveAll(dir)
	os.Exit(status)
}

// command is the whole command as a function of its arguments and outputs.
func command(args []string, b *binaries, stdout, stderr io.Writer) int {
	var cli commandLine
	exited := -1
	parser, err := kong.New(&cli,
		kong.Name("bench"),
		kong.Description("bench measures how onced stands its worst days."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
	)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitNotRun
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v; see bench --help\n", err)
		return exitNotRun
	}
	chosen := parsed.Selected().Target.Addr().Interface().(scenario)
	rep, err := runScenario(parsed.Command(), chosen, b, stderr)
	if err == nil {
		err = rep.print(stdout, cli.Output == "json")
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %s could not be run: %v\n", parsed.Command(), err)
		return exitNotRun
	}
	if !rep.OK {
		fmt.Fprintf(stderr, "bench: %s missed: %s\n", rep.Scenario, strings.Join(rep.missed(), ", "))
		return exitMissed
	}
	return exitMet
}

// runScenario runs a scenario in a private folder until it ends or a signal comes.
func runScenario(name string, s scenario, b *binaries, progress io.Writer) (*report, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := newRig(dir, b, progress)
	defer r.close()
	rep := newReport(name)
	if err := s.measure(ctx, r, rep); err != nil {
		return nil, err
	}
	rep.figure("load_average_at_end", loadAverage())
	return rep, nil
}
