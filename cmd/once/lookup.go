package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

type lookupCommand struct {
	Key         string        `help:"Idempotency key of the operation." required:"" placeholder:"K"`
	Method      string        `help:"What is run; may be left out where the key has only one operation." placeholder:"M"`
	Fingerprint []string      `help:"Digest of the arguments, to be compared; at most 3." sep:"none" placeholder:"SCHEME:HEX"`
	Subject     string        `help:"On whose behalf; must be that of the first claim." placeholder:"WHO"`
	Wait        time.Duration `help:"How long to wait for a pending operation to change; at most 20s." default:"0" placeholder:"D"`
	KeyTime     time.Time     `help:"When the key was first minted, as 2006-01-02T15:04:05Z." placeholder:"T"`
}

func (lookupCommand) Help() string {
	return `It changes nothing and gives no right to execute: only claim does. Exit status 66: there is no such operation.

Example:

    once lookup --key order-7 --method send_email -o json`
}

// Run looks the operation up.
func (l *lookupCommand) Run(s *session) error {
	req := &oncedv1.LookupRequest{
		Ref:          operation{Key: l.Key, Method: l.Method}.ref(s),
		Subject:      l.Subject,
		Fingerprints: l.Fingerprint,
		Wait:         durationpb.New(l.Wait),
		KeyTime:      timeOrUnset(l.KeyTime),
	}
	return s.call(min(max(0, l.Wait), onced.GreatestWait), func(ctx context.Context, c *client.Client) error {
		answer, err := c.Lookup(ctx, req)
		if err != nil {
			return err
		}
		var r rows
		r.addOperation(answer.GetOperation())
		return s.print(answer, r)
	})
}

type policyCommand struct{}

func (policyCommand) Help() string {
	return `Example:

    once policy -n payments`
}

// Run shows the policy.
func (*policyCommand) Run(s *session) error {
	return s.call(0, func(ctx context.Context, c *client.Client) error {
		p, err := c.GetPolicy(ctx)
		if err != nil {
			return err
		}
		return s.print(&oncedv1.GetPolicyResponse{Policy: p}, policyRows(p))
	})
}

func policyRows(p *oncedv1.Policy) rows {
	var r rows
	r.add("result retention", span(p.GetResultRetention()))
	r.add("key retention", span(p.GetKeyRetention()))
	r.add("memory since", moment(p.GetMemorySince()))
	r.add("generation", number(p.GetGeneration()))
	r.add("lease", fmt.Sprintf("%s by default, %s to %s", span(p.GetDefaultLease()), span(p.GetMinLease()), span(p.GetMaxLease())))
	r.add("wait", "at most "+span(p.GetMaxWait()))
	r.add("result limit", number(p.GetMaxResultBytes())+" bytes")
	r.add("checkpoint limit", number(p.GetMaxCheckpointBytes())+" bytes")
	r.add("takeover by", enumName(p.GetTakeover().String(), "TAKEOVER_POLICY_"))
	r.add("takeover after", reconcileAfter(p))
	r.add("safe to rerun", yesNo(p.GetSafeToRerun()))
	r.add("fingerprint", required(p.GetFingerprintRequired()))
	r.add("key time", required(p.GetKeyTimeRequired()))
	r.add("key time from key", yesNo(p.GetKeyTimeFromKey()))
	r.add("key time skew", span(p.GetKeyTimeSkew()))
	return r
}

func reconcileAfter(p *oncedv1.Policy) string {
	if p.GetReconcileAfter() == nil {
		return "the lease, at least 1m"
	}
	return span(p.GetReconcileAfter())
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func required(b bool) string {
	if b {
		return "required"
	}
	return "optional"
}
