package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// rig is what a scenario works with: a private folder, the programs, and whatever
// has to be ended or undone when it is over. Its methods are for one goroutine.
type rig struct {
	*binaries
	dir      string
	progress io.Writer
	started  time.Time
	names    int      // that were given by name
	undo     []func() // run by close, the last first
}

func newRig(dir string, b *binaries, progress io.Writer) *rig {
	return &rig{binaries: b, dir: dir, progress: progress, started: time.Now()}
}

// close ends what the scenario has started.
func (r *rig) close() {
	for len(r.undo) > 0 {
		last := r.undo[len(r.undo)-1]
		r.undo = r.undo[:len(r.undo)-1]
		last()
	}
}

// say tells people what is going on.
func (r *rig) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "%7.1fs  %s\n", time.Since(r.started).Seconds(), fmt.Sprintf(format, args...))
}

// name returns a path in the private folder that was not given before.
func (r *rig) name(what string) string {
	r.names++
	return filepath.Join(r.dir, fmt.Sprintf("%s-%d", what, r.names))
}

// binaries builds programs into a folder, each at its first use. It is safe for
// concurrent use.
type binaries struct {
	dir  string
	race bool // with the race detector

	mu    sync.Mutex
	built map[string]string // by tags
}

// server returns the path of the server, built with some tags, or none.
func (b *binaries) server(tags string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if program, ok := b.built[tags]; ok {
		return program, nil
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/onced/onced").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of onced: %w; run bench from its own folder: go -C test/bench run", err)
	}
	program := filepath.Join(b.dir, "onced"+tags)
	args := []string{"build", "-o", program, "-tags", tags}
	if b.race {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./cmd/onced")...)
	build.Dir = strings.TrimSpace(string(root))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build onced: %w\n%s", err, out)
	}
	if b.built == nil {
		b.built = map[string]string{}
	}
	b.built[tags] = program
	return program, nil
}

// errLate is the cause when something did not happen in time.
var errLate = errors.New("waited in vain")

// patience bounds the waits for what must happen sooner or later.
const patience = 2 * time.Minute

// poll asks at an interval until done, for as long as patience lasts.
func poll(ctx context.Context, every, patience time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w for %s", errLate, what))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// writeFile writes a file of the private folder.
func (r *rig) writeFile(what, content string) (string, error) {
	path := r.name(what)
	return path, os.WriteFile(path, []byte(content), 0o600)
}
