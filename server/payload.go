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

// shown is what an answer shows.
type shown struct {
	payloads []*onced.Result
	claimed  bool // it also gives the caller a claim
}

// withPayloads decides, by decide, and reads the bytes of the large payloads that
// the answer shows. They are read after the decision: most decisions need none, and
// no caller has to wait while another one's result is read.
func (s *Service) withPayloads(ctx context.Context, id onced.Identity, decide func() (shown, error)) error {
	var answer shown
	for range payloadRounds {
		var err error
		if answer, err = decide(); err == nil {
			err = s.load(ctx, id, answer)
		}
		if !errors.Is(err, storage.ErrNoPayload) {
			return err
		}
	}
	return answer.refuse(&onced.Refusal{
		Reason:  refusedOverloaded,
		Message: "what is stored of the operation changes too fast to be shown: re-send the call unchanged after the retry delay",
	})
}

// refuse refuses to show it. What was decided stands, and whoever has been given a
// claim must not be told that there is none.
func (a shown) refuse(r *onced.Refusal) error {
	if a.claimed {
		return fromRefusal(r, claimedUnknown)
	}
	return r
}

// load reads the bytes of large payloads, when there is room for the reply that
// shows them.
func (s *Service) load(ctx context.Context, id onced.Identity, answer shown) error {
	var size int64
	for _, p := range answer.payloads {
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
	for _, p := range answer.payloads {
		if !storage.Large(p) {
			continue
		}
		var err error
		if p.Bytes, err = s.store.Payload(ctx, id, p.SHA256); errors.Is(err, storage.ErrDamaged) {
			s.log.ErrorContext(ctx, "what is stored of an operation cannot be read", operationAttr(id), slog.Any("error", err))
			return answer.refuse(refuseDamaged(id))
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
		Message: fmt.Sprintf("what is stored of %v cannot be read, and it must not be executed: "+
			"the file is damaged, ask an operator to run onced check", id),
	}
}
