package client

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"google.golang.org/grpc/metadata"
)

// generationHeader carries the store's generation on every answer.
const generationHeader = "onced-generation"

// GenerationChange says that answers come from another generation of the store
// than before: a restored store, or another one. It is the error of [Do] under
// [RefuseOnGenerationChange].
type GenerationChange struct {
	From uint64 // the generation of the answers before; in the error, the first one seen
	To   uint64 // the generation of the newest answer
}

// Error says what happened and what to do.
func (g *GenerationChange) Error() string {
	return fmt.Sprintf("the store's generation changed from %d to %d, so it may have forgotten operations; nothing was executed: "+
		"find out why, then make a new client", g.From, g.To)
}

// generationWatch notices that the store behind the client is not the one that
// it was. It is safe for concurrent use.
type generationWatch struct {
	onChange func(GenerationChange)
	refuse   bool
	log      *slog.Logger

	mu          sync.Mutex
	first, last uint64
	changed     bool
}

// observe takes note of the headers of an answer. Headers without a generation
// come from something between the client and onced, and say nothing.
func (w *generationWatch) observe(header metadata.MD) {
	values := header.Get(generationHeader)
	if len(values) != 1 {
		return
	}
	now, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil || now == 0 {
		return
	}
	before, changed := w.record(now)
	if !changed {
		return
	}
	w.log.Error("onced answers from another generation of its store, which may have forgotten operations",
		"from", before, "to", now, "lower", now < before)
	if w.onChange != nil {
		w.onChange(GenerationChange{From: before, To: now})
	}
}

func (w *generationWatch) record(now uint64) (before uint64, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.last
	w.last = now
	if w.first == 0 {
		w.first = now
	}
	w.changed = w.changed || now != w.first
	return before, before != 0 && before != now
}

// refusal is the error with which nothing may be executed, or nil.
func (w *generationWatch) refusal() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.refuse || !w.changed {
		return nil
	}
	return &GenerationChange{From: w.first, To: w.last}
}
