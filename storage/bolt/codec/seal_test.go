package codec

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	storagev1 "github.com/onced/onced/gen/onced/storage/v1"
)

// TestSeal: any damage of a value shows, and so does another key.
func TestSeal(t *testing.T) {
	key, content := []byte("key"), []byte("content")
	value := Seal(key, content)
	if got, err := Unseal(key, value); err != nil || string(got) != "content" {
		t.Fatalf("%q, %v", got, err)
	}
	for bit := range len(value) * 8 {
		value[bit/8] ^= 1 << (bit % 8)
		if _, err := Unseal(key, value); err == nil {
			t.Errorf("bit %d was flipped and nobody noticed", bit)
		}
		value[bit/8] ^= 1 << (bit % 8)
	}
	for n := range value {
		if _, err := Unseal(key, value[:n]); err == nil {
			t.Errorf("%d bytes of %d opened", n, len(value))
		}
	}
	for _, other := range []string{"", "kez", "keyc"} {
		if _, err := Unseal([]byte(other), value); err == nil {
			t.Errorf("the value opened under %q", other)
		}
	}
	if got, err := Unseal(key, Seal(key, nil)); err != nil || len(got) != 0 {
		t.Errorf("empty content: %q, %v", got, err)
	}
}

// TestUnknownFields: a field of a later build is noticed in every message of a
// record, and of a store's facts.
func TestUnknownFields(t *testing.T) {
	meta := &storagev1.Meta{Memories: map[string]*storagev1.Memory{"": {RetentionNanos: 1}}}
	later := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	checked := map[protoreflect.FullName]bool{}
	for _, m := range []proto.Message{goldenMessage(t), meta} {
		read := func() error {
			value, err := sealMessage(nil, m)
			if err != nil {
				t.Fatal(err)
			}
			return unsealMessage(nil, value, m.ProtoReflect().New().Interface())
		}
		if err := read(); err != nil {
			t.Fatalf("%T is not read as it is: %v", m, err)
		}
		visit(m.ProtoReflect(), func(inner protoreflect.Message) {
			inner.SetUnknown(later)
			if read() == nil {
				t.Errorf("an unknown field of %s was not noticed", inner.Descriptor().FullName())
			}
			inner.SetUnknown(nil)
			checked[inner.Descriptor().FullName()] = true
		})
	}
	if len(checked) < 10 {
		t.Errorf("only %v were checked", checked)
	}
}

// visit calls fn with a message and all that are in it.
func visit(m protoreflect.Message, fn func(protoreflect.Message)) {
	fn(m)
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				visit(v.Message(), fn)
				return true
			})
		case field.IsMap() || field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message(), fn)
			}
		default:
			visit(v.Message(), fn)
		}
		return true
	})
}
