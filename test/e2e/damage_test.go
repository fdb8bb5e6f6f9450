package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// keptResult stands in the store of these tests and nowhere else.
const keptResult = "the-result-that-is-kept"

// usedStore makes a store that was served, stopped, and holds a result of a leaf and
// a large one.
func usedStore(t testing.TB) string {
	t.Helper()
	dir := newStore(t)
	s := serve(t, dir)
	c := s.caller()
	for key, result := range map[string]string{"kept": keptResult, "large": strings.Repeat("large", 4000)} {
		req := claimOf(key)
		c.complete(completion(req, c.granted(req), result))
	}
	c.granted(leased("held", time.Hour))
	s.stop()
	return dir
}

// offline are the commands that use a store, each of which refuses what is not a
// whole one.
var offline = [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"check"}, {"compact"}}

// asUser changes a command before it is started; nil leaves it.
type asUser func(*exec.Cmd)

// isRefused demands that a command ends with status 1 and one sentence that says what
// is wrong and names the path, and that nothing in the watched folder is touched.
func isRefused(t *testing.T, command []string, as asUser, watched, served, says string) {
	t.Helper()
	before := inodes(t, watched)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary("onced"), append(command, "--data", served)...)
	if as != nil {
		as(cmd)
	}
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("onced %s ended with %v, want status 1:\n%s", command[0], err, out)
	}
	if !bytes.Contains(out, []byte(says)) || !bytes.Contains(out, []byte(served)) || bytes.Contains(out, []byte("goroutine")) {
		t.Errorf("onced %s says %q, want %q and the path %s", command[0], out, says, served)
	}
	if after := inodes(t, watched); after != before {
		t.Errorf("onced %s: the folder was\n%sand is\n%s", command[0], before, after)
	}
}

// inodes tells all there is to the entries of a folder but when they were read.
func inodes(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return err.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		var content []byte
		if info.Mode().IsRegular() && info.Size() < 1<<28 {
			if content, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&b, "%s %v %d %v inode %d sha256 %x\n", e.Name(), info.Mode(), info.Size(), info.ModTime(),
			info.Sys().(*syscall.Stat_t).Ino, sha256.Sum256(content))
	}
	return b.String()
}

// change returns what changes a file of a store.
func change(name string, f func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, f(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// instead returns what puts something else in the place of a file of a store.
func instead(name string, f func(path string) error) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Remove(path), f(path)); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever has happened to a store: it is refused in words, by serve, check and
// compact alike, and left as it is.
func TestDamage(t *testing.T) {
	const data, marker = "onced.db", "STORE"
	page := os.Getpagesize()
	zero := func(from, to int) func(*testing.T, string) {
		return change(data, func(b []byte) []byte { clear(b[from:to]); return b })
	}
	become := func(content []byte) func(*testing.T, string) {
		return change(data, func([]byte) []byte { return content })
	}
	used := usedStore(t)
	for name, c := range map[string]struct {
		spoil func(*testing.T, string)
		says  string
	}{
		"flipped byte in a leaf": {change(data, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(keptResult), []byte("T"+keptResult[1:]))
		}), "value does not match its checksum"},
		"flipped byte in a large result": {change(data, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("largelargelarge"), []byte("largelargelargE"))
		}), "value does not match its checksum"},
		"flipped byte in a table": {change(data, flipTable), "is damaged"},
		"first meta page zeroed":  {zero(0, page), "meta page 0 is damaged"},
		"second meta page zeroed": {zero(page, 2*page), "meta page 1 is damaged"},
		"both meta pages zeroed":  {zero(0, 2*page), "both of its meta pages are damaged"},
		"truncated":               {change(data, func(b []byte) []byte { return b[:12_288] }), "it was truncated"},
		"emptied":                 {become(nil), "it is empty"},
		"one byte":                {become([]byte{0}), "it is not a store"},
		"old copy put back": {func(t *testing.T, dir string) {
			old, err := os.ReadFile(filepath.Join(dir, data))
			if err != nil {
				t.Fatal(err)
			}
			serve(t, dir).stop()
			become(old)(t, dir)
		}, "was put back from an older copy"},
		"data file deleted":      {instead(data, func(string) error { return nil }), "is gone, and its marker is still there"},
		"marker deleted":         {instead(marker, func(string) error { return nil }), "without its marker"},
		"random bytes":           {become(noiseOf(64 << 10)), "it is not a store"},
		"SQLite":                 {become(append([]byte("SQLite format 3\x00"), noiseOf(32<<10)...)), "it is not a store"},
		"gzip":                   {change(data, gzipped), "it is not a store"},
		"another program's":      {instead(data, foreignFile), "it is not a store of onced"},
		"a folder":               {instead(data, func(p string) error { return os.Mkdir(p, 0o700) }), "no regular file"},
		"a pipe":                 {instead(data, func(p string) error { return syscall.Mkfifo(p, 0o600) }), "no regular file"},
		"a device":               {instead(data, func(p string) error { return os.Symlink("/dev/zero", p) }), "no regular file"},
		"a link to itself":       {instead(data, func(p string) error { return os.Symlink(data, p) }), "too many levels of symbolic links"},
		"a link to nothing":      {instead(data, func(p string) error { return os.Symlink("nothing", p) }), "is gone"},
		"marker emptied":         {change(marker, func([]byte) []byte { return nil }), "STORE is damaged"},
		"marker of another":      {change(marker, otherGeneration), "of another store than its marker"},
		"marker without an end":  {instead(marker, sparse), "STORE is damaged"},
		"marker a pipe":          {instead(marker, func(p string) error { return syscall.Mkfifo(p, 0o600) }), "STORE is damaged"},
		"marker a folder":        {instead(marker, func(p string) error { return os.Mkdir(p, 0o700) }), "STORE is damaged"},
		"marker a link to zeros": {instead(marker, func(p string) error { return os.Symlink("/dev/zero", p) }), "STORE is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(dir, os.DirFS(used)); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			for _, command := range offline {
				isRefused(t, command, nil, dir, dir, c.says)
			}
		})
	}
	isSound(t, used)
}

