package client_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// TestMain fixes the seed of the random stories, so that a run is like the last one;
// -rapid.seed=0 asks for others.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "100", "rapid.nofailfile": "true"} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				log.Fatal(err)
			}
		}
	}
	m.Run()
}

// TestReconcileStories tells random stories of one operation over a provider whose
// look-up is always up to date: processes that die, answers that are lost, functions
// that fail. There are never two effects, and no caller is given what did not happen.
// In the end, whatever came before, the operation has happened.
func TestReconcileStories(t *testing.T) {
	inBubble(t, func(r *rig) {
		n := 0
		rapid.Check(t, func(t *rapid.T) {
			n++
			s := &story{T: t, r: r, crm: &crmAPI{}, key: fmt.Sprintf("story %d", n)}
			t.Repeat(map[string]func(*rapid.T){
				"":             func(*rapid.T) { s.holds() },
				"dies":         s.dies,
				"dies, asking": s.diesAsking,
				"calls":        s.calls,
				"time passes":  func(t *rapid.T) { pass(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second) },
				"wakes up":     s.wakesUp,
			})
			r.faults.set(nil)
			s.ends()
		})
	})
}

// story is what happens to one operation.
type story struct {
	*rapid.T
	r    *rig
	crm  *crmAPI
	key  string
	dead []dead
}

// dead is a process that was not heard of again, and what it knows.
type dead struct {
	*rival
	ticket string // empty: it died before it did anything
}

// holds fails the story if there was more than one effect.
func (s *story) holds() {
	if n := s.crm.effects(); n > 1 {
		s.Fatalf("%d effects", n)
	}
}

// got checks what a caller was given.
func (s *story) got(value string, err error) {
	if err == nil && (s.crm.effects() != 1 || value != "ticket 1") {
		s.Fatalf("a caller was given %q; there are %d tickets", value, s.crm.effects())
	}
}

// claims claims as a process does that may be refused: its attempts may be used up.
func (s *story) claims(takeOver uint32) (*rival, oncedv1.Outcome) {
	v := &rival{r: s.r, req: &oncedv1.ClaimRequest{
		Ref: s.r.Ref(s.key, "m"), ClaimToken: client.NewToken(), Holder: "mortal", TakeOverAttempt: takeOver,
	}}
	v.answer, _ = s.r.Claim(s.r.Context(), v.req)
	return v, v.answer.GetOutcome()
}

// dies claims, and dies before or after its effect, if it may execute.
func (s *story) dies(t *rapid.T) {
	v, outcome := s.claims(0)
	if outcome != oncedv1.Outcome_OUTCOME_GRANTED {
		t.Skip("it may not execute")
	}
	d := dead{rival: v}
	if rapid.Bool().Draw(t, "after the effect") {
		d.ticket, _ = s.crm.create(s.r.Context(), s.key)
	}
	s.dead = append(s.dead, d)
}

// diesAsking takes the operation over, if it may, and dies before it has asked.
func (s *story) diesAsking(*rapid.T) {
	v, outcome := s.claims(0)
	switch outcome {
	case oncedv1.Outcome_OUTCOME_UNRESOLVED:
		s.claims(v.answer.GetOperation().GetAttempt())
	case oncedv1.Outcome_OUTCOME_GRANTED:
		s.dead = append(s.dead, dead{rival: v})
	}
}

// wakesUp lets a process that was thought dead report what it knows.
func (s *story) wakesUp(t *rapid.T) {
	if len(s.dead) == 0 {
		t.Skip("nobody is dead")
	}
	if d := rapid.SampledFrom(s.dead).Draw(t, "who"); d.ticket == "" {
		_ = d.fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED)
	} else {
		_ = d.complete(d.ticket)
	}
}

var ways = map[string]fault{
	"": nil, "lost": lost, "swallowed": swallowed, "hole": hole, "late": late(20 * time.Second),
	"unavailable": refusedWith(codes.Unavailable), "internal": refusedWith(codes.Internal),
}

// calls is a caller over a way that loses some of the next calls.
func (s *story) calls(t *rapid.T) {
	var way []fault
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "", "lost", "swallowed", "hole", "late", "unavailable", "internal"}), 0, 8).Draw(t, "way") {
		way = append(way, ways[name])
	}
	s.r.faults.set(func(c sent) fault {
		if len(way) == 0 {
			return nil
		}
		happen := way[0]
		way = way[1:]
		return happen
	})
	end := rapid.SampledFrom([]string{"value", "value", "error before", "error after", "no answer", "not executed", "panic after"}).Draw(t, "end")
	ask := rapid.SampledFrom([]string{"look up", "look up", "look up", "give up", "panic"}).Draw(t, "ask")
	ctx, cancel := context.WithTimeout(s.r.Context(), time.Duration(rapid.SampledFrom([]int{1, 7, 100, 1000}).Draw(t, "patience"))*time.Second)
	defer cancel()
	defer func() {
		if p := recover(); p != nil && p != errStory {
			panic(p)
		}
	}()
	defer s.r.faults.set(nil)
	out, err := client.Do(ctx, s.r.Client, call(s.key), s.function(end), client.WithReconcile(s.asking(ask)))
	s.got(out.Value, err)
}

var errStory = errors.New("as the story goes")

// function executes, and ends in one of the ways that functions end.
func (s *story) function(end string) func(context.Context, *client.Claim) (string, error) {
	return func(ctx context.Context, cl *client.Claim) (string, error) {
		if cl.TakenOver {
			s.Errorf("it runs under a takeover")
		}
		switch end {
		case "error before":
			return "", errStory
		case "not executed":
			return "", client.NotExecuted(errStory)
		case "no answer":
			s.crm.lose(1)
		}
		ticket, err := s.crm.create(ctx, s.key)
		switch end {
		case "error after":
			return "", errStory
		case "panic after":
			panic(errStory)
		}
		return ticket, err
	}
}

// asking looks the operation up, unless it gives up.
func (s *story) asking(how string) client.ReconcileFunc {
	return func(ctx context.Context, _ *client.Claim) client.Verdict {
		switch how {
		case "give up":
			return client.StillUnknown(errStory)
		case "panic":
			panic(errStory)
		}
		return hits(s.crm.find(ctx, s.key))
	}
}

// ends brings the operation to its end. Only one that has used up its attempts needs a
// person.
func (s *story) ends() {
	pass(2 * time.Minute)
	out, err := client.Do(s.r.Context(), s.r.Client, call(s.key), s.function("value"), client.WithReconcile(s.asking("look up")))
	s.got(out.Value, err)
	s.holds()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "16 attempts"):
	case s.r.operation(s.key).GetReason() == oncedv1.Reason_REASON_CONTRADICTED && s.crm.effects() == 1:
		s.Errorf("the look-up finds it, and it is contradicted still: %v", err)
	default:
		s.Errorf("it has no end: %v", err)
	}
}
