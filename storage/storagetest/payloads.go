package storagetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testPayloads: large payloads are read on their own, by their digest, and stay
// where they are while the record around them changes.
func testPayloads(t *testing.T, newHarness newFunc) {
	subtests{
		"stay": payloadsStay, "without bytes": payloadsWithoutBytes, "gone": payloadsGone, "durable": payloadsDurable,
		"unreadable": payloadsUnreadable, "own": payloadsAreOwn, "small": smallPayloads,
		"replaced": payloadsReplaced,
	}.run(t, newHarness)
}

// largeResult is a result whose bytes a view does not show.
func largeResult(seed int64) *onced.Result {
	return onced.NewResult("application/json", true, noise(seed, storage.LargePayload))
}

// shown returns a record as a view shows it.
func shown(r *onced.Record) *onced.Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Result = shownPayload(r.Result)
	if r.Failure != nil {
		c.Failure = ptr(*r.Failure)
		c.Failure.Details = shownPayload(r.Failure.Details)
	}
	if r.Checkpoint != nil {
		c.Checkpoint = ptr(*r.Checkpoint)
		c.Checkpoint.Payload = *shownPayload(&r.Checkpoint.Payload)
	}
	return &c
}

func shownPayload(p *onced.Result) *onced.Result {
	if p == nil || !storage.Large(p) {
		return p
	}
	c := *p
	c.Bytes = nil
	return &c
}

// crowded returns a record with all payloads that there can be.
func crowded(key string) *onced.Record {
	r := completed(op("%s", key), nil)
	r.Result = largeResult(1)
	r.Failure = &onced.Failure{Code: "ABORTED", Details: largeResult(2)}
	r.Checkpoint = &onced.Checkpoint{Attempt: 1, Seq: 1, Payload: *largeResult(3)}
	return r
}

func payloadsStay(f *fixture) {
	want := crowded("k")
	f.put(want)
	for i := range uint64(3) {
		want.Revision = 100 + i
		f.update(storage.Target{ID: want.ID}, func(v onced.View) onced.Plan {
			v.Record.Revision = want.Revision
			return onced.Plan{Put: v.Record}
		})
		f.wantRecord(want.ID, want)
		f.Reopen(i == 1)
	}
	// One goes, and the others stay.
	want.Failure = nil
	f.update(storage.Target{ID: want.ID}, func(v onced.View) onced.Plan {
		v.Record.Failure = nil
		return onced.Plan{Put: v.Record}
	})
	f.wantRecord(want.ID, want)
}

// payloadsWithoutBytes: a record cannot come to say that it has bytes which nobody
// has given.
func payloadsWithoutBytes(f *fixture) {
	r := crowded("k")
	f.put(r)
	other := largeResult(9)
	other.Bytes = nil
	for name, spoil := range map[string]func(*onced.Record){
		"another digest": func(r *onced.Record) { r.Result = other },
		"another size":   func(r *onced.Record) { r.Result.Size++ },
		"another place":  func(r *onced.Record) { r.Failure.Details = r.Result },
		"another key":    func(r *onced.Record) { r.ID = op("other") },
	} {
		bad := shown(r)
		spoil(bad)
		err := f.Store().Update(f.t.Context(), storage.Target{ID: bad.ID}, func(onced.View) onced.Plan { return onced.Plan{Put: bad} })
		if err == nil || errors.Is(err, storage.ErrFailed) {
			f.t.Errorf("%s: a payload without its bytes was put: %v", name, err)
		}
	}
	err := f.Store().Update(f.t.Context(), storage.Target{ID: r.ID}, func(v onced.View) onced.Plan {
		v.Record.Result = other
		return onced.Plan{Put: v.Record}
	})
	if err == nil || errors.Is(err, storage.ErrFailed) {
		f.t.Errorf("another digest, in what was shown: a payload without its bytes was put: %v", err)
	}
	f.wantRecord(r.ID, r)
	f.wantRecord(op("other"), nil)
}

