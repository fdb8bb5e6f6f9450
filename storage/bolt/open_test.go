package bolt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// filled returns a harness over a store with a few records and payloads.
func filled(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	for i := range 40 {
		h.put(grant(benchmarkID(i), h.clock.Wall()))
	}
	r := grant(benchmarkID(40), h.clock.Wall())
	r.State, r.Result = onced.StateCompleted, onced.NewResult("", false, make([]byte, 100_000))
	h.put(r)
	return h
}

// put stores a record.
func (h *harness) put(r *onced.Record) {
	h.t.Helper()
	if err := h.tryPut(r); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) tryPut(r *onced.Record) error {
	return h.store.Update(h.t.Context(), storage.Target{ID: r.ID}, func(onced.View) onced.Plan {
		return onced.Plan{Put: r, UsesFence: true}
	})
}

// closed returns a copy of the folder of a store that was filled and closed.
func closed(t *testing.T) string {
	t.Helper()
	h := filled(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	return h.copyFiles(h.dir)
}

func reopenOnce(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOlderCopyAfterKill: the copy is noticed too when the process that went on
// from it made not a single commit of its own, and was killed.
func TestOlderCopyAfterKill(t *testing.T) {
	dir := closed(t)
	older := filepath.Join(t.TempDir(), "older")
	copyFile(t, filepath.Join(dir, fileData), older)
	c := startChild(t, "open", dir)
	c.line(t)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	copyFile(t, older, filepath.Join(dir, fileData))
	_, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
	if err == nil || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("open: %v", err)
	}
}

// TestOlderCopyOfOneRun: a copy of the file that was made while it was served is
// noticed after a kill too, once a minute with commits has passed since.
func TestOlderCopyOfOneRun(t *testing.T) {
	h := filled(t)
	older := filepath.Join(t.TempDir(), "older")
	copyFile(t, h.store.path, older)
	h.clock.Advance(remarkEvery)
	h.put(grant(benchmarkID(1), h.clock.Wall()))
	h.put(grant(benchmarkID(2), h.clock.Wall())) // is taken up when the marker has been written
	killed := h.copyFiles(filepath.Dir(h.store.path))
	copyFile(t, older, filepath.Join(killed, fileData))
	_, err := Open(killed, Options{Clock: h.clock, LockTimeout: lockTimeout, tune: mapLittle})
	if err == nil || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("open: %v", err)
	}
}

func TestNoStore(t *testing.T) {
	o := Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle}
	emptied := closed(t)
	for _, name := range []string{fileData, fileMarker} {
		if err := os.Remove(filepath.Join(emptied, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"absent": filepath.Join(t.TempDir(), "none"), "emptied": emptied} {
		before := contents(t, dir)
		_, err := Open(dir, o)
		if !errors.Is(err, ErrNoStore) || !strings.Contains(err.Error(), "no store here; `onced init --data "+dir+"` creates one") {
			t.Errorf("%s: open: %v", name, err)
		}
		if _, err := Check(dir, nil); !errors.Is(err, ErrNoStore) {
			t.Errorf("%s: check: %v", name, err)
		}
		if len(contents(t, dir)) != len(before) {
			t.Errorf("%s: something was made there", name)
		}
	}
}

func TestFileAsFolder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle}
	if _, err := Open(name, o); err == nil || !strings.Contains(err.Error(), name) || errors.Is(err, ErrNoStore) {
		t.Errorf("open: %v", err)
	}
	if err := Init(name, o); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("init: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "x" {
		t.Errorf("the file now holds %q (%v)", b, err)
	}
}

// TestNoAccess: a folder that may not be read is not taken for an empty one.
// Modes mean nothing to root, so that then another user tries.
func TestNoAccess(t *testing.T) {
	dir := closed(t)
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	var message string
	if os.Getuid() != 0 {
		_, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout, tune: mapLittle})
		message = errorText(err)
	} else {
		message = openAsNobody(t, dir)
	}
	if !strings.Contains(message, "permission denied") || !strings.Contains(message, dir) || strings.Contains(message, ErrNoStore.Error()) {
		t.Errorf("open: %s", message)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// openAsNobody has another user open a store and returns what that printed.
func openAsNobody(t *testing.T, dir string) string {
	t.Helper()
	home := t.TempDir()
	binary := filepath.Join(home, "child")
	copyFile(t, os.Args[0], binary)
	// The others may pass through the folders on the way.
	for _, name := range []string{binary, home, filepath.Dir(home), filepath.Dir(filepath.Dir(dir))} {
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := startChild(t, "open", dir, func(c *exec.Cmd) {
		c.Path, c.Dir = binary, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	c.out.Scan()
	return c.out.Text()
}

func TestLocked(t *testing.T) {
	h := newHarness(t)
	locked := func(by string, pid int, dir string) {
		t.Helper()
		// Which process it is cannot be told everywhere, and is never told wrong.
		if got := holder(filepath.Join(dir, fileData)); got != "" && got != fmt.Sprintf(" (process %d)", pid) {
			t.Errorf("held by %s, %d, it is said to be held by%s", by, pid, got)
		}
		want := "another process holds " + filepath.Join(dir, fileData)
		if _, err := Open(dir, h.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open while it is held by %s: %v", by, err)
		}
		if _, err := Check(dir, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check while it is held by %s: %v", by, err)
		}
	}
	locked("this process", os.Getpid(), h.dir)
	h.put(grant(benchmarkID(1), h.clock.Wall())) // and it is still in use

	dir := closed(t)
	c := startChild(t, "open", dir)
	c.line(t)
	locked("another process", c.Process.Pid, dir)
	if err := errors.Join(c.in.Close(), c.Wait()); err != nil {
		t.Fatal(err)
	}
	reopenOnce(t, dir)
}

// TestLockedMeanwhile: what has happened to the folder while it was waited for the
// lock counts, not what was there before.
func TestLockedMeanwhile(t *testing.T) {
	dir := closed(t)
	path := filepath.Join(dir, fileData)
	held, err := openLocked(path, examination{write: true})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: patience, tune: mapLittle})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	eventually(t, "the other one to open the file", func() bool { return openTimes(t, path) == 2 })
	m, err := readMarker(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.sequence++
	if err := errors.Join(m.write(dir), held.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("open: %v", err)
	}
}
