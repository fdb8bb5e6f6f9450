package fingerprint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced"
)

// Message returns the pb1 fingerprint of a protobuf message. Two messages of one
// type have the same one exactly when they hold the same fields with the same
// values: how they were marshalled, by which build and in which order, does not
// matter. A nil pointer of a message type is the empty message.
//
// A field without presence that holds its default is absent; one with presence that
// was set to it is not. Every NaN is the same, and -0 is 0. The content of an Any
// counts by its fields if its type is linked into the program, and by its bytes if
// not. A field that the program does not know counts by its bytes: a build that
// knows it gives another fingerprint, so that a retry across that deploy is refused
// and never mistaken for other arguments, nor other arguments for it. The entries of a
// map that it does not know arrive in another order with each try, so that a retry may
// be refused without any deploy: make the fingerprint where all fields are known, or
// use [Identity].
//
// The paths of the options are names of fields as in the .proto file. They may lead
// through messages, but not through repeated fields, maps, Any or extensions; a path
// that the type does not have is refused. [Identity] leaves out what it does not
// name, unknown fields and extensions included; fields that it names may be absent,
// all of them too: see there.
//
// Messages nested deeper than 1000, Any in Any deeper than 32, and strings that are
// not UTF-8 are refused, unless the options leave them out. Time is linear in the
// message, but for the sorting of map entries and unknown fields, and for what is in an
// Any: that is parsed once for each Any around it, and takes its bytes as often, and
// in the end what protobuf takes for it, up to some 160 times its bytes for a list of
// empty messages. Bound the size of requests by that. Message is safe for concurrent
// use, and only reads m.
func Message(m proto.Message, opts ...Option) (onced.Fingerprint, error) {
	c, err := choose(opts)
	if err != nil {
		return onced.Fingerprint{}, err
	}
	if dynamic, ok := m.(*dynamicpb.Message); m == nil || ok && dynamic == nil {
		return onced.Fingerprint{}, errNilMessage
	}
	top := m.ProtoReflect()
	if c.root != nil {
		if err := c.root.check(top.Descriptor(), ""); err != nil {
			return onced.Fingerprint{}, err
		}
	}
	e := encoder{mode: c.mode}
	e.buf = appendText(make([]byte, 0, 512), domainMessage)
	if err := e.message(top, c.root, 1); err != nil {
		return onced.Fingerprint{}, err
	}
	digest := e.sum()
	return onced.Fingerprint{Scheme: SchemeMessage, Digest: string(digest[:])}, nil
}

var (
	errNilMessage  = errors.New("pb1: the message is nil and has no type; give the message that the operation was called with")
	errDeepMessage = fmt.Errorf("pb1: messages are nested deeper than %d; flatten the request", maxDepth)
)

// Tags of the encoding.
const (
	tagMessage  = 'm'
	tagField    = 'F'
	tagUnknown  = 'U'
	tagEnd      = 'e'
	tagBool     = 'b'
	tagSigned   = 'i'
	tagUnsigned = 'u'
	tagDouble   = 'd'
	tagText     = 's'
	tagBytes    = 'y'
	tagList     = 'l'
	tagMap      = 'p'
)

// canonicalNaN stands for every NaN.
const canonicalNaN = 0x7ff8000000000000

// encoder writes the encoding of a message into a hash.
type encoder struct {
	sink
	mode   choiceMode
	anys   int     // open Any messages
	fields []field // of the open messages, in one stack
}

// field is a populated field of a message.
type field struct {
	fd    protoreflect.FieldDescriptor
	value protoreflect.Value
}

// message writes what of m the node lets through; nil lets through all.
func (e *encoder) message(m protoreflect.Message, at *node, depth int) error {
	if depth > maxDepth {
		return errDeepMessage
	}
	e.tag(tagMessage)
	if isAny(m.Descriptor()) {
		if err := e.anyFields(m, depth); err != nil {
			return err
		}
	} else if err := e.knownFields(m, at, depth); err != nil {
		return err
	}
	if at == nil || e.mode == allButNamed {
		if err := e.unknownFields(m.GetUnknown()); err != nil {
			return err
		}
	}
	e.tag(tagEnd)
	return nil
}

// knownFields writes the populated fields, extensions among them, by number.
func (e *encoder) knownFields(m protoreflect.Message, at *node, depth int) error {
	first := len(e.fields)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !isDefault(fd, v) {
			e.fields = append(e.fields, field{fd, v})
		}
		return true
	})
	slices.SortFunc(e.fields[first:], func(a, b field) int { return cmp.Compare(a.fd.Number(), b.fd.Number()) })
	last := len(e.fields)
	for i := first; i < last; i++ {
		f := e.fields[i]
		var inside *node
		if at != nil {
			var in bool
			if in, inside = at.field(e.mode, f); !in {
				continue
			}
		}
		e.number(tagField, uint64(f.fd.Number()))
		if err := e.fieldValue(f, inside, depth); err != nil {
			return err
		}
	}
	clear(e.fields[first:last])
	e.fields = e.fields[:first]
	return nil
}

