package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// TestSyncs: what has been done when a call returns is on the disk: every file that
// was written was synced after that, and before it was given its name; and so was
// every folder in which a name was made or changed.
func TestSyncs(t *testing.T) {
	clock := storagetest.NewClock()
	o := Options{Clock: clock, LockTimeout: lockTimeout, tune: mapLittle}
	made := func(t *testing.T) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "data")
		if err := Init(dir, o); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	next := marker{format: format, generation: uint64(clock.Wall().Unix()), sequence: 9}
	for name, prepare := range map[string]func(t *testing.T) (call func() error){
		"init": func(t *testing.T) func() error {
			dir := filepath.Join(t.TempDir(), "data")
			return func() error { return Init(dir, o) }
		},
		"init in a folder": func(t *testing.T) func() error {
			dir := t.TempDir()
			return func() error { return Init(dir, o) }
		},
		"open": func(t *testing.T) func() error {
			dir := made(t)
			return func() error {
				s, err := Open(dir, o)
				if err == nil {
					t.Cleanup(func() { _ = s.Close() })
				}
				return err
			}
		},
		"commit": func(t *testing.T) func() error { // the first one, with which the reserve is taken
			s, err := Open(made(t), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			u, err := newUpdate(storage.Target{ID: benchmarkID(1)}, func(v onced.View) onced.Plan { return plainGrant(1, v) })
			if err != nil {
				t.Fatal(err)
			}
			r := &request{ctx: t.Context(), class: storage.ClassClaim, decide: u.decide, answer: make(chan error, 1)}
			return func() error { // in the committer's place, which has nothing to do
				s.carryOut([]*request{r})
				return <-r.answer
			}
		},
		"close": func(t *testing.T) func() error {
			s, err := Open(made(t), o)
			if err != nil {
				t.Fatal(err)
			}
			return s.Close
		},
		"compact": func(t *testing.T) func() error {
			dir := made(t)
			return func() error { _, _, err := Compact(t.Context(), dir, nil); return err }
		},
		"marker": func(t *testing.T) func() error {
			dir := made(t)
			return func() error { return next.write(dir) }
		},
		"marker on a full disk": func(t *testing.T) func() error {
			dir := made(t)
			if err := os.Symlink("/dev/full", filepath.Join(dir, fileMarker+suffixNew)); err != nil {
				t.Fatal(err)
			}
			return func() error {
				err := next.write(dir)
				if got, errRead := readMarker(dir); errRead != nil || got != next {
					t.Errorf("the marker is %+v, %v; want it written over", got, errRead)
				}
				if _, errStat := os.Lstat(filepath.Join(dir, fileMarker+suffixNew)); !errors.Is(errStat, os.ErrNotExist) {
					t.Errorf("what found no room is left: %v", errStat)
				}
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := prepare(t)
			w := &syncWatch{t: t, files: map[string]bool{}, longer: map[string]bool{}, folders: map[string]bool{}}
			w.run(call)
			for _, path := range slices.Concat(slices.Sorted(maps.Keys(w.files)), slices.Sorted(maps.Keys(w.folders))) {
				t.Errorf("%s was changed and not synced", path)
			}
			if w.syncs == 0 {
				t.Error("nothing was seen to be synced")
			}
		})
	}
}

// syncWatch looks at the system calls of one goroutine before they are carried out.
type syncWatch struct {
	t       *testing.T
	memory  *os.File        // of this process
	files   map[string]bool // written, or opened for nothing else, since they were synced
	longer  map[string]bool // given blocks beyond their end since they were synced
	folders map[string]bool // with names that have changed since they were synced
	syncs   int
}

// watchedCalls are those that change files, and those that sync them. The Go runtime
// makes none of them for itself: while one is held, nothing else waits for it.
var watchedCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_RENAMEAT, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE,
	unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
}

