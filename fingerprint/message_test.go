package fingerprint_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/fingerprint"
)

// fields builds a message's bytes from fields that are each built apart.
func fields(list ...[]byte) []byte {
	var wire []byte
	for _, f := range list {
		wire = append(wire, f...)
	}
	return wire
}

func varintField(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func bytesField(n protowire.Number, b string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

func doubleField(n protowire.Number, f float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, n, protowire.Fixed64Type), math.Float64bits(f))
}

func floatField(n protowire.Number, bits uint32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(nil, n, protowire.Fixed32Type), bits)
}

var negativeZero = math.Copysign(0, -1)

// TestMessageEqual: bytes that say the same in different ways.
func TestMessageEqual(t *testing.T) {
	md := orderType(t)
	label := func(k, v string) []byte { return bytesField(5, string(fields(bytesField(1, k), bytesField(2, v)))) }
	numbered := func(k int64, v []byte) []byte {
		return bytesField(17, string(fields(varintField(1, protowire.EncodeZigZag(k)), bytesField(2, string(v)))))
	}
	for name, wires := range map[string][][]byte{
		"order of fields":       {fields(bytesField(1, "x"), varintField(2, 5)), fields(varintField(2, 5), bytesField(1, "x"))},
		"order of map entries":  {fields(label("a", "1"), label("b", "2")), fields(label("b", "2"), label("a", "1"))},
		"map entry twice":       {label("a", "2"), fields(label("a", "1"), label("a", "2"))},
		"map entry backwards":   {label("a", "1"), bytesField(5, string(fields(bytesField(2, "1"), bytesField(1, "a"))))},
		"map key left out":      {label("", "1"), bytesField(5, string(bytesField(2, "1")))},
		"map value left out":    {label("a", ""), bytesField(5, string(bytesField(1, "a")))},
		"map of messages":       {fields(numbered(-1, nil), numbered(3, bytesField(1, "x"))), fields(numbered(3, bytesField(1, "x")), numbered(-1, nil))},
		"packed and not":        {bytesField(6, "\x02\x04\x05"), fields(varintField(6, 2), varintField(6, 4), varintField(6, 5)), fields(bytesField(6, "\x02"), varintField(6, 4), bytesField(6, "\x05"))},
		"last one wins":         {varintField(2, 7), fields(varintField(2, 5), varintField(2, 7))},
		"last of a oneof wins":  {varintField(11, 7), fields(bytesField(10, "visa"), varintField(11, 7))},
		"message in pieces":     {bytesField(9, string(fields(bytesField(1, "x"), varintField(2, 5)))), fields(bytesField(9, string(bytesField(1, "x"))), bytesField(9, string(varintField(2, 5))))},
		"long varint":           {varintField(2, 5), {0x10, 0x85, 0x80, 0x00}, {0x90, 0x00, 0x05}},
		"default written":       {nil, fields(varintField(2, 0), bytesField(1, ""), varintField(14, 0), varintField(12, 0), doubleField(7, 0))},
		"zero of either sign":   {nil, doubleField(7, negativeZero)},
		"zeros set":             {floatField(8, 0), floatField(8, 1<<31)},
		"NaN":                   {doubleField(7, math.NaN()), doubleField(7, math.Float64frombits(0xfff8000000000001)), doubleField(7, math.Float64frombits(0x7ff0000000000001))},
		"NaN of 32 bits":        {floatField(8, 0x7fc00000), floatField(8, 0xffc00123), floatField(8, 0x7f800001)},
		"zeros in a list":       {doubleField(18, 0), doubleField(18, negativeZero)},
		"zeros in a map":        {bytesField(20, string(fields(varintField(1, 1), doubleField(2, 0)))), bytesField(20, string(fields(varintField(1, 1), doubleField(2, negativeZero)))), bytesField(20, string(varintField(1, 1)))},
		"unknown, order":        {fields(varintField(90, 1), bytesField(91, "x")), fields(bytesField(91, "x"), varintField(90, 1))},
		"unknown, among others": {fields(varintField(90, 1), varintField(2, 5)), fields(varintField(2, 5), varintField(90, 1))},
	} {
		want := mustMessage(t, rewired(t, md, wires[0]))
		for i, wire := range wires[1:] {
			if got := mustMessage(t, rewired(t, md, wire)); got != want {
				t.Errorf("%s: form %d differs", name, i+1)
			}
		}
	}
}

