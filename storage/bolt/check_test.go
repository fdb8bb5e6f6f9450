package bolt

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
	"github.com/onced/onced/storage/storagetest"
)

// TestCheck: each kind of thing that can be wrong inside a file whose pages are
// in order is found, with what to do, and nothing else is. A broken seal is damage,
// which Open refuses as well; the rest is served.
func TestCheck(t *testing.T) {
	twin := onced.TwinID{Namespace: "n", Method: "m", Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: "0123456789abcdef"}}
	entry := &onced.TwinEntry{ID: twin, Last: &onced.TwinKey{Key: "k"}}
	id, large := benchmarkID(3), benchmarkID(40)
	key, payload := id.Encode(), pieceKey(codec.PartResult, large.Encode(), 7)
	due := func(tx *bbolt.Tx, id onced.Identity) []byte { return loadRecord(tx, id).due }
	put := func(bucket, key, content []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, codec.Seal(key, content)) }
	}
	spoil := func(bucket, key []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			value := bytes.Clone(tx.Bucket(bucket).Get(key))
			value[len(value)-1] ^= 1
			return tx.Bucket(bucket).Put(key, value)
		}
	}
	for name, c := range map[string]struct {
		want    kind
		first   string // what the sentence says of the first one
		damaged bool
		spoil   func(*bbolt.Tx) error
	}{
		"nothing":        {spoil: func(*bbolt.Tx) error { return nil }},
		"damaged record": {damagedRecords, id.String(), true, spoil(bucketRecords, key)},
		"record under another key": {damagedRecords, benchmarkID(99).String(), true, func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketRecords)
			return b.Put(benchmarkID(99).Encode(), b.Get(key))
		}},
		"unreadable record":          {unknownRecords, id.String(), false, put(bucketRecords, key, []byte{0xff})},
		"record under a damaged key": {badKeys, "c8", false, put(bucketRecords, []byte{200}, nil)},
		"index entry gone": {missingDue, id.String(), false, func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketDue).Delete(due(tx, id))
		}},
		"twin's index entry gone": {missingDue, "twin entry", false, func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketDue).Delete(loadTwin(tx, twin.Encode()).due)
		}},
		"index entry too many": {looseDue, "", false, func(tx *bbolt.Tx) error {
			at := append(due(tx, id)[:dueHead:dueHead], benchmarkID(99).Encode()...)
			return put(bucketDue, at, nil)(tx)
		}},
		"index entry too short": {damagedDue, "01: due key: truncated", false, put(bucketDue, []byte{1}, nil)},
		"index entry damaged": {damagedDue, "", true, func(tx *bbolt.Tx) error {
			return spoil(bucketDue, due(tx, id))(tx)
		}},
		"payload gone": {lostPayloads, large.String() + ": piece 7", false, func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketPayloads).Delete(payload)
		}},
		"piece of a payload too many": {loosePayloads, large.String(), false, put(bucketPayloads, pieceKey(codec.PartResult, large.Encode(), 1000), nil)},
		"payload damaged":             {damagedPayloads, "", true, spoil(bucketPayloads, payload)},
		"payload of nobody":           {loosePayloads, "", false, put(bucketPayloads, pieceKey(codec.PartDetails, large.Encode(), 0), nil)},
		"payload of another content":  {otherPayloads, large.String(), false, put(bucketPayloads, payload, bytes.Repeat([]byte{1}, pieceSize))},
		"payload of another size":     {otherPayloads, large.String(), false, put(bucketPayloads, payload, nil)},
		"twin entry damaged":          {damagedTwins, "", true, spoil(bucketTwins, twin.Encode())},
		"twin entry unreadable":       {unknownTwins, "", false, put(bucketTwins, twin.Encode(), []byte{0xff})},
		"audit entry damaged":         {damagedAudits, "", true, spoil(bucketAudit, auditKey(1))},
		"audit entry unreadable":      {unknownAudits, "", false, put(bucketAudit, auditKey(1), []byte{0xff})},
		"fence": {wrongFences, benchmarkID(0).String(), false, func(tx *bbolt.Tx) error {
			f, err := readFacts(tx)
			f.progress.Fence = 0
			if err != nil {
				return err
			}
			return f.write(tx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := filled(t)
			target := storage.Target{ID: id, Twin: &twin}
			plan := onced.Plan{PutTwin: entry, Audit: &onced.AuditEntry{Who: "operator"}}
			if err := h.store.Update(t.Context(), target, func(onced.View) onced.Plan { return plan }); err != nil {
				t.Fatal(err)
			}
			if err := h.store.Close(); err != nil {
				t.Fatal(err)
			}
			dir := h.copyFiles(h.dir)
			rawEdit(t, dir, c.spoil)
			before := contents(t, dir)
			findings, err := Check(dir, nil)
			switch all := strings.Join(findings, "\n"); {
			case err != nil, c.want == (kind{}) && all != "":
				t.Errorf("%s (%v)", all, err)
			case c.want != (kind{}) && (!strings.HasPrefix(all, c.want.what+": ") || !strings.Contains(all, c.first) || !strings.HasSuffix(all, c.want.remedy)):
				t.Errorf("%s; want %q of %s", all, c.want, c.first)
			}
			if after := contents(t, dir); after[fileData] != before[fileData] || len(after) != len(before) {
				t.Error("check changed something")
			}
			if err := tryOpen(dir); (err != nil) != c.damaged {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// tryOpen opens a store and closes it.
func tryOpen(dir string) error {
	s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
	if err != nil {
		return err
	}
	return s.Close()
}

// TestCheckTells: the progress of a check goes up to what there is.
func TestCheckTells(t *testing.T) {
	dir := grown(t, 700)
	var last, of uint64
	_, err := Check(dir, func(step string, done, total uint64) {
		if step != "checking" || done <= last || total < 1400 {
			t.Errorf("%s: %d after %d of %d", step, done, last, total)
		}
		last, of = done, total
	})
	if err != nil || last == 0 || of-last >= tellEvery {
		t.Errorf("told up to %d of %d (%v)", last, of, err)
	}
}

// grown returns the folder of a closed store with that many records, a large result,
// and as many pages that are free again.
func grown(t *testing.T, records int) string {
	t.Helper()
	h := newHarness(t)
	each := func(n int, do func(id onced.Identity) onced.Plan) {
		const callers = 500
		var all sync.WaitGroup
		for first := range callers {
			all.Go(func() {
				for i := first; i < n; i += callers {
					id := benchmarkID(i)
					err := h.store.Update(t.Context(), storage.Target{ID: id}, func(onced.View) onced.Plan { return do(id) })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	each(2*records, func(id onced.Identity) onced.Plan {
		r := grant(id, h.clock.Wall())
		r.Labels = map[string]string{"l": strings.Repeat("x", 200)}
		return onced.Plan{Put: r, UsesFence: true}
	})
	each(records, func(onced.Identity) onced.Plan { return onced.Plan{Delete: true} })
	large := grant(benchmarkID(0), h.clock.Wall())
	large.State, large.Result = onced.StateCompleted, onced.NewResult("", false, bytes.Repeat([]byte{7}, 100_000))
	h.put(large)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	return h.copyFiles(h.dir)
}
