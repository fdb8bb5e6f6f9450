package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	storagev1 "github.com/onced/onced/gen/onced/storage/v1"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
	"github.com/onced/onced/storage/storagetest"
)

// harness is a store in a folder of the test's, with a gate around its commits. At
// the test's end the store is closed, checked, and opened once more.
type harness struct {
	storagetest.Gate
	t         *testing.T
	clock     *storagetest.Clock
	options   Options
	dir       string
	store     *Store
	corrupted bool // on purpose

	before, after atomic.Pointer[error] // what takes the place of a commit's errors
	written       atomic.Int64          // commits that bbolt has made
	commits       atomic.Int64          // commits that are durable
}

// hooks are those of the harness's stores.
func (h *harness) hooks() hooks {
	failing := func(with *atomic.Pointer[error]) error {
		if err := with.Load(); err != nil {
			return *err
		}
		return nil
	}
	return hooks{
		beforeCommit: func() error { return failing(&h.before) },
		afterCommit: func() error {
			h.written.Add(1)
			return errors.Join(h.Sync(), failing(&h.after))
		},
		beforeAnswer: func() { h.commits.Add(1) },
	}
}

// newHarness returns a harness whose gate stands after bbolt's commit, where
// readers of bbolt see what is not known to be durable.
func newHarness(t *testing.T) *harness {
	h := &harness{t: t, clock: storagetest.NewClock()}
	h.options = Options{Clock: h.clock, LockTimeout: lockTimeout, hooks: h.hooks(), tune: mapLittle}
	h.dir = h.init()
	h.store = h.open(h.dir)
	return h
}

// mapLittle makes bbolt map no more than the file holds: files stay small, and are
// mapped anew, under the feet of readers, whenever they grow.
func mapLittle(o *bbolt.Options) { o.InitialMmapSize = 0 }

// lockTimeout is as short as bbolt lets it be.
const lockTimeout = time.Millisecond

// init makes a store in a folder of its own.
func (h *harness) init() string {
	h.t.Helper()
	dir := filepath.Join(h.t.TempDir(), "data")
	if err := Init(dir, h.options); err != nil {
		h.t.Fatal(err)
	}
	return dir
}

// open opens the store in a folder, to be closed and checked at the test's end.
func (h *harness) open(dir string) *Store {
	h.t.Helper()
	s, err := Open(dir, h.options)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { h.inspect(s, dir) })
	return s
}

// corruption is what a check finds where a test has rewritten a value.
var corruption = []kind{unknownRecords, unknownTwins, looseDue, damagedPayloads, lostPayloads, otherPayloads}

// inspect closes a store, looks for damage, and opens it again.
func (h *harness) inspect(s *Store, dir string) {
	h.t.Helper()
	if err := s.Close(); err != nil && s.failure() == nil {
		h.t.Errorf("close: %v", err)
	}
	if s.stuck.Load() {
		return // nobody else can open it before the process has ended
	}
	findings, err := Check(dir, nil)
	damaged := slices.ContainsFunc(findings, func(f string) bool { return strings.Contains(f, "are damaged") })
	if h.corrupted {
		findings = slices.DeleteFunc(findings, func(f string) bool {
			return slices.ContainsFunc(corruption, func(k kind) bool { return strings.HasPrefix(f, k.what) })
		})
	}
	if err != nil || len(findings) > 0 {
		h.t.Errorf("check: %v %q", err, findings)
	}
	again, err := Open(dir, Options{Clock: h.clock, LockTimeout: lockTimeout, tune: mapLittle})
	if h.corrupted && damaged {
		if err == nil {
			h.t.Error("a damaged file was opened")
			_ = again.Close()
		}
		return
	}
	if err != nil {
		h.t.Errorf("open after the test: %v", err)
		return
	}
	if err := again.Close(); err != nil {
		h.t.Errorf("close after the test: %v", err)
	}
}

func (h *harness) Store() storage.Store      { return h.store }
func (h *harness) Clock() *storagetest.Clock { return h.clock }

// Reopen implements [storagetest.Harness]. A crash leaves the files as they are
// at that moment, to be opened in another place.
func (h *harness) Reopen(crash bool) storage.Store {
	h.t.Helper()
	if crash {
		h.dir = h.copyFiles(h.dir)
	} else if err := h.store.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.store = h.open(h.dir)
	return h.store
}

// copyFiles returns a new folder with the files of another.
func (h *harness) copyFiles(dir string) string {
	h.t.Helper()
	to := h.t.TempDir()
	for _, name := range []string{fileMarker, fileData} {
		copyFile(h.t, filepath.Join(dir, name), filepath.Join(to, name))
	}
	return to
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (h *harness) Restore(backup []byte) storage.Store {
	h.t.Helper()
	dir := h.t.TempDir()
	data := filepath.Join(dir, fileData)
	if err := os.WriteFile(data, backup, 0o600); err != nil {
		h.t.Fatal(err)
	}
	f := factsOf(h.t, data)
	if err := (marker{format, f.meta.Generation, f.progress.Sequence}).write(dir); err != nil {
		h.t.Fatal(err)
	}
	return h.open(dir)
}

// factsOf reads the facts in a data file that nobody has open.
func factsOf(t *testing.T, path string) (f facts) {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error { f, err = readFacts(tx); return err }); err != nil {
		t.Fatal(err)
	}
	return f
}

// rewrite replaces the stored bytes under a key.
func (h *harness) rewrite(bucket, key []byte, to func([]byte) []byte) {
	h.t.Helper()
	h.corrupted = true
	err := h.store.queue.do(h.t.Context(), storage.ClassSettlement, func(b *batch) (change, error) {
		value := slices.Clone(b.tx.Bucket(bucket).Get(key))
		return change{edits: []edit{{bucket, key, to(value)}}}, nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// garbage is a value whose seal is intact and whose content no build can read. One
// whose seal is broken is damage of the file.
func garbage(key []byte) func([]byte) []byte {
	return func([]byte) []byte { return codec.Seal(key, []byte("\xff this is no message")) }
}

func (h *harness) Corrupt(id onced.Identity) {
	h.rewrite(bucketRecords, id.Encode(), garbage(id.Encode()))
}

func (h *harness) CorruptTwin(id onced.TwinID) {
	h.rewrite(bucketTwins, id.Encode(), garbage(id.Encode()))
}

func (h *harness) FutureState(id onced.Identity) {
	h.rewriteRecord(id, func(m *storagev1.Record) { m.State = 99 })
}

// rewriteRecord changes a stored record as a later build might.
func (h *harness) rewriteRecord(id onced.Identity, change func(*storagev1.Record)) {
	h.t.Helper()
	h.rewrite(bucketRecords, id.Encode(), func(value []byte) []byte {
		m := &storagev1.Record{}
		content, err := codec.Unseal(id.Encode(), value)
		if err == nil {
			err = proto.Unmarshal(content, m)
		}
		if err != nil {
			h.t.Error(err)
			return value
		}
		change(m)
		content, err = proto.Marshal(m)
		if err != nil {
			h.t.Error(err)
		}
		return codec.Seal(id.Encode(), content)
	})
}
