package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// histories makes random histories of a few operations, by everything that can
// happen to them.
type histories struct {
	*testing.T
	*rand.Rand
	clock   *storagetest.Clock
	service *Service
	policy  onced.Policy
}

func newHistories(t *testing.T, seed uint64, policy onced.Policy) *histories {
	clock := storagetest.NewClock()
	policies, err := NewPolicies(policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	service, err := NewService(t.Context(), ServiceConfig{
		Store: memory.New(clock), Policies: policies, Logger: slog.New(slog.DiscardHandler), Observer: NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &histories{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), clock: clock, service: service, policy: policy}
}

func pick[T any](h *histories, from ...T) T { return from[h.IntN(len(from))] }

func (h *histories) id() onced.Identity {
	return onced.Identity{Namespace: "n", Key: pick(h, "a", "b", "c"), Method: "m"}
}

func (h *histories) token() onced.Digest { return onced.Digest{byte(h.IntN(40))} }

// claim is a claim as any caller might send it.
func (h *histories) claim() *claimCall {
	print := func(b byte) onced.Fingerprint { return onced.Fingerprint{Scheme: "raw1", Digest: string([]byte{b})} }
	c := &claimCall{id: h.id(), policy: h.policy, request: onced.ClaimRequest{
		Token: h.token(), Lease: 30 * time.Second, Holder: "h", Fingerprints: []onced.Fingerprint{print(1)},
	}}
	if h.IntN(8) == 0 {
		c.request.Fingerprints[0] = print(2)
	}
	if h.IntN(8) == 0 {
		c.request.Subject = "another"
	}
	if h.IntN(2) == 0 {
		c.request.TakeOverAttempt = uint32(h.IntN(4))
		if v, err := h.service.store.Get(context.Background(), c.id); err == nil && v.Record != nil && h.IntN(2) == 0 {
			c.request.TakeOverAttempt = v.Record.Attempt
		}
	}
	if h.IntN(3) == 0 {
		c.request.Guard = &onced.TwinGuard{Block: onced.BlockUnsettledOrRecent, Window: time.Hour}
	}
	if h.IntN(3) == 0 {
		c.request.KeyTime = h.clock.Wall().Add(pick(h, -24*time.Hour, 0, time.Hour))
	}
	return c
}

// step makes one change, or is refused.
func (h *histories) step() {
	ctx, id := context.Background(), h.id()
	report := func(decide func(onced.View, onced.Holder) (onced.Plan, *onced.Operation, error)) {
		_ = h.service.updateWithTwin(ctx, storage.Target{ID: id}, func(v onced.View) (onced.Plan, error) {
			holder := onced.Holder{Token: h.token()}
			if v.Record != nil && len(v.Record.Attempts) > 0 {
				a := pick(h, v.Record.Attempts...)
				holder = onced.Holder{Token: a.Token, Fence: a.Fence}
			}
			plan, _, err := decide(v, holder)
			return plan, err
		})
	}
	switch h.IntN(30) {
	default:
		_, _ = h.service.claim(ctx, h.claim())
	case 0:
		report(func(v onced.View, by onced.Holder) (onced.Plan, *onced.Operation, error) {
			return onced.Complete(v, h.policy, by, onced.NewResult("", true, []byte{byte(h.IntN(2))}))
		})
	case 1, 2, 3:
		what := pick(h, onced.NotExecuted, onced.NotExecuted, onced.Unknown, onced.DidNotHappen)
		report(func(v onced.View, by onced.Holder) (onced.Plan, *onced.Operation, error) {
			return onced.Fail(v, h.policy, by, onced.FailRequest{Disposition: what})
		})
	case 4:
		report(func(v onced.View, by onced.Holder) (onced.Plan, *onced.Operation, error) {
			return onced.Renew(v, h.policy, by, time.Minute, &onced.Checkpoint{Seq: 1, Payload: *onced.NewResult("", true, []byte("x"))})
		})
	case 5:
		what := pick(h, onced.ResolveReleased, onced.ResolveReopen)
		report(func(v onced.View, _ onced.Holder) (onced.Plan, *onced.Operation, error) {
			return onced.Resolve(v, h.policy, onced.ResolveRequest{Resolution: what, Evidence: "seen", Who: "w"})
		})
	case 6, 7, 9, 10:
		h.clock.Advance(pick(h, time.Second, 40*time.Second, 2*time.Minute, 26*time.Hour, 8*24*time.Hour, 31*24*time.Hour))
	case 8: // the record comes from before a restore
		_ = h.service.update(ctx, storage.Target{ID: id}, func(v onced.View) (onced.Plan, error) {
			if v.Record == nil || h.IntN(2) == 0 {
				return onced.Plan{}, nil
			}
			v.Record.Generation--
			return onced.Plan{Put: v.Record}, nil
		})
	}
}

// TestKnownAnswersAsAnUpdate: a claim that is decided by a read is answered as the
// update would have answered it, and every claim that an update would answer without
// a change of what is known is decided by a read.
func TestKnownAnswersAsAnUpdate(t *testing.T) {
	safe := onced.DefaultPolicy()
	safe.SafeToRerun = true
	outcomes, refusals := map[onced.Outcome]int{}, map[onced.RefusalReason]int{}
	for seed, policy := range []onced.Policy{onced.DefaultPolicy(), safe, onced.DefaultPolicy(), safe} {
		h := newHistories(t, uint64(seed), policy)
		for range 5000 {
			h.step()
			c := h.claim()
			c.request.QuotaFull = h.IntN(4) == 0
			got, known, gotErr := h.service.claimKnown(t.Context(), c.id, c.policy, c.request)
			var (
				view    onced.View
				plan    onced.Plan
				want    onced.ClaimAnswer
				wantErr error
			)
			target := storage.Target{ID: c.id, Twin: c.request.TwinID(c.id)}
			if err := h.service.store.Update(t.Context(), target, func(v onced.View) onced.Plan {
				view = v
				plan, want, wantErr = onced.Claim(v, c.policy, c.request)
				return onced.Plan{}
			}); err != nil {
				t.Fatal(err)
			}
			late := want.Outcome == onced.OutcomeBlockedByTwin || refusedFor(wantErr, onced.RefusedQuota)
			if should := view.Record != nil && !plan.Changes() && !late; known != should {
				t.Fatalf("seed %d: known %t, and the update answers %v, %v, with a change: %t", seed, known, want.Outcome, wantErr, plan.Changes())
			}
			if !known {
				continue
			}
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotErr, keyTimeRefused(wantErr)) {
				t.Fatalf("seed %d: a read answers %+v, %v\nand the update %+v, %v", seed, got, gotErr, want, wantErr)
			}
			outcomes[got.Outcome]++
			if r, ok := wantErr.(*onced.Refusal); ok {
				refusals[r.Reason]++
			}
		}
	}
	for _, o := range []onced.Outcome{
		onced.OutcomeGranted, onced.OutcomeReplayed, onced.OutcomeInProgress, onced.OutcomeUnresolved, onced.OutcomeTakenOver,
	} {
		if outcomes[o] == 0 {
			t.Errorf("never answered: %v", o)
		}
	}
	for _, r := range []onced.RefusalReason{
		onced.RefusedClaimLost, onced.RefusedFingerprint, onced.RefusedSubject, onced.RefusedAttempts, onced.RefusedInvalid,
	} {
		if refusals[r] == 0 {
			t.Errorf("never refused for: %s", r)
		}
	}
}
