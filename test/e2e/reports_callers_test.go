package e2e

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// client returns a client of the server, that of one process.
func (s *process) client() *client.Client {
	s.t.Helper()
	return client.New(s.conn(), client.WithLogger(slog.New(slog.DiscardHandler)))
}

// runs counts executions.
type runs struct{ n atomic.Int32 }

// returning is an act that counts and returns a result.
func (r *runs) returning(result string) act {
	return func(context.Context, *client.Claim) (string, error) {
		r.n.Add(1)
		return result, nil
	}
}

// failing is an act that has its effect and then fails.
func (r *runs) failing(err error) act {
	return func(context.Context, *client.Claim) (string, error) {
		r.n.Add(1)
		return "", err
	}
}

// are prints the number of executions and demands it.
func (r *runs) are(t testing.TB, want int) {
	t.Helper()
	executed(t, int(r.n.Load()), want)
}

// arguments stands for arguments of a call.
func arguments(name string) []onced.Fingerprint {
	digest := onced.TokenDigest([]byte(name))
	return []onced.Fingerprint{{Scheme: "cj1", Digest: string(digest[:])}}
}

// A duplicate that is refused does nothing to the claim of the one who runs, nor
// does a duplicate with other arguments, nor a report without the holder's token.
func TestR01_RefusalsLeaveTheClaim(t *testing.T) {
	s := serve(t, newStore(t))
	c, r := s.caller(), &runs{}
	call := client.Call{Key: "k", Method: "act", Lease: time.Hour, Fingerprints: arguments("p")}
	other := call
	other.Fingerprints = arguments("p2")
	running, finish := make(chan struct{}), make(chan struct{})
	first := send("the first call", nothing(func() error {
		_, err := client.Do(c.ctx(), s.client(), call, func(context.Context, *client.Claim) (string, error) {
			r.n.Add(1)
			close(running)
			<-finish
			return "a", nil
		})
		return err
	}))
	<-running
	before := c.lookup("k")
	for _, duplicate := range []string{"the second call", "the third call"} {
		if _, err := client.Do(c.ctx(), s.client(), call, r.returning("b"), client.NoWait()); !errors.As(err, new(*client.InProgress)) {
			t.Errorf("%s ended with %v, want InProgress", duplicate, err)
		}
		c.unchanged(before)
	}
	mismatch := func() {
		t.Helper()
		if _, err := client.Do(c.ctx(), s.client(), other, r.returning("d")); !errors.As(err, new(*client.Mismatch)) {
			t.Errorf("other arguments ended with %v, want Mismatch", err)
		}
	}
	mismatch()
	foreign := failing(claimOf("k"), &oncedv1.ClaimResponse{Operation: before}, notExecuted)
	_, err := c.stub.Fail(c.ctx(), foreign)
	refused(t, err, codes.FailedPrecondition, "CLAIM_LOST")
	c.unchanged(before)

	close(finish)
	if <-first.over; first.err != nil {
		t.Error(first.err)
	}
	mismatch()
	if out, err := client.Do(c.ctx(), s.client(), call, r.returning("e")); err != nil || !out.Replayed || out.Value != "a" {
		t.Errorf("the call after the completion got %v, %v, want the replay of a", out, err)
	}
	r.are(t, 1)
}

// An error of a function says nothing about its effect. Nothing runs again because
// of one, also where gRPC itself tries again, nor after a panic.
func TestR02_ErrorAfterEffect(t *testing.T) {
	s := serve(t, newStore(t))
	c := s.caller()
	for code, want := range map[codes.Code]struct {
		arrivals int32
		answer   codes.Code
	}{
		codes.Internal:    {1, codes.Internal},
		codes.Unavailable: {2, codes.FailedPrecondition}, // gRPC has tried again
	} {
		t.Run(code.String(), func(t *testing.T) {
			r := &runs{}
			b := newBackend(t, s.client(), r.failing(status.Error(code, "after the effect")))
			_, err := b.call(c.ctx(), code.String())
			if status.Code(err) != want.answer {
				t.Errorf("the caller got %v, want %v", err, want.answer)
			}
			if got := b.calls.Load(); got != want.arrivals {
				t.Errorf("%d calls arrived at the backend, want %d", got, want.arrivals)
			}
			if _, err := b.call(c.ctx(), code.String()); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "unresolved") {
				t.Errorf("the next call got %v, want to be told that the outcome is not known", err)
			}
			r.are(t, 1)
		})
	}
	t.Run("panic", func(t *testing.T) {
		r := &runs{}
		call := client.Call{Key: "panic", Method: "act"}
		func() {
			defer func() { _ = recover() }()
			_, _ = client.Do(c.ctx(), s.client(), call, func(context.Context, *client.Claim) (string, error) {
				r.n.Add(1)
				panic("after the effect")
			})
			t.Error("the panic did not go on")
		}()
		if _, err := client.Do(c.ctx(), s.client(), call, r.returning("again")); !errors.As(err, new(*client.Unresolved)) {
			t.Errorf("the next call got %v, want Unresolved", err)
		}
		r.are(t, 1)
	})
}

