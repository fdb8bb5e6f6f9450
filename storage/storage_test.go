package storage_test

import (
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

func TestMetaEpoch(t *testing.T) {
	m := storage.Meta{
		Generation: 7, HistoryStart: start, ReplacesLost: true, BlindUntil: start.Add(1),
		Memories: map[string]onced.Memory{"": {Retention: time.Hour}},
	}
	want := onced.Epoch{Generation: 7, HistoryStart: start, ReplacesLost: true, BlindUntil: start.Add(1), ServingSince: start.Add(2)}
	if got := m.Epoch(start.Add(2)); got != want {
		t.Errorf("epoch %+v, want %+v", got, want)
	}
}

// TestFirstFence: the fences of a generation, of which there are four billion,
// lie below those of the next.
func TestFirstFence(t *testing.T) {
	generation := uint64(start.Unix())
	if first := storage.FirstFence(generation); first>>32 != generation || first+1<<32-1 >= storage.FirstFence(generation+1) {
		t.Errorf("the fences of generation %d begin at %d, those of the next at %d", generation, first, storage.FirstFence(generation+1))
	}
}
