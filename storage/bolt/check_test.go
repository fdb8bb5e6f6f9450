package bolt

import (
	"bytes"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// TestCheck: each kind of thing that can be wrong inside a file whose pages are
// in order is found, and nothing else is.
func TestCheck(t *testing.T) {
	twin := onced.TwinID{Namespace: "n", Method: "m", Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: "0123456789abcdef"}}
	entry := &onced.TwinEntry{ID: twin, Last: &onced.TwinKey{Key: "k"}}
	id, large := benchmarkID(3), benchmarkID(40)
	key := id.Encode()
	due := func(tx *bbolt.Tx, id onced.Identity) []byte { return loadRecord(tx, id).due }
	for name, c := range map[string]struct {
		want  string
		spoil func(*bbolt.Tx) error
	}{
		"nothing": {"", func(*bbolt.Tx) error { return nil }},
		"unreadable record": {"records that this build cannot read: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketRecords).Put(key, []byte("x"))
		}},
		"record under a damaged key": {"records under a damaged key: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketRecords).Put([]byte{200}, []byte("x"))
		}},
		"index entry gone": {"missing in the time-ordered index: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketDue).Delete(due(tx, id))
		}},
		"twin's index entry gone": {"missing in the time-ordered index: 1; the first: twin entry", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketDue).Delete(loadTwin(tx, twin.Encode()).due)
		}},
		"index entry too many": {"nothing stands behind: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketDue).Put(append(due(tx, id)[:dueHead:dueHead], benchmarkID(99).Encode()...), nothing)
		}},
		"index entry damaged": {"damaged entries of the time-ordered index: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketDue).Put([]byte{1}, nothing)
		}},
		"payload gone": {"cannot read: 1; the first: " + large.String(), func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketPayloads).Delete(pieceKey(codec.PartResult, large.Encode(), 7))
		}},
		"payload of nobody": {"payloads that belong to no record: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketPayloads).Put(pieceKey(codec.PartDetails, large.Encode(), 0), []byte("x"))
		}},
		"payload of another content": {"do not match their digest: 1", func(tx *bbolt.Tx) error {
			at := pieceKey(codec.PartResult, large.Encode(), 7)
			return tx.Bucket(bucketPayloads).Put(at, codec.Seal(at, bytes.Repeat([]byte{1}, pieceSize)))
		}},
		"twin entry": {"twin entries that this build cannot read: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketTwins).Put(twin.Encode(), []byte("x"))
		}},
		"audit entry": {"audit entries that cannot be read: 1", func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketAudit).Put(auditKey(1), []byte("x"))
		}},
		"fence": {"a fence that was never given: 41", func(tx *bbolt.Tx) error {
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
			findings, err := Check(dir)
			all := strings.Join(findings, "\n")
			if err != nil || c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("findings %q, want %q (%v)", findings, c.want, err)
			}
			if after := contents(t, dir); after[fileData] != before[fileData] || len(after) != len(before) {
				t.Error("check changed something")
			}
		})
	}
}
