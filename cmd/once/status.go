package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

// statusRecord is the content of a status file: what one call of once exec came
// to. The exit status alone leaves open whether it is the command's.
type statusRecord struct {
	// Outcome is that of the claim, by its name on the wire; empty when the claim
	// was refused or not answered.
	Outcome string `json:"outcome,omitempty"`
	// Executed says that the command was started by this call.
	Executed bool `json:"executed"`
	// Replayed says that it was run by an earlier call.
	Replayed  bool   `json:"replayed"`
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
	Method    string `json:"method"`
	// ExitCode is the exit status of this call of once exec.
	ExitCode int `json:"exit_code"`
	// Reason is that of a refusal, such as FINGERPRINT_MISMATCH.
	Reason string `json:"reason,omitempty"`
	// Error says what went wrong, for people.
	Error string `json:"error,omitempty"`
	// Operation is the operation as it stood at the end, without the bytes of its
	// result.
	Operation json.RawMessage `json:"operation,omitempty"`
}

// statusFile is where the record goes; the empty path is nowhere.
type statusFile string

// newStatusFile removes what an earlier call has left, so that the file never
// speaks of another call, and finds out whether it can be written, as long as
// nothing was executed.
func newStatusFile(path string) (statusFile, error) {
	if path == "" {
		return "", nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	name, err := writeBeside(path, 0o600, nil)
	if err != nil {
		return "", err
	}
	return statusFile(path), os.Remove(name)
}

func (f statusFile) write(r statusRecord) error {
	if f == "" {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replaceFile(string(f), 0o600, append(b, '\n'))
}
