package bolt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage/bolt/codec"
	"github.com/onced/onced/storage/storagetest"
)

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
		if !e.Type().IsRegular() {
			sums[e.Name()] = sha256.Sum256([]byte(e.Type().String()))
			continue
		}
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
		"first meta page zeroed":  {"meta page 0 is damaged", data(func(b []byte) []byte { clear(b[:size]); return b })},
		"second meta page zeroed": {"meta page 1 is damaged", data(func(b []byte) []byte { clear(b[size : 2*size]); return b })},
		"flipped bit in a record": {"the record of " + benchmarkID(7).String() + ": value does not match its checksum", data(func(b []byte) []byte {
			token := onced.TokenDigest([]byte(benchmarkID(7).Key))
			changed := bytes.Clone(token[:])
			changed[9] ^= 1
			return bytes.ReplaceAll(b, token[:], changed)
		})},
		"flipped bit in a payload": {"does not match its checksum", data(func(b []byte) []byte {
			piece := pieceKey(codec.PartResult, benchmarkID(40).Encode(), 7)
			return bytes.ReplaceAll(b, append(piece, codec.Seal(piece, make([]byte, pieceSize))...), append(piece, codec.Seal(nil, make([]byte, pieceSize))...))
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
		"marker of a later format": {"in format 3, and this build knows formats up to 2", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, fileMarker), func(b []byte) []byte {
				head, _, _ := bytes.Cut(b, []byte("format"))
				return append(head, "format 3\nsomething new\n"...)
			})
		}},
		"file of a later format": {"in format 3, and this build knows formats up to 2", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte{0, 0, 0, 3}) })
		}},
		"bucket gone": {"is missing", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketTwins) })
		}},
		"facts damaged": {"facts about itself", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyMeta, []byte("x")) })
		}},
		"file of an earlier format": {"in format 0, which was never released", func(t *testing.T, dir string) {
			rawEdit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, make([]byte, 4)) })
		}},
		"marker of an earlier format": {"in format 1, which was never released", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, fileMarker), func(b []byte) []byte {
				return bytes.Replace(b, []byte("format 2"), []byte("format 1"), 1)
			})
		}},
		"another program's file": {"not a store of onced", func(t *testing.T, dir string) {
			foreign(t, filepath.Join(dir, fileData), &bbolt.Options{})
		}},
		"another program's file without a free list": {"not a store", func(t *testing.T, dir string) {
			foreign(t, filepath.Join(dir, fileData), &bbolt.Options{NoFreelistSync: true})
		}},
		"marker of nothing": {"STORE is damaged", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, fileMarker), func([]byte) []byte { return nil })
		}},
		"marker without an end": {"STORE is damaged", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, fileMarker), func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := closed(t)
			c.spoil(t, dir)
			refused(t, dir, c.want)
		})
	}
}

// refused demands that a store is refused in words, by all that could use it, and
// that nothing in its folder changes.
func refused(t *testing.T, dir, want string) {
	t.Helper()
	before := contents(t, dir)
	o := Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle}
	said := func(who string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, ErrNoStore) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, want a sentence with %q and the path", who, err, want)
		}
	}
	_, err := Open(dir, o)
	said("open", err)
	_, _, err = Compact(t.Context(), dir, nil)
	said("compact", err)
	findings, err := Check(dir, nil)
	said("check", errors.Join(err, fmt.Errorf("%s: %s", dir, strings.Join(findings, "\n")))) // as the command says it
	if err := Init(dir, o); err == nil {
		t.Error("a store was made in its place")
	}
	if after := contents(t, dir); !maps.Equal(after, before) {
		t.Errorf("the folder has changed from %v to %v", slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	}
}

// foreign makes a bbolt file of another program.
func foreign(t *testing.T, path string, o *bbolt.Options) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketMeta) // etcd has one of that name
		if err != nil {
			return err
		}
		return b.Put([]byte("confState"), []byte("{}"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNoRegularFile: a name under which no regular file stands is refused, and what
// stands there is not opened: a pipe would never let go.
func TestNoRegularFile(t *testing.T) {
	for _, name := range []string{fileData, fileMarker} {
		for kind, c := range map[string]struct {
			want string
			make func(path string) error
		}{
			"folder":     {"no regular file (d", func(path string) error { return os.Mkdir(path, 0o700) }},
			"pipe":       {"no regular file (p", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
			"device":     {"no regular file (D", func(path string) error { return os.Symlink("/dev/zero", path) }},
			"link loop":  {"too many levels of symbolic links", func(path string) error { return os.Symlink(filepath.Base(path), path) }},
			"link to no": {"", func(path string) error { return os.Symlink("nowhere", path) }},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := closed(t)
				path := filepath.Join(dir, name)
				if err := errors.Join(os.Remove(path), c.make(path)); err != nil {
					t.Fatal(err)
				}
				refused(t, dir, c.want)
			})
		}
	}
}

// TestOtherPageSize: a file from a machine with other pages is a store like any.
func TestOtherPageSize(t *testing.T) {
	for _, size := range []int{1 << 10, 1 << 14} {
		dir := closed(t)
		path := filepath.Join(dir, fileData)
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		repage(t, path+".old", path, size)
		reopenOnce(t, dir)
		if findings, err := Check(dir, nil); err != nil || len(findings) > 0 {
			t.Errorf("pages of %d bytes: %v %q", size, err, findings)
		}
	}
}

// repage copies a data file into one with pages of another size.
func repage(t *testing.T, from, to string, size int) {
	t.Helper()
	old, err := bbolt.Open(from, 0, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	db, err := bbolt.Open(to, 0o600, &bbolt.Options{PageSize: size})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(bbolt.Compact(db, old, 0), db.Close()); err != nil {
		t.Fatal(err)
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