// TestMessageDiffer: no two of these messages are the same.
func TestMessageDiffer(t *testing.T) {
	md := orderType(t)
	seen := map[string]string{}
	for _, text := range []string{
		``, `id:"a"`, `id:"b"`, `amount:1`, `amount:-1`, `amount:9007199254740992`, `amount:9007199254740993`, `note:""`, `note:"a"`,
		`lines{}`, `lines{} lines{}`, `lines{lines{}}`, `lines{id:"a"} lines{id:"b"}`, `lines{id:"b"} lines{id:"a"}`,
		`labels{key:"a" value:"b"}`, `labels{key:"b" value:"a"}`, `labels{key:"a"}`, `labels{}`, `labels{key:"a" value:"b"} labels{key:"c"}`,
		`packed:0`, `packed:0 packed:0`, `packed:1 packed:2`, `packed:2 packed:1`, `packed:12`, `price:1`, `price:1.5`, `price:-1`, `price:nan`, `price:inf`, `price:-inf`,
		`weight:0`, `weight:1`, `weight:nan`, `child{}`, `child{child{}}`, `child{id:"a"}`, `child{} id:"a"`, `card:""`, `card:"1"`, `cash:0`, `cash:1`,
		`colour:RED`, `colour:2`, `raw:"a"`, `gift:true`, `detail{}`, `args{}`, `args{fields{key:"a" value{}}}`,
		`args{fields{key:"a" value{null_value:NULL_VALUE}}}`, `args{fields{key:"a" value{number_value:0}}}`, `args{fields{key:"a" value{string_value:""}}}`,
		`args{fields{key:"a" value{bool_value:false}}}`, `args{fields{key:"a" value{list_value{}}}}`, `args{fields{key:"a" value{struct_value{}}}}`, `args{fields{key:"b" value{}}}`,
		`by_number{key:-1 value{}}`, `by_number{key:1 value{}}`, `by_number{key:0 value{}}`, `prices:0`, `prices:1`, `prices:[1,2]`, `prices:[2,1]`,
		`names:""`, `names:["",""]`, `names:["ab"]`, `names:["a","b"]`, `by_flag{key:true value:1}`, `by_flag{key:false value:1}`, `by_flag{}`, `big:1`, `big:18446744073709551615`,
		`id:"ab"`, `id:"a" note:"b"`, "id:\"\u00e9\"", "id:\"e\u0301\"",
	} {
		got := mustMessage(t, parsed(t, md, text))
		if other, ok := seen[got]; ok {
			t.Errorf("%q is %q", text, other)
		}
		seen[got] = text
	}
}

// TestUnknownFields: a field that is not known counts by its bytes.
func TestUnknownFields(t *testing.T) {
	md := orderType(t)
	next := builtFile(t, withNext(nextField)).Messages().ByName("Order")
	wire := fields(bytesField(1, "x"), bytesField(30, "ten off"))
	known, unknown := mustMessage(t, rewired(t, next, wire)), mustMessage(t, rewired(t, md, wire))
	without := mustMessage(t, rewired(t, md, bytesField(1, "x")))
	if known == unknown || unknown == without || known == without {
		t.Errorf("known %s, unknown %s, without %s", known, unknown, without)
	}
	a := rewired(t, md, fields(varintField(90, 1), varintField(90, 2)))
	b := rewired(t, md, fields(varintField(90, 2), varintField(90, 1)))
	if mustMessage(t, a) == mustMessage(t, b) {
		t.Error("the order of an unknown field's values does not count")
	}
	inner := rewired(t, md, bytesField(9, string(varintField(90, 1))))
	if mustMessage(t, inner) == mustMessage(t, rewired(t, md, bytesField(9, ""))) {
		t.Error("an unknown field of an inner message does not count")
	}
	if mustMessage(t, inner) == mustMessage(t, rewired(t, md, fields(bytesField(9, ""), varintField(90, 1)))) {
		t.Error("it does not matter which message an unknown field is in")
	}
}