// run calls fn on a thread of its own, and sees what it does.
func (w *syncWatch) run(fn func() error) {
	w.t.Helper()
	var err error
	if w.memory, err = os.Open("/proc/self/mem"); err != nil {
		w.t.Fatal(err)
	}
	defer w.memory.Close()
	listening, done := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its filter
		listener, err := watchThread()
		if err != nil {
			close(listening)
			done <- err
			return
		}
		listening <- listener
		done <- fn()
	}()
	listener, ok := <-listening
	if !ok {
		err := <-done
		if os.Getenv("ONCED_REQUIRE_ALL") != "" {
			w.t.Fatalf("system calls cannot be watched here: %v", err)
		}
		w.t.Skipf("NOT TESTED: system calls cannot be watched here: %v", err)
	}
	defer unix.Close(listener)
	for {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatal(err)
			}
			return
		default:
			w.next(listener)
		}
	}
}

// watchThread has the calls of this thread reported, and returns where.
func watchThread() (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	number := unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS} // is at offset 0
	filter := []unix.SockFilter{number}
	for i, call := range watchedCalls {
		toNotify := uint8(len(watchedCalls) - i)
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: toNotify, K: call})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// notice is the kernel's struct seccomp_notif, and verdict its seccomp_notif_resp.
type (
	notice struct {
		id         uint64
		pid, flags uint32
		call       int32
		arch       uint32
		at         uint64
		args       [6]uint64
	}
	verdict struct {
		id    uint64
		value int64
		err   int32
		flags uint32
	}
)

// next waits a little for a call, takes note of it, and lets it go on.
func (w *syncWatch) next(listener int) {
	waiting := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	if n, err := unix.Poll(waiting, 10); n == 0 || err != nil || waiting[0].Revents&unix.POLLIN == 0 {
		return
	}
	var n notice
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
		return // the call was interrupted, and comes again
	}
	w.see(uint32(n.call), n.args)
	v := verdict{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&v))); errno != 0 && errno != unix.ENOENT {
		w.t.Errorf("a call that was looked at cannot go on: %v", errno)
	}
}

// see takes note of a call.
func (w *syncWatch) see(call uint32, args [6]uint64) {
	switch call {
	case unix.SYS_OPENAT:
		path, flag := w.text(args[1]), args[2]
		if to, err := filepath.EvalSymlinks(path); strings.HasPrefix(path, "/dev/") || err == nil && strings.HasPrefix(to, "/dev/") {
			return
		}
		if flag&unix.O_CREAT != 0 && !isThere(path) {
			w.folders[filepath.Dir(path)] = true
		}
		if flag&unix.O_ACCMODE == unix.O_WRONLY { // its plain writes are not watched
			w.files[path] = true
		}
	case unix.SYS_MKDIRAT:
		if path := w.text(args[1]); !isThere(path) {
			w.folders[filepath.Dir(path)] = true
		}
	case unix.SYS_RENAMEAT:
		from, to := w.text(args[1]), w.text(args[3])
		if w.files[from] {
			w.t.Errorf("%s was given the name %s before it was synced", from, filepath.Base(to))
		}
		delete(w.files, from)
		w.folders[filepath.Dir(to)] = true
	case unix.SYS_PWRITE64, unix.SYS_FTRUNCATE:
		path := openPath(args[0])
		w.files[path] = true
		if w.longer[path] {
			w.t.Errorf("%s was made longer and written to before that was synced", path)
		}
	case unix.SYS_FALLOCATE:
		w.files[openPath(args[0])], w.longer[openPath(args[0])] = true, true
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		w.syncs++
		delete(w.files, openPath(args[0]))
		delete(w.longer, openPath(args[0]))
		delete(w.folders, openPath(args[0]))
	}
}

// text reads a string at an address of this process.
func (w *syncWatch) text(at uint64) string {
	b := make([]byte, unix.PathMax)
	n, _ := w.memory.ReadAt(b, int64(at))
	before, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(before)
}

// openPath is what an open file is called now.
func openPath(fd uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err.Error()
	}
	return path
}

func isThere(path string) bool {
	there, err := exists(path)
	return there && err == nil
}
