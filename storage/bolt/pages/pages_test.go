package pages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// build makes a bbolt file with everything that the format knows: branches,
// leaves, overflow pages, free pages, and buckets on pages and inline.
func build(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err := db.Update(func(tx *bbolt.Tx) error {
			for _, name := range []string{"large", "inline", "empty", "values"} {
				if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
			}
			for i := range 600 {
				key := binary.BigEndian.AppendUint64(nil, uint64(i*7+round))
				if err := tx.Bucket([]byte("large")).Put(key, make([]byte, 100)); err != nil {
					return err
				}
			}
			if err := tx.Bucket([]byte("inline")).Put([]byte{byte(round), 1}, []byte("v")); err != nil {
				return err
			}
			return tx.Bucket([]byte("values")).Put([]byte{byte(round), 2}, make([]byte, 50_000))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func check(file []byte, deep bool) error {
	return Check(bytes.NewReader(file), int64(len(file)), deep)
}

func TestSound(t *testing.T) {
	file := build(t)
	for _, deep := range []bool{false, true} {
		if err := check(file, deep); err != nil {
			t.Errorf("deep %t: %v", deep, err)
		}
	}
}

// TestOneMetaPage: after a power loss while a meta page was written the other one
// describes the file.
func TestOneMetaPage(t *testing.T) {
	file := build(t)
	size := int64(os.Getpagesize())
	for at := range int64(2) {
		torn := bytes.Clone(file)
		clear(torn[at*size : (at+1)*size])
		newest, err := find(bytes.NewReader(torn), int64(len(torn)))
		if err != nil {
			t.Errorf("meta page %d zeroed: %v", at, err)
		} else if newest.txid%2 == uint64(at) {
			t.Errorf("meta page %d zeroed, and transaction %d of it was found", at, newest.txid)
		}
	}
}

func TestDamage(t *testing.T) {
	sound := build(t)
	size := os.Getpagesize()
	newest, err := find(bytes.NewReader(sound), int64(len(sound)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want  string
		spoil func([]byte) []byte
	}{
		"empty":            {"meta pages are damaged", func([]byte) []byte { return nil }},
		"text":             {"meta pages are damaged", func([]byte) []byte { return []byte(strings.Repeat("no store\n", 9000)) }},
		"both metas":       {"meta pages are damaged", func(b []byte) []byte { clear(b[:2*size]); return b }},
		"one page":         {"was truncated", func(b []byte) []byte { return b[:size] }},
		"three pages":      {"was truncated", func(b []byte) []byte { return b[:3*size] }},
		"root":             {"header is not its own", func(b []byte) []byte { clear(b[int(newest.root)*size:][:size]); return b }},
		"free list":        {"header is not its own", func(b []byte) []byte { clear(b[int(newest.freelist)*size:][:size]); return b }},
		"kind of root":     {"neither a leaf nor a branch", func(b []byte) []byte { b[int(newest.root)*size+8] = 4; return b }},
		"kind of the list": {"should be the free list", func(b []byte) []byte { b[int(newest.freelist)*size+8] = 2; return b }},
		"free and in use": {"in use", func(b []byte) []byte {
			order.PutUint64(b[int(newest.freelist)*size+pageHeader:], newest.root)
			return b
		}},
		"free list too long": {"names more pages", func(b []byte) []byte {
			order.PutUint16(b[int(newest.freelist)*size+10:], 0xFFFF)
			order.PutUint64(b[int(newest.freelist)*size+pageHeader:], 1<<60)
			return b
		}},
		"key pointer": {"points outside", func(b []byte) []byte {
			order.PutUint32(b[int(newest.root)*size+pageHeader+4:], 1<<31)
			return b
		}},
	} {
		if err := check(c.spoil(bytes.Clone(sound)), true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestTrust: what Check lets pass, bbolt can read without a fault: for many files
// with a few bytes changed where they hurt, in the headers and tables of pages.
// A fault would end the test process.
func TestTrust(t *testing.T) {
	sound := build(t)
	size := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	random := rand.New(rand.NewSource(1))
	refused, passed := 0, 0
	for range 500 {
		file := bytes.Clone(sound)
		for range 1 + random.Intn(2) {
			page := 2 + random.Intn(len(file)/size-2)
			file[page*size+random.Intn(pageHeader+20*elementSize)] ^= 1 << random.Intn(8)
		}
		if check(file, true) != nil {
			refused++
			continue
		}
		passed++
		if _, err := f.WriteAt(file, 0); err != nil {
			t.Fatal(err)
		}
		if err := readAll(path); err != nil {
			t.Fatalf("a file that passed: %v", err)
		}
	}
	if refused < 50 || passed < 50 {
		t.Errorf("%d files were refused and %d passed: that shows nothing", refused, passed)
	}
}

// readAll reads all that is in a file, and opens it for writing.
func readAll(path string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bbolt panicked: %v", p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return readBucket(b) })
	})
}

func readBucket(b *bbolt.Bucket) error {
	sum := 0
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return readBucket(b.Bucket(k))
		}
		for _, c := range v {
			sum += int(c)
		}
		return nil
	})
}
