//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/onced/onced/cmd/once/bench"
)

type benchCommand struct {
	Embedded       bool          `help:"Measure an onced serve of this command's own, on a temporary folder that is removed at the end, instead of --server."`
	Callers        int           `help:"How many call at the same time, each again as soon as it is answered; 256 by default." default:"256" placeholder:"N"`
	Duration       time.Duration `help:"Length of a round at one server, 3s by default." default:"3s" placeholder:"D"`
	Rounds         int           `help:"Rounds at each server, 3 by default." default:"3" placeholder:"R"`
	Records        int           `help:"Settle so many operations before the rounds; none by default." default:"0" placeholder:"N"`
	ResultBytes    int           `help:"Size of each result, 256 by default." default:"256" placeholder:"B"`
	ReplayShare    float64       `help:"Share of the calls, from 0 to 1, that claim a settled key and must get its result; 0 by default." default:"0" placeholder:"F"`
	LeaveUnsettled bool          `help:"Claims are not completed, so unsettled operations pile up; a claim alone counts as a pair."`

	Part string `help:"What a process of the bench does in it." hidden:"" enum:"director,null,empty" default:"director"`
}

func (benchCommand) Help() string {
	return `Each caller claims a new key and completes it, one pair after the other. Every round is run at three
servers in turn, and of the rounds the median is told:

    store   the server that is measured
    null    the same service, chain and messages, with canned answers instead of a store
    empty   an empty method on a bare gRPC server, two calls for a pair

The callers and their servers share this machine, so only the ratios of the three mean much. All are
called over the same number of connections: one for 32 callers, at most 8. A call that is refused, or
answered otherwise than it should be, ends the bench.

Example:

    once bench --embedded --callers 256 --duration 3s --rounds 3
    once bench --embedded --callers 1 -o json

Figures of -o json; times are in seconds, sizes in bytes, null is what cannot be known of a server that
is not this command's own:

    pairs_per_s, null_pairs_per_s, empty_pairs_per_s   half of the calls that were answered in a second
    claim_p50, claim_p99, complete_p50, complete_p99   latency of the calls at the store's server
    replay_p50, replay_p99       of claims of settled keys, which are not in claim_p50
    null_claim_p50, null_claim_p99, empty_p50, empty_p99   latency at the other two
    commit_batch          requests that shared one commit of the store, on average
    rss_anon              anonymous memory of the store's server after the last round (RssAnon)
    bytes_per_record      growth of the store, up to its last byte in use, for each operation made
    write_amplification   bytes that the server wrote in its rounds, for each byte that callers gave it
                          to store: an encoded claim and a result for each pair
    fdatasync_p50         a write of 4 KiB and its fdatasync, in the store's folder: 200 before the
                          rounds and 200 after them
    empty_store_pairs_per_s, prefill_s, prefill_records_per_s   with --records: the rate before them,
                          and how they were filled in, by 256 callers or more

The temporary folder is made where TMPDIR says, /tmp by default; only SIGKILL leaves it there. A file
system in memory has no disk to wait for.`
}

// Run measures, or is one of the servers that are measured.
func (c *benchCommand) Run(s *session) error {
	cfg := bench.Config{
		Namespace: s.commandLine.Namespace, Callers: c.Callers, Duration: c.Duration, Rounds: c.Rounds, Records: c.Records,
		ResultBytes: c.ResultBytes, ReplayShare: c.ReplayShare, LeaveUnsettled: c.LeaveUnsettled,
	}
	if err := cfg.Validate(); err != nil {
		return usage(err)
	}
	switch c.Part {
	case partNull:
		return bench.ServeNull(c.ResultBytes, s.in, s.out, s.err)
	case partEmpty:
		return bench.ServeEmpty(s.in, s.out, s.err)
	}
	ctx, release := untilSignal()
	defer release()
	report, err := c.measure(ctx, s, cfg)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the bench was ended early; its processes are stopped: %w", context.Cause(ctx))
	case err != nil:
		return err
	case s.json:
		return json.NewEncoder(s.out).Encode(report)
	}
	return report.WriteText(s.out)
}

// measure measures the server that was asked for. An embedded one it starts, and
// stops in the end.
func (c *benchCommand) measure(ctx context.Context, s *session, cfg bench.Config) (report *bench.Report, err error) {
	if !c.Embedded {
		if err := checkAddress(s.commandLine.Server); err != nil {
			return nil, usage(err)
		}
		return c.compare(ctx, s, cfg, bench.Process{Address: s.commandLine.Server})
	}
	dir, err := temporaryFolder("once-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	settings := ""
	if c.LeaveUnsettled {
		settings = backlogConfig
	}
	server, err := startEmbedded(ctx, dir, settings)
	if err != nil {
		return nil, err
	}
	defer func() {
		// A server that has ended in the middle says why, beside what its callers saw.
		if stopped := server.stop(); stopped != nil {
			fmt.Fprintln(s.err, "once:", stopped)
			report, err = nil, cmp.Or(err, stopped)
		}
	}()
	return c.compare(ctx, s, cfg, bench.Process{Address: server.addr, Ops: server.ops, PID: server.pid, Data: server.data})
}

// backlogConfig lets unsettled operations pile up for as long as a bench runs.
const backlogConfig = "default:\n  max_unsettled: 1000000000\n"

// compare starts the two servers to compare with, and measures.
func (c *benchCommand) compare(ctx context.Context, s *session, cfg bench.Config, store bench.Process) (*bench.Report, error) {
	servers := bench.Servers{Store: store}
	for _, other := range []struct {
		part    string
		address *string
	}{{partNull, &servers.Null}, {partEmpty, &servers.Empty}} {
		p, err := c.startPart(s, other.part)
		if err != nil {
			return nil, fmt.Errorf("start the server %s: %w", other.part, err)
		}
		defer p.stop()
		*other.address = p.address
	}
	return bench.Run(ctx, cfg, servers, s.err)
}

// What a process of a bench is.
const (
	partNull  = "null"
	partEmpty = "empty"
)

// benchPart is a server to compare with: this program again, in another part. It
// ends with its standard input, so never outlives this process.
type benchPart struct {
	cmd     *exec.Cmd
	life    io.Closer
	address string
}

func (c *benchCommand) startPart(s *session, part string) (*benchPart, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "bench", "--part", part, "--result-bytes", strconv.Itoa(c.ResultBytes)) //nolint:gosec // ourselves
	cmd.Stderr = s.err
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &benchPart{cmd: cmd, life: life}
	var ready bench.Ready
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		p.stop()
		return nil, fmt.Errorf("it did not say where it serves: %w", err)
	}
	p.address = ready.GRPC
	return p, nil
}

// stop ends the server and returns when it has ended. Nothing is lost with it.
func (p *benchPart) stop() {
	_ = p.life.Close()
	grace := time.AfterFunc(stopGrace, func() { _ = p.cmd.Process.Kill() })
	defer grace.Stop()
	_ = p.cmd.Wait() // its error is no business of a bench that is over
}