// payloadsReplaced: a payload gives way to a longer and to a shorter one, and where two
// are the same, each goes without the other.
func payloadsReplaced(f *fixture) {
	r := crowded("k")
	for i, size := range []int{5000, 200_000, storage.LargePayload, storage.LargePayload - 1, 60_000, 0} {
		r.Result = onced.NewResult("", false, noise(int64(i), size))
		r.Checkpoint.Payload = *onced.NewResult("", false, noise(int64(i), size))
		f.put(r)
		f.wantRecord(r.ID, r)
	}
	same := *largeResult(5)
	r.Result, r.Failure.Details, r.Checkpoint.Payload = ptr(same), ptr(same), same
	f.put(r)
	f.wantRecord(r.ID, r)
	r.Result = nil
	f.put(r)
	f.wantRecord(r.ID, r)
	r.Failure.Details = largeResult(6)
	f.put(r)
	f.wantRecord(r.ID, r)
}

func payloadsGone(f *fixture) {
	r := crowded("k")
	digest := r.Result.SHA256
	want := func(why string) {
		f.t.Helper()
		if b, err := f.Store().Payload(f.t.Context(), r.ID, digest); !errors.Is(err, storage.ErrNoPayload) {
			f.t.Errorf("%s: Payload answers %d bytes, %v; want ErrNoPayload", why, len(b), err)
		}
	}
	want("absent")
	f.put(r)
	dropped := crowded("k")
	dropped.Result.Presence, dropped.Result.Bytes = onced.Dropped, nil
	f.put(dropped)
	want("dropped")
	f.wantRecord(r.ID, dropped)
	replaced := crowded("k")
	replaced.Result = largeResult(9)
	f.put(replaced)
	want("replaced")
	f.put(r)
	f.apply(storage.Target{ID: r.ID}, onced.Plan{Delete: true})
	want("deleted")
	digest = crowded("k").Failure.Details.SHA256
	want("details of what was deleted")
}

// payloadsDurable: no payload is shown before the sync that makes it durable.
func payloadsDurable(f *fixture) {
	r := crowded("k")
	release := f.hold()
	put := f.startUpdate(f.t.Context(), storage.Target{ID: r.ID}, func(onced.View) onced.Plan { return onced.Plan{Put: r} })
	store := f.Store()
	var err error
	read := start(func() error { _, err = store.Payload(f.t.Context(), r.ID, r.Result.SHA256); return nil })
	linger(read)
	if read.answered() && !errors.Is(err, storage.ErrNoPayload) {
		f.t.Errorf("while the sync is held Payload answers %v", err)
	}
	release()
	if err := errors.Join(put.wait(f.t), read.wait(f.t)); err != nil {
		f.t.Error(err)
	}
	f.wantRecord(r.ID, r)
}

func payloadsUnreadable(f *fixture) {
	r := crowded("k")
	f.put(r)
	f.Corrupt(r.ID)
	if b, err := f.Store().Payload(f.t.Context(), r.ID, r.Result.SHA256); !errors.Is(err, storage.ErrDamaged) {
		f.t.Errorf("the payload of an unreadable record: %d bytes, %v; want ErrDamaged", len(b), err)
	}
}

func payloadsAreOwn(f *fixture) {
	r := crowded("k")
	f.put(r)
	for range 2 {
		b, err := f.Store().Payload(f.t.Context(), r.ID, r.Result.SHA256)
		if err != nil || !bytes.Equal(b, r.Result.Bytes) {
			f.t.Fatalf("%d bytes, %v", len(b), err)
		}
		clear(b)
	}
}

// smallPayloads come with their records, and can be read all the same.
func smallPayloads(f *fixture) {
	r := completed(op("k"), noise(1, storage.LargePayload-1))
	f.put(r)
	if v := f.get(r.ID); !bytes.Equal(v.Record.Result.Bytes, r.Result.Bytes) {
		f.t.Errorf("a small payload is shown with %d bytes", len(v.Record.Result.Bytes))
	}
	b, err := f.Store().Payload(f.t.Context(), r.ID, r.Result.SHA256)
	if err != nil || !bytes.Equal(b, r.Result.Bytes) {
		f.t.Errorf("%d bytes, %v", len(b), err)
	}
}
