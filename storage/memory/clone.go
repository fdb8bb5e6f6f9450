package memory

import (
	"maps"
	"slices"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// What comes in and goes out is copied, so that neither side sees what the other
// does to its memory later.

func cloneRecord(r *onced.Record) *onced.Record {
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	for i := range c.Attempts {
		c.Attempts[i].Facts = slices.Clone(c.Attempts[i].Facts)
	}
	c.Fingerprints = slices.Clone(r.Fingerprints)
	c.Labels = maps.Clone(r.Labels)
	c.Result = cloneResult(r.Result)
	if c.Failure = clonePointer(r.Failure); c.Failure != nil {
		c.Failure.Details = cloneResult(r.Failure.Details)
	}
	if c.Checkpoint = clonePointer(r.Checkpoint); c.Checkpoint != nil {
		c.Checkpoint.Payload.Bytes = slices.Clone(r.Checkpoint.Payload.Bytes)
	}
	c.Twin = clonePointer(r.Twin)
	c.LastResolve = clonePointer(r.LastResolve)
	return &c
}

func cloneResult(r *onced.Result) *onced.Result {
	c := clonePointer(r)
	if c != nil {
		c.Bytes = slices.Clone(r.Bytes)
	}
	return c
}

func cloneTwin(e *onced.TwinEntry) *onced.TwinEntry {
	c := clonePointer(e)
	if c != nil {
		c.Unsettled = slices.Clone(e.Unsettled)
		c.Last = clonePointer(e.Last)
	}
	return c
}

func cloneMeta(m storage.Meta) storage.Meta {
	m.Memories = maps.Clone(m.Memories)
	return m
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