// flipTable flips a byte in the table of the last page in use that holds a result.
func flipTable(b []byte) []byte {
	page := os.Getpagesize()
	for at := range len(b) / page {
		if bytes.Contains(b[at*page:(at+1)*page], []byte(keptResult)) {
			b[at*page+16+4] ^= 1 // the position of its first key
		}
	}
	return b
}

func noiseOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.N(256))
	}
	return b
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// foreignFile makes a bbolt file of another program.
func foreignFile(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("meta"))
		return err
	})
	return errors.Join(err, db.Close())
}

// otherGeneration is the marker of a store that was made a moment later.
func otherGeneration(b []byte) []byte {
	return bytes.Replace(b, []byte("generation 1"), []byte("generation 2"), 1)
}

// sparse makes a file that is as long as nobody can read.
func sparse(path string) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
}

// What is no folder of a store is refused as well, and nothing is made in its place.
func TestNoFolder(t *testing.T) {
	dir := usedStore(t)
	file := filepath.Join(dir, "onced.db")
	for _, command := range offline {
		isRefused(t, command, nil, dir, file, "is not a folder")
		isRefused(t, command, nil, dir, filepath.Join(file, "data"), "not a directory")
		isRefused(t, command, nil, dir, filepath.Join(dir, "no", "such"), "no store here; `onced init --data")
	}
	here := t.TempDir()
	for _, command := range append(slices.Clone(offline), []string{"init"}) {
		for _, env := range []string{"ONCED_DATA=", "OTHER="} {
			cmd := exec.Command(binary("onced"), command...)
			cmd.Dir, cmd.Env = here, append(os.Environ(), env)
			if env == "OTHER=" {
				cmd.Args = append(cmd.Args, "--data", "")
			}
			if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 64 || !bytes.Contains(out, []byte("the folder of the store is empty")) {
				t.Errorf("onced %s with an empty folder ended with %v: %s", command[0], err, out)
			}
		}
	}
	if made := inodes(t, here); made != "" {
		t.Errorf("with an empty folder something was made: %s", made)
	}
}

