package memory

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// image is the durable state of a store. What its maps and slices hold is never
// changed, only replaced: readers may be looking at it.
type image struct {
	Meta    storage.Meta
	Newest  time.Time // of all stamps
	Fence   uint64    // the newest one that a plan used
	Records map[string]cell
	Twins   map[string]twinCell
	Audit   []onced.AuditEntry
}

// cell is a stored record: what was put, or bytes that nobody can read.
type cell struct {
	Record *onced.Record // nil: unreadable
	Bytes  []byte
}

// readable reports whether this build knows what the cell holds.
func (c cell) readable() bool { return c.Record != nil && c.Record.State.Known() }

// twinCell is a stored twin entry: what was put, or bytes that nobody can read.
type twinCell struct {
	Entry *onced.TwinEntry // nil: unreadable
	Bytes []byte
}

// load fills in what the view shows of the target.
func (i *image) load(v *onced.View, t storage.Target) {
	if c, ok := i.Records[string(t.ID.Encode())]; ok {
		if v.Unreadable = !c.readable(); !v.Unreadable {
			v.Record = showRecord(c.Record)
		}
	}
	if t.Twin == nil {
		return
	}
	v.TwinID = clonePointer(t.Twin)
	if c, ok := i.Twins[string(t.Twin.Encode())]; ok {
		v.Twin, v.TwinUnreadable = cloneTwin(c.Entry), c.Entry == nil
	}
}

// apply carries out a plan that was checked.
func (i *image) apply(v onced.View, p onced.Plan) {
	id := string(v.ID.Encode())
	switch {
	case p.Put != nil:
		i.Records[id] = cell{Record: i.whole(id, p.Put)}
	case p.Delete:
		delete(i.Records, id)
	}
	switch {
	case p.PutTwin != nil:
		i.Twins[string(v.TwinID.Encode())] = twinCell{Entry: cloneTwin(p.PutTwin)}
	case p.DeleteTwin:
		delete(i.Twins, string(v.TwinID.Encode()))
	}
	if p.UsesFence {
		i.Fence = v.NextFence
	}
	if p.Audit != nil {
		i.Audit = append(i.Audit, *p.Audit)
	}
}

// showRecord returns a copy without the bytes of large payloads.
func showRecord(r *onced.Record) *onced.Record {
	c := cloneRecord(r)
	for _, p := range c.Payloads() {
		if storage.Large(p) {
			p.Bytes = nil
		}
	}
	return c
}

// whole returns a copy with the bytes that stay as they stand.
func (i *image) whole(id string, put *onced.Record) *onced.Record {
	c := cloneRecord(put)
	for _, p := range c.Payloads() {
		if !storage.Large(p) || p.Bytes != nil {
			continue
		}
		for _, old := range i.Records[id].Record.Payloads() {
			if storage.Large(old) && old.SHA256 == p.SHA256 {
				p.Bytes = old.Bytes
			}
		}
	}
	return c
}

// payload returns the bytes of a payload by their digest.
func (i *image) payload(id onced.Identity, digest onced.Digest) ([]byte, error) {
	c, ok := i.Records[string(id.Encode())]
	if ok && !c.readable() {
		return nil, fmt.Errorf("%w: the record of %v", storage.ErrDamaged, id)
	}
	if ok {
		for _, p := range c.Record.Payloads() {
			if p.Presence == onced.Stored && p.SHA256 == digest {
				return bytes.Clone(p.Bytes), nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %v", storage.ErrNoPayload, id)
}

// clone returns an image that later changes of this one do not reach.
func (i *image) clone() image {
	c := *i
	c.Meta = cloneMeta(i.Meta)
	c.Records, c.Twins = maps.Clone(i.Records), maps.Clone(i.Twins)
	c.Audit = slices.Clone(i.Audit)
	return c
}

// stamp remembers the time of a change.
func (i *image) stamp(now time.Time) {
	if now.After(i.Newest) {
		i.Newest = now
	}
}