// isDefault tells whether a populated field holds its default all the same: protobuf
// takes -0 for another value than 0.
func isDefault(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	if fd.HasPresence() || fd.IsList() || fd.IsMap() {
		return false
	}
	kind := fd.Kind()
	return (kind == protoreflect.DoubleKind || kind == protoreflect.FloatKind) && v.Float() == 0
}

func (e *encoder) fieldValue(f field, inside *node, depth int) error {
	switch {
	case f.fd.IsMap():
		return e.mapValue(f, depth)
	case f.fd.IsList():
		list := f.value.List()
		e.number(tagList, uint64(list.Len()))
		for i := range list.Len() {
			if err := e.value(f.fd, list.Get(i), nil, depth); err != nil {
				return err
			}
		}
		return nil
	}
	return e.value(f.fd, f.value, inside, depth)
}

// mapValue writes the entries of a map by their keys: false before true, numbers by
// value, strings by bytes.
func (e *encoder) mapValue(f field, depth int) error {
	type entry struct {
		key   protoreflect.MapKey
		value protoreflect.Value
	}
	entries := make([]entry, 0, f.value.Map().Len())
	f.value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		entries = append(entries, entry{k, v})
		return true
	})
	compare := keyOrder(f.fd.MapKey().Kind())
	slices.SortFunc(entries, func(a, b entry) int { return compare(a.key, b.key) })
	e.number(tagMap, uint64(len(entries)))
	for _, entry := range entries {
		if err := e.value(f.fd.MapKey(), entry.key.Value(), nil, depth); err != nil {
			return err
		}
		if err := e.value(f.fd.MapValue(), entry.value, nil, depth); err != nil {
			return err
		}
	}
	return nil
}

func keyOrder(kind protoreflect.Kind) func(a, b protoreflect.MapKey) int {
	switch kind {
	case protoreflect.StringKind:
		return func(a, b protoreflect.MapKey) int { return cmp.Compare(a.String(), b.String()) }
	case protoreflect.BoolKind:
		return func(a, b protoreflect.MapKey) int {
			switch {
			case a.Bool() == b.Bool():
				return 0
			case b.Bool():
				return -1
			}
			return 1
		}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return func(a, b protoreflect.MapKey) int { return cmp.Compare(a.Uint(), b.Uint()) }
	}
	return func(a, b protoreflect.MapKey) int { return cmp.Compare(a.Int(), b.Int()) }
}

// value writes a single value.
func (e *encoder) value(fd protoreflect.FieldDescriptor, v protoreflect.Value, inside *node, depth int) error {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return e.message(v.Message(), inside, depth+1)
	case protoreflect.StringKind:
		if !utf8.ValidString(v.String()) {
			return fmt.Errorf("pb1: the field %s holds text that is not UTF-8; send valid UTF-8, or make it a bytes field", quote(string(fd.FullName())))
		}
		e.number(tagText, uint64(len(v.String())))
		write(&e.sink, v.String())
	case protoreflect.BytesKind:
		e.bytes(tagBytes, v.Bytes())
	case protoreflect.BoolKind:
		bit := byte(0)
		if v.Bool() {
			bit = 1
		}
		e.buf = append(e.room(), tagBool, bit)
	case protoreflect.EnumKind:
		e.word(tagSigned, uint64(int64(v.Enum())))
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		e.word(tagDouble, doubleBits(v.Float()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		e.word(tagUnsigned, v.Uint())
	default:
		e.word(tagSigned, uint64(v.Int()))
	}
	return nil
}

func doubleBits(f float64) uint64 {
	switch {
	case math.IsNaN(f):
		return canonicalNaN
	case f == 0:
		return 0
	}
	return math.Float64bits(f)
}

func (e *encoder) tag(tag byte) { e.buf = append(e.room(), tag) }

// number writes a tag and a number in variable length.
func (e *encoder) number(tag byte, n uint64) {
	e.buf = binary.AppendUvarint(append(e.room(), tag), n)
}

// word writes a tag and eight bytes, the most significant first.
func (e *encoder) word(tag byte, w uint64) {
	e.buf = binary.BigEndian.AppendUint64(append(e.room(), tag), w)
}

// bytes writes a tag and bytes behind their length.
func (e *encoder) bytes(tag byte, b []byte) {
	e.number(tag, uint64(len(b)))
	write(&e.sink, b)
}
