package oncetest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// testLog shows what servers and clients log among what the test logs, until it ends.
type testLog struct {
	mu sync.Mutex
	t  testing.TB // nil once the test has ended
}

func (l *testLog) logger(who string, least slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: least})).With("by", who)
}

// Write logs one line.
func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Log(strings.TrimSuffix(string(line), "\n"))
	}
	return len(line), nil
}

// end makes everything that comes later be dropped: a test that has ended must not log.
func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = nil
}
