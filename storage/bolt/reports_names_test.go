package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// names are identities, of keys that callers have been seen to use, that are all
// distinct, and that a store would take for one another if it joined their parts,
// cut them, folded them or looked for prefixes.
func names() []onced.Identity {
	var ids []onced.Identity
	for _, key := range []string{
		"", " ", " k", "k ", "K", "k", "a\x00b", "a", "b", "ключ", "\xff\xfe", "\xff", "../x", "order-1", "order-10", "null", "undefined",
		`"abc"`, "abc", strings.Repeat("k", 127), strings.Repeat("k", 128), strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("k", 16384),
	} {
		for _, namespace := range []string{"", "a", "k"} {
			ids = append(ids, onced.Identity{Namespace: namespace, Key: key, Method: "m"}, onced.Identity{Namespace: namespace, Key: "m", Method: key})
		}
	}
	for _, separator := range []string{":", "/", "|", "\x00", "%3A", "\x01", "\x7f", "\x80"} {
		ids = append(ids,
			onced.Identity{Namespace: "a", Key: "b" + separator + "c", Method: "m"},
			onced.Identity{Namespace: "a" + separator + "b", Key: "c", Method: "m"},
			onced.Identity{Namespace: "a", Key: "b", Method: "c" + separator + "m"})
	}
	ids = append(ids, onced.Identity{Namespace: "", Key: "ab", Method: "m"}, onced.Identity{Namespace: "a", Key: "bm"}, onced.Identity{Namespace: "abm"})
	slices.SortFunc(ids, func(a, b onced.Identity) int { return bytes.Compare(a.Encode(), b.Encode()) })
	return slices.Compact(ids)
}

// Distinct names are distinct operations, in every bucket: each has its own record,
// large payload and due time, also when all are due at one moment, and keeps them
// when another one goes.
func TestR28_NamesApart(t *testing.T) {
	h := newHarness(t)
	ids := names()
	record := func(i int) *onced.Record {
		r := grant(ids[i], h.clock.Wall())
		r.State, r.Holder = onced.StateCompleted, fmt.Sprint("holder ", i)
		r.Result = onced.NewResult("", false, fmt.Appendf(nil, "%5000d", i))
		return r
	}
	for i := range ids {
		h.put(record(i))
	}
	h.Reopen(false)
	holds := func(i int) {
		t.Helper()
		want := record(i)
		v, err := h.store.Get(t.Context(), ids[i])
		if err != nil || v.Record == nil || v.Record.Holder != want.Holder {
			t.Errorf("%v: %+v, %v", ids[i], v.Record, err)
			return
		}
		if b, err := h.store.Payload(t.Context(), ids[i], want.Result.SHA256); err != nil || !bytes.Equal(b, want.Result.Bytes) {
			t.Errorf("%v: %d bytes, %v", ids[i], len(b), err)
		}
	}
	entries := map[string]int{string(bucketRecords): 1, string(bucketDue): 1, string(bucketPayloads): pieces(5000)}
	counts := func() map[string]int {
		n := map[string]int{}
		err := h.store.db.View(func(tx *bbolt.Tx) error {
			for _, b := range [][]byte{bucketRecords, bucketPayloads, bucketDue} {
				n[string(b)] = tx.Bucket(b).Stats().KeyN
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range ids {
		holds(i)
	}
	for left := len(ids); left > 0; left-- {
		for bucket, n := range counts() {
			if n != left*entries[bucket] {
				t.Fatalf("%d entries in %s of %d operations, want %d of each", n, bucket, left, entries[bucket])
			}
		}
		if left%10 == 0 {
			holds(left - 1)
		}
		err := h.store.Update(t.Context(), storage.Target{ID: ids[left-1]}, func(onced.View) onced.Plan { return onced.Plan{Delete: true} })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A scan by namespace or key finds what it names and nothing that only begins alike:
// not "order-10" for "order-1".
func TestR28_PrefixIsNoMatch(t *testing.T) {
	h := newHarness(t)
	only := onced.Identity{Namespace: "n", Key: "order-10", Method: "m"}
	h.put(grant(only, h.clock.Wall()))
	finds := func(prefix []byte) int {
		t.Helper()
		page, err := h.store.ScanIdentity(t.Context(), prefix, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Views)
	}
	for _, key := range []string{"order-1", "order-", "o", "", "order-100", "rder-10", "Order-10"} {
		if n := finds(onced.KeyPrefix("n", key)); n != 0 {
			t.Errorf("%d operations are found under %q, where %q alone is stored", n, key, only.Key)
		}
		if v, err := h.store.Get(t.Context(), onced.Identity{Namespace: "n", Key: key, Method: "m"}); err != nil || v.Record != nil {
			t.Errorf("under %q there is %+v, %v", key, v.Record, err)
		}
	}
	for _, namespace := range []string{"", "no", "N", "n\x00"} {
		if n := finds(onced.NamespacePrefix(namespace)); n != 0 {
			t.Errorf("%d operations are found in namespace %q, want none", n, namespace)
		}
	}
	if finds(onced.KeyPrefix("n", "order-10")) != 1 || finds(onced.NamespacePrefix("n")) != 1 {
		t.Error("what is stored is not found")
	}
}

// An identity that fits no key is refused before anything is decided; the longest
// that fits can be stored with all that belongs to it.
func TestR28_LongestName(t *testing.T) {
	h := newHarness(t)
	id := onced.Identity{Namespace: "n", Method: "m"}
	for len(id.Encode()) < maxIdentity {
		id.Key += strings.Repeat("k", maxIdentity-len(id.Encode()))
		if over := len(id.Encode()) - maxIdentity; over > 0 {
			id.Key = id.Key[over:]
		}
	}
	r := grant(id, h.clock.Wall())
	r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, make([]byte, 5000))
	h.put(r)
	h.Reopen(false)
	if b, err := h.store.Payload(t.Context(), id, r.Result.SHA256); err != nil || len(b) != 5000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if len(pieceKey(codec.PartResult, id.Encode(), 0)) > bbolt.MaxKeySize || len(recordDue(id.Encode(), r)) != bbolt.MaxKeySize {
		t.Errorf("its keys have %d and %d bytes", len(pieceKey(codec.PartResult, id.Encode(), 0)), len(recordDue(id.Encode(), r)))
	}
	id.Key += "k"
	err := h.store.Update(t.Context(), storage.Target{ID: id}, func(v onced.View) onced.Plan {
		t.Error("an identity that fits no key was decided on")
		return onced.Plan{}
	})
	if err == nil || errors.Is(err, storage.ErrFailed) {
		t.Errorf("an identity of %d bytes: %v", len(id.Encode()), err)
	}
}
