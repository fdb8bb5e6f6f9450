package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// payloadRounds is how often an answer is decided anew because a payload that it
// shows went away between the decision and the read of its bytes: it was erased, or
// its retention ended.
const payloadRounds = 4

// withPayloads decides, by decide, and reads the bytes of the large payloads that
// the answer shows. They are read after the decision: most decisions need none, and
// no caller has to wait while another one's result is read.
func (s *Service) withPayloads(ctx context.Context, id onced.Identity, decide func() ([]*onced.Result, error)) error {
	for range payloadRounds {
		shown, err := decide()
		if err == nil {
			err = s.load(ctx, id, shown)
		}
		if !errors.Is(err, storage.ErrNoPayload) {
			return err
		}
	}
	return refuseOverloaded("the operation's result changes too fast to be shown")
}

// load reads the bytes of large payloads, when there is room for the reply that
// shows them.
func (s *Service) load(ctx context.Context, id onced.Identity, shown []*onced.Result) error {
	var size int64
	for _, p := range shown {
		if storage.Large(p) {
			size += int64(p.Size)
		}
	}
	if size == 0 {
		return nil
	}
	if err := takeRoom(ctx, size); err != nil {
		return err
	}
	for _, p := range shown {
		if !storage.Large(p) {
			continue
		}
		var err error
		if p.Bytes, err = s.store.Payload(ctx, id, p.SHA256); errors.Is(err, storage.ErrDamaged) {
			s.log.ErrorContext(ctx, "what is stored of an operation cannot be read", operationAttr(id), slog.Any("error", err))
			return refuseDamaged(id)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// refuseDamaged refuses to show a payload that is there and cannot be read.
func refuseDamaged(id onced.Identity) *onced.Refusal {
	return &onced.Refusal{
		Reason: onced.RefusedUnreadable,
		Message: fmt.Sprintf("what is stored of %v cannot be read; nothing was changed, and it must not be executed: "+
			"the file is damaged, ask an operator to run onced check", id),
	}
}
