package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
	storagev1 "github.com/onced/onced/gen/onced/storage/v1"
	"github.com/onced/onced/storage"
)

// This file is the codec of everything but records.

func fingerprintMessage(f onced.Fingerprint) *storagev1.Fingerprint {
	return &storagev1.Fingerprint{Scheme: f.Scheme, Digest: []byte(f.Digest)}
}

func fingerprint(m *storagev1.Fingerprint) onced.Fingerprint {
	return onced.Fingerprint{Scheme: m.GetScheme(), Digest: string(m.GetDigest())}
}

func fingerprintMessages(list []onced.Fingerprint) []*storagev1.Fingerprint {
	var out []*storagev1.Fingerprint
	for _, f := range list {
		out = append(out, fingerprintMessage(f))
	}
	return out
}

func fingerprints(list []*storagev1.Fingerprint) []onced.Fingerprint {
	var out []onced.Fingerprint
	for _, m := range list {
		out = append(out, fingerprint(m))
	}
	return out
}

func twinIDMessage(t *onced.TwinID) *storagev1.TwinID {
	if t == nil {
		return nil
	}
	return &storagev1.TwinID{
		Namespace: t.Namespace, Method: t.Method, Subject: t.Subject, Fingerprint: fingerprintMessage(t.Fingerprint),
	}
}

func twinID(m *storagev1.TwinID) *onced.TwinID {
	if m == nil {
		return nil
	}
	return &onced.TwinID{
		Namespace: m.Namespace, Method: m.Method, Subject: m.Subject, Fingerprint: fingerprint(m.Fingerprint),
	}
}

// EncodeTwin returns the value of a twin entry under key.
func EncodeTwin(key []byte, t *onced.TwinEntry) ([]byte, error) {
	c := checker{}
	m := &storagev1.TwinEntry{Id: twinIDMessage(&t.ID)}
	for _, k := range t.Unsettled {
		m.Unsettled = append(m.Unsettled, c.twinKeyMessage(k))
	}
	if t.Last != nil {
		m.Last = c.twinKeyMessage(*t.Last)
	}
	return c.seal(key, m)
}

// DecodeTwin reads the value of a twin entry under key.
func DecodeTwin(key, value []byte) (*onced.TwinEntry, error) {
	m := &storagev1.TwinEntry{}
	if err := unsealMessage(key, value, m); err != nil {
		return nil, err
	}
	c, t := checker{}, &onced.TwinEntry{}
	if m.Id != nil {
		t.ID = *twinID(m.Id)
	}
	for _, k := range m.Unsettled {
		t.Unsettled = append(t.Unsettled, c.twinKey(k))
	}
	if m.Last != nil {
		last := c.twinKey(m.Last)
		t.Last = &last
	}
	if string(t.ID.Encode()) != string(key) {
		c.fail("twin entry stands under another identity than its own")
	}
	return t, c.err
}

func (c *checker) twinKeyMessage(k onced.TwinKey) *storagev1.TwinKey {
	return &storagev1.TwinKey{Key: k.Key, ClaimTime: c.stamp(k.ClaimTime), SettleTime: c.stamp(k.SettleTime)}
}

func (c *checker) twinKey(m *storagev1.TwinKey) onced.TwinKey {
	return onced.TwinKey{Key: m.Key, ClaimTime: c.time(m.ClaimTime), SettleTime: c.time(m.SettleTime)}
}

// seal returns the value of a message, unless something was wrong with it.
func (c *checker) seal(key []byte, m proto.Message) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	return sealMessage(key, m)
}

// EncodeAudit returns the value of an audit entry under key.
func EncodeAudit(key []byte, a *onced.AuditEntry) ([]byte, error) {
	c := checker{}
	return c.seal(key, &storagev1.AuditEntry{
		Time: c.stamp(a.Time), Who: a.Who, Verb: a.Verb,
		Namespace: a.ID.Namespace, Key: a.ID.Key, Method: a.ID.Method,
		Evidence: a.Evidence, Before: storagev1.State(a.Before), After: storagev1.State(a.After),
	})
}

// DecodeAudit reads the value of an audit entry under key. Nothing is decided on
// an audit entry: what a later build added to it does not matter here.
func DecodeAudit(key, value []byte) (onced.AuditEntry, error) {
	content, err := Unseal(key, value)
	if err != nil {
		return onced.AuditEntry{}, err
	}
	m := &storagev1.AuditEntry{}
	if err := proto.Unmarshal(content, m); err != nil {
		return onced.AuditEntry{}, err
	}
	c := checker{}
	return onced.AuditEntry{
		Time: c.time(m.Time), Who: m.Who, Verb: m.Verb,
		ID:       onced.Identity{Namespace: m.Namespace, Key: m.Key, Method: m.Method},
		Evidence: m.Evidence, Before: onced.State(m.Before), After: onced.State(m.After),
	}, c.err
}

// EncodeMeta returns the value of the facts about a store under key.
func EncodeMeta(key []byte, m storage.Meta) ([]byte, error) {
	c := checker{}
	out := &storagev1.Meta{
		Generation: m.Generation, HistoryStart: c.stamp(m.HistoryStart),
		ReplacesLost: m.ReplacesLost, BlindUntil: c.stamp(m.BlindUntil),
	}
	for name, memory := range m.Memories {
		if out.Memories == nil {
			out.Memories = map[string]*storagev1.Memory{}
		}
		out.Memories[name] = &storagev1.Memory{Since: c.stamp(memory.Since), RetentionNanos: int64(memory.Retention)}
	}
	return c.seal(key, out)
}

// DecodeMeta reads the value of the facts about a store under key.
func DecodeMeta(key, value []byte) (storage.Meta, error) {
	m := &storagev1.Meta{}
	if err := unsealMessage(key, value, m); err != nil {
		return storage.Meta{}, err
	}
	c := checker{}
	out := storage.Meta{
		Generation: m.Generation, HistoryStart: c.time(m.HistoryStart),
		ReplacesLost: m.ReplacesLost, BlindUntil: c.time(m.BlindUntil),
	}
	for name, memory := range m.Memories {
		if out.Memories == nil {
			out.Memories = map[string]onced.Memory{}
		}
		out.Memories[name] = onced.Memory{Since: c.time(memory.GetSince()), Retention: time.Duration(memory.GetRetentionNanos())}
	}
	return out, c.err
}

// Progress is what every commit changes.
type Progress struct {
	Fence    uint64    // the newest that was used
	Newest   time.Time // the newest store time that was decided at
	Sequence uint64    // counts commits
	Audit    uint64    // number of the newest audit entry
}

// EncodeProgress returns the value of a store's progress under key.
func EncodeProgress(key []byte, p Progress) ([]byte, error) {
	c := checker{}
	return c.seal(key, &storagev1.Progress{
		Fence: p.Fence, Newest: c.stamp(p.Newest), Sequence: p.Sequence, Audit: p.Audit,
	})
}

// DecodeProgress reads the value of a store's progress under key.
func DecodeProgress(key, value []byte) (Progress, error) {
	m := &storagev1.Progress{}
	if err := unsealMessage(key, value, m); err != nil {
		return Progress{}, err
	}
	c := checker{}
	return Progress{Fence: m.Fence, Newest: c.time(m.Newest), Sequence: m.Sequence, Audit: m.Audit}, c.err
}
