package bolt

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/storagetest"
)

// Environment of a child process: what it does, and in which folder.
const (
	childRole = "ONCED_BOLT_TEST_CHILD"
	childDir  = "ONCED_BOLT_TEST_DIR"
)

// roles are what this test binary does as a child process. Each ends when its
// standard input is closed, unless it says otherwise.
var roles = map[string]func(dir string) error{
	"open":    openRole,
	"write":   writeRole,
	"compact": compactRole,
}

func TestMain(m *testing.M) {
	role := os.Getenv(childRole)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](os.Getenv(childDir)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// openRole opens the store and says so.
func openRole(dir string) error {
	s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Close()
}

// writeRole makes updates, several at a time, and prints each when it has been
// answered: its key and the fence it was given. It never ends by itself.
func writeRole(dir string) error {
	s, err := Open(dir, Options{Clock: storagetest.NewClock(), LockTimeout: lockTimeout})
	if err != nil {
		return err
	}
	first := s.progress.Sequence // no key of an earlier process begins with it
	errs := make(chan error)
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := onced.Identity{Namespace: "n", Key: fmt.Sprintf("%d-%d-%d", first, w, i), Method: "m"}
				var fence uint64
				err := s.Update(context.Background(), storage.Target{ID: id}, func(v onced.View) onced.Plan {
					fence = v.NextFence
					r := grant(id, v.Now)
					r.Fence = fence
					return onced.Plan{Put: r, UsesFence: true}
				})
				if err != nil {
					errs <- err
					return
				}
				fmt.Printf("%s %d\n", id.Key, fence) // one write, so that lines stay whole
			}
		}()
	}
	return <-errs
}

// child is this test binary in another process.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startChild starts a role over a folder. The process is killed at the test's end.
func startChild(t *testing.T, role, dir string, change ...func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	for _, c := range change {
		c(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &child{Cmd: cmd, in: in, out: bufio.NewScanner(out)}
}

// line returns the next line that the child prints.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the child process printed nothing more: %v", c.out.Err())
	}
	line := c.out.Text()
	if strings.HasPrefix(line, "error:") {
		t.Fatal(line)
	}
	return line
}
