package fingerprint_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/fingerprint"
)

// TestEncoding spells the encoding out, as the package comment has it.
func TestEncoding(t *testing.T) {
	md := orderType(t)
	n := func(v byte) string { return "\x00\x00\x00\x00\x00\x00\x00" + string(v) }
	minus := "\xff\xff\xff\xff\xff\xff\xff\xff"
	for text, encoding := range map[string]string{
		``:                       "me",
		`id:"ab" amount:-1`:      "mF\x01s\x02abF\x02i" + minus + "e",
		`note:""`:                "mF\x03s\x00e",
		`lines{} lines{id:"x"}`:  "mF\x04l\x02memF\x01s\x01xee",
		`packed:-1 packed:2`:     "mF\x06l\x02i" + minus + "i" + n(2) + "e",
		`price:-2.5 weight:-0.0`: "mF\x07d\xc0\x04\x00\x00\x00\x00\x00\x00F\x08d" + n(0) + "e",
		`price:nan`:              "mF\x07d\x7f\xf8\x00\x00\x00\x00\x00\x00e",
		`cash:0 colour:RED`:      "mF\x0bu" + n(0) + "F\x0ci" + n(1) + "e",
		`raw:"\377" gift:true`:   "mF\x0dy\x01\xffF\x0eb\x01e",
		`labels{key:"b"} labels{key:"aa" value:"x"}`:                                              "mF\x05p\x02s\x02aas\x01xs\x01bs\x00e",
		`by_number{key:1 value{}} by_number{key:-1 value{}}`:                                      "mF\x11p\x02i" + minus + "mei" + n(1) + "mee",
		`by_flag{key:true} by_flag{key:false}`:                                                    "mF\x14p\x02b\x00d" + n(0) + "b\x01d" + n(0) + "e",
		`detail{[x.org/y/google.protobuf.BoolValue]{}}`:                                           "mF\x0fmF\x01s\x19google.protobuf.BoolValueF\x02meee",
		`detail{type_url:"x.org/no.Such" value:"ab"}`:                                             "mF\x0fmF\x01s\x07no.SuchF\x02y\x02abee",
		`args{fields{key:"a" value{number_value:-0.0}}}`:                                          "mF\x10mF\x01p\x01s\x01amF\x02d" + n(0) + "eee",
		`child{id:"` + strings.Repeat("x", 200) + `"} big:258`:                                    "mF\x09mF\x01s\xc8\x01" + strings.Repeat("x", 200) + "eF\x15u\x00\x00\x00\x00\x00\x00\x01\x02e",
		`detail{[x/google.protobuf.Any]{[y/google.protobuf.StringValue]{value:"v"}}} names:["a"]`: "mF\x0fmF\x01s\x13google.protobuf.AnyF\x02mF\x01s\x1bgoogle.protobuf.StringValueF\x02mF\x01s\x01veeeF\x13l\x01s\x01ae",
	} {
		sum := sha256.Sum256([]byte("\x09onced pb1" + encoding))
		for range 20 { // the order of a map's entries differs from one time to the next
			if got, want := mustMessage(t, parsed(t, md, text)), "pb1:"+hex.EncodeToString(sum[:]); got != want {
				t.Errorf("%s is not encoded as %q", text, encoding)
				break
			}
		}
	}
	unknown := rewired(t, md, fields(bytesField(200, "x"), varintField(90, 1), varintField(90, 2)))
	sum := sha256.Sum256([]byte("\x09onced pb1mU\x5ay\x03\xd0\x05\x01U\x5ay\x03\xd0\x05\x02U\xc8\x01y\x04\xc2\x0c\x01xe"))
	if got, want := mustMessage(t, unknown), "pb1:"+hex.EncodeToString(sum[:]); got != want {
		t.Error("unknown fields are encoded in another way")
	}
}

