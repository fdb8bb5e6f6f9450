package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
)

// The tests of this file are about bbolt and protobuf, not about this package:
// what it was built on, as it was measured. A release of theirs that fails one has
// changed something that a comment or a decision here goes by.

var factBucket = []byte("b")

// factDB returns a database with one bucket that is mapped as tightly as can be.
func factDB(t *testing.T, tune ...func(*bbolt.Options)) *bbolt.DB {
	t.Helper()
	o := &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType}
	for _, change := range tune {
		change(o)
	}
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	factUpdate(t, db, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(factBucket); return err })
	return db
}

func factUpdate(t *testing.T, db *bbolt.DB, fn func(*bbolt.Tx) error) {
	t.Helper()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

// put returns an update that puts a value of some size.
func put(key string, size int) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error { return tx.Bucket(factBucket).Put([]byte(key), make([]byte, size)) }
}

// factGet returns what is stored, and what is visible of it at all.
func factGet(t *testing.T, db *bbolt.DB, key string) (value []byte, txid int) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		value, txid = bytes.Clone(tx.Bucket(factBucket).Get([]byte(key))), tx.ID()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value, txid
}

// An update that makes the file outgrow its map waits for every reader to leave: in
// a reader's own goroutine, for ever. So nothing that reads begins an update, and no
// read transaction is long.
func TestFactUpdateWaitsForReaders(t *testing.T) {
	db := factDB(t)
	reader := make(chan *bbolt.Tx, 1)
	done := make(chan error, 1)
	go func() {
		tx, err := db.Begin(false)
		if err != nil {
			done <- err
			return
		}
		reader <- tx
		done <- db.Update(put("large", 1<<20))
	}()
	tx := <-reader
	eventually(t, "the update to wait until the file can be mapped anew", func() bool {
		stacks := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "bbolt.(*DB).mmap") && strings.Contains(stack, "sync.(*RWMutex).Lock") {
				return true
			}
		}
		return false
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The other way round nobody waits: the read sees the file as it was.
func TestFactViewInsideUpdate(t *testing.T) {
	db := factDB(t)
	factUpdate(t, db, func(tx *bbolt.Tx) error {
		if err := put("large", 1<<20)(tx); err != nil {
			return err
		}
		if value, _ := factGet(t, db, "large"); value != nil {
			t.Error("a read sees what was not committed")
		}
		return nil
	})
}

// Put keeps the value until the commit, and copies the key.
func TestFactPutKeepsTheValue(t *testing.T) {
	db := factDB(t)
	key, value := []byte("key"), []byte("put")
	factUpdate(t, db, func(tx *bbolt.Tx) error {
		err := tx.Bucket(factBucket).Put(key, value)
		copy(key, "xxx")
		copy(value, "new")
		return err
	})
	if got, _ := factGet(t, db, "key"); string(got) != "new" {
		t.Errorf("stored is %q, want what the value was at the commit", got)
	}
}

// A nil value is nil until the commit, and then empty: nil cannot stand for
// anything but "not there".
func TestFactNilValue(t *testing.T) {
	db := factDB(t)
	factUpdate(t, db, func(tx *bbolt.Tx) error {
		b := tx.Bucket(factBucket)
		if err := errors.Join(b.Put([]byte("nil"), nil), b.Put([]byte("empty"), []byte{})); err != nil {
			return err
		}
		if got := b.Get([]byte("nil")); got != nil {
			t.Errorf("a nil value reads %#v before the commit", got)
		}
		if got := b.Get([]byte("empty")); got == nil {
			t.Error("an empty value reads nil before the commit")
		}
		return nil
	})
	err := db.View(func(tx *bbolt.Tx) error {
		for _, key := range []string{"nil", "empty"} {
			if got := tx.Bucket(factBucket).Get([]byte(key)); got == nil || len(got) != 0 {
				t.Errorf("%s reads %#v after the commit, want it empty", key, got)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A key has 1 to 32768 bytes.
func TestFactKeySizes(t *testing.T) {
	db := factDB(t)
	for size, want := range map[int]error{
		0: berrors.ErrKeyRequired, 1: nil, 255: nil, 256: nil, 32768: nil, 32769: berrors.ErrKeyTooLarge,
	} {
		key := bytes.Repeat([]byte("k"), size)
		err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(factBucket).Put(key, []byte{}) })
		if !errors.Is(err, want) {
			t.Errorf("a key of %d bytes: %v, want %v", size, err, want)
		}
		if value, _ := factGet(t, db, string(key)); (value != nil) != (want == nil) {
			t.Errorf("a key of %d bytes reads %v", size, value)
		}
	}
	if got := dueHead + maxIdentity; got != 32768 {
		t.Errorf("the longest identity makes a key of %d bytes", got)
	}
}

// Batch runs everybody's function again when one fails, and that one alone once
// more: 16 runs for 8 callers. Its caller meets a panic, and the rest goes on.
func TestFactBatchRunsAgain(t *testing.T) {
	const callers = 8
	odd := map[string]func() error{
		"error": func() error { return errors.New("refused") },
		"panic": func() error { panic("fault") },
	}
	for name, fail := range odd {
		t.Run(name, func(t *testing.T) {
			db := factDB(t)
			db.MaxBatchSize, db.MaxBatchDelay = callers, time.Hour
			var runs, failed, panicked atomic.Int32
			var all sync.WaitGroup
			for i := range callers {
				var failing atomic.Bool
				all.Go(func() {
					defer func() {
						if recover() != nil {
							panicked.Add(1)
						}
					}()
					err := db.Batch(func(tx *bbolt.Tx) error {
						if runs.Add(1) == callers || failing.Load() { // the last one of the first round
							failing.Store(true)
							return fail()
						}
						return put(fmt.Sprint(i), 1)(tx)
					})
					if err != nil {
						failed.Add(1)
					}
				})
			}
			all.Wait()
			if runs.Load() != 2*callers || failed.Load()+panicked.Load() != 1 || (panicked.Load() == 1) != (name == "panic") {
				t.Errorf("%d runs; %d callers got an error and %d a panic", runs.Load(), failed.Load(), panicked.Load())
			}
			factUpdate(t, db, put("usable", 1))
			err := db.View(func(tx *bbolt.Tx) error {
				if n := tx.Bucket(factBucket).Stats().KeyN; n != callers {
					t.Errorf("%d keys are stored, want those of %d callers and another", n, callers-1)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A panic in an update reaches its caller, and leaves nothing behind.
func TestFactPanicInUpdate(t *testing.T) {
	db := factDB(t)
	func() {
		defer func() {
			if p := recover(); p != "fault" {
				t.Errorf("the caller met %v", p)
			}
		}()
		_ = db.Update(func(tx *bbolt.Tx) error {
			if err := put("half", 1)(tx); err != nil {
				return err
			}
			panic("fault")
		})
	}()
	if value, _ := factGet(t, db, "half"); value != nil {
		t.Error("half of an update is stored")
	}
	factUpdate(t, db, put("whole", 1))
}

// Marshalling says nothing of the order of a map. What is stored is marshalled so
// that equal content is equal bytes.
func TestFactMarshal(t *testing.T) {
	const times = 200
	fields, labels, memories := map[string]*structpb.Value{}, map[string]string{}, map[string]onced.Memory{}
	for i := range onced.MaxLabels {
		name := fmt.Sprint("name ", i)
		fields[name], labels[name], memories[name] = structpb.NewNumberValue(float64(i)), name, onced.Memory{Retention: 1}
	}
	id := benchmarkID(0)
	record := grant(id, time.Unix(1, 0))
	record.Labels = labels
	distinct := func(encode func() ([]byte, error)) int {
		seen := map[string]bool{}
		for range times {
			b, err := encode()
			if err != nil {
				t.Fatal(err)
			}
			seen[string(b)] = true
		}
		return len(seen)
	}
	if n := distinct(func() ([]byte, error) { return proto.Marshal(&structpb.Struct{Fields: fields}) }); n < 2 {
		t.Errorf("%d marshals of one Struct gave %d encodings, want several", times, n)
	}
	if n := distinct(func() ([]byte, error) {
		r := *record
		r.Labels = maps.Clone(labels)
		b, _, err := codec.EncodeRecord(id.Encode(), &r)
		return b, err
	}); n != 1 {
		t.Errorf("one record was encoded in %d ways", n)
	}
	if n := distinct(func() ([]byte, error) {
		return codec.EncodeMeta(keyMeta, storage.Meta{Generation: 1, Memories: maps.Clone(memories)})
	}); n != 1 {
		t.Errorf("the facts about one store were encoded in %d ways", n)
	}
}
