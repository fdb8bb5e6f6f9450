//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

type demoCommand struct {
	Part   string `help:"What a process of the demonstration does in it." hidden:"" enum:"director,caller,holder" default:"director"`
	Outbox string `help:"Where the effects of the demonstration are." hidden:""`
}

func (demoCommand) Help() string {
	return `It starts a server of its own on a temporary folder, and removes everything at the end. First two
processes call one act ten times at once. Then a process is killed in the middle of another act, and
the next caller finds out what it did. Exit status 0: it went as it should.

Example:

    once demo`
}

// demoConfig lets a takeover follow the end of a lease within the patience of those
// who watch. By default it takes a minute.
const demoConfig = "default:\n  reconcile_after: 1s\n"

// demoSummary is the last line of the demonstration in JSON.
type demoSummary struct {
	Calls          int `json:"calls"`           // of the first act
	Executions     int `json:"executions"`      // of them, as the outbox shows it
	Replays        int `json:"replays"`         // of them
	UnresolvedSeen int `json:"unresolved_seen"` // operations that a caller has found unresolved
	Settled        int `json:"settled"`         // operations that were settled at the end
}

// wantSummary is how the demonstration ends if it goes as it should.
var wantSummary = demoSummary{Calls: 10, Executions: 1, Replays: 9, UnresolvedSeen: 1, Settled: 2}

// demo is one run of the demonstration.
type demo struct {
	*session
	c       *client.Client
	outbox  string
	sum     demoSummary
	printed error // the first line that could not be printed
}

// Run shows the demonstration, or does what one of its processes does.
func (d *demoCommand) Run(s *session) error {
	switch d.Part {
	case partCaller:
		return demoCaller(s, d.Outbox)
	case partHolder:
		return demoHolder(s)
	}
	ctx, release := untilSignal()
	defer release()
	return direct(ctx, s)
}

// direct is the whole demonstration, on a server that it starts and stops.
func direct(ctx context.Context, s *session) (err error) {
	dir, err := temporaryFolder("once-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := startEmbedded(ctx, dir, demoConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	s.commandLine.Server, s.commandLine.Namespace = server.addr, client.DefaultNamespace
	c, closeConn, err := s.dial()
	if err != nil {
		return err
	}
	defer closeConn()

	d := &demo{session: s, c: c, outbox: filepath.Join(dir, "outbox")}
	d.tell("server", nil, "A server is started: process %d at %s, with a store in %s.", server.pid, server.addr, dir)
	for _, scene := range []func(context.Context) error{d.tenCalls, d.crash, d.findOut, d.end} {
		err := cmp.Or(scene(ctx), d.printed)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("the demonstration was ended early: %w", context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tell prints what has just happened: a line for people, or the same in JSON, with
// the answer of the service that it is about.
func (d *demo) tell(step string, answer proto.Message, format string, args ...any) {
	line := []byte(fmt.Sprintf(format, args...) + "\n")
	if d.json {
		line = d.encode(step, strings.TrimSpace(string(line)), answer)
	}
	_, err := d.out.Write(line)
	d.printed = cmp.Or(d.printed, err)
}

func (d *demo) encode(step, text string, answer proto.Message) []byte {
	var raw json.RawMessage
	if answer != nil {
		var err error
		raw, err = jsonLine(answer)
		d.printed = cmp.Or(d.printed, err)
	}
	var line bytes.Buffer
	err := json.NewEncoder(&line).Encode(struct {
		Step   string          `json:"step"`
		Text   string          `json:"text"`
		Answer json.RawMessage `json:"answer,omitempty"`
	}{step, text, raw})
	d.printed = cmp.Or(d.printed, err)
	return line.Bytes()
}

// end counts what is settled, and says what it all came to.
func (d *demo) end(ctx context.Context) error {
	for _, key := range []string{demoAct, demoCrash} {
		answer, err := d.c.Lookup(ctx, &oncedv1.LookupRequest{Ref: d.c.Ref(key, demoMethod)})
		if err != nil {
			return err
		}
		if answer.GetOperation().GetState() == oncedv1.State_STATE_COMPLETED {
			d.sum.Settled++
		}
	}
	if d.sum != wantSummary {
		return fmt.Errorf("it did not go as it should: %+v, and not %+v", d.sum, wantSummary)
	}
	if d.json {
		return json.NewEncoder(d.out).Encode(d.sum)
	}
	d.tell("end", nil, "\n%d calls, %d execution, %d replays; %d operation was unresolved for a while; %d are settled.",
		d.sum.Calls, d.sum.Executions, d.sum.Replays, d.sum.UnresolvedSeen, d.sum.Settled)
	return nil
}
