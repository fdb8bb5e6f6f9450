// Command onced is the idempotency coordination server: it keeps the records of
// operations in a folder and answers Claim, Complete, Fail, Lookup, Renew and
// GetPolicy over gRPC.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// version is set by the linker for releases.
var version = "devel"

// Exit statuses.
const (
	exitOK      = 0
	exitRefused = 1  // the store was refused, or serving failed
	exitConfig  = 64 // the command line or configuration was refused
)

// errConfig marks an error of the command line or the configuration.
var errConfig = errors.New("configuration refused")

type commandLine struct {
	Version kong.VersionFlag `help:"Print the version and exit."`

	Init   initCommand   `cmd:"" help:"Make a new, empty store in a folder."`
	Serve  serveCommand  `cmd:"" help:"Serve a store over gRPC."`
	Config configCommand `cmd:"" help:"Print the configuration in force, or say what is wrong with it."`
	Check  checkCommand  `cmd:"" help:"Check a store that nobody is serving; changes nothing."`

	Compact compactCommand `cmd:"" help:"Give the room that a store no longer needs back to its disk, while nobody is serving it."`
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole command as a function of its arguments and outputs.
func run(args []string, stdout, stderr io.Writer) int {
	var cli commandLine
	exited := -1
	parser, err := kong.New(&cli,
		kong.Name("onced"),
		kong.Description("onced makes the execution of an operation happen at most once and replays its first outcome to everyone else."),
		kong.Writers(stdout, stderr),
		kong.Vars{"version": "onced " + version},
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "onced:", err)
		return exitConfig
	}
	ctx, err := parser.Parse(args)
	if exited >= 0 { // --help and --version have printed what they say
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "onced: %v; see onced --help\n", err)
		return exitConfig
	}
	out := &firstError{to: stdout}
	if err = cmp.Or(ctx.Run(&streams{out: out, err: stderr}), out.err); err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "onced:", err)
	if errors.Is(err, errConfig) {
		return exitConfig
	}
	return exitRefused
}

// firstError remembers that output was lost: a command whose answer nobody got has
// not succeeded.
type firstError struct {
	to  io.Writer
	err error
}

// Write implements [io.Writer].
func (w *firstError) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("the output was lost: %w", err)
	}
	return n, err
}

// streams is where a command prints.
type streams struct{ out, err io.Writer }
