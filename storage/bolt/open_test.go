package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// filled returns a harness over a store with a few records and payloads.
func filled(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	for i := range 40 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	r := grant(benchmarkID(40), h.clock.Wall())
	r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, make([]byte, 100_000))
	h.put(r)
	return h
}

// put stores a record.
func (h *harness) put(r *onced.Record) {
	h.t.Helper()
	if err := h.tryPut(r); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) tryPut(r *onced.Record) error {
	return h.store.Update(h.t.Context(), storage.Target{ID: r.ID}, func(onced.View) onced.Plan {
		return onced.Plan{Put: r, UsesFence: true}
	})
}

// closed returns a copy of the folder of a store that was filled and closed.
func closed(t *testing.T) string {
	t.Helper()
	h := filled(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	return h.copyFiles(h.dir)
}

// contents are the digests of all that is in a folder, and its own.
func contents(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return sums
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sums[e.Name()] = sha256.Sum256(b)
	}
	return sums
}

// overwrite changes a file in place.
func overwrite(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newestMeta is which of its two meta pages a file is described by.
func newestMeta(b []byte) int {
	const txid = 16 + 48
	size := os.Getpagesize()
	if binary.NativeEndian.Uint64(b[size+txid:]) > binary.NativeEndian.Uint64(b[txid:]) {
		return 1
	}
	return 0
}

// TestRefused: what is not a whole store in its newest state is refused in words
// that name it, is left as it is, and no store is made in its place.
func TestRefused(t *testing.T) {
	size := os.Getpagesize()
	data := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) { overwrite(t, filepath.Join(dir, fileData), change) }
	}
	for name, c := range map[string]struct {
		want  string // part of the sentence
		spoil func(*testing.T, string)
	}{
		"no store of ours":        {"not a store", data(func([]byte) []byte { return []byte(strings.Repeat("minutes of the meeting\n", 4000)) })},
		"empty":                   {"it is empty", data(func([]byte) []byte { return nil })},
		"one byte":                {"cannot be used", data(func([]byte) []byte { return []byte{1} })},
		"both meta pages zeroed":  {"meta pages are damaged", data(func(b []byte) []byte { clear(b[:2*size]); return b })},
		"truncated to 3 pages":    {"truncated", data(func(b []byte) []byte { return b[:3*size] })},
		"truncated in the middle": {"truncated", data(func(b []byte) []byte { return b[:len(bytes.TrimRight(b, "\x00"))/size*size] })},
		"flipped bit in a leaf": {"is damaged", data(func(b []byte) []byte {
			at := bytes.LastIndex(b, benchmarkID(40).Encode())
			b[at/size*size+9] ^= 0x40 // of the page's kind
			return b
		})},
		"newest meta page zeroed": {"older copy", data(func(b []byte) []byte {
			at := newestMeta(b) * size
			clear(b[at : at+size])
			return b
		})},
		"older copy": {"older copy", func(t *testing.T, dir string) {
			copyFile(t, filepath.Join(dir, fileData), filepath.Join(dir, "older"))
			reopenOnce(t, dir)
			if err := os.Rename(filepath.Join(dir, "older"), filepath.Join(dir, fileData)); err != nil {
				t.Fatal(err)
			}
		}},
		"copy of another store": {"another store", func(t *testing.T, dir string) {
			clock := storagetest.NewClock()
			clock.Advance(time.Hour)
			other := filepath.Join(t.TempDir(), "other")
			if err := Init(other, Options{Clock: clock}); err != nil {
				t.Fatal(err)
			}
			copyFile(t, filepath.Join(other, fileData), filepath.Join(dir, fileData))
		}},
		"file deleted": {"is gone", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, fileData)); err != nil {
				t.Fatal(err)
			}
		}},
		"marker deleted": {"without its marker", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, fileMarker)); err != nil {
				t.Fatal(err)
			}
		}},
		"marker damaged": {"STORE is damaged", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, fileMarker), func(b []byte) []byte { return b[:len(b)/2] })
		}},
		"marker of a later format": {"in format 2, and this build knows formats up to 1", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, fileMarker), func(b []byte) []byte {
				head, _, _ := bytes.Cut(b, []byte("format"))
				return append(head, "format 2\nsomething new\n"...)
			})
		}},
		"file of a later format": {"in format 2, and this build knows formats up to 1", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte{0, 0, 0, 2}) })
		}},
		"bucket gone": {"is missing", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketTwins) })
		}},
		"facts damaged": {"facts about itself", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyMeta, []byte("x")) })
		}},
		"another program's file": {"not a store of onced", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketMeta) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := closed(t)
			c.spoil(t, dir)
			before := contents(t, dir)
			o := Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle}
			_, err := Open(dir, o)
			if err == nil || errors.Is(err, ErrNoStore) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("open: %v, want a sentence with %q and the path", err, c.want)
			}
			if err := Init(dir, o); err == nil {
				t.Error("a store was made in its place")
			}
			if findings, err := Check(dir); err == nil && len(findings) == 0 {
				t.Error("check found it sound")
			}
			after := contents(t, dir)
			if len(after) != len(before) {
				t.Errorf("the folder held %d files, and now %d", len(before), len(after))
			}
			for name, sum := range before {
				if after[name] != sum {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

// rawEdit changes a data file past the store.
func rawEdit(t *testing.T, dir string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, fileData), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func reopenOnce(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOlderCopyAfterKill: the copy is noticed too when the process that went on
// from it made not a single commit of its own, and was killed.
func TestOlderCopyAfterKill(t *testing.T) {
	dir := closed(t)
	older := filepath.Join(t.TempDir(), "older")
	copyFile(t, filepath.Join(dir, fileData), older)
	c := startChild(t, "open", dir)
	c.line(t)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	copyFile(t, older, filepath.Join(dir, fileData))
	_, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
	if err == nil || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("open: %v", err)
	}
}

// TestOlderCopyOfOneRun: a copy of the file that was made while it was served is
// noticed after a kill too, once a minute with commits has passed since.
func TestOlderCopyOfOneRun(t *testing.T) {
	h := filled(t)
	older := filepath.Join(t.TempDir(), "older")
	copyFile(t, h.store.path, older)
	h.clock.Advance(remarkEvery)
	h.put(grant(benchmarkID(1), h.clock.Wall()))
	h.put(grant(benchmarkID(2), h.clock.Wall())) // is taken up when the marker has been written
	killed := h.copyFiles(filepath.Dir(h.store.path))
	copyFile(t, older, filepath.Join(killed, fileData))
	_, err := Open(killed, Options{Clock: h.clock, LockTimeout: lockTimeout, tune: mapLittle})
	if err == nil || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("open: %v", err)
	}
}

// TestTornMetaPage: the meta page that is not the newest may be damaged: a power
// loss during a commit leaves one so, and that commit was never answered.
func TestTornMetaPage(t *testing.T) {
	dir := closed(t)
	overwrite(t, filepath.Join(dir, fileData), func(b []byte) []byte {
		at := (1 - newestMeta(b)) * os.Getpagesize()
		clear(b[at : at+os.Getpagesize()])
		return b
	})
	reopenOnce(t, dir)
	if findings, err := Check(dir); err != nil || len(findings) > 0 {
		t.Errorf("check: %v %q", err, findings)
	}
}

func TestNoStore(t *testing.T) {
	o := Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle}
	emptied := closed(t)
	for _, name := range []string{fileData, fileMarker} {
		if err := os.Remove(filepath.Join(emptied, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"absent": filepath.Join(t.TempDir(), "none"), "emptied": emptied} {
		before := contents(t, dir)
		_, err := Open(dir, o)
		if !errors.Is(err, ErrNoStore) || !strings.Contains(err.Error(), "no store here; `onced init --data "+dir+"` creates one") {
			t.Errorf("%s: open: %v", name, err)
		}
		if _, err := Check(dir); !errors.Is(err, ErrNoStore) {
			t.Errorf("%s: check: %v", name, err)
		}
		if len(contents(t, dir)) != len(before) {
			t.Errorf("%s: something was made there", name)
		}
	}
}

func TestFileAsFolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle}
	if _, err := Open(name, o); err == nil || !strings.Contains(err.Error(), name) || errors.Is(err, ErrNoStore) {
		t.Errorf("open: %v", err)
	}
	if err := Init(name, o); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("init: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "x" {
		t.Errorf("the file now holds %q (%v)", b, err)
	}
}

