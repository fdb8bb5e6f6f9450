package e2e

import (
	"context"
	"fmt"
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

// A second server on the same store is refused by a sentence that names the file,
// as is a check, and the first one goes on; nor can a name for the folder get
// around it.
func TestR56_SecondServer(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	link := filepath.Join(t.TempDir(), "link")
	if out, err := exec.Command("ln", "-s", dir, link).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, same := range []string{dir, link} {
		if out := refusedStart(t, same); !strings.Contains(out, filepath.Join(same, "onced.db")) || !strings.Contains(out, "another process") {
			t.Errorf("the second server says %q, want why and the path of the file", out)
		}
	}
	if out, exit := runOnced(t, "check", "--data", dir); exit != 1 || !strings.Contains(out, "another process") {
		t.Errorf("a check of the store ended with status %d: %q", exit, out)
	}
	var r runs
	s.caller().granted(claimOf("still-served"))
	r.n.Add(1)
	r.are(t, 1)
}

// In a rolling restart the new server waits for nobody: it is refused, bounded,
// while the old one drains, which its probes tell apart from a failure; when the
// old one has ended the new one serves.
func TestR56_RollingRestart(t *testing.T) {
	f := newSwitches(t)
	dir := newStore(t)
	s := f.serve(dir)
	c := s.caller()
	f.hold("the last claim")
	last := c.sendClaim("the last claim", leased("k", time.Hour))
	f.held("the last claim")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old server to say that it is not ready", func() bool { code, _ := s.get("/readyz"); return code == 503 })
	if code, body := s.get("/livez"); code != 200 {
		t.Errorf("while it drains /livez answers %d %s, want 200: it must not be killed", code, body)
	}
	if out := refusedStart(t, dir); !strings.Contains(out, "another process") {
		t.Errorf("the new server says %q while the old one drains", out)
	}
	f.release()
	if got := last.outcome(t); got != grantedOutcome {
		t.Errorf("the last claim was answered %v, want GRANTED", got)
	}
	if exit := s.wait(); exit != 0 {
		t.Errorf("the old server ended with status %d, want 0", exit)
	}
	serve(t, dir).caller().answered(claimOf("k"), inProgressOutcome)
	executed(t, 1, 1)
}

// Of servers that are started at the same moment one serves, and the others end with
// the sentence; none of them makes a store of its own.
func TestR56_StartedAtOnce(t *testing.T) {
	const rounds, servers = 3, 3
	dir := newStore(t)
	for range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		readyFiles, said := t.TempDir(), make(chan string, servers)
		for i := range servers {
			cmd := exec.CommandContext(ctx, binary("onced"), "serve", "--data", dir, "--listen", "127.0.0.1:0",
				"--ready-file", filepath.Join(readyFiles, fmt.Sprint(i)))
			go func() {
				out, err := cmd.CombinedOutput()
				said <- fmt.Sprintf("%v: %s", err, out)
			}()
		}
		for range servers - 1 {
			if got := <-said; !strings.Contains(got, "exit status 1") || !strings.Contains(got, "another process holds "+filepath.Join(dir, "onced.db")) {
				t.Errorf("a server that is one too many ended with %s", got)
			}
		}
		eventually(t, "one of the servers to serve", func() bool {
			serving, err := os.ReadDir(readyFiles)
			return err == nil && len(serving) == 1
		})
		cancel()
		<-said
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v; want the marker and the data", entries, err)
	}
	isSound(t, dir)
}

// The store for development, which is made where there is none, is not made anew
// beside one that another server holds.
func TestR56_SecondServerWithoutData(t *testing.T) {
	home := t.TempDir()
	without := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir = home
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ONCED_DATA=") })
		return cmd
	}
	s := launch(t, without(exec.Command(binary("onced"), "serve")))
	c := s.caller()
	c.granted(claimOf("k"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := without(exec.CommandContext(ctx, binary("onced"), "serve", "--listen", "127.0.0.1:0")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another process holds onced-data/onced.db") {
		t.Errorf("the second server: %v\n%s", err, out)
	}
	c.answered(claimOf("k"), inProgressOutcome)
	entries, err := os.ReadDir(home)
	if err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v; want the one store", entries, err)
	}
	s.stop()
}

// Somebody who looks into a store that is served is refused, again and again, and
// disturbs nobody; whose check is under way keeps a server waiting, not for ever.
func TestR56_CheckWhileServing(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	c := s.caller()
	for i := range 3 {
		checked := make(chan string, 1)
		go func() {
			out, exit := runOnced(t, "check", "--data", dir)
			checked <- fmt.Sprintf("%d %s", exit, out)
		}()
		req := claimOf(fmt.Sprint(i))
		c.complete(completion(req, c.granted(req), "done"))
		if got := <-checked; !strings.HasPrefix(got, "1 ") || !strings.Contains(got, "another process holds "+filepath.Join(dir, "onced.db")) {
			t.Errorf("a check of a store that is served ended with status %s", got)
		}
	}
	s.stop()

	look, err := bbolt.Open(filepath.Join(dir, "onced.db"), 0, &bbolt.Options{ReadOnly: true, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	if out := refusedStart(t, dir); !strings.Contains(out, "another process holds") {
		t.Errorf("a server that is started during a check says %q", out)
	}
	isSound(t, dir) // who only looks stands in nobody's way who only looks
	if err := look.Close(); err != nil {
		t.Fatal(err)
	}
	serve(t, dir).caller().answered(claimOf("0"), replayedOutcome)
}
