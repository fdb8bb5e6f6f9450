package e2e

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// refusedStart starts a server that must be refused with status 1, and returns
// what it says.
func refusedStart(t testing.TB, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args = append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0"}, args...)
	out, err := exec.CommandContext(ctx, binary("onced"), args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("onced %v ended with %v, want status 1:\n%s", args, err, out)
	}
	return string(out)
}

// Whatever is not a whole store is refused with a sentence that names it and says
// what to do, and is left as it is.
func TestRefusedStores(t *testing.T) {
	lost := filepath.Join(t.TempDir(), "lost")
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string) (served string)
		says  string
	}{
		"absent":             {func(*testing.T, string) string { return lost }, "`onced init --data " + lost + "` creates one"},
		"an empty folder":    {func(t *testing.T, _ string) string { return t.TempDir() }, "no store here"},
		"the data file":      {func(_ *testing.T, dir string) string { return filepath.Join(dir, "onced.db") }, "is not a folder"},
		"without its data":   {spoiled(func(dir string) error { return os.Remove(filepath.Join(dir, "onced.db")) }), "--replaces-lost-store"},
		"without its marker": {spoiled(func(dir string) error { return os.Remove(filepath.Join(dir, "STORE")) }), "put STORE back"},
		"truncated":          {spoiled(func(dir string) error { return os.Truncate(filepath.Join(dir, "onced.db"), 5000) }), "was left as it is"},
		"emptied":            {spoiled(func(dir string) error { return os.Truncate(filepath.Join(dir, "onced.db"), 0) }), "it is empty"},
		"overwritten": {spoiled(func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "onced.db"), []byte(strings.Repeat("x", 32<<10)), 0o600)
		}), "was left as it is"},
		"a damaged marker": {spoiled(func(dir string) error { return os.WriteFile(filepath.Join(dir, "STORE"), []byte("?"), 0o600) }), "STORE is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newStore(t)
			serve(t, dir).stop()
			served := c.spoil(t, dir)
			before := snapshot(t, dir)
			if out := refusedStart(t, served); !strings.Contains(out, c.says) || strings.Count(out, "\n") != 1 {
				t.Errorf("the server says %q, want one line with %q", out, c.says)
			}
			if out, exit := runOnced(t, "check", "--data", served); exit != 1 || !strings.Contains(out, c.says) {
				t.Errorf("onced check ended with status %d: %q, want %q", exit, out, c.says)
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("the folder was\n%s\nand is\n%s", before, after)
			}
		})
	}
	if _, err := os.Stat(lost); !os.IsNotExist(err) {
		t.Errorf("a folder was made where there was none: %v", err)
	}
}

