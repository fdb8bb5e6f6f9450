package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// These reports are about callers that try again.

// R24: callers without a key must not share an operation.
func TestR24_AbsentKeys(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, key := range []string{"", "   ", "null", "undefined", "00000000-0000-0000-0000-000000000000", " k", "k ", "a\x00b", "\xff\xfe"} {
			if _, err := client.Do(r.Context(), r.Client, call(key), r.once("mine")); status.Code(err) != codes.InvalidArgument {
				t.Errorf("key %q: got %v", key, err)
			}
		}
		if _, err := client.PerRequest("", "", "m"); err == nil {
			t.Error("a key was derived from nothing")
		}
		r.saw("Claim", 0)
		for _, key := range []string{"K", "k", "ключ", "../x", `"abc"`, "abc"} { // all of them different ones
			if out := r.run(key, key); out.Replayed {
				t.Errorf("key %q is another's", key)
			}
		}
		r.ran(6)
	})
}

// R39: one intent keeps its key through every error, and a new one is the caller's
// explicit act.
func TestR39_SameKeyThroughErrors(t *testing.T) {
	f, err := onced.ParseFingerprint("raw1:" + strings.Repeat("a", 64))
	if err != nil {
		t.Fatal(err)
	}
	g, err := onced.ParseFingerprint("raw1:" + strings.Repeat("b", 64))
	if err != nil {
		t.Fatal(err)
	}
	intent := client.Call{Key: "intent-1", Method: "m", Fingerprints: []onced.Fingerprint{f}}
	changed := client.Call{Key: "intent-1", Method: "m", Fingerprints: []onced.Fingerprint{g}}
	inBubble(t, func(r *rig) {
		try := func(c *client.Client, call client.Call, fn func(context.Context, *client.Claim) (string, error), opts ...client.DoOption) error {
			ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
			defer cancel()
			_, err := client.Do(ctx, c, call, fn, opts...)
			return err
		}
		for _, happen := range []fault{refusedWith(codes.Unknown), hole, refusedWith(codes.Unavailable)} {
			r.faults.always(happen, "Claim")
			if err := try(r.Client, intent, r.once("no")); err == nil {
				t.Error("no error")
			}
			pass(10 * time.Second)
		}
		r.faults.set(nil)
		rival := r.rival("intent-1", func(req *oncedv1.ClaimRequest) { req.Fingerprints = []string{f.String()} })
		rival.got(oncedv1.Outcome_OUTCOME_GRANTED)
		as[*client.InProgress](t, try(r.Client, intent, r.once("no"), client.NoWait()))
		if err := rival.fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED); err != nil {
			t.Fatal(err)
		}
		restarted := r.newClient() // the process was restarted; its caller kept the key
		as[*client.Mismatch](t, try(restarted, changed, r.once("no")))
		if err := try(restarted, intent, r.failing(client.Final(errors.New("declined")))); err == nil {
			t.Error("no error")
		}
		as[*client.Failed](t, try(restarted, intent, r.once("no")))
		for _, s := range r.faults.all() {
			if c, ok := s.req.(*oncedv1.ClaimRequest); ok && c.GetRef().GetKey() != "intent-1" {
				t.Errorf("a claim of key %q was sent", c.GetRef().GetKey())
			}
		}
		r.ran(1)
		if err := try(restarted, client.Call{Method: "m"}, r.once("no")); status.Code(err) != codes.InvalidArgument {
			t.Errorf("without a key: %v", err)
		}
		fresh := intent
		fresh.Key = "intent-2"
		if err := try(restarted, fresh, r.once("a new intent")); err != nil {
			t.Error(err)
		}
		r.ran(2)
	})
}

// R40: a caller tries again, and meets its own first try.
func TestR40_WaitsForOwnFirstTry(t *testing.T) {
	inBubble(t, func(r *rig) {
		start := time.Now()
		first := make(chan struct{})
		go func() {
			defer close(first)
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			_, _ = client.Do(ctx, r.Client, call("k"), r.slow(3*time.Second, "ticket 7"))
		}()
		pass(time.Second)
		ctx, cancel := context.WithDeadline(r.Context(), start.Add(10*time.Second))
		defer cancel()
		out, err := client.Do(ctx, r.Client, call("k"), r.once("again"))
		if err != nil || out.Value != "ticket 7" || !out.Replayed {
			t.Errorf("the second try got %+v, %v", out, err)
		}
		if at := time.Since(start); at < 3*time.Second || at > 3500*time.Millisecond {
			t.Errorf("the second try was answered at %v", at)
		}
		<-first
		r.ran(1)
	})
	t.Run("deadline first", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			go func() { _, _ = client.Do(r.Context(), r.Client, call("k"), r.slow(time.Minute, "ticket 7")) }()
			pass(time.Second)
			ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
			defer cancel()
			_, err := client.Do(ctx, r.newClient(), call("k"), r.once("again"))
			says(t, err, `outcome unknown, key "k"`)
			as[*client.InProgress](t, err)
			r.Close(r.Context())
			r.ran(1)
		})
	})
}

// R44: without a grant nothing runs.
func TestR44_FailClosed(t *testing.T) {
	t.Run("server down", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.down()
			ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
			defer cancel()
			_, err := client.Do(ctx, r.Client, call("k"), r.once("mine"))
			if status.Code(err) != codes.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			r.ran(0)
			r.up()
			pass(10 * time.Second)
			if out := r.run("k", "mine"); out.Replayed {
				t.Errorf("got %+v", out)
			}
			r.ran(1)
		})
	})
	t.Run("claim committed, its answer lost", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.faults.times(1, func(ctx context.Context, send func(context.Context) error) error {
				ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
				return swallowed(ctx, send)
			}, "Claim")
			if out := r.run("k", "mine"); out.Attempt != 1 || out.Replayed {
				t.Errorf("got %+v", out)
			}
			if n := len(tokens(r.saw("Claim", 2))); n != 1 {
				t.Errorf("%d tokens, want 1", n)
			}
			r.ran(1)
		})
	})
	t.Run("unimplemented", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.faults.always(refusedWith(codes.Unimplemented), "Claim")
			_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("got %v", err)
			}
			says(t, err, "nothing was executed")
			r.saw("Claim", 1)
			r.ran(0)
		})
	})
}
