package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// brokenPipe is a reader that has gone away.
type brokenPipe struct{}

var errGone = errors.New("nobody reads this")

func (brokenPipe) Write([]byte) (int, error) { return 0, errGone }

// TestLostOutput: a command whose answer could not be written has not succeeded.
func TestLostOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var out, told bytes.Buffer
	if status := run([]string{"init", "--data", dir}, &out, &told); status != exitOK {
		t.Fatalf("init ended with %d: %s", status, &told)
	}
	if status := run([]string{"check", "--data", dir}, &out, &told); status != exitOK || !strings.Contains(out.String(), "is sound") {
		t.Errorf("check ended with %d: %s%s", status, &out, &told)
	}
	for _, command := range []string{"check", "compact"} {
		told.Reset()
		if status := run([]string{command, "--data", dir}, brokenPipe{}, &told); status != exitRefused || !strings.Contains(told.String(), errGone.Error()) {
			t.Errorf("%s without its output ended with %d: %s", command, status, &told)
		}
	}
}
