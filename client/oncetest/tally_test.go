package oncetest_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// What the holder says that it did not execute was not executed.
func TestExecutionsWithoutThoseThatWereNot(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := s.Client()
		for range 2 {
			_, err := do(t, c, call("k"), func(context.Context) error { return client.NotExecuted(errors.New("no connection")) })
			if err == nil {
				t.Error("no error")
			}
		}
		executed(t, s, "k", 0)
		must(t, c, call("k"), nothing)
		executed(t, s, "k", 1)
		must(t, c, call("k"), nothing)
		executed(t, s, "k", 1) // a replay is none
		executed(t, s, "other", 0)
	})
}

// A failure is an execution, whether it is final or unknown; and its replays are not.
func TestExecutionsThatFailed(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := s.Client()
		for range 2 {
			_, err := do(t, c, call("final"), func(context.Context) error { return client.Final(errors.New("declined")) })
			if err == nil {
				t.Error("no error")
			}
			_, err = do(t, c, call("unknown"), func(context.Context) error { return errors.New("time-out") })
			if err == nil {
				t.Error("no error")
			}
		}
		executed(t, s, "final", 1)
		executed(t, s, "unknown", 1)
	})
}

// A holder may take its word back.
func TestExecutionsWhoseHolderWasWrong(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		for key, wrong := range map[string]func(*oncedv1.ClaimRequest, *oncedv1.Operation){
			"unknown": func(req *oncedv1.ClaimRequest, op *oncedv1.Operation) {
				c.fails(req, op, oncedv1.Disposition_DISPOSITION_UNKNOWN)
			},
			"final": func(req *oncedv1.ClaimRequest, op *oncedv1.Operation) {
				c.fails(req, op, oncedv1.Disposition_DISPOSITION_FINAL)
			},
			"complete": func(req *oncedv1.ClaimRequest, op *oncedv1.Operation) {
				if err := c.completes(req, op); err != nil {
					t.Error(err)
				}
			},
		} {
			req := claimOf(key)
			op := c.gets(req, oncedv1.Outcome_OUTCOME_GRANTED)
			executed(t, s, key, 1)
			stranger := claimOf(key)
			_, err := c.Fail(t.Context(), &oncedv1.FailRequest{
				Ref: req.GetRef(), ClaimToken: stranger.GetClaimToken(), Fence: op.GetFence(), Disposition: oncedv1.Disposition_DISPOSITION_NOT_EXECUTED,
			})
			if !refusedFor(err, onced.RefusedClaimLost) {
				t.Errorf("a stranger's report got %v", err)
			}
			executed(t, s, key, 1) // others have no say
			c.fails(req, op, oncedv1.Disposition_DISPOSITION_NOT_EXECUTED)
			executed(t, s, key, 0)
			wrong(req, op)
			executed(t, s, key, 1)
		}
	})
}

// Whoever takes over in order to find out executes nothing; where the policy lets
// operations be run again, it does.
func TestExecutionsOfThoseWhoTakeOver(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_GRANTED)
		s.Lapse()
		s.Advance(2 * time.Minute)
		takeover := claimOf("k")
		takeover.TakeOverAttempt = 1
		op := c.gets(takeover, oncedv1.Outcome_OUTCOME_TAKEN_OVER)
		executed(t, s, "k", 1)
		c.fails(takeover, op, oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN)
		must(t, s.Client(), call("k"), nothing)
		executed(t, s, "k", 2) // as far as callers were told
	})
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		newStub(t, s).gets(claimOf("k"), oncedv1.Outcome_OUTCOME_GRANTED)
		s.Lapse()
		if out := must(t, s.Client(), call("k"), nothing); out.Attempt != 2 {
			t.Errorf("got %+v", out)
		}
		executed(t, s, "k", 2)
		// Whoever is told to run again and says that nothing has happened did not run it.
		c := newStub(t, s)
		c.gets(claimOf("j"), oncedv1.Outcome_OUTCOME_GRANTED)
		s.Lapse()
		again := claimOf("j")
		op := c.gets(again, oncedv1.Outcome_OUTCOME_TAKEN_OVER)
		executed(t, s, "j", 2)
		c.fails(again, op, oncedv1.Disposition_DISPOSITION_DID_NOT_HAPPEN)
		executed(t, s, "j", 1)
	}, oncetest.WithPolicy(func(p *onced.Policy) { p.SafeToRerun = true }))
}

func TestTwins(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := s.Client()
		act := func(key, method, subject string, digests ...byte) client.Call {
			call := client.Call{Key: key, Method: method, Subject: subject}
			for i, d := range digests {
				scheme := []string{"raw1", "cj1"}[i]
				call.Fingerprints = append(call.Fingerprints, onced.Fingerprint{Scheme: scheme, Digest: string(make([]byte, 31)) + string(d)})
			}
			return call
		}
		must(t, c, act("order-1", "charge", "ann", 1, 9), nothing)
		must(t, c, act("order-1", "charge", "ann", 1, 9), nothing)
		if twins := s.Twins(); twins != nil {
			t.Errorf("a replay is no twin: %v", twins)
		}
		// Another act each, for whatever reason.
		must(t, c, act("method", "refund", "ann", 1), nothing)
		must(t, c, act("subject", "charge", "ben", 1), nothing)
		must(t, c, act("arguments", "charge", "ann", 2, 9), nothing)
		must(t, s.Client(client.WithNamespace("other")), act("namespace", "charge", "ann", 1), nothing)
		// Without fingerprints nothing is known.
		must(t, c, act("bare-1", "charge", "ann"), nothing)
		must(t, c, act("bare-2", "charge", "ann"), nothing)
		// What was not executed is no twin either.
		if _, err := do(t, c, act("idle", "charge", "ann", 1), func(context.Context) error { return client.NotExecuted(errors.New("busy")) }); err == nil {
			t.Error("no error")
		}
		if twins := s.Twins(); twins != nil {
			t.Fatalf("got %v", twins)
		}
		must(t, c, act("order-2", "charge", "ann", 1), nothing)
		must(t, c, act("a-third", "charge", "ann", 1), nothing)
		want := []oncetest.Twin{{
			Namespace: client.DefaultNamespace, Method: "charge", Subject: "ann",
			Fingerprint: act("", "", "", 1).Fingerprints[0].String(),
			Keys:        []string{"order-1", "order-2", "a-third"},
		}}
		if got := s.Twins(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
