package pages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
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

// check checks all of a file.
func check(file []byte, visit Visit) (Summary, error) {
	return Check(bytes.NewReader(file), int64(len(file)), math.MaxInt64, visit)
}

// TestSound: what bbolt has made is in order, and what it holds is counted and
// visited as bbolt has it.
func TestSound(t *testing.T) {
	file := build(t)
	visited := map[string]string{}
	sum, err := check(file, func(bucket, key, value []byte) error {
		visited[string(bucket)+"/"+string(key)] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	held, free := contents(t, path)
	if !maps.Equal(held, visited) || sum.Entries != uint64(len(held)) {
		t.Errorf("%d entries were visited and %d counted; there are %d", len(visited), sum.Entries, len(held))
	}
	if sum.Free != free || sum.Free == 0 || sum.Lost != 0 || !sum.Deep || sum.Used() != int64(sum.Pages-free)*int64(os.Getpagesize()) {
		t.Errorf("%+v, and bbolt says that %d pages are free", sum, free)
	}
	within, err := Check(bytes.NewReader(file), int64(len(file)), int64(len(file))/2, nil)
	if err != nil || within.Deep || within.Entries != 0 || within.Pages != sum.Pages {
		t.Errorf("up to less than its size: %+v, %v", within, err)
	}
}

// contents returns what is in the buckets of a file and how many of its pages are
// free, as bbolt has it.
func contents(t *testing.T, path string) (held map[string]string, free uint64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	held = map[string]string{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				held[string(name)+"/"+string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return held, uint64(db.Stats().FreePageN)
}

// TestLost: a page that is neither in use nor free is counted, and no damage.
func TestLost(t *testing.T) {
	file := build(t)
	newest, err := find(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	count := file[int(newest.freelist)*os.Getpagesize()+10:]
	order.PutUint16(count, order.Uint16(count)-1)
	if sum, err := check(file, nil); err != nil || sum.Lost != 1 {
		t.Errorf("%+v, %v", sum, err)
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
		"first meta":       {"meta page 0 is damaged", func(b []byte) []byte { clear(b[:size]); return b }},
		"second meta":      {"meta page 1 is damaged", func(b []byte) []byte { clear(b[size : 2*size]); return b }},
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
		"key pointer": {"does not follow", func(b []byte) []byte {
			order.PutUint32(b[int(newest.root)*size+pageHeader+4:], 1<<31)
			return b
		}},
		"fewer elements": {"does not follow", func(b []byte) []byte {
			b[int(newest.root)*size+10]--
			return b
		}},
		"no free list": {"not a store", func(b []byte) []byte {
			for at := pageHeader; at < 2*size; at += size {
				order.PutUint64(b[at+32:], noFreelist)
				sum := fnv.New64a()
				sum.Write(b[at : at+metaSize-8])
				order.PutUint64(b[at+metaSize-8:], sum.Sum64())
			}
			return b
		}},
		"chain of pages": {"too deep", func([]byte) []byte { return chain(size) }},
	} {
		if _, err := check(c.spoil(bytes.Clone(sound)), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// chain makes a file whose tree is a long chain of branches.
func chain(size int) []byte {
	const pages = 1000
	b := make([]byte, pages*size)
	for i := range 2 {
		m := b[i*size+pageHeader:]
		order.PutUint32(m, metaMagic)
		order.PutUint32(m[4:], metaVersion)
		order.PutUint32(m[8:], uint32(size))
		order.PutUint64(m[16:], 3)
		order.PutUint64(m[32:], 2)
		order.PutUint64(m[40:], pages)
		order.PutUint64(m[48:], uint64(i))
		sum := fnv.New64a()
		sum.Write(m[:metaSize-8])
		order.PutUint64(m[metaSize-8:], sum.Sum64())
	}
	header := func(id, flags int) []byte {
		p := b[id*size:]
		order.PutUint64(p, uint64(id))
		order.PutUint16(p[8:], uint16(flags))
		return p
	}
	header(2, flagFreelist)
	for id := 3; id < pages; id++ {
		p := header(id, flagBranch)
		order.PutUint16(p[10:], 1)
		order.PutUint32(p[pageHeader:], elementSize)
		order.PutUint32(p[pageHeader+4:], 1)
		order.PutUint64(p[pageHeader+8:], uint64(id+1))
		p[pageHeader+elementSize] = 'k'
	}
	return b
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
		if _, err := check(file, nil); err != nil {
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
		for err := range tx.Check() {
			if !strings.Contains(err.Error(), "unreachable unfreed") {
				return err
			}
		}
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
