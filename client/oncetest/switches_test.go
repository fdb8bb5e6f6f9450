package oncetest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// A lost answer costs nothing: the claim is sent again under its token.
func TestTheAnswerOfAClaimIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		s.LoseNextAnswer()
		out := must(t, s.Client(), call("k"), nothing)
		if out.Replayed || out.Attempt != 1 || !out.Settled {
			t.Errorf("got %+v", out)
		}
		executed(t, s, "k", 1)
	})
}

func TestTheAnswerOfAReportIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		out := must(t, s.Client(), call("k"), func(context.Context) error {
			s.LoseNextAnswer()
			s.LoseNextAnswer()
			return nil
		})
		if out.Replayed || out.Value != "done by k" {
			t.Errorf("got %+v", out)
		}
		if out := must(t, s.Client(), call("k"), nothing); !out.Replayed || out.Value != "done by k" {
			t.Errorf("later: %+v", out)
		}
		executed(t, s, "k", 1)
	})
}

// What is lost is the answer, with all that came with it, and not the call.
func TestACallWhoseAnswerIsLostIsCarriedOut(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c, req := newStub(t, s), claimOf("k")
		for range 2 { // calls add up
			s.LoseNextAnswer()
		}
		for range 2 {
			var header metadata.MD
			_, err := c.Claim(t.Context(), req, grpc.Header(&header))
			unavailable(t, err)
			if header != nil {
				t.Errorf("a lost answer brought the header %v", header)
			}
		}
		executed(t, s, "k", 0) // nobody was told
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_IN_PROGRESS)
		op := c.gets(req, oncedv1.Outcome_OUTCOME_GRANTED)
		if op.GetAttempt() != 1 {
			t.Errorf("attempt %d", op.GetAttempt())
		}
		executed(t, s, "k", 1)
		c.gets(req, oncedv1.Outcome_OUTCOME_GRANTED)
		executed(t, s, "k", 1) // told twice of one claim
		s.LoseNextAnswer()
		unavailable(t, c.completes(req, op))
		c.isIn("k", oncedv1.State_STATE_COMPLETED)
	})
}

// A call that does not arrive has no answer to be lost.
func TestWhatIsDownLosesNoAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c, req := newStub(t, s), claimOf("k")
		s.Down()
		s.LoseNextAnswer()
		_, err := c.Claim(t.Context(), req)
		unavailable(t, err)
		s.Up()
		_, err = c.Claim(t.Context(), req)
		unavailable(t, err)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_IN_PROGRESS)
	})
}

// The client fails closed.
func TestNothingIsExecutedWhileTheCoordinatorIsDown(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		s.Down()
		s.Down() // once is enough
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := client.Do(ctx, s.Client(), call("k"), func(context.Context, *client.Claim) (string, error) {
			t.Error("executed")
			return "", nil
		})
		if err == nil || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("got %v", err)
		}
		executed(t, s, "k", 0)
		s.Up()
		s.Up()
		must(t, s.Client(), call("k"), nothing)
		executed(t, s, "k", 1)
	})
}

func TestWhatWasExecutedSettlesWhenTheCoordinatorIsBack(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := s.Client()
		must(t, c, call("k"), func(context.Context) error {
			s.Down()
			time.AfterFunc(200*time.Millisecond, s.Up)
			return nil
		})
		if left := c.Close(t.Context()); left != nil {
			t.Errorf("left: %+v", left)
		}
		newStub(t, s).isIn("k", oncedv1.State_STATE_COMPLETED)
		executed(t, s, "k", 1)
	})
}

// Calls that are under way break off, and are not mistaken for cancelled ones.
func TestDownBreaksHeldCallsOff(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_GRANTED)
		answer := make(chan error)
		go func() {
			req := claimOf("k")
			req.Wait = durationpb.New(20 * time.Second)
			_, err := c.Claim(t.Context(), req)
			answer <- err
		}()
		synctest.Wait()
		s.Down()
		unavailable(t, <-answer)
		_, err := grpcStream(t, s)
		unavailable(t, err)
		s.Up()
		if _, err := grpcStream(t, s); err != nil {
			t.Error(err)
		}
	})
}

// grpcStream begins a stream of the server's reflection service.
func grpcStream(t *testing.T, s *oncetest.Server) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	return s.Conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
}

// An outage lapses nobody: a holder has its lease to be heard of again.
func TestAnOutageLapsesNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_GRANTED)
		s.Down()
		s.Advance(time.Hour)
		s.Up()
		s.Advance(25 * time.Second)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_IN_PROGRESS)
		s.Advance(10 * time.Second)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_UNRESOLVED)
	})
}

