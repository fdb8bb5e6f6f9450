package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/onced/onced"
	"github.com/onced/onced/server"
)

// configFlags is what can be set on the command line, by environment and in the
// file, in this order of precedence.
type configFlags struct {
	Config    string `help:"Read this YAML file." type:"path" env:"ONCED_CONFIG" placeholder:"FILE"`
	Data      folder `help:"Folder of the store (default ./onced-data, made if absent)." env:"ONCED_DATA" placeholder:"DIR"`
	Listen    string `help:"Address for gRPC (default 127.0.0.1:7443)." env:"ONCED_LISTEN" placeholder:"ADDR"`
	OpsListen string `help:"Address for /metrics, /livez, /readyz and pprof (default off)." env:"ONCED_OPS_LISTEN" placeholder:"ADDR"`
	LogLevel  string `help:"debug, info, warn or error (default info)." env:"ONCED_LOG_LEVEL" placeholder:"LEVEL"`
	Insecure  bool   `help:"Listen beyond this machine although the listener has neither TLS nor authentication." env:"ONCED_INSECURE"`
}

// config is the configuration as the file has it and as it is in force.
type config struct {
	Data       string                `yaml:"data"`
	Listen     string                `yaml:"listen"`
	OpsListen  string                `yaml:"ops_listen"`
	LogLevel   string                `yaml:"log_level"`
	Insecure   bool                  `yaml:"insecure"`
	Default    policyFile            `yaml:"default"`
	Namespaces map[string]policyFile `yaml:"namespaces"`

	policies *server.Policies
}

const (
	defaultListen   = "127.0.0.1:7443"
	defaultData     = "./onced-data"
	defaultLogLevel = "info"
)

// load reads the file if there is one, lays the flags over it, fills in the
// defaults and checks the whole.
func (f configFlags) load() (*config, error) {
	c := &config{}
	if f.Config != "" {
		if err := c.read(f.Config); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errConfig, f.Config, err)
		}
	}
	c.Data = cmp.Or(string(f.Data), c.Data)
	c.Listen = cmp.Or(f.Listen, c.Listen, defaultListen)
	c.OpsListen = cmp.Or(f.OpsListen, c.OpsListen)
	c.LogLevel = cmp.Or(f.LogLevel, c.LogLevel, defaultLogLevel)
	c.Insecure = c.Insecure || f.Insecure
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	return c, nil
}

func (c *config) read(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(typeNames.ReplaceAllString(err.Error(), ""))
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return errors.New("the file holds more than one YAML document")
	}
	return nil
}

// typeNames is what yaml's sentences say of this program's types.
var typeNames = regexp.MustCompile(` (in type|into) main\.\w+`)

// check resolves the policies and reports everything that is wrong.
func (c *config) check() error {
	errs := []error{
		c.checkListener("listen", c.Listen),
		c.checkListener("ops_listen", c.OpsListen),
		checkLevel(c.LogLevel),
	}
	byDefault := c.Default.over(onced.DefaultPolicy())
	named := map[string]onced.Policy{}
	for name, file := range c.Namespaces {
		named[name] = file.over(byDefault)
	}
	policies, err := server.NewPolicies(byDefault, named)
	c.policies = policies
	return errors.Join(append(errs, err)...)
}

// checkListener refuses an address that is none, and a listener that others than
// this machine can reach in the clear.
func (c *config) checkListener(name, address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s %q must be host:port: %w", name, address, err)
	}
	ip := net.ParseIP(host)
	if c.Insecure || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s %s can be reached from other machines, and this listener has neither TLS nor authentication: "+
		"listen on 127.0.0.1 behind something that has both, or say --insecure if the network itself is trusted", name, address)
}

// effective returns the configuration in force, as it would stand in a file.
func (c *config) effective() *config {
	e := *c
	e.Data = cmp.Or(c.Data, defaultData)
	e.Default = fileOf(c.policies.For(""))
	e.Namespaces = map[string]policyFile{}
	for name := range c.Namespaces {
		e.Namespaces[name] = fileOf(c.policies.For(name))
	}
	return &e
}

// duration is a time.Duration that is written as Go writes it, or in whole days.
type duration time.Duration

// UnmarshalText reads "90s", "24h" or "30d".
func (d *duration) UnmarshalText(b []byte) error {
	s := string(b)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		*d = duration(time.Duration(n) * 24 * time.Hour)
		if err != nil || n > maxDays || n < 0 {
			return fmt.Errorf("%q is not a number of days from 0 to %d", s, maxDays)
		}
		return nil
	}
	parsed, err := time.ParseDuration(s)
	*d = duration(parsed)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 90s, 24h or 30d", s)
	}
	return nil
}

// maxDays keeps a number of days within a time.Duration.
const maxDays = 36_500

// MarshalText writes what UnmarshalText reads.
func (d duration) MarshalText() ([]byte, error) {
	const day = 24 * time.Hour
	if v := time.Duration(d); v != 0 && v%day == 0 {
		return fmt.Appendf(nil, "%dd", v/day), nil
	}
	return []byte(time.Duration(d).String()), nil
}
