package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// everywhere runs a test in real time and in a bubble.
func everywhere(t *testing.T, test func(t *testing.T, s *oncetest.Server), opts ...oncetest.Option) {
	t.Run("real time", func(t *testing.T) {
		t.Parallel()
		test(t, oncetest.New(t, opts...))
	})
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, oncetest.New(t, opts...)) })
	})
}

// inBubble runs a test that depends on how much time passes.
func inBubble(t *testing.T, test func(t *testing.T, s *oncetest.Server), opts ...oncetest.Option) {
	synctest.Test(t, func(t *testing.T) { test(t, oncetest.New(t, opts...)) })
}

func call(key string) client.Call { return client.Call{Key: key, Method: "m"} }

// do calls Do with a function that does something and returns a result.
func do(t *testing.T, c *client.Client, call client.Call, during func(context.Context) error, opts ...client.DoOption) (client.Outcome[string], error) {
	t.Helper()
	return client.Do(t.Context(), c, call, func(ctx context.Context, _ *client.Claim) (string, error) {
		return "done by " + call.Key, during(ctx)
	}, opts...)
}

func nothing(context.Context) error { return nil }

// must is do without an error.
func must(t *testing.T, c *client.Client, call client.Call, during func(context.Context) error) client.Outcome[string] {
	t.Helper()
	out, err := do(t, c, call, during)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// executed fails the test unless a key was executed n times.
func executed(t *testing.T, s *oncetest.Server, key string, n int) {
	t.Helper()
	if got := s.Executions(key); got != n {
		t.Errorf("%d executions of key %s, want %d", got, key, n)
	}
}

// as finds an error of type E, or fails the test.
func as[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("got error %v, want a %T", err, e)
	}
	return e
}

// stub is a caller without the algorithm of the client: one try, one answer.
type stub struct {
	t *testing.T
	oncedv1.IdempotencyServiceClient
}

func newStub(t *testing.T, s *oncetest.Server) stub {
	return stub{t, oncedv1.NewIdempotencyServiceClient(s.Conn())}
}

func claimOf(key string) *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{
		Ref:        &oncedv1.OperationRef{Namespace: client.DefaultNamespace, Key: key, Method: "m"},
		ClaimToken: client.NewToken(),
	}
}

// gets sends a claim and fails the test unless it is answered with an outcome.
func (c stub) gets(req *oncedv1.ClaimRequest, want oncedv1.Outcome) *oncedv1.Operation {
	c.t.Helper()
	resp, err := c.Claim(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.GetOutcome() != want {
		c.t.Fatalf("the claim of %s got %v, want %v", req.GetRef().GetKey(), resp.GetOutcome(), want)
	}
	return resp.GetOperation()
}

func (c stub) fails(req *oncedv1.ClaimRequest, op *oncedv1.Operation, d oncedv1.Disposition) {
	c.t.Helper()
	_, err := c.Fail(c.t.Context(), &oncedv1.FailRequest{Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: op.GetFence(), Disposition: d})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c stub) completes(req *oncedv1.ClaimRequest, op *oncedv1.Operation) error {
	_, err := c.Complete(c.t.Context(), &oncedv1.CompleteRequest{
		Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: op.GetFence(),
		Result: &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: "x"}}},
	})
	return err
}

func (c stub) isIn(key string, want oncedv1.State) {
	c.t.Helper()
	resp, err := c.Lookup(c.t.Context(), &oncedv1.LookupRequest{Ref: claimOf(key).GetRef()})
	if err != nil {
		c.t.Fatal(err)
	}
	if got := resp.GetOperation().GetState(); got != want {
		c.t.Errorf("key %s is %v, want %v", key, got, want)
	}
}

