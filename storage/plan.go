package storage

import (
	"errors"
	"fmt"

	"github.com/onced/onced"
)

// CheckPlan refuses a plan that reaches beyond the view it was decided on, that
// contradicts itself, or that would replace or remove what this build cannot
// read. A backend calls it before it applies a plan; the error is the update's.
func CheckPlan(v onced.View, p onced.Plan) error {
	record, twin := p.Put != nil || p.Delete, p.PutTwin != nil || p.DeleteTwin
	switch {
	case p.Put != nil && p.Delete || p.PutTwin != nil && p.DeleteTwin:
		return fmt.Errorf("storage: the plan for %v both puts and deletes", v.ID)
	case record && v.Unreadable:
		return fmt.Errorf("storage: the plan changes the record of %v, which cannot be read", v.ID)
	case twin && v.TwinUnreadable:
		return fmt.Errorf("storage: the plan changes the twin entry of %v, which cannot be read", v.ID)
	case p.Put != nil && p.Put.ID != v.ID:
		return fmt.Errorf("storage: the plan for %v puts the record of %v", v.ID, p.Put.ID)
	case twin && v.TwinID == nil:
		return fmt.Errorf("storage: the plan for %v changes a twin entry, and the update named none", v.ID)
	case p.PutTwin != nil && p.PutTwin.ID != *v.TwinID:
		return fmt.Errorf("storage: the plan for %v puts another twin entry than the update named", v.ID)
	case p.Put != nil:
		return checkPayloads(v, p.Put)
	}
	return nil
}

// checkPayloads refuses a record with a large payload that comes without its bytes and
// is not the one that stands there.
func checkPayloads(v onced.View, put *onced.Record) error {
	old := payloads(v.Record)
	for i, p := range payloads(put) {
		stays := func() bool {
			return old[i] != nil && Large(old[i]) && old[i].SHA256 == p.SHA256 && old[i].Size == p.Size
		}
		if p != nil && Large(p) && p.Bytes == nil && !stays() {
			return fmt.Errorf("storage: the plan for %v puts a payload of %d bytes without them", v.ID, p.Size)
		}
	}
	return nil
}

// payloads returns the payloads of a record, if any, each in its own place; nil where
// there is none.
func payloads(r *onced.Record) (p [3]*onced.Result) {
	if r == nil {
		return p
	}
	p[0] = r.Result
	if r.Failure != nil {
		p[1] = r.Failure.Details
	}
	if r.Checkpoint != nil {
		p[2] = &r.Checkpoint.Payload
	}
	return p
}

// CheckMeta refuses a change of the facts about a store that are fixed when it is
// made. A backend calls it before it applies an UpdateMeta; the error is the
// update's.
func CheckMeta(old, next Meta) error {
	if next.Generation != old.Generation || !next.HistoryStart.Equal(old.HistoryStart) {
		return errors.New("storage: the store's generation and history start are fixed when it is made")
	}
	return nil
}
