package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// checkpoint stores progress as a holder does.
func (v *rival) checkpoint(seq uint64, text string) error {
	_, err := v.r.Renew(v.r.Context(), &oncedv1.RenewRequest{
		Ref: v.req.GetRef(), ClaimToken: v.req.GetClaimToken(), Fence: v.answer.GetOperation().GetFence(),
		Checkpoint: &oncedv1.Checkpoint{Seq: seq, Payload: &oncedv1.Payload{
			ContentType: "text/plain", Body: &oncedv1.Payload_Text{Text: text},
		}},
	})
	return err
}

// reads is what the reconcile function finds of the attempts before: the text of
// their newest checkpoint.
func reads(t testing.TB, cl *client.Claim) string {
	t.Helper()
	text := "none"
	if _, err := cl.LastCheckpoint(&text); err != nil {
		t.Errorf("the checkpoint: %v", err)
	}
	return text
}

// asksOnce reconciles once, with what is to happen meanwhile, and returns the
// checkpoint that it was given.
func (r *rig) asksOnce(meanwhile func(context.Context, *client.Claim)) (last string) {
	r.Helper()
	a := &asker{answer: func(ctx context.Context, cl *client.Claim) client.Verdict {
		last = reads(r.T, cl)
		if meanwhile != nil {
			meanwhile(ctx, cl)
		}
		return client.StillUnknown(nil)
	}}
	_, err := r.reconciled("k", r.once("mine"), a)
	as[*client.Unresolved](r.T, err)
	a.was(r.T, 1)
	return last
}

func TestReconcileReadsTheCheckpointOfTheFirstAttempt(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			for _, step := range []string{"reserved seat 1", "charged card 2"} {
				if err := cl.Checkpoint(ctx, step); err != nil {
					t.Error(err)
				}
			}
			return "", errNoAnswer
		})
		if !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		if last := r.asksOnce(nil); last != "charged card 2" {
			t.Errorf("got %q", last)
		}
	})
}

func TestReconcileCheckpointsDoNotGoBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.dies("k", nil)
		for _, c := range []struct {
			seq  uint64
			text string
		}{{1, "one"}, {3, "three"}, {2, "two, late"}, {3, "three again"}} {
			if err := first.checkpoint(c.seq, c.text); err != nil {
				t.Fatal(err)
			}
		}
		last := r.asksOnce(func(context.Context, *client.Claim) {
			if err := first.checkpoint(9, "of a fenced holder"); err == nil {
				t.Error("a fenced holder has stored a checkpoint")
			}
		})
		if last != "three" {
			t.Errorf("attempt 2 got %q", last)
		}
		if last := r.asksOnce(nil); last != "three" {
			t.Errorf("attempt 3 got %q", last)
		}
	})
}

// A checkpoint is slow on its way, and arrives after the one that was made later.
func TestReconcileCheckpointThatArrivesLate(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(ctx context.Context, cl *client.Claim) (string, error) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			r.faults.times(1, late(8*time.Second), "Renew")
			if err := cl.Checkpoint(short, "older"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if err := cl.Checkpoint(ctx, "newer"); err != nil {
				t.Error(err)
			}
			pass(9 * time.Second)
			return "", errNoAnswer
		})
		if !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		if last := r.asksOnce(nil); last != "newer" {
			t.Errorf("got %q", last)
		}
	})
}

// What one that asked has found so far reaches the next one, and one that leaves
// nothing takes nothing away. The checkpoints of a later attempt are newer, whatever
// their numbers are.
func TestReconcileLeavesACheckpoint(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.dies("k", nil)
		if err := first.checkpoint(7, "by the first attempt"); err != nil {
			t.Fatal(err)
		}
		asking := func(text string) func(context.Context, *client.Claim) {
			return func(ctx context.Context, cl *client.Claim) {
				if err := cl.Checkpoint(ctx, text); err != nil {
					t.Error(err)
				}
			}
		}
		for n, leg := range []struct {
			meanwhile func(context.Context, *client.Claim)
			want      string
		}{
			{asking("asked in Frankfurt"), "by the first attempt"},
			{nil, "asked in Frankfurt"},
			{asking("asked in Dublin"), "asked in Frankfurt"},
			{nil, "asked in Dublin"},
		} {
			if last := r.asksOnce(leg.meanwhile); last != leg.want {
				t.Errorf("look-up %d got %q, want %q", n, last, leg.want)
			}
		}
	})
}

// What was found not to have happened has no progress: the function begins anew.
func TestReconcileDropsTheCheckpointOfWhatDidNotHappen(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := r.dies("k", nil)
		if err := first.checkpoint(1, "half way"); err != nil {
			t.Fatal(err)
		}
		_, err := r.reconciled("k", func(_ context.Context, cl *client.Claim) (string, error) {
			if last := reads(t, cl); last != "none" || cl.TakenOver {
				t.Errorf("the function got %q", last)
			}
			return "mine", nil
		}, answering(client.DidNotHappen()))
		if err != nil {
			t.Error(err)
		}
	})
}