func TestKeysAreRememberedForTheirRetention(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := s.Client()
		begun := s.Now()
		must(t, c, call("k"), nothing)
		s.Advance(24 * time.Hour)
		if out := must(t, c, call("k"), nothing); !out.Replayed || out.Value != "done by k" {
			t.Errorf("a day later: %+v", out)
		}
		s.Advance(24 * time.Hour)
		_, err := do(t, c, call("k"), nothing)
		as[*client.ResultUnavailable](t, err)
		executed(t, s, "k", 1)
		s.Advance(24 * time.Hour)
		must(t, c, call("k"), nothing)
		executed(t, s, "k", 2)
		if passed := s.Now().Sub(begun); passed < 72*time.Hour {
			t.Errorf("store time went on by %v, want three days at least", passed)
		}
	}, oncetest.WithPolicy(func(p *onced.Policy) { p.ResultRetention, p.KeyRetention = 36*time.Hour, 60*time.Hour }))
}

// In a bubble the two are equal; a clock that is read twice is not, in real time.
func TestStoreTimeIsTheTimeOfTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oncetest.Server) {
		if got, want := s.Now(), time.Now(); !got.Equal(want) {
			t.Errorf("store time is %v, want %v", got, want)
		}
		s.Advance(time.Hour)
		<-time.After(time.Minute)
		s.Down()
		s.Advance(time.Hour)
		s.Up()
		if got, want := s.Now(), time.Now().Add(2*time.Hour); !got.Equal(want) {
			t.Errorf("store time is %v, want %v", got, want)
		}
	})
}

// The store is new, but its memory reaches back as that of an old one does.
func TestMemoryReachesBackForTheKeyRetention(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		aged := func(key string, age time.Duration) *oncedv1.ClaimRequest {
			req := claimOf(key)
			req.KeyTime = timestamppb.New(s.Now().Add(-age))
			return req
		}
		c.gets(aged("new", 0), oncedv1.Outcome_OUTCOME_GRANTED)
		c.gets(aged("old", 23*time.Hour), oncedv1.Outcome_OUTCOME_GRANTED)
		op := c.gets(aged("forgotten", 25*time.Hour), oncedv1.Outcome_OUTCOME_UNRESOLVED)
		if op.GetReason() != oncedv1.Reason_REASON_HISTORY_LOST {
			t.Errorf("got reason %v", op.GetReason())
		}
	}, oncetest.WithPolicy(func(p *onced.Policy) { p.ResultRetention, p.KeyRetention = 24*time.Hour, 24*time.Hour }))
}

// A retention that is longer than the clock can be set back.
func TestEndlessRetention(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		req := claimOf("k")
		req.KeyTime = timestamppb.New(s.Now().Add(-20 * 365 * 24 * time.Hour))
		op := newStub(t, s).gets(req, oncedv1.Outcome_OUTCOME_GRANTED)
		if g := op.GetGeneration(); g == 0 || g > uint64(s.Now().Unix()) {
			t.Errorf("generation %d is not a second of the past", g)
		}
	}, oncetest.WithPolicy(func(p *onced.Policy) { p.KeyRetention = 100 * 365 * 24 * time.Hour }))
}

func TestServersKnowNothingOfEachOther(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		other := oncetest.New(t)
		s.Down()
		other.Full(true)
		other.Full(false)
		must(t, other.Client(), call("k"), nothing)
		s.Up()
		s.Advance(time.Hour)
		if out := must(t, s.Client(), call("k"), nothing); out.Replayed {
			t.Error("one server replays what another one has seen")
		}
		executed(t, s, "k", 1)
		executed(t, other, "k", 1)
		if ahead := s.Now().Sub(other.Now()); ahead < 59*time.Minute {
			t.Errorf("one store is %v ahead of the other", ahead)
		}
	})
}

// Two clients are two processes: one is told who the other is.
func TestClientsAreProcesses(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		first, second := s.Client(), s.Client()
		must(t, first, call("k"), func(context.Context) error {
			_, err := do(t, second, call("k"), nothing, client.NoWait())
			if busy := as[*client.InProgress](t, err); busy.Holder != "process-1" {
				t.Errorf("the holder is %q", busy.Holder)
			}
			return nil
		})
		named := s.Client(client.WithHolder("mine"), client.WithNamespace("other"))
		if out := must(t, named, call("k"), nothing); out.Replayed {
			t.Error("the namespace of the client was not heeded")
		}
		executed(t, s, "k", 2) // of whatever namespace
	})
}

