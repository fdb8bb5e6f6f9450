// Package codec turns records, and what else a store keeps, into bytes and back.
//
// What this build does not fully understand it does not read: a value that was
// damaged, an enum value, a field or a version that only a later build knows is
// an error, and what cannot be read is never rewritten. The same holds the other
// way round, so that nothing is written which could not be read.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
)

// Every value but the format is sealed: a version, a checksum over its key and
// its content, and the content. A value that was damaged, stands under another
// key or was written by a later codec does not open.
const (
	sealVersion = 1
	sealSize    = 1 + crc32.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal returns the value to store content under key.
func Seal(key, content []byte) []byte {
	return closeSeal(key, append(make([]byte, sealSize, sealSize+len(content)), content...))
}

// sealMessage returns the value to store a message under key. The same message
// gives the same bytes.
func sealMessage(key []byte, m proto.Message) ([]byte, error) {
	options := proto.MarshalOptions{Deterministic: true}
	value, err := options.MarshalAppend(make([]byte, sealSize, sealSize+options.Size(m)), m)
	if err != nil {
		return nil, err
	}
	return closeSeal(key, value), nil
}

// closeSeal fills in what stands before the content of value.
func closeSeal(key, value []byte) []byte {
	value[0] = sealVersion
	binary.BigEndian.PutUint32(value[1:], checksum(key, value[sealSize:]))
	return value
}

func checksum(key, content []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, content)
}

// Unseal returns the content of a value, which it shares memory with.
func Unseal(key, value []byte) ([]byte, error) {
	switch {
	case len(value) < sealSize:
		return nil, errors.New("value is truncated")
	case value[0] != sealVersion:
		return nil, fmt.Errorf("value has version %d, this build reads %d", value[0], sealVersion)
	case binary.BigEndian.Uint32(value[1:]) != checksum(key, value[sealSize:]):
		return nil, errors.New("value does not match its checksum")
	}
	return value[sealSize:], nil
}

// unsealMessage reads a message, and refuses fields that this build does not
// know: it could not tell what they change.
func unsealMessage(key, value []byte, m proto.Message) error {
	content, err := Unseal(key, value)
	if err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(content, m); err != nil {
		return err
	}
	// What was written by sealMessage is as long as what is known of it, unless there
	// is more to it.
	if proto.Size(m) != len(content) {
		return fmt.Errorf("%s has fields that this build does not know", m.ProtoReflect().Descriptor().Name())
	}
	return nil
}

// checker converts what both directions of the codec have to check, and keeps
// the first thing that is wrong: what cannot be read is not written either.
type checker struct{ err error }

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// enum checks that a value has a name and is at least the least allowed one.
func (c *checker) enum(what string, names map[int32]string, n, least int32) {
	if names[n] == "" || n < least {
		c.fail("%s %d is not one that this build knows", what, n)
	}
}

// stamp converts a time for storage; zero is "not set".
func (c *checker) stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	s := timestamppb.New(t)
	if err := s.CheckValid(); err != nil {
		c.fail("time: %w", err)
	}
	return s
}

// time converts a stored time.
func (c *checker) time(s *timestamppb.Timestamp) time.Time {
	if s == nil {
		return time.Time{}
	}
	if err := s.CheckValid(); err != nil {
		c.fail("time: %w", err)
	}
	return s.AsTime()
}

// digestBytes converts a digest for storage; the zero digest is "not set".
func digestBytes(d onced.Digest) []byte {
	if d == (onced.Digest{}) {
		return nil
	}
	return d[:]
}

// digest converts a stored digest.
func (c *checker) digest(b []byte) (d onced.Digest) {
	if len(b) != 0 && len(b) != len(d) {
		c.fail("digest has %d bytes", len(b))
		return d
	}
	copy(d[:], b)
	return d
}
