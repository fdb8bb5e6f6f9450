package memory_test

import (
	"bytes"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// harness implements [storagetest.Harness]. What a power loss takes away is
// what OnSync never let through, so that a crash is a close that does not wait.
type harness struct {
	storagetest.Gate
	t     *testing.T
	clock *storagetest.Clock
	store *memory.Store
}

func newHarness(t *testing.T) storagetest.Harness {
	h := &harness{t: t, clock: storagetest.NewClock()}
	h.use(memory.New(h.clock))
	return h
}

func (h *harness) use(s *memory.Store) storage.Store {
	h.store, s.OnSync = s, h.Sync
	h.t.Cleanup(func() { s.Close() })
	return s
}

func (h *harness) Store() storage.Store        { return h.store }
func (h *harness) Clock() *storagetest.Clock   { return h.clock }
func (h *harness) Corrupt(id onced.Identity)   { h.store.Corrupt(id) }
func (h *harness) CorruptTwin(id onced.TwinID) { h.store.CorruptTwin(id) }
func (h *harness) FutureState(id onced.Identity) {
	h.store.FutureState(id)
}

func (h *harness) Reopen(crash bool) storage.Store {
	if err := h.store.Close(); err != nil {
		h.t.Fatalf("close: %v", err)
	}
	return h.use(h.store.Reopen(h.clock))
}

func (h *harness) Restore(backup []byte) storage.Store {
	s, err := memory.Restore(h.clock, bytes.NewReader(backup))
	if err != nil {
		h.t.Fatalf("restore: %v", err)
	}
	h.t.Cleanup(func() { s.Close() })
	return s
}