// TestGroupsAndExtensions: what only the older language has.
func TestGroupsAndExtensions(t *testing.T) {
	file := builtFile(t, legacyFile)
	md := file.Messages().ByName("Call")
	texts := []string{
		``, `id:""`, `count:7`, `count:0`, `Item{}`, `Item{} Item{}`, `Item{sku:"a"}`, `Item{sku:"a"} Item{}`, `One{}`, `One{sku:"a"}`,
		`text:"a"`, `[legacy.text]:"a"`, `[legacy.text]:""`, `[legacy.hints]:1`, `[legacy.hints]:[1,2]`, `text:"a" [legacy.text]:"a"`,
	}
	seen := map[string]string{}
	for _, text := range texts {
		m := parsed(t, md, text)
		got := mustMessage(t, m)
		if other, ok := seen[got]; ok {
			t.Errorf("%q is %q", text, other)
		}
		seen[got] = text
		if again := mustMessage(t, rewired(t, md, marshalled(t, m))); again != got {
			t.Errorf("%q differs after a marshal", text)
		}
	}
	// Without the extension's type its field is an unknown one.
	wire := marshalled(t, parsed(t, md, `id:"x" [legacy.text]:"a"`))
	plain := dynamicpb.NewMessage(md)
	if err := proto.Unmarshal(wire, plain); err != nil {
		t.Fatal(err)
	}
	if mustMessage(t, plain) == mustMessage(t, rewired(t, md, wire)) {
		t.Error("an unknown extension is a known one")
	}
	// A field's name is not that of an extension.
	for text, same := range map[string]string{`text:"a" [legacy.text]:"b" id:"x"`: `text:"a"`} {
		if mustMessage(t, parsed(t, md, text), fingerprint.Identity("text")) != mustMessage(t, parsed(t, md, same)) {
			t.Errorf("identity of %s is not %s", text, same)
		}
	}
	if mustMessage(t, parsed(t, md, `text:"a" [legacy.text]:"b"`), fingerprint.Ignore("text")) != mustMessage(t, parsed(t, md, `[legacy.text]:"b"`)) {
		t.Error("an extension is ignored with the field of its name")
	}
	if mustMessage(t, parsed(t, md, `One{sku:"a"} Item{}`), fingerprint.Identity("one.sku")) != mustMessage(t, parsed(t, md, `One{sku:"a"}`)) {
		t.Error("a path does not lead through a group")
	}
}

// packedAny is an Any with the bytes as they are.
func packedAny(url string, content proto.Message) *anypb.Any {
	wire, _ := proto.Marshal(content)
	return &anypb.Any{TypeUrl: url, Value: wire}
}

// TestAny: the content counts by its fields, the prefix of its type's URL not at all.
func TestAny(t *testing.T) {
	value := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		value.Fields[name] = structpb.NewStringValue(name)
	}
	want := mustMessage(t, packedAny("type.googleapis.com/google.protobuf.Struct", value))
	for _, url := range []string{"example.org/x/y/google.protobuf.Struct", "/google.protobuf.Struct", "google.protobuf.Struct"} {
		for range 40 {
			if got := mustMessage(t, packedAny(url, value)); got != want {
				t.Fatalf("%s: got %s, want %s", url, got, want)
			}
		}
	}
	seen := map[string]string{want: "known"}
	for name, m := range map[string]proto.Message{
		"empty":               &anypb.Any{},
		"type alone":          packedAny("x/google.protobuf.Struct", &structpb.Struct{}),
		"other type":          packedAny("x/google.protobuf.ListValue", &structpb.Struct{}),
		"not linked in":       packedAny("x/no.Such", value),
		"not linked in, less": packedAny("x/no.Such", &structpb.Struct{}),
		"no type":             packedAny("", value),
		"broken":              &anypb.Any{TypeUrl: "x/google.protobuf.Struct", Value: []byte("\xff")},
		"broken otherwise":    &anypb.Any{TypeUrl: "x/google.protobuf.Struct", Value: []byte("\xfe")},
		"within":              packedAny("x/google.protobuf.Any", packedAny("google.protobuf.Struct", value)),
		"the bytes":           wrapperspb.Bytes(marshalled(t, value)),
	} {
		got := mustMessage(t, m)
		if other, ok := seen[got]; ok {
			t.Errorf("%q is %q", name, other)
		}
		seen[got] = name
	}
	nested := func(levels int) *anypb.Any {
		a := &anypb.Any{TypeUrl: "x/google.protobuf.Empty"}
		for range levels - 1 {
			a = packedAny("x/google.protobuf.Any", a)
		}
		return a
	}
	mustMessage(t, nested(32))
	if _, err := fingerprint.Message(nested(33)); err == nil || !strings.Contains(err.Error(), "Any is nested") {
		t.Errorf("33 levels of Any: %v", err)
	}
	// Side by side they may be many.
	list := orderType(t)
	text := strings.Repeat(`lines{detail{[x/google.protobuf.BoolValue]{}}} `, 100)
	mustMessage(t, parsed(t, list, text))
}

