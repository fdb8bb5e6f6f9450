// Command once speaks with onced from the shell: it claims operations, reports
// on them and looks them up, and `once exec` runs any command at most once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// version is set by the linker for releases.
var version = "devel"

// budgets are how long a command waits for others.
type budgets struct {
	// answer is how long onced may take to answer before a command gives up with
	// exitUnreachable, the time that it was asked to wait aside. It is enough for
	// a restart of the server.
	answer time.Duration
	// kill is how long the command of exec may take to end after SIGTERM, once its
	// claim is lost, before it is killed.
	kill time.Duration
	// drain is how long its outputs may stay open after it has ended: a process
	// that it left behind may hold them for ever.
	drain time.Duration
}

// reconnect keeps trying at short intervals: by default gRPC would let two
// minutes pass before it notices that onced is back.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// keepAlive finds a connection that has died without a word, on which every
// re-sent call and renewal would be lost too. The server lets clients ping as
// often.
var keepAlive = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true}

var usualBudgets = budgets{answer: 10 * time.Second, kill: 10 * time.Second, drain: 2 * time.Second}

type commandLine struct {
	Server    string           `help:"Address of onced, 127.0.0.1:7443 by default." env:"ONCED_SERVER" default:"127.0.0.1:7443" placeholder:"ADDR"`
	Namespace string           `help:"Namespace of the operation." short:"n" default:"default"`
	Output    string           `help:"Form of the answer: text, the default, for people; or json, the answer of the service on one line." short:"o" enum:"text,json" default:"text" placeholder:"FORM"`
	Version   kong.VersionFlag `help:"Print the version and exit."`

	Claim       claimCommand       `cmd:"" help:"Ask for the right to execute an operation."`
	Complete    completeCommand    `cmd:"" help:"Report that a claimed operation was executed, with its result."`
	Fail        failCommand        `cmd:"" help:"Report that a claimed operation has no result."`
	Lookup      lookupCommand      `cmd:"" help:"Show an operation."`
	Renew       renewCommand       `cmd:"" help:"Make the lease of a claim longer."`
	Policy      policyCommand      `cmd:"" help:"Show the retentions, bounds and rules of a namespace."`
	Fingerprint fingerprintCommand `cmd:"" help:"Print the fingerprint of the arguments of a call."`
	Exec        execCommand        `cmd:"" help:"Run a command at most once, and replay its output and exit status."`
	Bench       benchCommand       `cmd:"" help:"Measure a server under load, beside one without a store and an empty one."`
	Demo        demoCommand        `cmd:"" help:"Show what onced does, with a server of its own; it takes some seconds."`
}

// streams are the standard streams of the process.
type streams struct {
	in       *os.File
	out, err io.Writer
}

// session is what a verb works with.
type session struct {
	streams
	printer
	budgets
	commandLine *commandLine
}

func main() {
	s := &session{streams: streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, budgets: usualBudgets}
	os.Exit(s.run(os.Args[1:]))
}

// run is the whole command; it returns the exit status.
func (s *session) run(args []string) int {
	s.commandLine = &commandLine{}
	exited := -1
	parser, err := kong.New(s.commandLine,
		kong.Name("once"),
		kong.Description("once runs an operation at most once, with the help of onced, and replays its first outcome to everyone else."),
		kong.Writers(s.out, s.err),
		kong.Vars{"version": "once " + version},
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return s.end(usage(err))
	}
	if err := checkUTF8(args); err != nil {
		return s.end(usage(err))
	}
	ctx, err := parser.Parse(args)
	switch {
	case exited >= 0: // --help and --version have printed what they say
		return exited
	case err != nil:
		return s.end(usage(fmt.Errorf("%w; see once --help", err)))
	}
	s.printer = printer{to: s.out, json: s.commandLine.Output == "json"}
	return s.end(ctx.Run(s))
}

// checkUTF8 refuses what kong would turn into other text without a word: two
// broken keys would become one. What stands after -- never passes through kong's
// decoders.
func checkUTF8(args []string) error {
	for _, arg := range args {
		if arg == "--" {
			return nil
		}
		if !utf8.ValidString(arg) {
			return fmt.Errorf("%q is not UTF-8", arg)
		}
	}
	return nil
}

// end prints why a command has failed and returns its exit status.
func (s *session) end(err error) int {
	var status exitStatus
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	default:
		fmt.Fprintln(s.err, "once:", describe(err))
		return statusOf(err)
	}
}

// dial makes a client for the namespace. No connection is made before the first
// call.
func (s *session) dial(opts ...client.Option) (c *client.Client, closeConn func(), err error) {
	if err := checkAddress(s.commandLine.Server); err != nil {
		return nil, nil, usage(err)
	}
	conn, err := grpc.NewClient(s.commandLine.Server,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect),
		grpc.WithKeepaliveParams(keepAlive))
	if err != nil {
		return nil, nil, usage(fmt.Errorf("--server %s: %w", s.commandLine.Server, err))
	}
	opts = append(opts, client.WithNamespace(s.commandLine.Namespace), client.WithLogger(slog.New(&logHandler{s.err})))
	return client.New(conn, opts...), func() { _ = conn.Close() }, nil
}

// call makes one call of the service. held is how long it asks the server to
// wait with the answer.
func (s *session) call(held time.Duration, f func(context.Context, *client.Client) error) error {
	c, closeConn, err := s.dial()
	if err != nil {
		return err
	}
	defer closeConn()
	ctx, cancel := context.WithTimeout(context.Background(), held+s.answer)
	defer cancel()
	return f(ctx, c)
}

// operation names the operation that a verb is about.
type operation struct {
	Key    string `help:"Idempotency key of the operation: the same in every retry." required:"" placeholder:"K"`
	Method string `help:"What is run, such as send_email." required:"" placeholder:"M"`
}

func (o operation) ref(s *session) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: s.commandLine.Namespace, Key: o.Key, Method: o.Method}
}
