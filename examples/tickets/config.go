package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// config is what the command line says.
type config struct {
	onced, listen string
	readyFile     string
	delay, wait   time.Duration
}

// parse reads the command line, or prints what can stand in it and returns
// [flag.ErrHelp].
func parse(args []string, stdout io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("tickets", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says what is wrong
	flags.StringVar(&c.onced, "onced", "127.0.0.1:7443", "`address` of onced")
	flags.StringVar(&c.listen, "listen", "127.0.0.1:7444", "`address` for gRPC; port 0 takes a free one")
	flags.StringVar(&c.readyFile, "ready-file", "", "write {grpc, pid} as JSON to this `file` when serving; removed at the end")
	flags.DurationVar(&c.delay, "delay", 0, "`time` between an effect and the end of its call, to try out what happens then")
	flags.DurationVar(&c.wait, "wait", 0, "how much `time` a call waits for one that is being executed under its key, instead of being ABORTED")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(stdout)
		fmt.Fprintln(stdout, "Usage: tickets [flags]\n\nA tool service whose calls are executed at most once. Flags:")
		flags.PrintDefaults()
	}
	if err != nil {
		return c, err
	}
	return c, c.check(flags.Args())
}

func (c config) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q is not expected; everything is said by flags", rest[0])
	}
	if c.delay < 0 {
		return fmt.Errorf("--delay %v must not be negative", c.delay)
	}
	if c.wait < 0 {
		return fmt.Errorf("--wait %v must not be negative", c.wait)
	}
	return errors.Join(checkAddress("--onced", c.onced), checkAddress("--listen", c.listen))
}

func checkAddress(name, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s %q must be host:port: %w", name, address, err)
	}
	return nil
}

// announce writes the ready file, whole or not at all.
func announce(path string, address net.Addr) error {
	if path == "" {
		return nil
	}
	b, err := json.Marshal(struct {
		GRPC string `json:"grpc"`
		PID  int    `json:"pid"`
	}{address.String(), os.Getpid()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// withdraw removes the ready file, and nothing else that may stand under its name.
func withdraw(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		_ = os.Remove(path)
	}
}
