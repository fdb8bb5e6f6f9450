package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// largeText is a result whose bytes are read after the decision.
var largeText = strings.Repeat("x", 100_000)

// settledRig serves one operation, "k", with a large result.
func settledRig(t *testing.T) *rig {
	r := newRig(t, slog.LevelInfo)
	if _, err := r.client.Complete(t.Context(), completeRequest("k", r.grant("k"), largeText)); err != nil {
		t.Fatal(err)
	}
	return r
}

// replay claims "k" again.
func (r *rig) replay() (*oncedv1.ClaimResponse, error) {
	req := claimRequest("k")
	req.ClaimToken = tokenOf("another")
	return r.client.Claim(r.Context(), req)
}

func (r *rig) lookup(view oncedv1.LookupView) (*oncedv1.LookupResponse, error) {
	return r.client.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: claimRequest("k").GetRef(), View: view})
}

// TestLargePayloads: a replay and a full lookup show all bytes of a large result;
// what does not show them does not read them either.
func TestLargePayloads(t *testing.T) {
	r := settledRig(t)
	var reads atomic.Int32
	r.store.payload = func(ctx context.Context, id onced.Identity, d onced.Digest) ([]byte, error) {
		reads.Add(1)
		return r.store.Store.Payload(ctx, id, d)
	}
	resp, err := r.replay()
	if err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED || resp.GetOperation().GetResult().GetStored().GetText() != largeText {
		t.Errorf("replay: %v, %v", resp.GetOutcome(), err)
	}
	full, err := r.lookup(oncedv1.LookupView_LOOKUP_VIEW_FULL)
	if err != nil || full.GetOperation().GetResult().GetStored().GetText() != largeText {
		t.Errorf("lookup: %v", err)
	}
	if n := reads.Load(); n != 2 {
		t.Errorf("two answers with the bytes took %d reads", n)
	}
	basic, err := r.lookup(oncedv1.LookupView_LOOKUP_VIEW_BASIC)
	if err != nil || basic.GetOperation().GetResult().GetStored().GetBody() != nil || basic.GetOperation().GetResult().GetSize() != uint64(len(largeText)) {
		t.Errorf("lookup without bytes: %v, %v", basic, err)
	}
	mismatch := claimRequest("k")
	mismatch.Subject = "somebody else"
	_, err = r.client.Claim(t.Context(), mismatch)
	r.wantReason(err, codes.PermissionDenied, "SUBJECT_MISMATCH", "no")
	if n := reads.Load(); n != 2 {
		t.Errorf("answers without the bytes took %d reads", n-2)
	}
}

// TestKnownWaitsForNobody: what is known of a key is answered while a commit is held,
// and while the store is full. A claim that would change something is not.
func TestKnownWaitsForNobody(t *testing.T) {
	r := settledRig(t)
	live := claimRequest("live")
	r.grant("live")
	id := onced.Identity{Namespace: "n", Key: "unreadable", Method: "m"}
	err := r.store.Store.Update(t.Context(), storage.Target{ID: id}, func(onced.View) onced.Plan {
		return onced.Plan{Put: &onced.Record{ID: id, State: 99}}
	})
	if err != nil {
		t.Fatal(err)
	}
	release := r.store.gate.HoldSync()
	defer release()
	held := make(chan error, 1)
	go func() {
		_, err := r.client.Claim(t.Context(), claimRequest("held"))
		held <- err
	}()
	r.counted(1, "onced_calls_running")
	for range 2 {
		if resp, err := r.replay(); err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED {
			t.Errorf("of a settled key: %v, %v", resp.GetOutcome(), err)
		}
		again, err := r.client.Claim(t.Context(), live)
		if err != nil || again.GetOutcome() != oncedv1.Outcome_OUTCOME_GRANTED {
			t.Errorf("the holder's claim, sent again: %v, %v", again.GetOutcome(), err)
		}
		other := claimRequest("live")
		other.ClaimToken = tokenOf("another")
		if resp, err := r.client.Claim(t.Context(), other); err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_IN_PROGRESS {
			t.Errorf("of a held key: %v, %v", resp.GetOutcome(), err)
		}
		other.Subject = "somebody else"
		_, err = r.client.Claim(t.Context(), other)
		r.wantReason(err, codes.PermissionDenied, "SUBJECT_MISMATCH", "no")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = r.client.Claim(ctx, claimRequest("unreadable"))
		cancel()
		r.wantReason(err, codes.FailedPrecondition, "RECORD_UNREADABLE", "no")
		r.store.full.Store(true)
	}
	select {
	case err := <-held:
		t.Errorf("a new claim was answered while the sync was held: %v", err)
	default:
	}
	release()
	if err := <-held; err != nil {
		t.Error(err)
	}
	_, err = r.client.Claim(t.Context(), claimRequest("new"))
	r.wantReason(err, codes.ResourceExhausted, "STORAGE_FULL", "no")
}

// TestPayloadGone: when a result goes away between the decision and the read of
// its bytes, the call is decided anew; not for ever.
func TestPayloadGone(t *testing.T) {
	r := settledRig(t)
	var reads atomic.Int32
	gone := int32(2)
	r.store.payload = func(ctx context.Context, id onced.Identity, d onced.Digest) ([]byte, error) {
		if reads.Add(1) <= gone {
			return nil, fmt.Errorf("%w: erased meanwhile", storage.ErrNoPayload)
		}
		return r.store.Store.Payload(ctx, id, d)
	}
	resp, err := r.replay()
	if err != nil || resp.GetOperation().GetResult().GetStored().GetText() != largeText || reads.Load() != 3 {
		t.Errorf("replay after %d reads: %v", reads.Load(), err)
	}
	gone = 100
	_, err = r.replay()
	r.wantReason(err, codes.Unavailable, "OVERLOADED", "no")
}

