package client_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// known is what is stored of an operation, to the last byte; nil when nothing is.
func (r *rig) known(c client.Call) *onced.Record {
	r.Helper()
	id := onced.Identity{Namespace: client.DefaultNamespace, Key: c.Key, Method: c.Method}
	v, err := r.store.Get(r.Context(), id)
	if err != nil {
		r.Fatal(err)
	}
	return v.Record
}

// looked is LookupOutcome, which must take no time, execute nothing and write nothing.
func (r *rig) looked(c *client.Client, call client.Call) (client.Outcome[string], error) {
	r.Helper()
	before, claims, start := r.known(call), len(r.faults.all()), time.Now()
	out, err := client.LookupOutcome[string](r.Context(), c, call)
	if after := r.known(call); !reflect.DeepEqual(before, after) {
		r.Errorf("it has written: %+v, was %+v", after, before)
	}
	for _, s := range r.faults.all()[claims:] {
		if s.rpc != "Lookup" {
			r.Errorf("it has sent %s", s.rpc)
		}
	}
	if !time.Now().Equal(start) {
		r.Error("it has waited")
	}
	return out, err
}

// bare takes out of an error what differs between an answer to a claim and one to a
// look-up of the same operation: the words of the refusal.
func bare(err error) any {
	var mismatch *client.Mismatch
	if errors.As(err, &mismatch) {
		m := *mismatch
		m.Err = nil
		return m
	}
	for _, typed := range []any{new(*client.InProgress), new(*client.Unresolved), new(*client.Failed), new(*client.ResultUnavailable), new(*client.GenerationChange)} {
		if errors.As(err, typed) {
			return reflect.ValueOf(typed).Elem().Elem().Interface()
		}
	}
	return err
}

// lookupLeg is an operation as something has left it.
type lookupLeg struct {
	call   client.Call // what is asked; Key "k" of Method "m" if unset
	happen func(*rig)
	runs   bool // a Do would execute
}

func lookupLegs() map[string]lookupLeg {
	declared := func(err error) func(*rig) {
		return func(r *rig) {
			if _, got := client.Do(r.Context(), r.newClient(), call("k"), r.failing(err)); got == nil {
				r.Error("no error")
			}
			pass(time.Second)
		}
	}
	ran := func(c client.Call) func(*rig) {
		return func(r *rig) {
			if _, err := client.Do(r.Context(), r.newClient(), c, r.once("mine")); err != nil {
				r.Fatal(err)
			}
		}
	}
	sum := func(b byte) []onced.Fingerprint {
		return []onced.Fingerprint{{Scheme: "raw1", Digest: string(make([]byte, 31)) + string(b)}}
	}
	ann := client.Call{Key: "k", Method: "m", Subject: "ann", Fingerprints: sum(1)}
	ben, other, nobody := ann, ann, ann
	ben.Subject, other.Fingerprints, nobody.Subject = "ben", sum(2), ""
	scheme := ann
	scheme.Fingerprints = []onced.Fingerprint{{Scheme: "cj1", Digest: sum(1)[0].Digest}}
	return map[string]lookupLeg{
		"absent":          {happen: func(*rig) {}, runs: true},
		"another method":  {happen: ran(client.Call{Key: "k", Method: "n"}), runs: true},
		"completed":       {happen: ran(call("k"))},
		"its own subject": {call: ann, happen: ran(ann)},
		"completed after a takeover": {happen: func(r *rig) {
			r.dies("k", nil)
			pass(90 * time.Second)
			if err := r.rival("k", takingOver(1)).complete("theirs"); err != nil {
				r.Fatal(err)
			}
		}},
		"of another type": {happen: func(r *rig) {
			if _, err := client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (int, error) { return 7, nil }); err != nil {
				r.Fatal(err)
			}
		}},
		"omitted": {happen: func(r *rig) {
			v := r.rival("k", nil)
			if _, err := r.Complete(r.Context(), &oncedv1.CompleteRequest{
				Ref: v.req.GetRef(), ClaimToken: v.req.GetClaimToken(), Fence: v.answer.GetOperation().GetFence(),
				Result: &oncedv1.CompleteRequest_Omitted{Omitted: &oncedv1.OmittedResult{Size: 9, Sha256: make([]byte, 32), ContentType: "text/plain"}},
			}); err != nil {
				r.Fatal(err)
			}
		}},
		"dropped": {happen: func(r *rig) {
			ran(call("k"))(r)
			r.down()
			pass(8 * 24 * time.Hour)
			r.up()
			pass(2 * time.Second)
		}},
		"failed": {happen: declared(client.FinalWith(errors.New("declined"), "LIMIT", map[string]int{"limit": 5}))},
		"failed, its details dropped": {happen: func(r *rig) {
			declared(client.FinalWith(errors.New("declined"), "LIMIT", map[string]int{"limit": 5}))(r)
			r.down()
			pass(8 * 24 * time.Hour)
			r.up()
			pass(2 * time.Second)
		}},
		"pending": {happen: func(r *rig) {
			r.dies("k", nil)
			pass(5 * time.Second)
		}},
		"pending for long": {happen: func(r *rig) { r.rival("k", withLease(time.Hour)) }},
		"about to lapse": {happen: func(r *rig) {
			r.dies("k", nil)
			pass(30*time.Second - time.Millisecond)
		}},
		"lapsed": {happen: func(r *rig) {
			r.dies("k", nil)
			pass(time.Minute)
		}},
		"declared":     {happen: declared(errors.New("time-out"))},
		"contradicted": {happen: func(r *rig) { r.contradicted("k") }},
		"history lost": {happen: func(r *rig) {
			_, err := client.Do(r.Context(), r.Client, forgotten("k"), r.once("no"))
			as[*client.Unresolved](r.T, err)
		}},
		"key older than memory":   {call: client.Call{Key: "k", Method: "m", KeyTime: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}, happen: func(*rig) {}},
		"key of now":              {call: client.Call{Key: "k", Method: "m", KeyTime: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}, happen: func(*rig) {}, runs: true},
		"released":                {happen: declared(client.NotExecuted(errors.New("busy"))), runs: true},
		"not executed, in doubt":  {happen: func(r *rig) { r.dies("k", nil); pass(90 * time.Second); r.gaveBack("k") }},
		"another subject":         {call: ben, happen: ran(ann)},
		"no subject":              {call: nobody, happen: ran(ann)},
		"other arguments":         {call: other, happen: ran(ann)},
		"another scheme":          {call: scheme, happen: ran(ann)},
		"arguments where none":    {call: client.Call{Key: "k", Method: "m", Fingerprints: sum(1)}, happen: ran(call("k"))},
		"another subject, absent": {call: ben, happen: func(*rig) {}, runs: true},
		"another subject, pending": {call: ben, happen: func(r *rig) {
			r.rival("k", func(req *oncedv1.ClaimRequest) {
				req.Subject, req.Fingerprints = "ann", []string{ann.Fingerprints[0].String()}
			})
		}},
	}
}