// Lapse knows of that grace, and ends it too.
func TestLapseAfterAnOutage(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_GRANTED)
		s.Down()
		s.Advance(time.Hour)
		s.Up()
		s.Lapse()
		c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_UNRESOLVED)
		// A claim that is made later has its own lease, and the next outage its own grace.
		c.gets(claimOf("later"), oncedv1.Outcome_OUTCOME_GRANTED)
		c.gets(claimOf("later"), oncedv1.Outcome_OUTCOME_IN_PROGRESS)
		s.Down()
		s.Advance(time.Hour)
		s.Up()
		c.gets(claimOf("later"), oncedv1.Outcome_OUTCOME_IN_PROGRESS)
	})
}

// Whatever the lease, and nothing but claims that are held.
func TestLapseLeavesTheRestAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		must(t, s.Client(), call("settled"), nothing)
		released, declared, long := claimOf("released"), claimOf("declared"), claimOf("long")
		c.fails(released, c.gets(released, oncedv1.Outcome_OUTCOME_GRANTED), oncedv1.Disposition_DISPOSITION_NOT_EXECUTED)
		unknown := c.gets(declared, oncedv1.Outcome_OUTCOME_GRANTED)
		c.fails(declared, unknown, oncedv1.Disposition_DISPOSITION_UNKNOWN)
		long.Lease = hours(24)
		c.gets(long, oncedv1.Outcome_OUTCOME_GRANTED)
		before := s.Now()
		s.Lapse()
		c.isIn("settled", oncedv1.State_STATE_COMPLETED)
		c.isIn("released", oncedv1.State_STATE_RELEASED)
		c.isIn("declared", oncedv1.State_STATE_UNRESOLVED)
		_, err := c.Renew(t.Context(), &oncedv1.RenewRequest{Ref: declared.GetRef(), ClaimToken: declared.GetClaimToken(), Fence: unknown.GetFence()})
		if !refusedFor(err, onced.RefusedClaimLost) {
			t.Errorf("a renewal of what was not held got %v", err)
		}
		op := c.gets(claimOf("long"), oncedv1.Outcome_OUTCOME_UNRESOLVED)
		if op.GetReason() != oncedv1.Reason_REASON_LAPSED {
			t.Errorf("got reason %v", op.GetReason())
		}
		if jumped := s.Now().Sub(before); jumped > time.Hour {
			t.Errorf("store time jumped by %v", jumped)
		}
	})
}

// A zombie goes on, is not executed beside, and may still say what it did.
func TestAZombie(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		zombie, second := s.Client(), s.Client()
		out := must(t, zombie, call("k"), func(ctx context.Context) error {
			s.Lapse()
			_, err := do(t, second, call("k"), nothing)
			if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_LAPSED || u.Holder != "process-1" {
				t.Errorf("got %+v", u)
			}
			return ctx.Err() // it has not noticed
		})
		if !out.Settled {
			t.Error("the last holder's report was not taken")
		}
		if out := must(t, second, call("k"), nothing); !out.Replayed {
			t.Errorf("later: %+v", out)
		}
		executed(t, s, "k", 1)
	})
}

// The zombie's renewals do not arrive: the claim stays lapsed, can be taken over when
// that is due, and ends by its holder's own clock.
func TestAZombieIsNotRevived(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		_, err := do(t, s.Client(), call("k"), func(ctx context.Context) error {
			s.Lapse()
			lapsed := s.Now()
			<-ctx.Done()
			if passed := s.Now().Sub(lapsed); passed != 30*time.Second {
				t.Errorf("the holder gave up after %v", passed)
			}
			c.isIn("k", oncedv1.State_STATE_UNRESOLVED)
			takeover := claimOf("k")
			takeover.TakeOverAttempt = 1
			c.gets(takeover, oncedv1.Outcome_OUTCOME_UNRESOLVED) // not yet
			<-time.After(30 * time.Second)
			c.gets(takeover, oncedv1.Outcome_OUTCOME_TAKEN_OVER)
			return nil
		})
		as[*client.ClaimLost](t, err)
		executed(t, s, "k", 1)
	})
}

// Of those who live, the clock that jumps makes no zombies: they renew.
func TestAHolderRevivesAClaimThatTheClockLapsed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		must(t, s.Client(), call("k"), func(context.Context) error {
			s.Advance(time.Hour)
			c.isIn("k", oncedv1.State_STATE_UNRESOLVED)
			<-time.After(11 * time.Second)
			c.isIn("k", oncedv1.State_STATE_PENDING)
			return nil
		})
	})
}

