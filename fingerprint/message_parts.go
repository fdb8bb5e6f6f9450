package fingerprint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// maxAny bounds Any within Any. Each level parses all that is inside it once more.
const maxAny = 32

var (
	errDeepAny    = fmt.Errorf("pb1: google.protobuf.Any is nested deeper than %d; flatten the request", maxAny)
	errBadUnknown = errors.New("pb1: a message holds unknown fields that are not protobuf; parse the request anew")
)

// Fields of google.protobuf.Any.
const (
	anyName  = "google.protobuf.Any"
	anyURL   = 1
	anyValue = 2
)

func isAny(md protoreflect.MessageDescriptor) bool {
	if md.FullName() != anyName {
		return false
	}
	url, value := md.Fields().ByNumber(anyURL), md.Fields().ByNumber(anyValue)
	return url != nil && value != nil &&
		url.Kind() == protoreflect.StringKind && !url.IsList() &&
		value.Kind() == protoreflect.BytesKind && !value.IsList()
}

// anyFields writes an Any as if its first field were the full name of the content's
// type, and its second the content itself.
func (e *encoder) anyFields(m protoreflect.Message, depth int) error {
	if e.anys == maxAny {
		return errDeepAny
	}
	fields := m.Descriptor().Fields()
	url, content := fields.ByNumber(anyURL), m.Get(fields.ByNumber(anyValue)).Bytes()
	name := m.Get(url).String()
	name = name[strings.LastIndexByte(name, '/')+1:]
	if name != "" {
		e.number(tagField, anyURL)
		if err := e.value(url, protoreflect.ValueOfString(name), nil, depth); err != nil {
			return err
		}
	}
	if parsed := parseAny(name, content); parsed != nil {
		e.number(tagField, anyValue)
		e.anys++
		defer func() { e.anys-- }()
		return e.message(parsed, nil, depth+1)
	}
	if len(content) > 0 {
		e.number(tagField, anyValue)
		e.bytes(tagBytes, content)
	}
	return nil
}

// parseAny returns the content of an Any, or nil if its type is not linked into the
// program or the bytes are not of that type. For messages without generated code
// protobuf itself panics over some bytes, such as a map entry that has its key again in
// another wire type: these are not of the type either.
func parseAny(name string, content []byte) (parsed protoreflect.Message) {
	defer func() {
		if recover() != nil {
			parsed = nil
		}
	}()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	m := kind.New()
	if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(content, m.Interface()); err != nil {
		return nil
	}
	return m
}

// unknownFields writes the fields that the program does not know by number; those of
// one number stay in their order.
func (e *encoder) unknownFields(raw protoreflect.RawFields) error {
	type record struct {
		number     protowire.Number
		start, end int
	}
	var records []record
	for at := 0; at < len(raw); {
		number, _, n := protowire.ConsumeField(raw[at:])
		if n < 0 {
			return errBadUnknown
		}
		records = append(records, record{number, at, at + n})
		at += n
	}
	// Not a stable sort: that takes more than n log n.
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.start, b.start))
	})
	for _, r := range records {
		e.number(tagUnknown, uint64(r.number))
		e.bytes(tagBytes, raw[r.start:r.end])
	}
	return nil
}

// check tells whether the named paths are fields of a message type.
func (n *node) check(md protoreflect.MessageDescriptor, prefix string) error {
	for name, child := range n.children {
		path := prefix + name
		fd := md.Fields().ByName(protoreflect.Name(name))
		switch {
		case fd == nil:
			return fmt.Errorf("fingerprint: the message %s has no field %s; name fields as the .proto file does", md.FullName(), quote(path))
		case isAny(md):
			return fmt.Errorf("fingerprint: the path %s leads into %s; name the field that holds it", quote(path), anyName)
		case len(child.children) == 0:
			continue
		case fd.IsList() || fd.IsMap():
			return fmt.Errorf("fingerprint: the path %s… leads through a repeated field; name the field itself", quote(path))
		case fd.Message() == nil:
			return fmt.Errorf("fingerprint: the path %s… leads into a field that is no message; name the field itself", quote(path))
		}
		if err := child.check(fd.Message(), path+"."); err != nil {
			return err
		}
	}
	return nil
}

// field says what becomes of a field of the message that n decides about, as
// [choiceMode.step] does. A message that is there for its named fields alone, and has
// none of them, is not there.
func (n *node) field(mode choiceMode, f field) (in bool, inside *node) {
	var child *node
	if !f.fd.IsExtension() {
		child = n.children[string(f.fd.Name())]
	}
	in, inside = mode.step(child)
	if inside != nil && mode == onlyNamed {
		in = inside.found(f.value.Message())
	}
	return in, inside
}

// found tells whether m has any of the named fields.
func (n *node) found(m protoreflect.Message) bool {
	for name, child := range n.children {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		if child.leaf && !isDefault(fd, v) || !child.leaf && child.found(v.Message()) {
			return true
		}
	}
	return false
}
