package main

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/onced/onced/storage/bolt"
)

type initCommand struct {
	Data              string `help:"Folder of the store; made if absent." required:"" env:"ONCED_DATA" placeholder:"DIR"`
	ReplacesLostStore bool   `help:"The store takes the place of one that was lost: keys minted before now, within the clocks' skew, are HISTORY_LOST."`
}

// Help is shown by onced init --help.
func (*initCommand) Help() string {
	return "Example: onced init --data /var/lib/onced. A folder that holds a store, or a part of one, is refused."
}

// Run makes the store.
func (c *initCommand) Run() error {
	return bolt.Init(c.Data, bolt.Options{Clock: machineClock{}, ReplacesLostStore: c.ReplacesLostStore})
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
	Data string `help:"Folder of the store." required:"" env:"ONCED_DATA" placeholder:"DIR"`
}

// Help is shown by onced check --help.
func (*checkCommand) Help() string {
	return "Example: onced check --data /var/lib/onced. Exit status 0 and no finding when the store is sound, 1 and a sentence a finding when it is not."
}

// Run checks the store.
func (c *checkCommand) Run(std *streams) error {
	found, err := bolt.Check(c.Data)
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