// TestMessageSelected: the fingerprint of a selection is that of the message which it
// leaves.
func TestMessageSelected(t *testing.T) {
	md := orderType(t)
	const all = `id:"o" amount:5 note:"" child{id:"c" amount:6 child{id:"cc"}} lines{id:"l"} labels{key:"a"} detail{[x/google.protobuf.BoolValue]{}} cash:0 price:-0.0`
	only, but := fingerprint.Identity, fingerprint.Ignore
	for name, c := range map[string]struct {
		text string
		opt  fingerprint.Option
		same string
	}{
		"one":                {all, only("id"), `id:"o"`},
		"two":                {all, only("amount", "id"), `id:"o" amount:5`},
		"inside":             {all, only("child.amount"), `child{amount:6}`},
		"deep inside":        {all, only("child.child.id", "child.id"), `child{id:"c" child{id:"cc"}}`},
		"overlapping":        {all, only("child.child", "child", "child.id"), `child{id:"c" amount:6 child{id:"cc"}}`},
		"repeated, map, Any": {all, only("lines", "labels", "detail"), `lines{id:"l"} labels{key:"a"} detail{[google.protobuf.BoolValue]{}}`},
		"presence":           {all, only("note", "cash"), `note:"" cash:0`},
		"absent":             {all, only("id", "gift", "child.gift"), `id:"o"`},
		"all absent":         {`id:"o" child{id:"c"}`, only("amount", "child.amount"), ``},
		"inside an absent":   {`id:"o"`, only("id", "child.child.id"), `id:"o"`},
		"inside an empty":    {`id:"o" child{child{}}`, only("id", "child.child.id"), `id:"o"`},
		"zero inside":        {`child{price:-0.0}`, only("child.price"), ``},
		"ignore":             {all, but("note", "child", "lines", "labels", "detail", "cash"), `id:"o" amount:5`},
		"ignore inside":      {`id:"o" child{id:"c" child{amount:1 id:"x"}}`, but("child.id", "child.child.amount"), `id:"o" child{child{id:"x"}}`},
		"ignore all inside":  {`child{id:"c"}`, but("child.id"), `child{}`},
		"ignore overlapping": {all, but("child", "child.id", "note", "lines", "labels", "detail", "cash"), `id:"o" amount:5`},
		"ignore absent":      {`id:"o"`, but("gift", "child.child.gift"), `id:"o"`},
	} {
		if got, want := mustMessage(t, parsed(t, md, c.text), c.opt), mustMessage(t, parsed(t, md, c.same)); got != want {
			t.Errorf("%s: got %s, and %s is %s", name, got, c.same, want)
		}
	}
	unknown := rewired(t, md, fields(bytesField(1, "o"), varintField(90, 1), bytesField(9, string(fields(bytesField(1, "c"), varintField(90, 2))))))
	if mustMessage(t, unknown, only("id", "child.id")) != mustMessage(t, parsed(t, md, `id:"o" child{id:"c"}`)) {
		t.Error("Identity takes unknown fields that it cannot name")
	}
	if mustMessage(t, unknown, only("child")) == mustMessage(t, parsed(t, md, `child{id:"c"}`)) {
		t.Error("Identity leaves out an unknown field of a message that it names as a whole")
	}
	if mustMessage(t, unknown, but("id")) == mustMessage(t, rewired(t, md, fields(bytesField(9, string(fields(bytesField(1, "c"), varintField(90, 2)))))), but("id")) {
		t.Error("Ignore leaves out unknown fields")
	}
}

