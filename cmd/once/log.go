package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// logHandler prints the errors that the client logs, which nobody else is told:
// an outcome that onced has not taken, a store that was restored. Everything
// below that is for servers.
type logHandler struct{ out io.Writer }

// Enabled lets errors through.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

// Handle prints one record on one line, as this command prints its own errors.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString("once: " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		value := a.Value.String()
		if err, ok := a.Value.Any().(error); ok {
			value = describe(err)
		}
		fmt.Fprintf(&line, "; %s: %s", a.Key, printable(value))
		return true
	})
	_, err := fmt.Fprintln(h.out, line.String())
	return err
}

// WithAttrs and WithGroup are not used by the client.
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup returns the same handler.
func (h *logHandler) WithGroup(string) slog.Handler { return h }
