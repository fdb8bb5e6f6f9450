package memory

import (
	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// Reopen returns a new store over what is durable in s, which must be down.
func (s *Store) Reopen(clock storage.Clock) *Store { return open(clock, s.image) }

// Corrupt replaces a record's content by bytes that nobody can read.
func (s *Store) Corrupt(id onced.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.image.Records[string(id.Encode())] = cell{Bytes: []byte("not a record")}
}

// CorruptTwin replaces a twin entry's content by bytes that nobody can read.
func (s *Store) CorruptTwin(id onced.TwinID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.image.Twins[string(id.Encode())] = twinCell{Bytes: []byte("not a twin entry")}
}

// FutureState puts a record into a state that this build does not know.
func (s *Store) FutureState(id onced.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := cloneRecord(s.image.Records[string(id.Encode())].Record)
	r.State = 99
	s.image.Records[string(id.Encode())] = cell{Record: r}
}