// The caller goes away after the effect: its deadline passes, or it cancels. The
// result is stored all the same, and the retry gets it; so, too, when onced is
// down as the function returns, and comes back after the lease.
func TestR04_CallerGoesAway(t *testing.T) {
	const deadline, commit, end = 100 * time.Millisecond, 80 * time.Millisecond, 300 * time.Millisecond
	leave := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, deadline)
		},
		"cancel": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(deadline, cancel)
			return ctx, cancel
		},
	}
	for name, left := range leave {
		for _, outage := range []bool{false, true} {
			if outage {
				name += " and onced is down"
			}
			t.Run(name, func(t *testing.T) {
				inLab(t, func(l *lab) {
					b := newBackend(l.T, l.client(), func(ctx context.Context, _ *client.Claim) (string, error) {
						pass(commit)
						l.runs.Add(1)
						pass(end - commit)
						if ctx.Err() == nil {
							t.Error("the caller has not gone")
						}
						if outage {
							l.down()
						}
						return "r", nil
					})
					ctx, cancel := left(l.Context())
					defer cancel()
					if _, err := b.call(ctx, "k"); status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
						t.Errorf("the caller got %v", err)
					}
					pass(end)
					if outage {
						pass(time.Minute)
						l.up()
					}
					if got, err := b.call(l.Context(), "k"); err != nil || got != "r" {
						t.Errorf("the retry got %q, %v, want r", got, err)
					}
					l.ran(1)
				})
			})
		}
	}
}

// A call keeps its key through everything that may happen to it, a restart of the
// caller included, and no key is made up. Another one is the caller's decision.
func TestR39_OneKeyPerIntent(t *testing.T) {
	inLab(t, func(l *lab) {
		do := func(call client.Call, f act, opts ...client.DoOption) error { // each time another process
			ctx, cancel := context.WithTimeout(l.Context(), 3*time.Second)
			defer cancel()
			c := l.client()
			_, err := client.Do(ctx, c, call, f, opts...)
			c.Close(l.Context())
			return err
		}
		call := client.Call{Key: "k", Method: "act"}
		for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Unknown} {
			l.network.lose("*", code)
			if err := do(call, l.returning("r")); err == nil {
				t.Errorf("with a network that answers %v the call ended well", code)
			}
		}
		l.network.lose("", codes.OK)
		holder := leased("k", time.Hour)
		granted := l.granted(holder)
		if err := do(call, l.returning("r"), client.NoWait()); !errors.As(err, new(*client.InProgress)) {
			t.Errorf("got %v, want InProgress", err)
		}
		l.fail(failing(holder, granted, notExecuted))
		if err := do(call, l.returning("r")); err != nil {
			t.Error(err)
		}
		other := call
		other.Fingerprints = arguments("p2")
		if err := do(other, l.returning("r")); !errors.As(err, new(*client.Mismatch)) {
			t.Errorf("got %v, want Mismatch", err)
		}
		l.ran(1)
		if slices.ContainsFunc(l.network.keys(), func(key string) bool { return key != "k" }) {
			t.Errorf("claims were sent under the keys %q, want k alone", l.network.keys())
		}

		final := client.Call{Key: "final", Method: "act"}
		if err := do(final, func(context.Context, *client.Claim) (string, error) {
			return "", client.Final(errors.New("card expired"))
		}); err == nil {
			t.Error("the failure was swallowed")
		}
		if err := do(final, l.returning("r")); !errors.As(err, new(*client.Failed)) {
			t.Errorf("got %v, want Failed", err)
		}
		sent := len(l.network.keys())
		if err := do(client.Call{Method: "act"}, l.returning("r")); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a call without a key ended with %v, want INVALID_ARGUMENT", err)
		}
		if got := len(l.network.keys()); got != sent {
			t.Errorf("a call without a key sent %d claims", got-sent)
		}
	})
}

