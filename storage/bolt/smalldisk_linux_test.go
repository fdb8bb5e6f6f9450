package bolt

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/onced/onced/storage"
)

// smallDisk returns a folder on a disk of its own, of so many bytes.
func smallDisk(t *testing.T, size int64) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "onced-disk-") // t.TempDir would settle where all its folders are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := unix.Mount("onced", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		if os.Getenv("ONCED_REQUIRE_ALL") != "" {
			t.Fatalf("a small disk cannot be mounted here: %v", err)
		}
		t.Skipf("NOT TESTED: a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// onSmallDisk returns a harness over a store on such a disk.
func onSmallDisk(t *testing.T, size int64) *harness {
	t.Helper()
	t.Setenv("TMPDIR", smallDisk(t, size))
	return newHarness(t)
}

// punch gives all room of a data file that no page in use lies in back to its disk.
func punch(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, holes := int64(os.Getpagesize()), 0
	err = db.View(func(tx *bbolt.Tx) error {
		for id := range int(tx.Size() / size) {
			info, err := tx.Page(id)
			if err != nil {
				return err
			}
			if info.Type == "free" {
				holes++
				if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(id)*size, size); err != nil {
					return err
				}
			}
		}
		return f.Truncate(tx.Size())
	})
	if err != nil || holes == 0 {
		t.Fatalf("%d free pages: %v", holes, err)
	}
}

// TestStartOnAFullDisk: a store whose disk has no room for the first commit of a start
// is opened: what is there is read, claims are refused, and with room they are let in.
func TestStartOnAFullDisk(t *testing.T) {
	h := onSmallDisk(t, 4<<20)
	if h.claim(0) != nil || h.settle(0, 50_000) != nil || h.store.Close() != nil {
		t.Fatal("the store cannot be filled")
	}
	punch(t, h.store.path)
	ballast := filepath.Join(h.dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk does not get full: %v", err)
	}
	before := factsOf(t, h.store.path)
	h.store = h.open(h.dir)
	if h.store.progress.Sequence != before.progress.Sequence {
		t.Fatal("there was room for a commit")
	}
	v, err := h.store.Get(t.Context(), benchmarkID(0))
	if err != nil || v.Record == nil {
		t.Fatalf("get: %+v, %v", v.Record, err)
	}
	if b, err := h.store.Payload(t.Context(), benchmarkID(0), v.Record.Result.SHA256); err != nil || len(b) != 50_000 {
		t.Errorf("payload: %d bytes, %v", len(b), err)
	}
	for name, err := range map[string]error{"a claim": h.claim(1), "Room": h.store.Room(t.Context())} {
		if !errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrFailed) {
			t.Errorf("%s: %v, want ErrFull", name, err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.store.Room(t.Context()), h.claim(1), h.settle(1, 50_000)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestLastRoom: a disk that has just as much as is missing in the reserve gives it.
func TestLastRoom(t *testing.T) {
	const size, used = 2 << 20, 64 << 10
	file, err := os.Create(filepath.Join(smallDisk(t, used+size+size/growth/2), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, used)); err != nil {
		t.Fatal(err)
	}
	r := reserve{file: file, size: size}
	m, err := r.forBatch(used, 0)
	if m.scarce != nil || err != nil || m.left() != size {
		t.Errorf("%d bytes are left, want %d; %v, %v", m.left(), size, m.scarce, err)
	}
	if m, err = r.forBatch(used+size, 0); !errors.Is(m.scarce, storage.ErrFull) || err != nil || m.left() != 0 {
		t.Errorf("when all is used %d bytes are left: %v, %v", m.left(), m.scarce, err)
	}
}

// TestDiskOfTheFile: where the data file is a link, its disk is that of the file.
func TestDiskOfTheFile(t *testing.T) {
	elsewhere, err := os.MkdirTemp("", "onced-link-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(elsewhere)
	h := onSmallDisk(t, 4<<20)
	link := filepath.Join(elsewhere, fileData)
	if err := os.Symlink(h.store.path, link); err != nil {
		t.Fatal(err)
	}
	if size, left := disk(link); size != 4<<20 || left >= size {
		t.Errorf("the disk has %d bytes, and %d left, want 4 MiB", size, left)
	}
}

// TestCompactNoRoom: it says so before it begins.
func TestCompactNoRoom(t *testing.T) {
	from := grown(t, 1500)
	info, err := os.Stat(filepath.Join(from, fileData))
	if err != nil {
		t.Fatal(err)
	}
	dir := smallDisk(t, info.Size()+100_000)
	for _, name := range []string{fileData, fileMarker} {
		copyFile(t, filepath.Join(from, name), filepath.Join(dir, name))
	}
	before := contents(t, dir)
	_, _, err = Compact(t.Context(), dir, func(step string, _, _ uint64) {
		if step != "checking" {
			t.Errorf("it began: %s", step)
		}
	})
	if !errors.Is(err, storage.ErrFull) || !strings.Contains(err.Error(), "free some") {
		t.Errorf("compact: %v", err)
	}
	if after := contents(t, dir); !maps.Equal(after, before) {
		t.Error("it changed something")
	}
}

// TestBackupNoRoom: a backup does not take the last room that the store has.
func TestBackupNoRoom(t *testing.T) {
	from := closed(t)
	dir := smallDisk(t, 32<<20)
	for _, name := range []string{fileData, fileMarker} {
		copyFile(t, filepath.Join(from, name), filepath.Join(dir, name))
	}
	h := newHarness(t)
	s := h.open(dir)
	if err := s.Backup(t.Context(), io.Discard); !errors.Is(err, storage.ErrFull) || !strings.Contains(err.Error(), dir) {
		t.Errorf("backup: %v", err)
	}
}