// TestGeneratedAndDynamic: the fingerprint is of the fields, not of what holds them.
func TestGeneratedAndDynamic(t *testing.T) {
	args, err := structpb.NewStruct(map[string]any{"a": 1.5, "b": []any{nil, true, "x", map[string]any{"c": negativeZero}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []proto.Message{args, &timestamppb.Timestamp{Seconds: -1, Nanos: 7}, wrapperspb.String("x")} {
		dynamic := rewired(t, m.ProtoReflect().Descriptor(), marshalled(t, m))
		if mustMessage(t, m) != mustMessage(t, dynamic) {
			t.Errorf("%v: generated and dynamic differ", m)
		}
	}
}

// TestEmptyMessages: a nil pointer of a type is its empty message.
func TestEmptyMessages(t *testing.T) {
	want := mustMessage(t, &structpb.Struct{})
	for name, m := range map[string]proto.Message{
		"nil pointer": (*structpb.Struct)(nil), "other type": &wrapperspb.StringValue{}, "read-only": dynamicpb.NewMessageType(orderType(t)).Zero().Interface(),
		"empty map": &structpb.Struct{Fields: map[string]*structpb.Value{}},
	} {
		if got := mustMessage(t, m); got != want {
			t.Errorf("%s: got %s, an empty one is %s", name, got, want)
		}
	}
	nilInside := &structpb.ListValue{Values: []*structpb.Value{nil}}
	emptyInside := &structpb.ListValue{Values: []*structpb.Value{{}}}
	if mustMessage(t, nilInside) != mustMessage(t, emptyInside) {
		t.Error("a nil message in a list is not the empty one")
	}
}

func TestMessageRefused(t *testing.T) {
	md := orderType(t)
	broken := parsed(t, md, `id:"x"`)
	broken.SetUnknown(protoreflect.RawFields{0xff})
	deep := func(n int) proto.Message {
		wire := []byte(nil)
		for range n - 1 {
			wire = bytesField(9, string(wire))
		}
		return rewired(t, md, wire)
	}
	mustMessage(t, deep(1000))
	field := func(name string, v any) proto.Message {
		m := dynamicpb.NewMessage(md)
		m.Set(md.Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
		return m
	}
	badKey := dynamicpb.NewMessage(md)
	badKey.Mutable(md.Fields().ByName("labels")).Map().Set(protoreflect.ValueOfString("\xff").MapKey(), protoreflect.ValueOfString(""))
	badName := dynamicpb.NewMessage(md)
	badName.Mutable(md.Fields().ByName("names")).List().Append(protoreflect.ValueOfString("\xed\xa0\x80"))
	for name, c := range map[string]struct {
		m    proto.Message
		says string
	}{
		"nil":           {nil, "nil"},
		"nil dynamic":   {(*dynamicpb.Message)(nil), "nil"},
		"too deep":      {deep(1001), "deeper than 1000"},
		"text":          {field("id", "\xff"), "shop.Order.id"},
		"text in map":   {badKey, "UTF-8"},
		"text in list":  {badName, "UTF-8"},
		"unknown bytes": {broken, "unknown fields"},
		"Struct":        {&structpb.Struct{Fields: map[string]*structpb.Value{"\xff": nil}}, "UTF-8"},
	} {
		got, err := fingerprint.Message(c.m)
		if err == nil || got.Digest != "" {
			t.Errorf("%s: was given %v", name, got)
		} else if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
