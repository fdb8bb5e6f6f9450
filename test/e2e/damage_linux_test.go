package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder on a disk that is mounted read-only cannot be served nor compacted, and the
// first thing that is said of it is that it must be writable. It can be checked.
func TestReadOnlyDisk(t *testing.T) {
	mount, _ := smallDisk(t, "32m")
	dir := filepath.Join(mount, "data")
	if err := os.CopyFS(dir, os.DirFS(usedStore(t))); err != nil {
		t.Fatal(err)
	}
	again := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("onced-e2e", mount, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	again(unix.MS_RDONLY)
	for _, command := range offline {
		if command[0] != "check" {
			isRefused(t, command, nil, dir, dir, "onced: "+dir+" must be writable, and is not: read-only file system: mount its disk for writing")
		}
	}
	isSound(t, dir)
	again(0)
	serve(t, dir).stop()

	// The same of a folder that holds no store yet.
	empty := filepath.Join(mount, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	again(unix.MS_RDONLY)
	isRefused(t, offline[0], nil, empty, empty, "must be writable")
	isRefused(t, []string{"init"}, nil, empty, empty, "must be writable")
}

// Who may not read or write a store is told so, and that it is whose it must be.
func TestModes(t *testing.T) {
	public, nobody := publicFolder(t)
	used := usedStore(t)
	for name, c := range map[string]struct {
		path  string // whose mode is changed
		mode  os.FileMode
		says  string
		check string // what a check says; "" if it finds the store sound
	}{
		"folder 0000":     {".", 0, "must be writable, and is not: permission denied", "permission denied"},
		"folder 0500":     {".", 0o500, "must be writable, and is not: permission denied", ""},
		"data file 0000":  {"onced.db", 0, "onced.db cannot be opened: permission denied", "onced.db cannot be opened: permission denied"},
		"data file 0400":  {"onced.db", 0o400, "onced.db cannot be opened: permission denied", ""},
		"marker 0000":     {"STORE", 0, "STORE cannot be opened: permission denied", "STORE cannot be opened: permission denied"},
		"all as it shall": {".", 0o700, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(public, strings.ReplaceAll(name, " ", "-"))
			if err := os.CopyFS(dir, os.DirFS(used)); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"onced.db", "STORE", "."} {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, nobodysID, nobodysID)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Chmod(dir, 0o700), os.Chmod(filepath.Join(dir, c.path), c.mode)); err != nil {
				t.Fatal(err)
			}
			for _, command := range offline {
				says := c.says
				if command[0] == "check" {
					says = c.check
				}
				switch {
				case says != "":
					isRefused(t, command, nobody, dir, dir, says)
				case command[0] != "serve":
					cmd := exec.Command(binary("onced"), append(command, "--data", dir)...)
					nobody(cmd)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("onced %s ended with %v: %s", command[0], err, out)
					}
				}
			}
		})
	}
}

const nobodysID = 65534

// publicFolder returns a folder of its own in which there is the program, for a user
// who owns nothing, and what runs a command as that user.
func publicFolder(t *testing.T) (dir string, nobody asUser) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("ONCED_REQUIRE_ALL") != "" {
			t.Fatal("only root may run a program as another user")
		}
		t.Skip("NOT TESTED: only root may run a program as another user")
	}
	dir, err := os.MkdirTemp("", "onced-e2e-public-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "onced")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Link(binary("onced"), program)); err != nil {
		t.Fatal(err)
	}
	return dir, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = program, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodysID, Gid: nobodysID}}
	}
}

// A store that comes up on a full disk says so, or serves what it knows; and it is
// whole when there is room again.
func TestStartOnAFullDisk(t *testing.T) {
	mount, resize := smallDisk(t, "16m")
	dir := filepath.Join(mount, "data")
	if err := os.CopyFS(dir, os.DirFS(usedStore(t))); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(mount, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	s := serve(t, dir)
	s.caller().answered(claimOf("kept"), replayedOutcome)
	s.stop()
	isSound(t, dir)
	out, exit := runOnced(t, "compact", "--data", dir)
	if exit != 1 || !strings.Contains(out, "needs room for a copy") || !bytes.Contains([]byte(out), []byte(dir)) {
		t.Errorf("onced compact ended with status %d: %s", exit, out)
	}
	isSound(t, dir)
	resize("64m")
	if out, exit := runOnced(t, "compact", "--data", dir); exit != 0 {
		t.Errorf("with room onced compact ended with status %d: %s", exit, out)
	}
	s = serve(t, dir)
	s.goesOn()
	s.stop()
	isSound(t, dir)
}
