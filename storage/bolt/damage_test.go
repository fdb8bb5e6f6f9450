package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// TestFlippedBytes: of a small store any byte may be damaged. Then it is refused,
// or, where the byte means nothing, everything reads as it did before.
func TestFlippedBytes(t *testing.T) {
	dir := everything(t)
	path := filepath.Join(dir, fileData)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readDamaged(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(b byte, at int) {
		if _, err := f.WriteAt([]byte{b}, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewSource(1))
	tried, refused := map[string]int{}, map[string]int{}
	var passed []int
	for at, where := range placesIn(sound) {
		if where == "unused" && random.Intn(64) > 0 {
			continue
		}
		write(sound[at]^byte(1+random.Intn(255)), at)
		tried[where]++
		if got, err := readDamaged(dir); err != nil {
			refused[where]++
		} else if passed = append(passed, at); !maps.Equal(got, want) {
			t.Errorf("byte %d of %s is damaged, and the store reads otherwise", at, where)
		}
		write(sound[at], at)
	}
	t.Logf("bytes damaged: %v; of them refused: %v", tried, refused)
	for _, where := range []string{"meta page", "leaf", "branch", "free list"} {
		if tried[where] == 0 || refused[where] < tried[where]/2 {
			t.Errorf("%s: %d of %d were refused: that shows nothing", where, refused[where], tried[where])
		}
	}
	if n := refused["leaf"]; n < tried["leaf"]*9/10 {
		t.Errorf("of leaves %d of %d were refused", n, tried["leaf"])
	}

	// What passes can be served, too.
	for range 20 {
		served, at := t.TempDir(), passed[random.Intn(len(passed))]
		copyFile(t, filepath.Join(dir, fileMarker), filepath.Join(served, fileMarker))
		b := bytes.Clone(sound)
		b[at] ^= byte(1 + random.Intn(255))
		if err := os.WriteFile(filepath.Join(served, fileData), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readDamaged(served); err != nil {
			continue // damaged in another way than before
		}
		reopenOnce(t, served)
		if found, err := Check(served, nil); err != nil || len(found) > 0 {
			t.Errorf("after byte %d was damaged it was served, and a check finds %q, %v", at, found, err)
		}
	}
}

// everything returns the folder of a small closed store with all kinds of entries
// and pages.
func everything(t *testing.T) string {
	t.Helper()
	h := newHarness(t)
	twin := onced.TwinID{Namespace: "n", Method: "m", Fingerprint: onced.Fingerprint{Scheme: "cj1", Digest: "0123456789abcdef"}}
	for i := range 24 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	r := grant(benchmarkID(24), h.clock.Wall())
	r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, bytes.Repeat([]byte{7}, 5000))
	err := h.store.Update(t.Context(), storage.Target{ID: r.ID, Twin: &twin}, func(onced.View) onced.Plan {
		return onced.Plan{
			Put: r, PutTwin: &onced.TwinEntry{ID: twin, Last: &onced.TwinKey{Key: "k"}},
			Audit: &onced.AuditEntry{Who: "operator"},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	return h.copyFiles(h.dir)
}

// readDamaged returns all that is in a store, or why it is refused. It examines it as
// Open does, and then leaves it as it is.
func readDamaged(dir string) (map[string]string, error) {
	w, err := examine(dir, examination{timeout: lockTimeout, deepUpTo: deepAtOpen, visit: sealed})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	err = w.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all[fmt.Sprintf("%s %x", name, k)] = string(v)
				return nil
			})
		})
	})
	if err == nil {
		err = w.close()
	}
	return all, err
}

// placesIn tells what each byte of a data file is a part of. Pages that no other
// refers to are left out; the rest of a page behind what it holds is unused.
func placesIn(file []byte) map[int]string {
	size := os.Getpagesize()
	kinds := map[uint16]string{1: "branch", 2: "leaf", 4: "meta page", 16: "free list"}
	places := map[int]string{}
	newest := newestMeta(file)
	free := freePages(file, newest)
	pages := int(binary.NativeEndian.Uint64(file[newest+16+40:]))
	for id := 0; id < pages; id++ {
		page := file[id*size:]
		run := (1 + int(binary.NativeEndian.Uint32(page[12:]))) * size
		if free[uint64(id)] {
			continue
		}
		held := len(bytes.TrimRight(page[:run], "\x00"))
		for at := range run {
			if where := kinds[binary.NativeEndian.Uint16(page[8:])]; at < held {
				places[id*size+at] = where
			} else {
				places[id*size+at] = "unused"
			}
		}
		id += run/size - 1
	}
	return places
}

// newestMeta returns where the page is by which a file is described.
func newestMeta(file []byte) int {
	const txid = 16 + 48
	size := os.Getpagesize()
	if binary.NativeEndian.Uint64(file[size+txid:]) > binary.NativeEndian.Uint64(file[txid:]) {
		return size
	}
	return 0
}

// freePages are the pages in the free list of a file.
func freePages(file []byte, meta int) map[uint64]bool {
	page := file[int(binary.NativeEndian.Uint64(file[meta+16+32:]))*os.Getpagesize():]
	free := map[uint64]bool{}
	for i := range int(binary.NativeEndian.Uint16(page[10:])) {
		free[binary.NativeEndian.Uint64(page[16+8*i:])] = true
	}
	return free
}

// TestLargeDamaged: in a file that is too large to be read at its opening a damaged
// value is found when it is used, and its operation is not to be had.
func TestLargeDamaged(t *testing.T) {
	dir := closed(t)
	large := []byte("large")
	rawEdit(t, dir, func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(large)
		if err != nil {
			return err
		}
		return b.Put(large, make([]byte, deepAtOpen))
	})
	rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(large) }) // its pages stay
	token := onced.TokenDigest([]byte(benchmarkID(5).Key))
	overwrite(t, filepath.Join(dir, fileData), func(b []byte) []byte {
		return bytes.ReplaceAll(b, token[:], make([]byte, len(token)))
	})
	s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, want := range map[int]bool{4: false, 5: true} {
		if v, err := s.Get(t.Context(), benchmarkID(i)); err != nil || v.Unreadable != want {
			t.Errorf("record %d is unreadable: %t, %v", i, v.Unreadable, err)
		}
	}
}
