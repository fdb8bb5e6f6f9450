package bolt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

func TestInit(t *testing.T) {
	h := newHarness(t)
	m, err := h.store.Meta(t.Context())
	wall := h.clock.Wall()
	if err != nil || m.Generation != uint64(wall.Unix()) || !m.HistoryStart.Equal(wall) || m.ReplacesLost || !m.BlindUntil.IsZero() || m.Memories != nil {
		t.Errorf("facts of a fresh store: %+v, %v", m, err)
	}
	if got, want := h.store.progress.Fence, storage.FirstFence(m.Generation); got != want {
		t.Errorf("fences count from %d, want %d", got, want)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, fileData: 0o600, fileMarker: 0o600} {
		info, err := os.Stat(filepath.Join(h.dir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, want %v (%v)", name, info.Mode().Perm(), mode, err)
		}
	}
	if err := Init(h.dir, h.options); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("init over a store: %v", err)
	}
}

// TestInitReplacesLost: a store that was lost is replaced only on request, by one
// whose generation and fences are above the lost one's, whatever the clock says.
func TestInitReplacesLost(t *testing.T) {
	dir := closed(t)
	lost, err := readMarker(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, fileData)); err != nil {
		t.Fatal(err)
	}
	clock := storagetest.NewClock()
	clock.StepWall(-time.Hour)
	o := Options{Clock: clock, LockTimeout: lockTimeout, tune: mapLittle}
	if err := Init(dir, o); err == nil || !strings.Contains(err.Error(), "--replaces-lost-store") {
		t.Fatalf("init where a store was lost: %v", err)
	}
	o.ReplacesLostStore = true
	if err := Init(dir, o); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := s.Meta(t.Context())
	if err != nil || m.Generation != lost.generation+1 || !m.ReplacesLost {
		t.Errorf("facts: %+v after generation %d, %v", m, lost.generation, err)
	}
}

// TestInitAtOnce: of several that make a store in one folder one does.
func TestInitAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	const callers = 8
	made := make(chan error, callers)
	for range callers {
		go func() { made <- Init(dir, Options{Clock: storagetest.NewClock(), LockTimeout: patience}) }()
	}
	done := 0
	for range callers {
		if err := <-made; err == nil {
			done++
		} else if !strings.Contains(err.Error(), "is there already") {
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("%d stores were made", done)
	}
	wantSound(t, dir)
}

// TestInitInterrupted: an init that stopped between its steps can be run again.
func TestInitInterrupted(t *testing.T) {
	clock := storagetest.NewClock()
	o := Options{Clock: clock, LockTimeout: lockTimeout, tune: mapLittle}
	dir := t.TempDir()
	if err := (marker{format: format, generation: 5}).write(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileData+suffixNew), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, o); err == nil || !strings.Contains(err.Error(), "did not finish: run it again") {
		t.Errorf("open: %v", err)
	}
	if err := Init(dir, o); err != nil {
		t.Fatal(err)
	}
	reopenOnce(t, dir)
}

// TestMarkerOverwritten: where there is no room for another file the marker is
// written over.
func TestMarkerOverwritten(t *testing.T) {
	dir := t.TempDir()
	if err := (marker{format: format, generation: 5, sequence: 99}).write(dir); err != nil {
		t.Fatal(err)
	}
	want := marker{format: format, generation: 5, sequence: 100}
	if err := want.overwrite(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := readMarker(dir); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}
