package fingerprint_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/structpb"

	"github.com/onced/onced/fingerprint"
)

// orderFile is a file as a build of the service knows it. The placeholder stands
// where the next build adds a field.
const orderFile = `
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/any.proto" dependency: "google/protobuf/struct.proto"
enum_type { name: "Colour" value { name: "NONE" number: 0 } value { name: "RED" number: 1 } }
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "amount" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 1 }
  field { name: "lines" number: 4 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_REPEATED }
  field { name: "labels" number: 5 type: TYPE_MESSAGE type_name: ".shop.Order.LabelsEntry" label: LABEL_REPEATED }
  field { name: "packed" number: 6 type: TYPE_SINT32 label: LABEL_REPEATED }
  field { name: "price" number: 7 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "weight" number: 8 type: TYPE_FLOAT label: LABEL_OPTIONAL proto3_optional: true oneof_index: 2 }
  field { name: "child" number: 9 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_OPTIONAL }
  field { name: "card" number: 10 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "cash" number: 11 type: TYPE_UINT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "colour" number: 12 type: TYPE_ENUM type_name: ".shop.Colour" label: LABEL_OPTIONAL }
  field { name: "raw" number: 13 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "gift" number: 14 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "detail" number: 15 type: TYPE_MESSAGE type_name: ".google.protobuf.Any" label: LABEL_OPTIONAL }
  field { name: "args" number: 16 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
  field { name: "by_number" number: 17 type: TYPE_MESSAGE type_name: ".shop.Order.ByNumberEntry" label: LABEL_REPEATED }
  field { name: "prices" number: 18 type: TYPE_DOUBLE label: LABEL_REPEATED }
  field { name: "names" number: 19 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "by_flag" number: 20 type: TYPE_MESSAGE type_name: ".shop.Order.ByFlagEntry" label: LABEL_REPEATED }
  field { name: "big" number: 21 type: TYPE_FIXED64 label: LABEL_OPTIONAL }
  # next
  oneof_decl { name: "pay" } oneof_decl { name: "_note" } oneof_decl { name: "_weight" }
  nested_type {
    name: "LabelsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "ByNumberEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_SINT64 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "ByFlagEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  }
}`

// withNext returns orderFile with one more field.
func withNext(field string) string { return strings.Replace(orderFile, "# next", field, 1) }

// nextField is what the next build of the service knows beside.
const nextField = `field { name: "coupon" number: 30 type: TYPE_STRING label: LABEL_OPTIONAL }`

// legacyFile has what proto2 alone has.
const legacyFile = `
name: "legacy.proto" package: "legacy" syntax: "proto2"
message_type {
  name: "Call"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_REQUIRED }
  field { name: "count" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL default_value: "7" }
  field { name: "item" number: 3 type: TYPE_GROUP type_name: ".legacy.Call.Item" label: LABEL_REPEATED }
  field { name: "one" number: 4 type: TYPE_GROUP type_name: ".legacy.Call.One" label: LABEL_OPTIONAL }
  field { name: "text" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL }
  nested_type { name: "Item" field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
  nested_type { name: "One" field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
  extension_range { start: 100 end: 200 }
}
extension { name: "text" extendee: ".legacy.Call" number: 101 type: TYPE_STRING label: LABEL_OPTIONAL }
extension { name: "hints" extendee: ".legacy.Call" number: 100 type: TYPE_INT32 label: LABEL_REPEATED }
`

// builtFile makes descriptors of a file in text form.
func builtFile(tb testing.TB, text string) protoreflect.FileDescriptor {
	tb.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(text), &file); err != nil {
		tb.Fatal(err)
	}
	built, err := protodesc.NewFile(&file, protoregistry.GlobalFiles)
	if err != nil {
		tb.Fatal(err)
	}
	return built
}

// parsed makes a message of a type in a file from its text form.
func parsed(tb testing.TB, md protoreflect.MessageDescriptor, text string) *dynamicpb.Message {
	tb.Helper()
	m := dynamicpb.NewMessage(md)
	types := dynamicpb.NewTypes(filesOf(md))
	if err := (prototext.UnmarshalOptions{Resolver: anyTypes{types}, AllowPartial: true}).Unmarshal([]byte(text), m); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return m
}

// filesOf is a registry of the file that a message is declared in.
func filesOf(md protoreflect.MessageDescriptor) *protoregistry.Files {
	files := new(protoregistry.Files)
	_ = files.RegisterFile(md.ParentFile())
	return files
}

// anyTypes finds the types of a file, and those linked into the program.
type anyTypes struct{ *dynamicpb.Types }

func (a anyTypes) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if kind, err := a.Types.FindMessageByName(name); err == nil {
		return kind, nil
	}
	return protoregistry.GlobalTypes.FindMessageByName(name)
}

func (a anyTypes) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if kind, err := a.Types.FindMessageByURL(url); err == nil {
		return kind, nil
	}
	return protoregistry.GlobalTypes.FindMessageByURL(url)
}

// rewired makes a message of a type from bytes.
func rewired(tb testing.TB, md protoreflect.MessageDescriptor, wire []byte) *dynamicpb.Message {
	tb.Helper()
	m := dynamicpb.NewMessage(md)
	options := proto.UnmarshalOptions{AllowPartial: true, Resolver: anyTypes{dynamicpb.NewTypes(filesOf(md))}}
	if err := options.Unmarshal(wire, m); err != nil {
		tb.Fatal(err)
	}
	return m
}

func marshalled(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	wire, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return wire
}

func mustMessage(tb testing.TB, m proto.Message, opts ...fingerprint.Option) string {
	tb.Helper()
	f, err := fingerprint.Message(m, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return f.String()
}

func orderType(tb testing.TB) protoreflect.MessageDescriptor {
	tb.Helper()
	return builtFile(tb, withNext("")).Messages().ByName("Order")
}