// Without a grant nothing runs: not while onced is down, nor where something else
// answers in its place. A claim whose answer did not come is never taken for
// absent: it is sent again under its token, or given back.
func TestR44_FailClosed(t *testing.T) {
	t.Run("down", func(t *testing.T) {
		r, dir := &runs{}, newStore(t)
		s := serve(t, dir)
		c := s.client()
		s.stop()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		call := client.Call{Key: "k", Method: "act"}
		if _, err := client.Do(ctx, c, call, r.returning("r")); !strings.Contains(err.Error(), `outcome unknown, key "k"`) || r.n.Load() != 0 {
			t.Errorf("with onced down: %v, after %d executions", err, r.n.Load())
		}
		serveAt(t, dir, s.GRPC)
		if out, err := client.Do(t.Context(), c, call, r.returning("r")); err != nil || out.Replayed {
			t.Errorf("with onced up again: %v, %v", out, err)
		}
		r.are(t, 1)
	})
	t.Run("another service", func(t *testing.T) {
		r := &runs{}
		b := newBackend(t, nil, nil) // it does not know the methods of onced
		_, err := client.Do(t.Context(), client.New(b.conn), client.Call{Key: "k", Method: "act"}, r.returning("r"))
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("got %v, want UNIMPLEMENTED", err)
		}
		r.are(t, 0)
	})
	t.Run("claimed and killed", func(t *testing.T) {
		r, f, dir := &runs{}, newSwitches(t), newStore(t)
		s := f.serve(dir)
		c := s.client()
		f.on("die-before-answer")
		var out client.Outcome[string]
		call := send("the call", nothing(func() (err error) {
			out, err = client.Do(t.Context(), c, client.Call{Key: "k", Method: "act"}, r.returning("r"))
			return err
		}))
		s.wait()
		f.off("die-before-answer")
		serveAt(t, dir, s.GRPC)
		if <-call.over; call.err != nil || out.Attempt != 1 {
			t.Errorf("got %v, %v, want the execution of attempt 1", out, call.err)
		}
		r.are(t, 1)
	})
	t.Run("claimed and not answered in time", func(t *testing.T) {
		r, f := &runs{}, newSwitches(t)
		s := f.serve(newStore(t))
		c := s.client()
		f.hold("a claim")
		ctx, cancel := context.WithCancel(t.Context())
		call := send("the call", nothing(func() error {
			_, err := client.Do(ctx, c, client.Call{Key: "k", Method: "act"}, r.returning("r"))
			return err
		}))
		f.held("a claim")
		cancel()
		if <-call.over; call.err == nil || r.n.Load() != 0 {
			t.Errorf("the call ended with %v after %d executions", call.err, r.n.Load())
		}
		f.release()
		eventually(t, "the claim to be given back", func() bool {
			return s.caller().lookup("k").GetState() == oncedv1.State_STATE_RELEASED
		})
		if out, err := client.Do(t.Context(), c, client.Call{Key: "k", Method: "act"}, r.returning("r")); err != nil || out.Attempt != 2 {
			t.Errorf("got %v, %v, want the execution of attempt 2", out, err)
		}
		r.are(t, 1)
	})
}

// Other arguments under a key are refused whatever the state is, by an answer that
// no retry changes and that gives nothing away.
func TestR53_MismatchBeforeState(t *testing.T) {
	s := serve(t, newStore(t))
	c, r := s.caller(), &runs{}
	mismatch := func(t *testing.T, key string) {
		t.Helper()
		other := claimOf(key)
		other.Fingerprints = []string{arguments("p2")[0].String()}
		_, err := c.stub.Claim(c.ctx(), other)
		refused(t, err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
		digest := strings.TrimPrefix(arguments("p")[0].String(), "cj1:")
		if text := status.Convert(err).Proto().String(); strings.Contains(text, digest[:16]) || strings.Contains(text, "secret") {
			t.Errorf("the refusal gives the first call away: %s", text)
		}
	}
	for name, after := range map[string]func(*oncedv1.ClaimRequest, *oncedv1.ClaimResponse){
		"running":      func(*oncedv1.ClaimRequest, *oncedv1.ClaimResponse) {},
		"completed":    func(q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse) { c.complete(completion(q, a, "secret")) },
		"not executed": func(q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse) { c.fail(failing(q, a, notExecuted)) },
		"unknown":      func(q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse) { c.fail(failing(q, a, unknown)) },
	} {
		t.Run(name, func(t *testing.T) {
			req := leased(name, time.Hour)
			req.Fingerprints = []string{arguments("p")[0].String()}
			granted := c.granted(req)
			r.n.Add(1)
			after(req, granted)
			before := c.lookup(name)
			mismatch(t, name)
			c.unchanged(before)
		})
	}
	r.are(t, 4)
}

// nothing makes a call out of a function that answers nothing but an error.
func nothing(f func() error) func() (proto.Message, error) {
	return func() (proto.Message, error) { return nil, f() }
}
