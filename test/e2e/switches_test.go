package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// switches are the fault switches of a server that was built with them. A switch
// is a file in their folder, on while it is there.
type switches struct {
	t   testing.TB
	dir string
}

func newSwitches(t testing.TB) switches { return switches{t: t, dir: t.TempDir()} }

// serve starts the server that has switches on a store.
func (f switches) serve(dir string, args ...string) *process {
	f.t.Helper()
	program, err := faultBinary()
	if err != nil {
		f.t.Fatal(err)
	}
	return serveWith(f.t, program, f.env(), dir, args...)
}

func (f switches) env() []string { return []string{"ONCED_FAULTS=" + f.dir} }

func (f switches) on(name string) { f.set(name, "") }

func (f switches) off(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// set turns a switch on with a content, at one moment.
func (f switches) set(name, content string) {
	f.t.Helper()
	made := filepath.Join(f.t.TempDir(), name)
	if err := os.WriteFile(made, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(made, filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// hold holds the sync of the next commit. One that is held under another name is
// let go.
func (f switches) hold(name string) {
	f.t.Helper()
	f.set("hold-sync", name)
}

// held waits until the sync of a commit is held under a name: bbolt has written
// it, and it does not count as durable.
func (f switches) held(name string) {
	f.t.Helper()
	eventually(f.t, "a commit that is held as "+name, func() bool {
		b, err := os.ReadFile(filepath.Join(f.dir, "held"))
		if err != nil && !os.IsNotExist(err) {
			f.t.Fatal(err)
		}
		return err == nil && string(b) == name
	})
}

// release lets a held commit go and holds no further one.
func (f switches) release() {
	f.t.Helper()
	f.off("hold-sync")
}

// all turns every switch on.
func (f switches) all() {
	f.t.Helper()
	for _, name := range []string{"die-before-commit", "die-before-answer", "hold-sync", "fail-sync", "disk-full", "slow-commit"} {
		f.on(name)
	}
}
