package storagetest

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// testResults: bytes come back as they were given, whatever they are and
// however many; and what a caller holds is the caller's.
func testResults(t *testing.T, newHarness newFunc) {
	subtests{
		"sizes": resultSizes, "empty": emptyResults, "presence": presences, "shrink": resultsShrink,
		"failure details": failureDetails, "returned": returnedIsOwn, "given": givenIsOwn, "growth": growth,
	}.run(t, newHarness)
}

// noise returns n bytes, the same ones for the same seed.
func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

func resultSizes(f *fixture) {
	sizes := []int{1, 255, 4096, 1 << 20, onced.GreatestResult}
	for i, n := range sizes {
		f.put(completed(op("%d", n), noise(int64(i), n)))
	}
	f.Reopen(true)
	for i, n := range sizes {
		f.wantRecord(op("%d", n), completed(op("%d", n), noise(int64(i), n)))
	}
}

// emptyResults: nothing is inferred from the length of a result, nor from
// whether its slice is nil. (A tool that answers with an empty message, an
// empty list or nothing has answered.)
func emptyResults(f *fixture) {
	for name, b := range map[string][]byte{"nil": nil, "empty": {}, "zero": {0}, "null": []byte("null"), "string": []byte(`""`)} {
		want := completed(op("%s", name), b)
		f.put(want)
		f.Reopen(true)
		f.wantRecord(want.ID, want)
		if r := f.get(want.ID).Record.Result; r == nil || r.Presence != onced.Stored || len(r.Bytes) != len(b) {
			f.t.Errorf("%s: the result came back as %+v", name, r)
		}
	}
}

func presences(f *fixture) {
	for _, p := range []onced.Presence{onced.Stored, onced.Omitted, onced.Dropped} {
		want := completed(op("%v", p), []byte("seventeen"))
		want.Result.Presence = p
		if p != onced.Stored {
			want.Result.Bytes = nil // size and digest stay
		}
		f.put(want)
		f.Reopen(true)
		f.wantRecord(want.ID, want)
	}
}

// resultsShrink: a record is replaced by one whose result is smaller, or gone.
func resultsShrink(f *fixture) {
	for i, n := range []int{2 << 20, 3, 1 << 20, 0} {
		f.put(completed(op("k"), noise(int64(i), n)))
		f.wantRecord(op("k"), completed(op("k"), noise(int64(i), n)))
	}
	f.put(completed(op("k"), noise(9, 1<<20)))
	dropped := completed(op("k"), noise(9, 1<<20))
	dropped.Result.Presence, dropped.Result.Bytes = onced.Dropped, nil
	f.put(dropped)
	f.wantRecord(op("k"), dropped)
	f.apply(storage.Target{ID: op("k")}, onced.Plan{Delete: true})
	f.put(plain(op("k"), 1))
	f.Reopen(true)
	f.wantRecord(op("k"), plain(op("k"), 1))
}

func failureDetails(f *fixture) {
	for i, n := range []int{0, 1, 1 << 20, onced.GreatestResult} {
		want := completed(op("%d", n), nil)
		want.State, want.Result = onced.StateFailed, nil
		want.Failure = &onced.Failure{Code: "ABORTED", Details: onced.NewResult("text/plain", true, noise(int64(i), n))}
		want.Checkpoint = &onced.Checkpoint{Attempt: 1, Seq: 1, Payload: *onced.NewResult("", false, noise(7, onced.GreatestCheckpoint))}
		f.put(want)
		f.wantRecord(want.ID, want)
	}
	bare := completed(op("bare"), nil)
	bare.State, bare.Result, bare.Failure = onced.StateFailed, nil, &onced.Failure{Code: "ABORTED"}
	f.put(bare)
	f.wantRecord(bare.ID, bare)
}

// returnedIsOwn: what was returned does not change under later writes, and the
// caller may write over it without the store noticing.
func returnedIsOwn(f *fixture) {
	target := storage.Target{ID: specimens()[2].ID, Twin: ptr(twinID("s"))}
	want, entry := specimens()[2], twinEntry(*target.Twin)
	f.apply(target, onced.Plan{Put: specimens()[2], PutTwin: twinEntry(*target.Twin)})
	for _, read := range []func() onced.View{
		func() onced.View { return f.get(target.ID) },
		func() onced.View { return f.look(target) },
		f.first,
	} {
		scribble(read())
		f.wantRecord(target.ID, want)
		f.wantTwin(target, entry)
	}
	held := f.get(target.ID)
	f.apply(target, onced.Plan{Delete: true, DeleteTwin: true})
	if d := difference(want, held.Record); d != "" {
		f.t.Errorf("a returned record changed when the operation was deleted: %s", d)
	}
}

// givenIsOwn: the caller's memory is the caller's again when Update has returned.
func givenIsOwn(f *fixture) {
	target := storage.Target{ID: specimens()[2].ID, Twin: ptr(twinID("s"))}
	plan := onced.Plan{Put: specimens()[2], PutTwin: twinEntry(*target.Twin), Audit: auditEntry(target.ID, 1)}
	f.apply(target, plan)
	scribble(onced.View{Record: plan.Put, Twin: plan.PutTwin})
	plan.Audit.Who = "scribble"
	f.wantRecord(target.ID, specimens()[2])
	f.wantTwin(target, twinEntry(*target.Twin))
	if d := difference([]onced.AuditEntry{*auditEntry(target.ID, 1)}, f.audit(1)); d != "" {
		f.t.Errorf("audit trail: %s", d)
	}
}

// scribble writes over all memory that a view leads to.
func scribble(v onced.View) {
	r := v.Record
	r.Revision, r.Holder = 99, "scribble"
	for i := range r.Attempts {
		for j := range r.Attempts[i].Facts {
			r.Attempts[i].Facts[j].Failed = !r.Attempts[i].Facts[j].Failed
		}
		r.Attempts[i].Holder = "scribble"
	}
	for i := range r.Fingerprints {
		r.Fingerprints[i].Scheme = "scribble"
	}
	for name := range r.Labels {
		r.Labels[name] = "scribble"
	}
	for i := range r.Result.Bytes {
		r.Result.Bytes[i]++
	}
	r.Result.ContentType, r.Twin.Subject = "scribble", "scribble"
	if v.Twin != nil {
		v.Twin.Unsettled[0].Key, v.Twin.Last.Key = "scribble", "scribble"
	}
}

// growth: results that callers hold stay as they are while the store grows to
// many times its size, and other results are written over them.
func growth(f *fixture) {
	const n, size = 48, 128 << 10
	put := func(round int64) {
		parallel(f.t, n, func(i int) error {
			r := completed(op("%d", i), noise(round*n+int64(i), size))
			return f.Store().Update(f.t.Context(), storage.Target{ID: r.ID}, func(onced.View) onced.Plan { return onced.Plan{Put: r} })
		})
	}
	put(0)
	var held [n]*onced.Result
	for i := range held {
		held[i] = f.get(op("%d", i)).Record.Result
	}
	put(1)
	for i, r := range held {
		if !bytes.Equal(r.Bytes, noise(int64(i), size)) {
			f.t.Fatalf("result %d changed while the caller held it", i)
		}
		f.wantRecord(op("%d", i), completed(op("%d", i), noise(n+int64(i), size)))
	}
}
