package storagetest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// Bench measures a backend: updates, refusals and reads, alone and with 64
// callers at once. open makes a fresh store and cleans up with b.Cleanup.
//
// An update stores a claim and its settlement in turn, each on an operation of
// its own.
func Bench(b *testing.B, open func(b *testing.B) storage.Store) {
	for _, bench := range []struct {
		name string
		call func(b *testing.B, s storage.Store, n uint64) error
	}{
		{"update", benchUpdate}, {"refusal", benchRefusal}, {"get", benchGet},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", bench.name, callers), func(b *testing.B) {
				store := open(b)
				for n := range uint64(benchRecords) {
					if err := benchUpdate(b, store, n); err != nil {
						b.Fatal(err)
					}
				}
				var calls atomic.Uint64
				b.ReportAllocs()
				b.SetParallelism((callers + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
				b.ResetTimer()
				run := func(more func() bool) {
					for more() {
						if err := bench.call(b, store, calls.Add(1)); err != nil {
							b.Error(err)
							return
						}
					}
				}
				if callers == 1 {
					run(b.Loop)
				} else {
					b.RunParallel(func(pb *testing.PB) { run(pb.Next) })
				}
			})
		}
	}
}

// benchRecords is how many operations are there before a measurement begins.
const benchRecords = 64

func benchUpdate(b *testing.B, s storage.Store, n uint64) error {
	id := op("%d", n/2)
	return s.Update(b.Context(), storage.Target{ID: id}, func(v onced.View) onced.Plan {
		if n%2 == 0 {
			return useFence(v)
		}
		return onced.Plan{Put: completed(id, benchResult)}
	})
}

// benchResult is as large as the answer of a usual tool.
var benchResult = noise(1, 256)

func benchRefusal(b *testing.B, s storage.Store, n uint64) error {
	return s.Update(b.Context(), storage.Target{ID: op("%d", n%(benchRecords/2))}, func(onced.View) onced.Plan { return onced.Plan{} })
}

func benchGet(b *testing.B, s storage.Store, n uint64) error {
	v, err := s.Get(b.Context(), op("%d", n%(benchRecords/2)))
	if err == nil && v.Record == nil {
		err = fmt.Errorf("the record of %v is gone", v.ID)
	}
	return err
}
