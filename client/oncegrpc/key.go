package oncegrpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/onced/onced"
)

// The metadata in which a call carries its key: as it is where it is printable ASCII, and
// as bytes, which gRPC encodes, where it is anything else. A key in both must be the same.
const (
	MetadataKey    = "idempotency-key"
	MetadataKeyBin = "idempotency-key-bin"
)

// givenKey is the key that a call carries, in whatever place.
type givenKey struct {
	key   string
	given bool
}

// keyError says what is wrong with the key of a call.
type keyError struct {
	reason reason
	text   string
}

func (e *keyError) Error() string { return e.text }

func badKey(r reason, format string, args ...any) error {
	return &keyError{r, fmt.Sprintf(format, args...)}
}

// add takes a key from another place.
func (k *givenKey) add(key string) error {
	if k.given && k.key != key {
		return badKey(reasonKeyAmbiguous, "it carries two different keys; send one, in the metadata or in its field of the request")
	}
	k.key, k.given = key, true
	return nil
}

// keyOf finds the key of a call in its metadata and in its request, and refuses what is
// none: a key that is present is never taken for absent, whatever it holds.
func (m *method) keyOf(md metadata.MD, req any) (givenKey, error) {
	k, err := keyInMetadata(md)
	if err != nil {
		return k, err
	}
	if key, given := m.keyInRequest(req); given {
		if err := k.add(key); err != nil {
			return k, err
		}
	}
	if !k.given {
		return k, nil
	}
	if err := onced.ValidateKey(k.key); err != nil {
		return k, badKey(reasonKeyInvalid, "its key cannot be used: %v", err)
	}
	return k, nil
}

// keyInMetadata finds the key in metadata.
func keyInMetadata(md metadata.MD) (givenKey, error) {
	var k givenKey
	for _, name := range []string{MetadataKey, MetadataKeyBin} {
		values := md.Get(name)
		if len(values) > 1 {
			return k, badKey(reasonKeyAmbiguous, "it carries the metadata %s %d times; send it once", name, len(values))
		}
		for _, key := range values {
			if err := k.add(key); err != nil {
				return k, err
			}
		}
	}
	return k, nil
}

// keyInRequest reads the field of the key. A field without presence that is empty is
// absent.
func (m *method) keyInRequest(req any) (key string, given bool) {
	msg, ok := req.(proto.Message)
	if !ok || m.keyField == nil {
		return "", false
	}
	at := msg.ProtoReflect()
	for i, name := range m.keyField {
		fd := at.Descriptor().Fields().ByName(protoreflect.Name(name))
		if fd == nil || !at.Has(fd) {
			return "", false
		}
		if i == len(m.keyField)-1 {
			return at.Get(fd).String(), true
		}
		at = at.Get(fd).Message()
	}
	return "", false
}

// withoutKey is a request without its key, and without the messages that are there for the
// key alone: in another try, with the key in the metadata, they may not be there.
func (m *method) withoutKey(req proto.Message) proto.Message {
	if m.keyField == nil {
		return req
	}
	req = proto.Clone(req)
	clearKey(req.ProtoReflect(), m.keyField)
	return req
}

// clearKey clears what a path names, and the messages on the way that hold nothing else.
func clearKey(at protoreflect.Message, path []string) {
	fd := at.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if fd == nil || !at.Has(fd) {
		return
	}
	if len(path) > 1 {
		inside := at.Mutable(fd).Message()
		if clearKey(inside, path[1:]); !empty(inside) {
			return
		}
	}
	at.Clear(fd)
}

func empty(m protoreflect.Message) bool {
	none := len(m.GetUnknown()) == 0
	m.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		none = false
		return false
	})
	return none
}

// metadataOf is a key under the name that can carry it.
func metadataOf(text, bin, key string) (name, value string) {
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return bin, key
		}
	}
	return text, key
}

// incoming is the metadata that came with a call.
func incoming(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}

// reasonOf is the reason of an error about a key.
func reasonOf(err error) reason {
	bad := &keyError{reason: reasonKeyInvalid}
	errors.As(err, &bad)
	return bad.reason
}

// keyRefused refuses a call for its key.
func (m *method) keyRefused(err error) error {
	return m.refusal(reasonOf(err), "the call of %s was refused and nothing was executed: %v", m.name, err)
}

// keyRequired refuses a call without a key.
func (m *method) keyRequired() error {
	where := fmt.Sprintf("send the metadata %s (or %s)", MetadataKey, MetadataKeyBin)
	if m.keyField != nil {
		where += ", or set the key's field of the request"
	}
	return m.refusal(reasonKeyRequired, "%s is executed once for each key, and the call carries none; nothing was executed: %s, the same in every try of one intent", m.name, where)
}

// keyNotGuarded refuses a call whose caller relies on a guard that is not there.
func (m *method) keyNotGuarded() error {
	return m.refusal(reasonKeyNotGuarded, "the call carries a key, but %s is not guarded, so the key would protect nothing; nothing was executed: send no key, or have the service guard the method", m.name)
}

// cannotWork refuses a call whose guard was told something impossible.
func (m *method) cannotWork(err error) error {
	return m.refusal(reasonMisconfigured, "the guard of %s cannot work, so nothing was executed: %v", m.name, err)
}
