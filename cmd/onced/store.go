package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/onced/onced/storage/bolt"
)

type initCommand struct {
	Data              folder `help:"Folder of the store; made if absent." required:"" env:"ONCED_DATA" placeholder:"DIR"`
	ReplacesLostStore bool   `help:"The store takes the place of one that was lost: to callers that send key_time, keys minted before now, within the clocks' skew, are HISTORY_LOST."`
}

// Help is shown by onced init --help.
func (*initCommand) Help() string {
	return "Example: onced init --data /var/lib/onced. A folder that holds a store, or a part of one, is refused."
}

// Run makes the store.
func (c *initCommand) Run() error {
	return bolt.Init(string(c.Data), bolt.Options{Clock: machineClock{}, ReplacesLostStore: c.ReplacesLostStore})
}

type configCommand struct{ configFlags }

// Help is shown by onced config --help.
func (*configCommand) Help() string {
	return "Example: onced config --config onced.yaml. Exit status 64 and a sentence for everything that onced serve would refuse."
}

// Run prints the configuration in force.
func (c *configCommand) Run(std *streams) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	e := yaml.NewEncoder(std.out)
	e.SetIndent(2)
	if err := e.Encode(cfg.effective()); err != nil {
		return err
	}
	return e.Close()
}

type checkCommand struct {
	Data folder `help:"Folder of the store." required:"" env:"ONCED_DATA" placeholder:"DIR"`
}

// Help is shown by onced check --help.
func (*checkCommand) Help() string {
	return "Example: onced check --data /var/lib/onced. Exit status 0 and no finding when the store is sound, 1 and a sentence a finding when it is not."
}

// Run checks the store.
func (c *checkCommand) Run(std *streams) error {
	shown := newProgress(std.err)
	found, err := bolt.Check(string(c.Data), shown.tell)
	shown.end()
	if err != nil {
		return err
	}
	findings(std.out, found)
	if len(found) > 0 {
		return fmt.Errorf("%s is not sound", c.Data)
	}
	fmt.Fprintln(std.out, c.Data, "is sound")
	return nil
}

type compactCommand struct {
	Data folder `help:"Folder of the store." required:"" env:"ONCED_DATA" placeholder:"DIR"`
}

// Help is shown by onced compact --help.
func (*compactCommand) Help() string {
	return "Example: onced compact --data /var/lib/onced. Writes the data file anew, checks and compares the new one, and puts it in the place of the old one. " +
		"It needs room for both, and a store that onced check finds sound. Ended at any moment, by SIGINT or otherwise, it leaves the store whole."
}

// Run compacts the store.
func (c *compactCommand) Run(std *streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	shown := newProgress(std.err)
	before, after, err := bolt.Compact(ctx, string(c.Data), shown.tell)
	shown.end()
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("stopped by a signal: %s was left as it is", c.Data)
	case err != nil:
		return err
	}
	fmt.Fprintf(std.out, "%s: %d bytes before, %d bytes after\n", c.Data, before, after)
	return nil
}

// folder is the folder of a store. One that is named and empty, as by the variable of
// a script that was not set, is refused: it would be taken for none.
type folder string

// UnmarshalText reads a folder from the command line or the environment.
func (f *folder) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		return errors.New("the folder of the store is empty: name it, or leave the flag and ONCED_DATA out")
	}
	*f = folder(b)
	return nil
}
