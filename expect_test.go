package onced_test

import (
	"reflect"
	"slices"
	"time"

	"github.com/onced/onced"
)

// edit says what a transition makes of a record: it changes a copy of the
// record before into the one that is wanted. Of a key without a record it gets
// an empty one. What every write does, [world.wantChange] adds by itself.
type edit func(w *world, r *onced.Record)

// wantChange compares the stored record with the one before, changed by want;
// without want, nothing may have been asked of the store.
func (w *world) wantChange(before *onced.Record, want edit) {
	w.t.Helper()
	if want == nil {
		if w.plan.Changes() || !reflect.DeepEqual(before, w.record()) {
			w.t.Errorf("the record was changed\nbefore %+v\nplan   %+v", before, w.plan)
		}
		return
	}
	wanted := copyRecord(before)
	if wanted == nil {
		wanted = &onced.Record{ID: w.id}
	}
	wanted.Generation = w.epoch.Generation
	wanted.Revision++
	wanted.UpdateTime = w.now
	want(w, wanted)
	w.wantRecord(wanted)
}

// wantRecord compares every field of what is stored.
func (w *world) wantRecord(want *onced.Record) {
	w.t.Helper()
	got := w.record()
	if got == nil || want == nil {
		if got != want {
			w.t.Errorf("stored %+v, want %+v", got, want)
		}
		return
	}
	g, x := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range g.NumField() {
		if !reflect.DeepEqual(g.Field(i).Interface(), x.Field(i).Interface()) {
			w.t.Errorf("%s is %+v, want %+v", g.Type().Field(i).Name, g.Field(i), x.Field(i))
		}
	}
}

// all does one edit after the other.
func all(edits ...edit) edit {
	return func(w *world, r *onced.Record) {
		for _, e := range edits {
			e(w, r)
		}
	}
}

// bound is what a key's first claim binds for as long as it is remembered.
func bound(c onced.ClaimRequest) edit {
	return func(_ *world, r *onced.Record) {
		r.Subject, r.Fingerprints, r.KeyTime, r.Labels = c.Subject, c.Fingerprints, c.KeyTime, c.Labels
	}
}

// unsettledAnew is a record without anything that belongs to a former state.
func unsettledAnew(_ *world, r *onced.Record) {
	r.Reason, r.Doubt, r.Contradicted, r.ByOperator = onced.ReasonNone, false, false, false
	r.DoubtTime, r.ReleaseTime, r.SettleTime = time.Time{}, time.Time{}, time.Time{}
	r.ResultExpire, r.KeyExpire = time.Time{}, time.Time{}
	r.Result, r.Failure, r.SettledDigest = nil, nil, onced.Digest{}
	r.SettledBy, r.Checkpoint = onced.SettledByNobody, nil
}

// granted is a plain grant to c: one more attempt, a new fence, no doubt.
func granted(c onced.ClaimRequest) edit {
	return func(w *world, r *onced.Record) {
		unsettledAnew(w, r)
		r.ByTakeover = false
		if r.FirstClaimTime.IsZero() {
			r.FirstClaimTime = w.now
		}
		newAttempt(w, r, c)
	}
}

// takenOver is a takeover by c: one more attempt, a new fence, doubt; what a
// former holder contradicted and the checkpoint stay.
func takenOver(c onced.ClaimRequest) edit {
	return func(w *world, r *onced.Record) {
		contradicted, since, checkpoint := r.Contradicted, r.DoubtTime, r.Checkpoint
		unsettledAnew(w, r)
		r.ByTakeover, r.Doubt, r.Contradicted, r.Checkpoint = true, true, contradicted, checkpoint
		if contradicted {
			r.DoubtTime = since
		}
		newAttempt(w, r, c)
	}
}

func newAttempt(w *world, r *onced.Record, c onced.ClaimRequest) {
	r.State, r.Heard = onced.StatePending, false
	r.Attempt++
	r.Fence, r.Lease, r.LeaseEnd = w.fence, c.Lease, w.now.Add(c.Lease)
	r.Holder, r.ClaimTime = c.Holder, w.now
	r.Attempts = append(slices.Clone(r.Attempts), onced.Attempt{
		Number: r.Attempt, Token: c.Token, Fence: w.fence, Holder: c.Holder, ClaimTime: w.now,
	})
}

// historyLost is the record of a key that the store may have forgotten.
func historyLost(c onced.ClaimRequest) edit {
	return func(w *world, r *onced.Record) {
		generation, revision := w.epoch.Generation, uint64(1)
		*r = onced.Record{
			ID: w.id, State: onced.StateUnresolved, Reason: onced.ReasonHistoryLost, DoubtTime: w.now,
			Attempt: 1, Fence: w.fence, Generation: generation, Revision: revision, UpdateTime: w.now,
		}
		bound(c)(w, r)
	}
}

// settledWith is a settlement now; it ends all doubt and all progress.
func settledWith(result *onced.Result, failure *onced.Failure, by onced.SettledBy) edit {
	return func(w *world, r *onced.Record) {
		unsettledAnew(w, r)
		if r.State, r.Result, r.Failure = onced.StateCompleted, result, failure; failure != nil {
			r.State, r.SettledDigest = onced.StateFailed, failure.Identity()
		} else {
			r.SettledDigest = result.Identity()
		}
		r.SettledBy, r.SettleTime = by, w.now
		r.ResultExpire, r.KeyExpire = w.now.Add(w.policy.ResultRetention), w.now.Add(w.policy.KeyRetention)
	}
}

// releasedNow is a release; one by an operator allows 16 more attempts.
func releasedNow(byOperator bool) edit {
	return func(w *world, r *onced.Record) {
		unsettledAnew(w, r)
		r.State, r.ReleaseTime, r.KeyExpire = onced.StateReleased, w.now, w.now.Add(w.policy.KeyRetention)
		if r.ByOperator = byOperator; byOperator {
			r.AttemptBase = r.Attempt
		}
	}
}

// unresolvedNow is the beginning of a doubt from which takeovers are timed.
func unresolvedNow(why onced.Reason) edit {
	return func(w *world, r *onced.Record) {
		r.State, r.Reason, r.DoubtTime = onced.StateUnresolved, why, w.now
		r.ReleaseTime, r.KeyExpire, r.ByOperator = time.Time{}, time.Time{}, false
	}
}

// unresolvedStill is UNRESOLVED with its takeover timed as before.
func unresolvedStill(why onced.Reason) edit {
	return func(w *world, r *onced.Record) {
		since := r.DoubtTime
		unresolvedNow(why)(w, r)
		r.DoubtTime = since
	}
}

func doubted(_ *world, r *onced.Record) { r.Doubt = true }

func contradictedToo(_ *world, r *onced.Record) { r.Doubt, r.Contradicted = true, true }

// doubtTimed marks the moment of a contradiction on a running claim.
func doubtTimed(w *world, r *onced.Record) { r.DoubtTime = w.now }

// restoredFlags is what a restore makes of an unsettled record as soon as it is
// written again: doubt, and no takeover that may end it.
func restoredFlags(_ *world, r *onced.Record) { r.Doubt, r.ByTakeover = true, false }
