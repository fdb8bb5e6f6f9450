package oncegrpc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// storySeed fixes the seed of random stories, so that a run is like the last one;
// -rapid.seed=0 asks for others.
func storySeed(t *testing.T) {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.nofailfile": "true", "rapid.shrinktime": "5s"} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// storyEnds are the ways in which handlers of stories end. Those that say that nothing
// was executed do nothing before.
var storyEnds = map[string]error{
	"response": nil, "internal": status.Error(codes.Internal, "later"), "aborted": status.Error(codes.Aborted, "later"),
	"plain": errors.New("later"), "final": client.Final(detailedStatus(codes.NotFound, "no such account")), "panic": errors.New("panic"),
	"not executed": client.NotExecuted(errors.New("before")), "declared": status.Error(codes.InvalidArgument, "before"),
	"cancelled": context.Canceled,
}

// story is what happens to one operation, and what must be true of it.
type story struct {
	*rapid.T
	s     *oncetest.Server
	rigs  []*rig
	conns []grpc.ClientConnInterface
	key   string

	bound   int64 // the amount of the first execution
	effects int
	answer  *answer // what the execution with the effect has answered
}

// TestOutcomeStories tells random stories of one operation: handlers that end in every
// way, callers and clients that try again, other requests under the key, a coordinator
// that fails at every moment. There is never a second effect, and nobody is given what
// did not happen.
func TestOutcomeStories(t *testing.T) {
	storySeed(t)
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		one, two := newRigOn(t, s, nil), newRigOn(t, s, nil, WithWait(3*time.Second))
		conns := []grpc.ClientConnInterface{one.conn, two.conn, one.connect(retryEverything), two.connect(retryEverything)}
		n, effects := 0, 0
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // without its Deadline, which no bubble has
			n++
			y := &story{T: rt, s: s, rigs: []*rig{one, two}, conns: conns, key: fmt.Sprint("story ", n)}
			rt.Repeat(map[string]func(*rapid.T){
				"":            func(*rapid.T) { y.holds() },
				"calls":       y.calls,
				"time passes": func(rt *rapid.T) { passing(time.Duration(rapid.IntRange(1, 90).Draw(rt, "seconds")) * time.Second) },
				"down":        func(*rapid.T) { s.Down() },
				"up":          func(*rapid.T) { s.Up() },
			})
			s.Up()
			passing(2 * time.Minute)
			y.ends()
			effects += y.effects
		})
		if effects == 0 {
			t.Error("nothing has happened in all stories")
		}
	})
}

func (y *story) holds() {
	if y.effects > 1 {
		y.Fatalf("%d effects", y.effects)
	}
}

// calls makes a call whose handler, if it runs, ends in some way while something fails.
func (y *story) calls(t *rapid.T) {
	end := rapid.SampledFrom([]string{"response", "internal", "aborted", "plain", "final", "panic", "not executed", "declared", "cancelled"}).Draw(t, "end")
	fault := rapid.SampledFrom([]string{"", "", "claim lost", "report lost", "down", "down for long", "lapse", "slow"}).Draw(t, "fault")
	amount := rapid.Int64Range(1, 2).Draw(t, "amount")
	ran := false
	for _, r := range y.rigs {
		r.handle(func(_ context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
			ran = true
			y.runs(amount, end)
			y.fails(fault)
			if end == "panic" {
				panic(end)
			}
			return response("id", y.key), storyEnds[end]
		})
	}
	if fault == "claim lost" {
		y.s.LoseNextAnswer()
	}
	conn := y.conns[rapid.IntRange(0, len(y.conns)-1).Draw(t, "conn")]
	a := on(context.Background(), conn, "Declared", y.key, request("amount", amount))
	y.got(a, ran, end, amount)
}

// runs takes note of a run of a handler.
func (y *story) runs(amount int64, end string) {
	if y.bound == 0 {
		y.bound = amount
	}
	if y.bound != amount {
		y.Errorf("another request was executed under the key")
	}
	switch {
	case end != "not executed" && end != "declared":
		y.effects++
	case y.effects > 0:
		y.Errorf("it was executed again after its effect")
	}
}

// fails lets something fail while a handler runs.
func (y *story) fails(fault string) {
	switch fault {
	case "report lost":
		y.s.LoseNextAnswer()
	case "down":
		y.s.Down()
		time.AfterFunc(20*time.Second, y.s.Up)
	case "down for long":
		y.s.Down()
	case "lapse":
		y.s.Lapse()
		passing(time.Minute)
	case "slow":
		passing(2 * time.Minute)
	}
}

// got checks what a caller was given.
func (y *story) got(a answer, ran bool, end string, amount int64) {
	switch outcome := a.outcome(); {
	case outcome == OutcomeReplayed && (y.answer == nil || y.bound != amount):
		y.Errorf("a replay of nothing: %v, %v", a.resp, a.err)
	case outcome == OutcomeReplayed:
		if !proto.Equal(status.Convert(a.err).Proto(), status.Convert(y.answer.err).Proto()) || !proto.Equal(a.resp, y.answer.resp) {
			y.Errorf("a replay of %v, %v is %v, %v", y.answer.resp, y.answer.err, a.resp, a.err)
		}
	case outcome == OutcomeExecuted && !ran:
		y.Errorf("executed, but it was not")
	case outcome == OutcomeExecuted:
		y.answer = &a
	case a.err == nil:
		y.Errorf("a success without an outcome: %v", a.resp)
	}
	if a.outcome() == "" && ran && end != "not executed" && end != "declared" {
		y.Errorf("executed, and its answer does not say so: %v", a.err)
	}
}

// ends fails the story unless everybody learns what has become of the operation.
func (y *story) ends() {
	y.holds()
	if y.effects == 0 {
		return
	}
	for _, r := range y.rigs {
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			y.Errorf("it was executed again at the end")
			return response(), nil
		})
		a := r.call(context.Background(), "Declared", y.key, request("amount", y.bound))
		y.got(a, false, "", y.bound)
		if code := status.Code(a.err); a.outcome() != OutcomeReplayed && code != codes.FailedPrecondition && code != codes.Aborted {
			y.Errorf("at the end: %v", a.err)
		}
	}
	y.holds()
}