// tb is a test that may fail without failing the one that looks at it.
type tb struct {
	testing.TB
	mu       sync.Mutex
	cleanups []func()
	said     []string
	ended    bool
}

func (t *tb) Helper()          {}
func (t *tb) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *tb) Log(args ...any)  { t.say(fmt.Sprint(args...)) }
func (t *tb) Errorf(f string, args ...any) {
	t.say("error: " + fmt.Sprintf(f, args...))
}

func (t *tb) Fatalf(f string, args ...any) {
	t.Errorf(f, args...)
	runtime.Goexit()
}

func (t *tb) say(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		text = "after the end: " + text
	}
	t.said = append(t.said, text)
}

// end ends the test and returns the errors that it had.
func (t *tb) end() (errs []string) {
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, text := range t.said {
		if strings.HasPrefix(text, "error: ") {
			errs = append(errs, text)
		}
	}
	return errs
}

func TestAPolicyThatIsNotValidFailsTheTest(t *testing.T) {
	inner := &tb{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		oncetest.New(inner, oncetest.WithPolicy(func(p *onced.Policy) { p.MinLease = 0 }))
	}()
	<-done
	if errs := inner.end(); len(errs) != 1 || !strings.Contains(errs[0], "lease bounds") {
		t.Errorf("the test said %q", errs)
	}
}

// At the end of a test everything is in order again, whatever it had switched on: a
// report that is still on its way arrives.
func TestTheEndLetsReportsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &tb{}
		s := oncetest.New(inner)
		c := s.Client()
		out := must(t, c, call("k"), func(context.Context) error {
			s.Down()
			s.Full(true)
			for range 50 {
				s.LoseNextAnswer()
			}
			return nil
		})
		if out.Settled {
			t.Error("settled by a coordinator that is down")
		}
		if errs := inner.end(); errs != nil {
			t.Errorf("the test ended with %q", errs)
		}
		if left := c.Close(t.Context()); left != nil {
			t.Errorf("left: %+v", left)
		}
	})
}

// A call that is still under way when the test ends is a mistake of the test.
func TestTheEndNamesCallsThatAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &tb{}
		c := oncetest.New(inner).Client(client.WithSettleBudget(0))
		begun, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_, err := do(t, c, call("k"), func(context.Context) error { close(begun); <-end; return nil })
			t.Log(err)
		}()
		<-begun
		errs := inner.end()
		if len(errs) != 1 || !strings.Contains(errs[0], `key "k"`) || !strings.Contains(errs[0], "executing") {
			t.Errorf("the test ended with %q", errs)
		}
		close(end)
		<-done
		c.Close(t.Context())
		inner.mu.Lock()
		defer inner.mu.Unlock()
		if last := inner.said[len(inner.said)-1]; strings.HasPrefix(last, "after the end") {
			t.Errorf("a test that has ended still logs: %s", last)
		}
	})
}

// hours is a lease on the wire.
func hours(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Hour) }

func unavailable(t *testing.T, err error) {
	t.Helper()
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

// The examples are tests, and pass.
func TestExamples(t *testing.T) {
	t.Run("lost answer", testLostAnswer)
	t.Run("outage", testOutage)
}

// What is left over of a test, a goroutine perhaps, fails nothing once it is over, and
// starts nothing.
func TestAfterTheEnd(t *testing.T) {
	var s *oncetest.Server
	t.Run("the test", func(t *testing.T) { s = oncetest.New(t) })
	s.Now()
	s.Up()
	s.Advance(time.Hour)
	s.Advance(-time.Hour)
	s.Lapse()
	s.Down()
	_, err := oncedv1.NewIdempotencyServiceClient(s.Conn()).GetPolicy(t.Context(), &oncedv1.GetPolicyRequest{Namespace: "default"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}