// gaveBack takes over and says that this attempt did nothing.
func (r *rig) gaveBack(key string) {
	r.Helper()
	if err := r.rival(key, takingOver(1)).got(oncedv1.Outcome_OUTCOME_TAKEN_OVER).fail(oncedv1.Disposition_DISPOSITION_NOT_EXECUTED); err != nil {
		r.Fatal(err)
	}
}

// What a look-up says is what Do says next, and it writes nothing.
func TestLookupOutcomeIsThatOfDo(t *testing.T) {
	for name, leg := range lookupLegs() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				leg.happen(r)
				c := leg.call
				if c.Key == "" {
					c = call("k")
				}
				ran := r.runs.Load()
				out, err := r.looked(r.Client, c)
				if again, errAgain := r.looked(r.newClient(), c); again != out || !reflect.DeepEqual(bare(err), bare(errAgain)) {
					t.Errorf("asked again: %+v, %v", again, errAgain)
				}
				r.ran(ran)
				want, wantErr := client.Do(r.Context(), r.Client, c, r.once("executed"), client.NoWait())
				if leg.runs {
					if !errors.Is(err, client.ErrNotClaimed) || out != (client.Outcome[string]{}) {
						t.Errorf("got %+v, %v", out, err)
					}
					if wantErr != nil || want.Replayed {
						t.Errorf("Do got %+v, %v", want, wantErr)
					}
					return
				}
				r.ran(ran)
				if out != want || !reflect.DeepEqual(bare(err), bare(wantErr)) {
					t.Errorf("got %+v, %v\nDo got %+v, %v", out, err, want, wantErr)
				}
				if errors.Is(err, client.ErrNotClaimed) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A call without fingerprints says nothing of its arguments: that is no mismatch, as it
// is for a claim.
func TestLookupOutcomeWithoutFingerprints(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := call("k")
		c.Fingerprints = []onced.Fingerprint{{Scheme: "raw1", Digest: string(make([]byte, 32))}}
		if _, err := client.Do(r.Context(), r.Client, c, r.once("mine")); err != nil {
			t.Fatal(err)
		}
		if out, err := r.looked(r.Client, call("k")); err != nil || out.Value != "mine" || !out.Replayed {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

// What Do refuses before it sends anything, a look-up refuses in the same words.
func TestLookupOutcomeOfImpossibleCalls(t *testing.T) {
	inBubble(t, func(r *rig) {
		for name, c := range map[string]client.Call{
			"no key": {Method: "m"}, "null": {Key: "null", Method: "m"}, "not UTF-8": {Key: "\xff", Method: "m"}, "white space": {Key: " k", Method: "m"},
			"no method": {Key: "k"}, "namespace": {Namespace: "no spaces", Key: "k", Method: "m"},
			"scheme": {Key: "k", Method: "m", Fingerprints: []onced.Fingerprint{{Scheme: "?", Digest: "d"}}},
		} {
			_, err := client.LookupOutcome[string](r.Context(), r.Client, c)
			_, want := client.Do(r.Context(), r.Client, c, r.once("no"))
			if err == nil || want == nil || err.Error() != want.Error() || errors.Is(err, client.ErrNotClaimed) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
		if sent := r.faults.all(); len(sent) != 0 {
			t.Errorf("sent: %v", sent)
		}
	})
}

func TestLookupOutcomeOfAClosedClient(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.run("k", "mine")
		c := r.newClient()
		c.Close(r.Context())
		if _, err := client.LookupOutcome[string](r.Context(), c, call("k")); !errors.Is(err, client.ErrClosed) {
			t.Errorf("got %v", err)
		}
		r.saw("Lookup", 0)
	})
}

// A store that is another one does not know what was claimed before, and its word that
// nothing was is not passed on. It may be the look-up that notices.
func TestLookupOutcomeUnderAnotherGeneration(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			c := r.newClient(client.RefuseOnGenerationChange())
			if _, err := client.Do(r.Context(), c, call("k"), r.once("mine")); err != nil {
				t.Fatal(err)
			}
			from, to := r.anotherStore(time.Hour)
			if noticed {
				_, err := client.Do(r.Context(), c, call("other"), r.once("no"))
				as[*client.GenerationChange](t, err)
			}
			_, err := client.LookupOutcome[string](r.Context(), c, call("k"))
			if g := as[*client.GenerationChange](t, err); g.From != from || g.To != to || errors.Is(err, client.ErrNotClaimed) {
				t.Errorf("noticed before: %v: got %+v", noticed, g)
			}
			if _, err := client.LookupOutcome[string](r.Context(), r.newClient(), call("k")); !errors.Is(err, client.ErrNotClaimed) {
				t.Errorf("a client that accepts it got %v", err)
			}
			r.ran(1)
		})
	}
}

