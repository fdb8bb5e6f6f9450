package bolt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced/storage/bolt/pages"
	"github.com/onced/onced/storage/storagetest"
)

// held returns all that is in a data file that nobody has open.
func held(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := map[string]string{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all[fmt.Sprintf("%s %x", name, k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCompact(t *testing.T) {
	dir := grown(t, 700)
	path := filepath.Join(dir, fileData)
	was := held(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, 1234, 5678); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	used := pagesOf(t, dir).Used()
	steps := map[string]uint64{}
	before, after, err := Compact(t.Context(), dir, func(step string, done, _ uint64) { steps[step] = done })
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if before != info.Size() || after != made.Size() || after > used {
		t.Errorf("%d bytes before, of which %d were in use, and %d after are told; there were %d and are %d", before, used, after, info.Size(), made.Size())
	}
	owner := func(i os.FileInfo) string {
		s := i.Sys().(*syscall.Stat_t)
		return fmt.Sprint(i.Mode(), s.Uid, s.Gid)
	}
	if owner(made) != owner(info) {
		t.Errorf("mode and owner were %s, and are %s", owner(info), owner(made))
	}
	if !maps.Equal(held(t, path), was) {
		t.Error("the new file holds something else")
	}
	if free := pagesOf(t, dir).Free; free > 10 {
		t.Errorf("%d pages of the new file are free", free)
	}
	if len(steps) != 4 || steps["checking"] == 0 || steps["copying"] == 0 || steps["comparing"] == 0 {
		t.Errorf("what was told: %v", steps)
	}
	wantSound(t, dir)
	if _, again, err := Compact(t.Context(), dir, nil); err != nil || again > after+100_000 {
		t.Errorf("once more: %d bytes after %d, %v", again, after, err)
	}
}

// pagesOf returns what the data file of a store consists of.
func pagesOf(t *testing.T, dir string) pages.Summary {
	t.Helper()
	w, err := examine(dir, examination{timeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	return w.pages
}

// wantSound demands that a check finds nothing, that the store opens, and that there
// is nothing in its folder but its two files.
func wantSound(t *testing.T, dir string) {
	t.Helper()
	if findings, err := Check(dir, nil); err != nil || len(findings) > 0 {
		t.Errorf("check: %v %q", err, findings)
	}
	reopenOnce(t, dir)
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("the folder holds %v (%v)", list, err)
	}
}

// TestCompactLink: when the name of the data file is a link, the file is replaced
// where it lies.
func TestCompactLink(t *testing.T) {
	dir, elsewhere := grown(t, 100), filepath.Join(t.TempDir(), "data")
	path := filepath.Join(dir, fileData)
	if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	_, after, err := Compact(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(elsewhere); err != nil || info.Size() != after {
		t.Errorf("the file has %v bytes, not %d (%v)", info, after, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is now %v (%v)", info, err)
	}
	wantSound(t, dir)
}

// TestCompactCancelled: at each of its steps it can be called off.
func TestCompactCancelled(t *testing.T) {
	dir := grown(t, 700)
	before := contents(t, dir)
	for _, at := range []string{"checking", "copying", "comparing", "replacing"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := Compact(ctx, dir, func(step string, _, _ uint64) {
			if ctx.Err() != nil && step != at {
				t.Errorf("called off while %s, it went on: %s", at, step)
			}
			if step == at {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("called off while %s: %v", at, err)
		}
		if after := contents(t, dir); !maps.Equal(after, before) {
			t.Errorf("called off while %s, it left %d files", at, len(after))
		}
	}
}

// TestCompactKilled: kill -9 leaves a store that is whole, wherever it comes, and the
// next run takes no notice of what the former has left.
func TestCompactKilled(t *testing.T) {
	dir := grown(t, 1500)
	was := held(t, filepath.Join(dir, fileData))
	killedAt := map[string]bool{}
	for n := 1; !killedAt["done"]; n++ {
		killed := t.TempDir()
		for _, name := range []string{fileData, fileMarker} {
			copyFile(t, filepath.Join(dir, name), filepath.Join(killed, name))
		}
		c := startChild(t, "compact", killed)
		step := c.line(t)
		for range n - 1 {
			if _, err := c.in.Write([]byte{'\n'}); err != nil {
				t.Fatal(err)
			}
			step = c.line(t)
		}
		killedAt[step] = true
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		if !maps.Equal(held(t, filepath.Join(killed, fileData)), was) {
			t.Fatalf("killed while %s, it left another store", step)
		}
		unfinished, err := exists(filepath.Join(killed, fileData+suffixNew))
		if err != nil || unfinished != (step == "copying" || step == "comparing" || step == "replacing") {
			t.Errorf("killed while %s, it left an unfinished file: %t (%v)", step, unfinished, err)
		}
		reopenOnce(t, killed)
		if _, _, err := Compact(t.Context(), killed, nil); err != nil {
			t.Fatalf("the run after one that was killed while %s: %v", step, err)
		}
		wantSound(t, killed)
	}
	for _, step := range []string{"checking", "copying", "comparing", "replacing"} {
		if !killedAt[step] {
			t.Errorf("it was not killed while %s", step)
		}
	}
}

// compactRole compacts a store. It prints what it is told, and at the end "done", and
// goes on after each line when it has read one.
func compactRole(dir string) error {
	in := bufio.NewReader(os.Stdin)
	tell := func(step string, _, _ uint64) {
		fmt.Println(step)
		_, _ = in.ReadString('\n')
	}
	_, _, err := Compact(context.Background(), dir, tell)
	if err == nil {
		tell("done", 0, 0)
	}
	return err
}

// TestCompactWaiter: who waits for the lock of a file that is replaced meanwhile gets
// the new one, and never serves the old one, which has no name any more.
func TestCompactWaiter(t *testing.T) {
	dir := grown(t, 1000)
	path := filepath.Join(dir, fileData)
	type opened struct {
		s   *Store
		err error
	}
	waiter := make(chan opened, 1)
	_, _, err := Compact(t.Context(), dir, func(step string, _, _ uint64) {
		if step != "replacing" {
			return
		}
		go func() {
			s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: patience, tune: mapLittle})
			waiter <- opened{s, err}
		}()
		eventually(t, "the other one to open the file", func() bool { return openTimes(t, path) == 2 })
	})
	got := <-waiter
	if err := errors.Join(err, got.err); err != nil {
		t.Fatal(err)
	}
	served, err := got.s.reserve.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	named, err := os.Stat(path)
	if err != nil || !os.SameFile(served, named) {
		t.Errorf("the store serves a file that is not the one in its folder (%v)", err)
	}
	h := &harness{t: t, store: got.s, clock: storagetest.NewClock()}
	h.put(grant(benchmarkID(5000), h.clock.Wall()))
	if err := got.s.Close(); err != nil {
		t.Fatal(err)
	}
	wantSound(t, dir)
}

// patience is how long a store may wait for a lock that it must get.
const patience = 20 * time.Second

// openTimes returns how often this process has a file open.
func openTimes(t *testing.T, path string) (n int) {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && to == path {
			n++
		}
	}
	return n
}

// TestCompactCopyDamaged: a copy that is not what was copied does not take the place
// of the old file.
func TestCompactCopyDamaged(t *testing.T) {
	dir := grown(t, 1000)
	before := contents(t, dir)
	_, _, err := Compact(t.Context(), dir, func(step string, _, _ uint64) {
		if step == "comparing" {
			overwrite(t, filepath.Join(dir, fileData+suffixNew), func(b []byte) []byte {
				return bytes.Replace(b, bytes.Repeat([]byte{7}, pieceSize), bytes.Repeat([]byte{8}, pieceSize), 1)
			})
		}
	})
	if err == nil || !strings.Contains(err.Error(), " of a payload of "+benchmarkID(0).String()+" differs") {
		t.Errorf("compact: %v", err)
	}
	if after := contents(t, dir); !maps.Equal(after, before) {
		t.Error("it changed something")
	}
}

// TestCompactFault: a part of the file that the disk does not give in the middle ends
// it in words.
func TestCompactFault(t *testing.T) {
	for _, at := range []string{"checking", "copying", "comparing"} {
		dir := grown(t, 1000)
		path := filepath.Join(dir, fileData)
		_, _, err := Compact(t.Context(), dir, func(step string, _, _ uint64) {
			if step == at {
				if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
					t.Error(err)
				}
			}
		})
		if err == nil || !strings.Contains(err.Error(), "cannot be read from the disk") || !strings.Contains(err.Error(), path) {
			t.Errorf("while %s: %v", at, err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
			t.Errorf("while %s: the folder holds %v (%v)", at, list, err)
		}
	}
}

// TestCompactUnsound: what a check finds fault with is not touched, unless it is only
// that pages were lost, which it mends.
func TestCompactUnsound(t *testing.T) {
	dir := grown(t, 100)
	lost := t.TempDir()
	for _, name := range []string{fileData, fileMarker} {
		copyFile(t, filepath.Join(dir, name), filepath.Join(lost, name))
	}
	rawEdit(t, dir, func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketDue).Delete(loadRecord(tx, benchmarkID(101)).due)
	})
	before := contents(t, dir)
	if _, _, err := Compact(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), missingDue.what) || !strings.Contains(err.Error(), filepath.Join(dir, fileData)) {
		t.Errorf("compact: %v", err)
	}
	if after := contents(t, dir); !maps.Equal(after, before) {
		t.Error("it changed something")
	}

	overwrite(t, filepath.Join(lost, fileData), func(b []byte) []byte {
		count := b[int(binary.NativeEndian.Uint64(b[newestMeta(b)+16+32:]))*os.Getpagesize()+10:]
		binary.NativeEndian.PutUint16(count, binary.NativeEndian.Uint16(count)-1)
		return b
	})
	if found, err := Check(lost, nil); err != nil || len(found) != 1 || !strings.Contains(found[0], "neither in use nor free: 1;") {
		t.Errorf("check: %q, %v", found, err)
	}
	if _, _, err := Compact(t.Context(), lost, nil); err != nil {
		t.Fatal(err)
	}
	wantSound(t, lost)
}