func spoiled(f func(dir string) error) func(*testing.T, string) string {
	return func(t *testing.T, dir string) string {
		t.Helper()
		if err := f(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

// snapshot returns the names and contents of a folder's files.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(e.Name() + ": " + string(content) + "\n")
	}
	return b.String()
}

// An older copy of the data file would forget what was done since. It is refused.
func TestRolledBackStoreRefused(t *testing.T) {
	dir := newStore(t)
	data := filepath.Join(dir, "onced.db")
	old, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir)
	s.goesOn()
	s.stop()
	if err := os.WriteFile(data, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := refusedStart(t, dir); !strings.Contains(out, "older copy") || !strings.Contains(out, "Put the newest copy back") {
		t.Errorf("the server says %q, want that the file is an older copy and what to do", out)
	}
}

// A store is made in a folder that holds none, with all that leads to it, and over
// nothing.
func TestInit(t *testing.T) {
	deep := filepath.Join(t.TempDir(), "a", "b", "data")
	if out, exit := runOnced(t, "init", "--data", deep); exit != 0 {
		t.Fatalf("onced init ended with status %d:\n%s", exit, out)
	}
	isSound(t, deep)
	before := snapshot(t, deep)
	if out, exit := runOnced(t, "init", "--data", deep); exit != 1 || !strings.Contains(out, "never made over another one") {
		t.Errorf("a second init ended with status %d: %q", exit, out)
	}
	if after := snapshot(t, deep); after != before {
		t.Error("a second init has changed the store")
	}
	if out, exit := runOnced(t, "init", "--data", filepath.Join(deep, "onced.db")); exit != 1 || !strings.Contains(out, "not a directory") {
		t.Errorf("init in a file ended with status %d: %q", exit, out)
	}
	if out, exit := runOnced(t, "init"); exit != 64 || !strings.Contains(out, "--data") {
		t.Errorf("init without a folder ended with status %d: %q", exit, out)
	}
	for name, mode := range map[string]os.FileMode{"onced.db": 0o600, "STORE": 0o600, ".": os.ModeDir | 0o700} {
		if info, err := os.Stat(filepath.Join(deep, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s has the mode %v, want %v: others may not read it (%v)", name, info.Mode(), mode, err)
		}
	}
}

// Without a folder the store is one for development: it is made, once, and the
// log says so each time.
func TestDevelopmentStore(t *testing.T) {
	work := t.TempDir()
	var granted *oncedv1.ClaimResponse
	for _, says := range []string{"made a store for development", "using the store for development"} {
		cmd := exec.Command(binary("onced"), "serve")
		cmd.Dir = work
		s := launch(t, cmd)
		if !strings.Contains(s.log.String(), says) || !strings.Contains(s.log.String(), "data=./onced-data") {
			t.Errorf("the log does not say %q and where:\n%s", says, s.log)
		}
		c := s.caller()
		if granted == nil {
			req := claimOf("k")
			granted = c.granted(req)
			c.complete(completion(req, granted, "1"))
		}
		c.replayed("k", "1", granted)
		s.stop()
	}
	isSound(t, filepath.Join(work, "onced-data"))
}

// A folder that the server may not write is refused in words.
func TestReadOnlyFolder(t *testing.T) {
	dir, err := os.MkdirTemp("", "onced-e2e-readonly-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	if out, exit := runOnced(t, "init", "--data", data); exit != 0 {
		t.Fatalf("onced init ended with status %d:\n%s", exit, out)
	}
	cmd := exec.Command(filepath.Join(dir, "onced"), "serve", "--data", data, "--listen", "127.0.0.1:0")
	if err := os.Link(binary("onced"), cmd.Path); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // to whom no folder is read-only
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for _, path := range []string{dir, data, filepath.Join(data, "onced.db"), filepath.Join(data, "STORE")} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(data, 0o500); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "permission denied") {
		t.Errorf("the server ended with %v: %q, want status 1 and that it lacks a permission", err, out)
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	isSound(t, data)
}

// What is wrong with a configuration is refused with status 64 and a sentence that
// names it, by onced config and by onced serve alike.
func TestRefusedConfigurations(t *testing.T) {
	for name, c := range map[string]struct{ file, says string }{
		"an unknown key":            {"retention: 1d\n", "retention"},
		"an unknown key of policy":  {"default:\n  max_leese: 1h\n", "max_leese"},
		"a tab":                     {"default:\n\tmax_lease: 1h\n", "line 2"},
		"a key twice":               {"default:\n  max_lease: 2h\n  max_lease: 3h\n", "max_lease"},
		"a namespace twice":         {"namespaces:\n  a:\n    takeover: nobody\n  a:\n    takeover: caller\n", "already defined"},
		"a namespace that is none":  {"namespaces:\n  \"a b\":\n    takeover: nobody\n", "a b"},
		"a list":                    {"[1, 2]\n", "line 1"},
		"two documents":             {"listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2\n", "more than one YAML document"},
		"no text":                   {"\xff\xfe\x00", "yaml"},
		"a huge number":             {"default:\n  max_result_bytes: 99999999999999999999999\n", "line 2"},
		"a number above its bound":  {"default:\n  max_result_bytes: 99999999\n", "max_result_bytes"},
		"a number below its bound":  {"default:\n  max_unsettled: 0\n", "max_unsettled"},
		"a duration without unit":   {"default:\n  max_lease: 3600\n", "3600"},
		"a huge duration":           {"default:\n  key_retention: 99999999999h\n", "99999999999h"},
		"huge days":                 {"default:\n  key_retention: 99999999999d\n", "days"},
		"a negative duration":       {"default:\n  key_time_skew: -1s\n", "key_time_skew"},
		"a retention below a lease": {"default:\n  max_lease: 24h\n  result_retention: 1h\n", "result_retention"},
		"keys before results":       {"default:\n  key_retention: 2d\n", "key_retention"},
		"a lease below a second":    {"default:\n  min_lease: 10ms\n", "lease"},
		"a wait above its bound":    {"default:\n  max_wait: 1h\n", "max_wait"},
		"an unknown word":           {"default:\n  takeover: anybody\n", "anybody"},
		"a rerun by nobody":         {"default:\n  takeover: nobody\n  safe_to_rerun: true\n", "safe_to_rerun"},
		"a listener for everybody":  {"listen: 0.0.0.0:7443\n", "TLS"},
		"operators for everybody":   {"ops_listen: :9443\n", "TLS"},
		"an address that is none":   {"listen: \"7443\"\n", "host:port"},
		"a port that is none":       {"listen: 127.0.0.1:99999\n", "99999"},
		"a level that is none":      {"log_level: loud\n", "loud"},
	} {
		t.Run(name, func(t *testing.T) {
			path := configFile(t, c.file)
			for _, command := range []string{"config", "serve"} {
				out, exit := runOnced(t, command, "--config", path)
				if exit != 64 || !strings.Contains(out, c.says) || !strings.HasPrefix(out, "onced: configuration refused: ") {
					t.Errorf("onced %s ended with status %d: %q, want status 64 and %q", command, exit, out, c.says)
				}
			}
		})
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent.yaml")} {
		if out, exit := runOnced(t, "config", "--config", path); exit != 64 || !strings.Contains(out, path) {
			t.Errorf("a file that cannot be read ended with status %d: %q", exit, out)
		}
	}
}

// A port that is taken, and a ready file that cannot be written, end the start
// with a sentence; the store is as it was.
func TestRefusedStarts(t *testing.T) {
	dir := newStore(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--ops-listen"} {
		if out := refusedStart(t, dir, flag, taken.Addr().String()); !strings.Contains(out, taken.Addr().String()) || !strings.Contains(out, "address already in use") {
			t.Errorf("with its port taken by %s the server says %q", flag, out)
		}
	}
	if out := refusedStart(t, dir, "--ready-file", filepath.Join(t.TempDir(), "absent", "ready")); !strings.Contains(out, "--ready-file") {
		t.Errorf("with a ready file that cannot be written the server says %q", out)
	}
	isSound(t, dir)
}

// The ready file is there while the server serves. One that a killed server has
// left does not outlive the next start, even one that is refused.
func TestReadyFile(t *testing.T) {
	dir := newStore(t)
	gone := func(file string) bool {
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := serve(t, dir)
	s.kill()
	if gone(s.readyFile) {
		t.Fatal("a killed server has removed its ready file")
	}
	refusedStart(t, dir, "--ready-file", s.readyFile, "--ops-listen", taken.Addr().String())
	if !gone(s.readyFile) {
		t.Error("a start that was refused has left the ready file of the server before it")
	}
	s = serve(t, dir)
	s.stop()
	if !gone(s.readyFile) {
		t.Error("a server that has stopped has left its ready file")
	}
}

// A graceful stop answers those who wait, lets running calls end, and tells
// everybody else to come back.
func TestStop(t *testing.T) {
	f := newSwitches(t)
	dir := newStore(t)
	s := f.serve(dir)
	c := s.caller()
	c.granted(leased("held", time.Hour))
	waiting := claimOf("held")
	waiting.Wait = durationpb.New(20 * time.Second)
	waiters := flights{c.sendClaim("a claim that waits", waiting), c.sendLookup("a lookup that waits", "held", 20*time.Second)}
	eventually(t, "the calls to be held", func() bool { return s.metric("onced_waiters") == 2 })
	f.hold("a claim")
	running := c.sendClaim("a running claim", leased("running", time.Hour))
	f.held("a claim")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, w := range waiters {
		<-w.over
		refused(t, w.err, codes.Unavailable, "STOPPING")
	}
	f.release()
	if got := running.outcome(t); got != grantedOutcome {
		t.Errorf("the running claim was answered %v, want GRANTED", got)
	}
	if exit := s.wait(); exit != 0 {
		t.Errorf("the server ended with status %d, want 0", exit)
	}
	if state := serve(t, dir).caller().lookup("running").GetState(); state != oncedv1.State_STATE_PENDING {
		t.Errorf("after the restart the running claim is %v, want PENDING", state)
	}
}

// A second signal ends a stop that takes too long; the store bears it.
func TestSecondSignal(t *testing.T) {
	f := newSwitches(t)
	dir := newStore(t)
	s := f.serve(dir)
	f.hold("a claim")
	call := s.caller().sendClaim("the claim", claimOf("k"))
	f.held("a claim")
	for _, want := range []string{"msg=stopping signal", "stopping at once"} {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the server to say "+want, func() bool { return strings.Contains(s.log.String(), want) })
	}
	if exit := s.wait(); exit != 1 {
		t.Errorf("the server ended with status %d, want 1", exit)
	}
	if <-call.over; call.err == nil {
		t.Errorf("the claim was answered %v", call.resp)
	}
	isSound(t, dir)
}