// A file with pages of another size, from another machine, is served like any.
func TestPagesOfAnotherSize(t *testing.T) {
	dir := usedStore(t)
	file := filepath.Join(dir, "onced.db")
	inFile(t, dir, func(from *bbolt.DB, _ func(*bbolt.Tx) error) error {
		to, err := bbolt.Open(file+".other", 0o600, &bbolt.Options{PageSize: 4 * os.Getpagesize()})
		if err != nil {
			return err
		}
		return errors.Join(bbolt.Compact(to, from, 0), to.Close())
	}, nil)
	if err := os.Rename(file+".other", file); err != nil {
		t.Fatal(err)
	}
	isSound(t, dir)
	s := serve(t, dir)
	s.goesOn()
	s.caller().answered(claimOf("kept"), replayedOutcome)
	s.stop()
	if out, exit := runOnced(t, "compact", "--data", dir); exit != 0 {
		t.Errorf("onced compact ended with status %d: %s", exit, out)
	}
	isSound(t, dir)
}

// A store that is served is nobody else's.
func TestServedStore(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	for _, command := range offline {
		isRefused(t, command, nil, dir, dir, "another process holds "+filepath.Join(dir, "onced.db"))
	}
	s.goesOn()
}

// Compacted, a store gives room back and answers as before; ended by a signal, it is
// the same file as before.
func TestCompact(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	c := s.caller()
	const large, deleted = 40, 10
	for i := range large {
		req := claimOf(fmt.Sprint("large-", i))
		c.complete(completion(req, c.granted(req), strings.Repeat("x", 1<<20)))
	}
	held := leased("held", time.Hour)
	granted := c.granted(held)
	s.stop()
	inFile(t, dir, (*bbolt.DB).Update, func(tx *bbolt.Tx) error {
		records, payloads, due := tx.Bucket([]byte("records")), tx.Bucket([]byte("payloads")), tx.Bucket([]byte("due"))
		for i := range deleted {
			id := identityOf(fmt.Sprint("large-", i)).Encode()
			if err := errors.Join(records.Delete(id), deleteOf(payloads, id), deleteOf(due, id)); err != nil {
				return err
			}
		}
		return nil
	})

	before := inodes(t, dir)
	interrupted := 0
	for tries := 0; tries < 20 && interrupted < 3; tries++ {
		cmd := exec.Command(binary("onced"), "compact", "--data", dir)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		eventually(t, "the new file", func() bool {
			_, err := os.Stat(filepath.Join(dir, "onced.db.new"))
			return err == nil || len(ended) > 0
		})
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-ended
		if cmd.ProcessState.ExitCode() == 0 {
			break // it was faster
		}
		interrupted++
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "was left as it is") {
			t.Errorf("after a SIGINT it ended with %v: %s", cmd.ProcessState, &out)
		}
		if after := inodes(t, dir); after != before {
			t.Errorf("after a SIGINT the folder was\n%sand is\n%s", before, after)
		}
	}
	t.Logf("interrupted=%d", interrupted)
	if interrupted == 0 {
		t.Error("no signal came in time")
	}

	out, err := exec.Command(binary("onced"), "compact", "--data", dir).Output() // without its progress
	if err != nil {
		t.Fatal(err)
	}
	var was, is int
	if _, err := fmt.Sscanf(strings.TrimPrefix(string(out), dir+": "), "%d bytes before, %d bytes after\n", &was, &is); err != nil {
		t.Fatalf("onced compact says %q: %v", out, err)
	}
	info, err := os.Stat(filepath.Join(dir, "onced.db"))
	if err != nil || info.Size() != int64(is) || is > was-deleted<<20 || info.Mode() != 0o600 {
		t.Errorf("the file has %v (%v), and was said to have %d bytes", info, err, is)
	}
	isSound(t, dir)
	s = serve(t, dir)
	c = s.caller()
	c.answered(claimOf("large-35"), replayedOutcome)
	c.absent("large-3")
	c.complete(completion(held, granted, "done"))
	s.stop()
}

// deleteOf deletes the entries of a bucket that belong to an identity.
func deleteOf(b *bbolt.Bucket, id []byte) error {
	var keys [][]byte
	err := b.ForEach(func(k, _ []byte) error {
		if bytes.Contains(k, id) {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	})
	for _, k := range keys {
		err = errors.Join(err, b.Delete(k))
	}
	return err
}