// TestNoAccess: a folder that may not be read is not taken for an empty one.
// Modes mean nothing to root, so that then another user tries.
func TestNoAccess(t *testing.T) {
	dir := closed(t)
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	var message string
	if os.Getuid() != 0 {
		_, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
		message = errorText(err)
	} else {
		message = openAsNobody(t, dir)
	}
	if !strings.Contains(message, "permission denied") || !strings.Contains(message, dir) || strings.Contains(message, ErrNoStore.Error()) {
		t.Errorf("open: %s", message)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// openAsNobody has another user open a store and returns what that printed.
func openAsNobody(t *testing.T, dir string) string {
	t.Helper()
	home := t.TempDir()
	binary := filepath.Join(home, "child")
	copyFile(t, os.Args[0], binary)
	// The others may pass through the folders on the way.
	for _, name := range []string{binary, home, filepath.Dir(home), filepath.Dir(filepath.Dir(dir))} {
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := startChild(t, "open", dir, func(c *exec.Cmd) {
		c.Path, c.Dir = binary, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	c.out.Scan()
	return c.out.Text()
}

func TestLocked(t *testing.T) {
	h := newHarness(t)
	locked := func(by, dir string) {
		t.Helper()
		want := "another process holds " + filepath.Join(dir, fileData)
		if _, err := Open(dir, h.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open while it is held by %s: %v", by, err)
		}
		if _, err := Check(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check while it is held by %s: %v", by, err)
		}
	}
	locked("this process", h.dir)
	h.put(grant(benchmarkID(1), h.clock.Wall())) // and it is still in use

	dir := closed(t)
	c := startChild(t, "open", dir)
	c.line(t)
	locked("another process", dir)
	if err := errors.Join(c.in.Close(), c.Wait()); err != nil {
		t.Fatal(err)
	}
	reopenOnce(t, dir)
}