// TestMessageDropped: what the options drop may be faulty, and what they leave may not.
func TestMessageDropped(t *testing.T) {
	md := orderType(t)
	set := func(m *dynamicpb.Message, name string, v any) *dynamicpb.Message {
		m.Set(md.Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(v))
		return m
	}
	broken := parsed(t, md, `note:"n"`)
	broken.SetUnknown(protoreflect.RawFields{0xff})
	m := set(parsed(t, md, `id:"o" amount:5`), "child", broken.ProtoReflect())
	set(m, "card", "\xff")
	for name, opt := range map[string]fingerprint.Option{
		"identity": fingerprint.Identity("id", "amount"), "identity on the way": fingerprint.Identity("id", "amount", "child.gift"),
		"ignore": fingerprint.Ignore("child", "card"),
	} {
		if got, want := mustMessage(t, m, opt), mustMessage(t, parsed(t, md, `id:"o" amount:5`)); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for name, opt := range map[string]fingerprint.Option{
		"identity": fingerprint.Identity("id", "child"), "text": fingerprint.Identity("id", "card"), "ignore": fingerprint.Ignore("child.note", "card"),
	} {
		if got, err := fingerprint.Message(m, opt); err == nil {
			t.Errorf("%s: was given %v", name, got)
		}
	}
	// Of a type_url the name counts, and nothing else is looked at.
	if mustMessage(t, packedAny("\xff/google.protobuf.Struct", &structpb.Struct{})) != mustMessage(t, packedAny("google.protobuf.Struct", &structpb.Struct{})) {
		t.Error("what stands before the name in a type_url counts")
	}
	if got, err := fingerprint.Message(packedAny("x/\xff", &structpb.Struct{})); err == nil {
		t.Errorf("a name that is not UTF-8 was given %v", got)
	}
}

// TestClosedEnum: a number that a closed enum does not have is a value like others, in
// generated messages too.
func TestClosedEnum(t *testing.T) {
	seen := map[string]int{}
	for _, n := range []int{1, 18, 19, 99, 1 << 20} {
		kind := descriptorpb.FieldDescriptorProto_Type(n)
		m := &descriptorpb.FieldDescriptorProto{Name: proto.String("x"), Type: &kind}
		got := mustMessage(t, m)
		if again := mustMessage(t, rewired(t, m.ProtoReflect().Descriptor(), marshalled(t, m))); again != got {
			t.Errorf("%d: generated is %s, dynamic %s", n, got, again)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%d is %d", n, other)
		}
		seen[got] = n
	}
}

func TestMessagePathsRefused(t *testing.T) {
	md := orderType(t)
	only, but := fingerprint.Identity, fingerprint.Ignore
	for name, opts := range map[string][]fingerprint.Option{
		"both": {only("id"), but("note")}, "none": {only()}, "empty": {but("")}, "empty name": {only("child..id")}, "nil": {nil},
		"no such field": {only("id", "gone")}, "no such field ignored": {but("gone")}, "no such field inside": {but("child.gone")},
		"oneof": {only("pay")}, "JSON name": {only("byNumber")}, "number": {only("1")}, "extension": {only("[shop.x]")},
		"through repeated": {only("lines.id")}, "through a map": {but("labels.key")}, "through a map of messages": {only("by_number.value")},
		"through a scalar": {but("id.x")}, "through an enum": {only("colour.RED")}, "into an Any": {only("detail.type_url")},
		"into Any's content": {but("detail.value.id")}, "through a Struct's map": {only("args.fields.a")}, "into a Struct": {only("args.a")},
	} {
		got, err := fingerprint.Message(parsed(t, md, `id:"x"`), opts...)
		if err == nil || got.Digest != "" {
			t.Errorf("%s: was given %v", name, got)
		} else if !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: no next step: %v", name, err)
		}
	}
	mustMessage(t, parsed(t, md, `id:"x"`), only("id", "args.fields"))
	if _, err := fingerprint.Message(&anypb.Any{}, but("value")); err == nil {
		t.Error("a path into an Any was taken")
	}
	if _, err := fingerprint.Message((*structpb.Struct)(nil), only("gone")); err == nil {
		t.Error("a path that the type of a nil pointer does not have was taken")
	}
}

// parses tells whether bytes make a message. Over some that make none, protobuf panics
// for messages without generated code.
func parses(wire []byte, m proto.Message) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return proto.Unmarshal(wire, m) == nil
}

// FuzzMessage: whatever bytes make a message, it has one fingerprint, however it is
// marshalled after that.
func FuzzMessage(f *testing.F) {
	md := orderType(f)
	for _, text := range []string{`id:"x" child{labels{key:"a"} labels{key:"b"}}`, `detail{[x/google.protobuf.Struct]{fields{key:"k" value{number_value:nan}}}}`, `packed:[1,2] by_flag{}`} {
		f.Add(marshalled(f, parsed(f, md, text)))
	}
	f.Add(fields(varintField(90, 1), bytesField(9, string(varintField(91, 2)))))
	f.Add([]byte("\xa2\x01\v\b\t\t\t\t\t\t\t\t00")) // protobuf panics over it
	kind := dynamicpb.NewMessageType(md)
	f.Fuzz(func(t *testing.T, wire []byte) {
		m := kind.New().Interface()
		if !parses(wire, m) {
			return
		}
		want, err := fingerprint.Message(m)
		if err != nil {
			return
		}
		again := rewired(t, md, marshalled(t, m))
		if got, err := fingerprint.Message(again); err != nil || got != want {
			t.Fatalf("%v: got %v, %v; before the marshal %v", m, got, err, want)
		}
		again.SetUnknown(append(append(protoreflect.RawFields{}, again.GetUnknown()...), varintField(77, 1)...))
		if got, err := fingerprint.Message(again); err != nil || got == want {
			t.Fatalf("%v: one more field changes nothing: %v, %v", m, got, err)
		}
	})
}