// TestPayloadDamaged: bytes that cannot be read are not shown as an empty result,
// and not executed again.
func TestPayloadDamaged(t *testing.T) {
	r := settledRig(t)
	r.store.payload = func(context.Context, onced.Identity, onced.Digest) ([]byte, error) {
		return nil, fmt.Errorf("%w: a bit has flipped", storage.ErrDamaged)
	}
	_, err := r.replay()
	r.wantReason(err, codes.FailedPrecondition, "RECORD_UNREADABLE", "no")
	_, err = r.lookup(oncedv1.LookupView_LOOKUP_VIEW_FULL)
	r.wantReason(err, codes.FailedPrecondition, "RECORD_UNREADABLE", "no")
	if !strings.Contains(r.log.String(), "a bit has flipped") {
		t.Errorf("the log does not say what is wrong:\n%s", r.log)
	}
}

// TestReplyRoomFirst: without room for the reply a large result is not read, and
// what a call that fails has taken is given back.
func TestReplyRoomFirst(t *testing.T) {
	r := settledRig(t)
	var reads atomic.Int32
	fail := errors.New("the disk is on fire")
	r.store.payload = func(context.Context, onced.Identity, onced.Digest) ([]byte, error) {
		reads.Add(1)
		return nil, fail
	}
	if _, err := r.replay(); err == nil {
		t.Error("a payload that could not be read was shown")
	}
	if n := r.server.replies.inFlight.Load(); n != 0 || reads.Load() != 1 {
		t.Errorf("after a call that failed %d bytes are in flight, and %d reads were made", n, reads.Load())
	}
	r.store.payload = func(context.Context, onced.Identity, onced.Digest) ([]byte, error) { panic(errPanicText) }
	_, err := r.replay()
	r.wantReason(err, codes.Internal, "INTERNAL", "unknown")
	if n := r.server.replies.inFlight.Load(); n != 0 {
		t.Errorf("after a panic %d bytes are in flight", n)
	}
	r.store.payload = func(context.Context, onced.Identity, onced.Digest) ([]byte, error) {
		reads.Add(1)
		return nil, fail
	}
	r.server.replies.limit = int64(len(largeText)) - 1
	_, err = r.replay()
	r.wantReason(err, codes.Unavailable, "OVERLOADED", "unknown")
	if reads.Load() != 1 {
		t.Error("a result was read although there was no room for the reply")
	}
}

// TestLargeFailure: the details of a failure are a payload like any other.
func TestLargeFailure(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	_, err := r.client.Fail(t.Context(), &oncedv1.FailRequest{
		Ref: claimRequest("k").GetRef(), ClaimToken: tokenOf("k"), Fence: r.grant("k"), Disposition: oncedv1.Disposition_DISPOSITION_FINAL,
		Failure: &oncedv1.Failure{Code: "ABORTED", Details: &oncedv1.Payload{Body: &oncedv1.Payload_Text{Text: largeText}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.replay()
	if err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_FAILED || resp.GetOperation().GetFailure().GetDetails().GetText() != largeText {
		t.Errorf("%v, %v", resp.GetOutcome(), err)
	}
}

// TestLargeCheckpoint: a takeover hands over a large checkpoint. One that cannot be
// handed over has made its claim all the same, is not told that there is none, and
// the same claim again gets the first answer.
func TestLargeCheckpoint(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	progress := largeText[:50_000]
	_, err := r.client.Renew(t.Context(), &oncedv1.RenewRequest{
		Ref: claimRequest("k").GetRef(), ClaimToken: tokenOf("k"), Fence: r.grant("k"),
		Checkpoint: &oncedv1.Checkpoint{Seq: 1, Payload: &oncedv1.Payload{Body: &oncedv1.Payload_Text{Text: progress}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Hour)
	takeover := claimRequest("k")
	takeover.ClaimToken, takeover.TakeOverAttempt = tokenOf("another"), 1

	limit := r.server.replies.limit
	r.server.replies.limit = 1
	_, err = r.client.Claim(t.Context(), takeover)
	r.wantReason(err, codes.Unavailable, "OVERLOADED", "unknown")
	r.server.replies.limit = limit
	for _, trouble := range []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{storage.ErrDamaged, codes.FailedPrecondition, "RECORD_UNREADABLE"},
		{storage.ErrNoPayload, codes.Unavailable, "OVERLOADED"},
	} {
		r.store.payload = func(context.Context, onced.Identity, onced.Digest) ([]byte, error) { return nil, trouble.err }
		_, err = r.client.Claim(t.Context(), takeover)
		st := r.wantReason(err, trouble.code, trouble.reason, "unknown")
		if strings.Contains(st.Message(), "nothing was changed") {
			t.Errorf("after a takeover: %s", st.Message())
		}
	}
	r.store.payload = nil
	resp, err := r.client.Claim(t.Context(), takeover)
	if err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_TAKEN_OVER || resp.GetOperation().GetAttempt() != 2 ||
		resp.GetCheckpoint().GetPayload().GetText() != progress {
		t.Errorf("%v of attempt %d, %v", resp.GetOutcome(), resp.GetOperation().GetAttempt(), err)
	}
	r.counted(0, inFlight)
}
