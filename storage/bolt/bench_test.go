package bolt

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/bolt/codec"
	"github.com/onced/onced/storage/storagetest"
)

// callers is how many goroutines a benchmark runs.
var callers = []int{1, 8, 64, 256}

// inParallel runs fn b.N times on n goroutines. fn is given a number of its own
// for each call.
func inParallel(b *testing.B, n int, fn func(i int) error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := fn(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

// benchmarkStore opens a fresh store.
func benchmarkStore(b *testing.B) *Store {
	b.Helper()
	o := Options{Clock: storagetest.NewClock()}
	dir := filepath.Join(b.TempDir(), "data")
	if err := Init(dir, o); err != nil {
		b.Fatal(err)
	}
	s, err := Open(dir, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// grant is a claim of a new operation, as the domain would plan it.
func grant(id onced.Identity, now time.Time) *onced.Record {
	return &onced.Record{
		ID: id, State: onced.StatePending, Attempt: 1, Fence: 1, Generation: 1, Revision: 1,
		Lease: 30 * time.Second, LeaseEnd: now.Add(30 * time.Second),
		Attempts: []onced.Attempt{{Number: 1, Token: onced.TokenDigest([]byte(id.Key)), Fence: 1, Holder: "worker-1", ClaimTime: now}},
		Subject:  "user-1", Holder: "worker-1",
		Fingerprints:   []onced.Fingerprint{{Scheme: "cj1", Digest: "0123456789abcdef0123456789abcdef"}},
		FirstClaimTime: now, ClaimTime: now, UpdateTime: now,
	}
}

func benchmarkID(i int) onced.Identity {
	return onced.Identity{Namespace: "tools", Key: "request-" + strconv.Itoa(i*7919), Method: "crm.v1.Tickets/Create"}
}

// BenchmarkUpdate measures claims of new operations.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range callers {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			s := benchmarkStore(b)
			commits := 0
			s.hooks.beforeAnswer = func() { commits++ }
			defer func() { b.ReportMetric(float64(b.N)/float64(commits), "op/commit") }()
			inParallel(b, n, func(i int) error {
				return s.Update(b.Context(), storage.Target{ID: benchmarkID(i)}, func(v onced.View) onced.Plan {
					return onced.Plan{Put: grant(v.ID, v.Now), UsesFence: true}
				})
			})
		})
	}
}

// BenchmarkBatch measures bbolt's own batches with a delay of a millisecond, which
// write what BenchmarkUpdate's commits write: a record and its index entry.
func BenchmarkBatch(b *testing.B) {
	for _, n := range callers {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			s := benchmarkStore(b)
			s.db.MaxBatchDelay = time.Millisecond
			inParallel(b, n, func(i int) error {
				return s.db.Batch(func(tx *bbolt.Tx) error {
					id := benchmarkID(i)
					next := grant(id, s.time.Now())
					edits, err := loadRecord(tx, id).replace(next)
					for _, e := range edits {
						if err == nil && e.value != nil {
							err = tx.Bucket(e.bucket).Put(e.key, e.value)
						}
					}
					return err
				})
			})
		})
	}
}

// BenchmarkGet measures reads of one operation among many.
func BenchmarkGet(b *testing.B) {
	s := benchmarkStore(b)
	const records = 10_000
	var wg sync.WaitGroup
	for w := range 256 {
		wg.Go(func() {
			for i := w; i < records; i += 256 {
				err := s.Update(b.Context(), storage.Target{ID: benchmarkID(i)}, func(v onced.View) onced.Plan {
					return onced.Plan{Put: grant(v.ID, v.Now)}
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range callers {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			inParallel(b, n, func(i int) error {
				v, err := s.Get(b.Context(), benchmarkID(i%records))
				if err == nil && v.Record == nil {
					err = fmt.Errorf("%v is absent", v.ID)
				}
				return err
			})
		})
	}
}

// BenchmarkCodec measures one record there and back.
func BenchmarkCodec(b *testing.B) {
	id := benchmarkID(1)
	key, r := id.Encode(), grant(id, storagetest.NewClock().Wall())
	value, _, err := codec.EncodeRecord(key, r)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := codec.EncodeRecord(key, r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := codec.DecodeRecord(id, key, value); err != nil {
				b.Fatal(err)
			}
		}
	})
}