// Whoever is waiting sees at once that there is nothing to wait for any more.
func TestHeldCallsNotice(t *testing.T) {
	for name, jump := range map[string]func(*oncetest.Server){
		"advance": func(s *oncetest.Server) { s.Advance(30 * time.Second) },
		"lapse":   (*oncetest.Server).Lapse,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *oncetest.Server) {
				c := newStub(t, s)
				c.gets(claimOf("k"), oncedv1.Outcome_OUTCOME_GRANTED)
				ended := make(chan time.Duration, 2)
				go func() {
					begun := time.Now()
					_, err := do(t, s.Client(), call("k"), nothing)
					as[*client.Unresolved](t, err)
					ended <- time.Since(begun)
				}()
				go func() {
					begun := time.Now()
					resp, err := c.Lookup(t.Context(), &oncedv1.LookupRequest{Ref: claimOf("k").GetRef(), Wait: durationpb.New(20 * time.Second)})
					if err != nil || resp.GetOperation().GetState() != oncedv1.State_STATE_UNRESOLVED {
						t.Errorf("got %v, %v", resp, err)
					}
					ended <- time.Since(begun)
				}()
				<-time.After(2 * time.Second)
				jump(s)
				for range 2 {
					if took := <-ended; took != 2*time.Second {
						t.Errorf("noticed after %v, want 2s", took)
					}
				}
				executed(t, s, "k", 1)
			})
		})
	}
}

// A jump that ends nothing lets calls be held for as long as they asked for.
func TestHeldCallsAreHeldForAsLongAsTheyAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oncetest.Server) {
		c, req := newStub(t, s), claimOf("k")
		req.Lease = hours(24)
		op := c.gets(req, oncedv1.Outcome_OUTCOME_GRANTED)
		time.AfterFunc(4*time.Second, func() { s.Advance(time.Hour) })
		waiter := claimOf("k")
		waiter.Wait, waiter.Lease = durationpb.New(10*time.Second), hours(24)
		begun := time.Now()
		c.gets(waiter, oncedv1.Outcome_OUTCOME_IN_PROGRESS)
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("held for %v, want 10s", took)
		}
		time.AfterFunc(4*time.Second, func() { s.Advance(time.Hour) })
		time.AfterFunc(6*time.Second, func() { c.fails(req, op, oncedv1.Disposition_DISPOSITION_NOT_EXECUTED) })
		c.gets(waiter, oncedv1.Outcome_OUTCOME_GRANTED)
		executed(t, s, "k", 1)
		begun = time.Now()
		time.AfterFunc(4*time.Second, func() { s.Advance(time.Hour) })
		if _, err := c.Lookup(t.Context(), &oncedv1.LookupRequest{Ref: waiter.GetRef(), Wait: durationpb.New(10 * time.Second)}); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("a lookup was held for %v, want 10s", took)
		}
		// A caller that goes away is not asked again for.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		gone := claimOf("k")
		gone.Wait = durationpb.New(20 * time.Second)
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Claim(ctx, gone); status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
	})
}

func TestTimeDoesNotGoBack(t *testing.T) {
	inner := &tb{}
	s := oncetest.New(inner)
	s.Advance(-time.Second)
	if errs := inner.end(); len(errs) != 1 || !strings.Contains(errs[0], "never goes back") {
		t.Errorf("the test said %q", errs)
	}
}

// A store that is full takes no new claims, answers what is known, and takes reports.
func TestFull(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oncetest.Server) {
		c := newStub(t, s)
		must(t, s.Client(), call("old"), nothing)
		act := claimOf("act")
		act.Fingerprints = []string{"raw1:00112233445566778899aabbccddeeff"}
		act.TwinGuard = &oncedv1.TwinGuard{Block: oncedv1.TwinGuard_BLOCK_UNSETTLED}
		c.gets(act, oncedv1.Outcome_OUTCOME_GRANTED)
		out := must(t, s.Client(), call("begun"), func(context.Context) error { s.Full(true); return nil })
		if !out.Settled {
			t.Error("the report found no room")
		}
		_, err := c.Claim(t.Context(), claimOf("new"))
		if !refusedFor(err, "STORAGE_FULL") {
			t.Errorf("got %v", err)
		}
		if out := must(t, s.Client(), call("old"), nothing); !out.Replayed {
			t.Errorf("got %+v", out)
		}
		twin := claimOf("twin") // which is decided and not stored
		twin.Fingerprints, twin.TwinGuard = act.GetFingerprints(), act.GetTwinGuard()
		c.gets(twin, oncedv1.Outcome_OUTCOME_BLOCKED_BY_TWIN)
		s.Down() // which makes no room
		s.Up()
		if _, err := c.Claim(t.Context(), claimOf("new")); !refusedFor(err, "STORAGE_FULL") {
			t.Errorf("after a restart: %v", err)
		}
		executed(t, s, "new", 0)
		s.Full(false)
		c.gets(claimOf("new"), oncedv1.Outcome_OUTCOME_GRANTED)
	})
}

// Do goes on asking, and executes when there is room.
func TestDoWaitsForRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oncetest.Server) {
		s.Full(true)
		time.AfterFunc(time.Minute, func() { s.Full(false) })
		must(t, s.Client(), call("k"), nothing)
		executed(t, s, "k", 1)
	})
}

func refusedFor(err error, reason onced.RefusalReason) bool {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason() == string(reason)
		}
	}
	return false
}
