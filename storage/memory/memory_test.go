package memory_test

import (
	"strings"
	"testing"

	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) { storagetest.Run(t, newHarness) })
}

func BenchmarkStore(b *testing.B) {
	storagetest.Bench(b, func(*testing.B) storage.Store { return memory.New(storagetest.NewClock()) })
}

func TestRestoreOfSomethingElse(t *testing.T) {
	if s, err := memory.Restore(storagetest.NewClock(), strings.NewReader("not a backup")); err == nil {
		t.Errorf("a store was made of what no backup is: %v", s)
	}
}