// Without an answer nothing is known: it is asked for until the context ends.
func TestLookupOutcomeWithoutAnAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.run("k", "mine")
		r.down()
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := client.LookupOutcome[string](ctx, r.Client, call("k"))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrNotClaimed) || took != 3*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		says(t, err, `outcome unknown, key "k"`)
		_, err = client.LookupOutcome[string](ctx, r.Client, call("k")) // which has ended
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.AfterFunc(time.Minute, r.up)
		out, err := client.LookupOutcome[string](r.Context(), r.Client, call("k"))
		if err != nil || out.Value != "mine" {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

// Only onced knows that something is not known. NOT_FOUND from something on the way is
// an error.
func TestLookupOutcomeOfSomethingOnTheWay(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.Unimplemented, codes.PermissionDenied, codes.Internal} {
		inBubble(t, func(r *rig) {
			r.run("k", "mine")
			r.faults.always(refusedWith(code), "Lookup")
			_, err := client.LookupOutcome[string](r.Context(), r.Client, call("k"))
			if errors.Is(err, client.ErrNotClaimed) || status.Code(err) != code {
				t.Errorf("%v: got %v", code, err)
			}
		})
	}
}

// An operation that this client does not understand is not taken for one that is free.
func TestLookupOutcomeOfAStateThatIsNotKnown(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.run("k", "mine")
		for _, state := range []oncedv1.State{99, 0} {
			r.faults.editReplies(func(_ string, reply any) {
				if l, ok := reply.(*oncedv1.LookupResponse); ok {
					l.Operation.State = state
				}
			})
			_, err := client.LookupOutcome[string](r.Context(), r.Client, call("k"))
			if err == nil || errors.Is(err, client.ErrNotClaimed) {
				t.Fatalf("got %v", err)
			}
			says(t, err, "newer client")
		}
		r.faults.editReplies(func(_ string, reply any) { proto.Reset(reply.(proto.Message)) })
		if _, err := client.LookupOutcome[string](r.Context(), r.Client, call("k")); err == nil || errors.Is(err, client.ErrNotClaimed) {
			t.Errorf("an empty answer: %v", err)
		}
	})
}

// The function that runs for an operation may look it up: it is in progress.
func TestLookupOutcomeWithinTheFunction(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, _ *client.Claim) (string, error) {
			_, err := client.LookupOutcome[string](ctx, r.Client, call("k"))
			as[*client.InProgress](t, err)
			return "mine", nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
