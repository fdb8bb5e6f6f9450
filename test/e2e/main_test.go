// Package e2e tests the built binaries as their users run them: servers with a
// store on disk that are stopped and killed, the command, real gRPC clients, and
// every console block of the documentation.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// binaries is where TestMain built onced, once and tickets.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	if role := os.Getenv("E2E_ROLE"); role != "" {
		return runRole(role)
	}
	dir, err := os.MkdirTemp("", "onced-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	if err := build(dir, "../../cmd/...", "../../examples/tickets"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The race detector would have every process sleep for a second at its end.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return m.Run()
}

// build builds commands into a folder, with the race detector if the tests have
// it.
func build(dir string, args ...string) error {
	args = append([]string{"build", "-o", dir + string(filepath.Separator)}, args...)
	if raceEnabled {
		args = append(args[:1:1], append([]string{"-race"}, args[1:]...)...)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}

// binary returns the path of a built command.
func binary(name string) string { return filepath.Join(binaries, name) }

// faultBinary builds the server with the fault switches compiled in, on first use,
// and returns its path.
var faultBinary = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(binaries, "faults")
	return filepath.Join(dir, "onced"), build(dir, "-tags", "faults", "../../cmd/onced")
})
