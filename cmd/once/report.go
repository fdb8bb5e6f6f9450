package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// held names a claim that was answered, and the file with its token and fence.
type held struct {
	operation
	TokenFile string `help:"File with the token and fence of the claim, as once claim made it." required:"" placeholder:"F"`
}

// reportAnswer is the answer of Complete, Fail and Renew.
type reportAnswer interface {
	proto.Message
	GetOperation() *oncedv1.Operation
}

// report sends one report on a claim and prints the answer.
func (h held) report(s *session, send func(context.Context, *client.Client, ticket) (reportAnswer, error)) error {
	t, err := heldTicket(h.TokenFile)
	if err != nil {
		return usage(err)
	}
	return s.call(0, func(ctx context.Context, c *client.Client) error {
		answer, err := send(ctx, c, t)
		if err != nil {
			return err
		}
		var r rows
		r.addOperation(answer.GetOperation())
		return s.print(answer, r)
	})
}

type completeCommand struct {
	held
	Text        *string `help:"The result as text; may be empty." xor:"result" required:"" placeholder:"T"`
	File        source  `help:"The result as the content of a file; - is the standard input." xor:"result" required:"" placeholder:"F"`
	ContentType string  `help:"Media type of the result: by default text/plain with --text and application/octet-stream with --file, as Go clients have them for a string and for bytes." placeholder:"TYPE"`
}

func (completeCommand) Help() string {
	return `A result over the namespace's limit completes the operation all the same; it is recorded as omitted.
Repeating the same report is safe.

Example:

    once complete --key order-7 --method send_email --token-file order-7.token --text sent`
}

// Run completes.
func (c *completeCommand) Run(s *session) error {
	req := &oncedv1.CompleteRequest{Ref: c.ref(s)}
	if err := c.setResult(req, s.in); err != nil {
		return usage(err)
	}
	return c.report(s, func(ctx context.Context, cl *client.Client, t ticket) (reportAnswer, error) {
		req.ClaimToken, req.Fence = t.ClaimToken, t.Fence
		return cl.Complete(ctx, req)
	})
}

type failCommand struct {
	held
	Disposition string `help:"What it means: not-executed (certainly no effect), final (the failure is the outcome), unknown, or did-not-happen (after a takeover: nothing had happened)." required:"" enum:"not-executed,final,unknown,did-not-happen" placeholder:"WORD"`
	Code        string `help:"With final: a name of the failure for programs." placeholder:"CODE"`
	Message     string `help:"With final: a sentence for people." placeholder:"TEXT"`
}

// dispositions are the words for the dispositions on the command line.
var dispositions = map[string]oncedv1.Disposition{
	"not-executed":   oncedv1.Disposition_DISPOSITION_NOT_EXECUTED,
	"final":          oncedv1.Disposition_DISPOSITION_FINAL,
	"unknown":        oncedv1.Disposition_DISPOSITION_UNKNOWN,
	"did-not-happen": oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN,
}

func (failCommand) Help() string {
	return `An error alone never means that nothing happened: when in doubt, say unknown. Repeating the same
report is safe.

Example:

    once fail --key order-7 --method send_email --token-file order-7.token --disposition not-executed`
}

// Run reports a failure.
func (f *failCommand) Run(s *session) error {
	req := &oncedv1.FailRequest{Ref: f.ref(s), Disposition: dispositions[f.Disposition]}
	if f.Code != "" || f.Message != "" {
		req.Failure = &oncedv1.Failure{Code: f.Code, Message: f.Message}
	}
	return f.report(s, func(ctx context.Context, cl *client.Client, t ticket) (reportAnswer, error) {
		req.ClaimToken, req.Fence = t.ClaimToken, t.Fence
		return cl.Fail(ctx, req)
	})
}

type renewCommand struct {
	held
	Lease *time.Duration `help:"How long from now on; the namespace has a default." placeholder:"D"`
}

func (renewCommand) Help() string {
	return `The lease is never made shorter. A claim that has lapsed is revived if nobody took it over.

Example:

    once renew --key order-7 --method send_email --token-file order-7.token --lease 2m`
}

// Run renews.
func (r *renewCommand) Run(s *session) error {
	req := &oncedv1.RenewRequest{Ref: r.ref(s), Lease: durationOrUnset(r.Lease)}
	return r.report(s, func(ctx context.Context, cl *client.Client, t ticket) (reportAnswer, error) {
		req.ClaimToken, req.Fence = t.ClaimToken, t.Fence
		return cl.Renew(ctx, req)
	})
}
