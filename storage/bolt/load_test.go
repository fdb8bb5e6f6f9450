package bolt

import (
	"errors"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// TestDamagedPayload: a payload that is gone or was changed on the disk is said to
// be damaged, whatever its record says, and a check finds it. The record itself is
// decided on as ever.
func TestDamagedPayload(t *testing.T) {
	id := benchmarkID(1)
	at := pieceKey(codec.PartResult, id.Encode(), 3)
	for name, spoil := range map[string]func([]byte) []byte{
		"gone":    func([]byte) []byte { return nil },
		"changed": func(b []byte) []byte { b[100] ^= 1; return b },
		"shorter": func([]byte) []byte { return codec.Seal(at, make([]byte, pieceSize-1)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			r := grant(id, h.clock.Wall())
			r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, make([]byte, 10_000))
			h.put(r)
			h.rewrite(bucketPayloads, at, spoil)

			if b, err := h.store.Payload(t.Context(), id, r.Result.SHA256); !errors.Is(err, storage.ErrDamaged) {
				t.Errorf("%d bytes, %v; want ErrDamaged", len(b), err)
			}
			v, err := h.store.Get(t.Context(), id)
			if err != nil || v.Unreadable || v.Record.State != onced.StateCompleted {
				t.Errorf("the record: %+v, %v", v, err)
			}
			if err := h.store.Close(); err != nil {
				t.Fatal(err)
			}
			found, err := Check(h.dir, nil)
			if err != nil || len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), "payload") {
				t.Errorf("a check finds %q, %v", found, err)
			}
		})
	}
}
