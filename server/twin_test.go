package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

func guarded(block oncedv1.TwinGuard_Block, arguments string, change ...func(*oncedv1.TwinGuard)) func(*oncedv1.ClaimRequest) {
	return func(r *oncedv1.ClaimRequest) {
		r.Fingerprints = []string{fp("cj1", arguments)}
		r.TwinGuard = &oncedv1.TwinGuard{Block: block}
		if block == oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT {
			r.TwinGuard.Window = durationMinute
		}
		for _, c := range change {
			c(r.TwinGuard)
		}
	}
}

// The twin guard stops the same act under another key, shows the twin but not
// its result, and follows every report of it.
func TestTwinGuard(t *testing.T) {
	const recent, live = oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT, oncedv1.TwinGuard_BLOCK_UNSETTLED
	w := newWire(t)
	h := w.grant("k1", "a", guarded(live, "x"))
	w.clock.Advance(time.Second)
	w.unchanged(func() {
		resp := w.claim(blocked, "k2", "b", guarded(live, "x"))
		want := &oncedv1.Twin{
			Key: "k1", State: pending, Holder: "holder a",
			FirstClaimTime: timestamppb.New(start), ClaimTime: timestamppb.New(start),
		}
		if !proto.Equal(resp.GetTwin(), want) || resp.GetOperation() != nil {
			t.Errorf("%v", resp)
		}
	})
	w.claim(granted, "k3", "b", guarded(live, "y"))                         // another act
	w.claim(granted, "k4", "b", withFingerprints(fp("cj1", "x")))           // no guard
	w.claim(granted, "k1", "a", guarded(live, "x"))                         // the twin itself
	w.claim(granted, "k5", "b", guarded(live, "x"), withSubject("another")) // somebody else's

	w.must(completed)(h.complete("SECRET"))
	w.clock.Advance(time.Minute - 1)
	resp := w.claim(blocked, "k2", "b", guarded(recent, "x"))
	if twin := resp.GetTwin(); twin.GetState() != completed || !twin.GetSettleTime().AsTime().Equal(start.Add(time.Second)) || strings.Contains(resp.String(), "SECRET") {
		t.Errorf("%v", resp)
	}
	w.claim(granted, "k6", "b", guarded(recent, "x", func(g *oncedv1.TwinGuard) { g.ConfirmedTwinKey = "k1" }))
	if resp := w.claim(blocked, "k7", "b", guarded(live, "x")); resp.GetTwin().GetKey() != "k6" {
		t.Errorf("%v", resp)
	}
}

// Released by a report, the operation leaves its twin entry; and what is
// released stays released while a twin blocks it.
func TestTwinGuardOnReleased(t *testing.T) {
	const live = oncedv1.TwinGuard_BLOCK_UNSETTLED
	w := newWire(t)
	h := w.grant("k1", "a", guarded(live, "x"))
	w.must(released)(h.fail(notExecuted))
	other := w.grant("k2", "b", guarded(live, "x"))
	resp := w.claim(blocked, "k1", "c", guarded(live, "x"))
	if resp.GetOperation().GetState() != released || resp.GetTwin().GetKey() != "k2" {
		t.Errorf("%v", resp)
	}
	// The last holder's Complete settles all the same, and moves its key.
	w.must(completed)(h.complete("done"))
	w.must(released)(other.fail(notExecuted))
	w.claim(blocked, "k3", "d", guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT, "x"))
	w.claim(granted, "k3", "d", guarded(live, "x"))
}

// What a restore made doubtful and was taken over stands in its twin entry again.
func TestTwinGuardOnRestored(t *testing.T) {
	const live = oncedv1.TwinGuard_BLOCK_UNSETTLED
	w := newWire(t)
	h := w.grant("k1", "a", guarded(live, "x"))
	w.must(released)(h.fail(notExecuted))
	w.restore("k1")
	w.clock.Advance(time.Hour)
	w.claim(takenOver, "k1", "b", takeOver(1), withFingerprints(fp("cj1", "x")))
	if resp := w.claim(blocked, "k2", "c", guarded(live, "x")); resp.GetTwin().GetKey() != "k1" {
		t.Errorf("%v", resp)
	}
}

// A twin that has gone since the decision is shown by its key alone.
func TestTwinThatHasGone(t *testing.T) {
	w := newWire(t)
	w.grant("k1", "a", guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED, "x"))
	err := w.store.Update(t.Context(), storage.Target{ID: identity("k1")}, func(onced.View) onced.Plan { return onced.Plan{Delete: true} })
	if err != nil {
		t.Fatal(err)
	}
	resp := w.claim(blocked, "k2", "b", guarded(oncedv1.TwinGuard_BLOCK_UNSETTLED, "x"))
	if !proto.Equal(resp.GetTwin(), &oncedv1.Twin{Key: "k1"}) {
		t.Errorf("%v", resp)
	}
}

// So is one that has expired, whether it was swept or not, and one that this build
// cannot read.
func TestTwinThatCannotBeShown(t *testing.T) {
	const recent = oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT
	hour := func(p *onced.Policy) { p.ResultRetention, p.KeyRetention, p.MaxLease = time.Hour, time.Hour, time.Hour }
	for name, lose := range map[string]func(*wire){
		"expired": func(w *wire) { w.clock.Advance(2 * time.Hour) },
		"unreadable": func(w *wire) {
			w.put(&onced.Record{ID: identity("k1"), State: 99, Holder: "holder a", FirstClaimTime: start, ClaimTime: start})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, hour)
			long := func(g *oncedv1.TwinGuard) { g.Window = durationpb.New(24 * time.Hour) }
			w.must(completed)(w.grant("k1", "a", guarded(recent, "x", long)).complete("done"))
			lose(w)
			resp := w.claim(blocked, "k2", "b", guarded(recent, "x", long))
			if !proto.Equal(resp.GetTwin(), &oncedv1.Twin{Key: "k1"}) {
				t.Errorf("%v", resp)
			}
		})
	}
}
