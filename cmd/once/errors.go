package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// exitStatus ends a command that has already said what there was to say.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a command line, or a file that it names, that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks an error as one of usage.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// statusOf is the exit status of an error.
func statusOf(err error) int {
	var bad usageError
	if errors.As(err, &bad) {
		return exitUsage
	}
	if s, ok := rpcStatus(err); ok {
		if exit, ok := codeStatus[s.Code()]; ok {
			return exit
		}
	}
	return exitOther
}

// describe is an error as a sentence: of the service's refusals, its own
// sentence and the reason.
func describe(err error) string {
	s, ok := rpcStatus(err)
	if !ok {
		return oneLine(err.Error())
	}
	text, reason := s.Message(), reasonOf(s)
	switch {
	case reason != "":
		text += " (" + reason + ")"
	case errors.Is(err, context.DeadlineExceeded):
		text = "onced gave no answer, and it is not known what became of the call: " + text
	default:
		text = s.Code().String() + ": " + text
	}
	if reason == "" && (s.Code() == codes.Unavailable || s.Code() == codes.DeadlineExceeded) {
		text += "; see that onced serves where --server or ONCED_SERVER says"
	}
	return oneLine(text)
}

// rpcStatus is the status of a call inside an error.
func rpcStatus(err error) (*status.Status, bool) {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) || s.GRPCStatus().Code() == codes.OK {
		return nil, false
	}
	return s.GRPCStatus(), true
}

// reasonOf is the machine-readable reason of a refusal by onced, or "".
func reasonOf(s *status.Status) string {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// oneLine keeps text from elsewhere from acting on a terminal.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = printable(strings.TrimSpace(line))
	}
	return strings.Join(lines, "; ")
}
