package fingerprint_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onced/onced"
	"github.com/onced/onced/fingerprint"
)

// TestR08_RespelledNumbers: a gateway wrote 1.0 as 1, and an unchanged payload was
// refused as altered.
func TestR08_RespelledNumbers(t *testing.T) {
	for _, pair := range [][2]string{
		{`{"hours":1.0}`, `{"hours":1}`},
		{`{"n":100}`, `{"n":1e2}`},
		{`{"n":0.1}`, `{"n":0.10}`},
		{`{"n":0}`, `{"n":-0}`},
		{`{"n":100000000000000000000}`, `{"n":1e20}`},
		{`{"lines":[{"hours":8.50,"rate":1.0E2}]}`, `{"lines":[{"rate":100,"hours":8.5}]}`},
	} {
		if mustJSON(t, pair[0]) != mustJSON(t, pair[1]) {
			t.Errorf("%s and %s differ", pair[0], pair[1])
		}
	}
}

// TestR09_LargeNumbers: numbers went through float64, and two accounts became one.
func TestR09_LargeNumbers(t *testing.T) {
	for _, pair := range [][2]string{
		{`{"account":9007199254740992}`, `{"account":9007199254740993}`},
		{`{"n":999999999999999999}`, `{"n":1000000000000000000}`},
		{`{"n":123456789012345678901234567890}`, `{"n":123456789012345678901234567891}`},
		{`{"n":0.1}`, `{"n":0.1000000000000000055511151231257827}`},
		{`{"n":1e400}`, `{"n":1e401}`},
		{`{"n":1e-400}`, `{"n":0}`},
		{`{"n":18446744073709551616}`, `{"n":18446744073709551617}`},
	} {
		if mustJSON(t, pair[0]) == mustJSON(t, pair[1]) {
			t.Errorf("%s and %s are equal", pair[0], pair[1])
		}
	}
	if mustJSON(t, `{"a":1e999999999}`) != mustJSON(t, `{"a":10e999999998}`) {
		t.Error("two spellings of one huge number differ")
	}
}

// TestR10_MarshalledMessages: equal messages were marshalled into different bytes, in
// one process and across builds.
func TestR10_MarshalledMessages(t *testing.T) {
	request, err := structpb.NewStruct(map[string]any{
		"to": "ann", "amount": 12.5, "tags": []any{"a", nil, true}, "meta": map[string]any{"x": 1, "y": 2, "z": 3}, "dry_run": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := mustMessage(t, request)
	for i := range 200 {
		again := new(structpb.Struct)
		if err := proto.Unmarshal(marshalled(t, request), again); err != nil {
			t.Fatal(err)
		}
		for _, m := range []proto.Message{again, proto.Clone(request), rewired(t, request.ProtoReflect().Descriptor(), marshalled(t, request))} {
			if got := mustMessage(t, m); got != want {
				t.Fatalf("marshal %d: got %s, first was %s", i, got, want)
			}
		}
	}

	this, next := orderType(t), builtFile(t, withNext(nextField)).Messages().ByName("Order")
	for _, text := range []string{`id:"x" amount:5`, `id:"x" labels{key:"a"} labels{key:"b"} args{fields{key:"k" value{}}}`, ``} {
		wire := marshalled(t, parsed(t, this, text))
		if mustMessage(t, rewired(t, this, wire)) != mustMessage(t, rewired(t, next, wire)) {
			t.Errorf("%q: a build that knows one more field gives another fingerprint", text)
		}
	}

	// What one build does not know and the next one does is never taken for equal: the
	// retry is refused, and nothing runs.
	wire := fields(bytesField(1, "x"), bytesField(30, "ten off"))
	if mustMessage(t, rewired(t, this, wire)) == mustMessage(t, rewired(t, next, wire)) {
		t.Error("an unknown field is a known one")
	}

	// Each fingerprint says by which scheme it was made.
	for scheme, s := range map[string]string{
		fingerprint.SchemeMessage: want,
		fingerprint.SchemeJSON:    mustJSON(t, `{}`),
		fingerprint.SchemeRaw:     fingerprint.Raw(nil).String(),
	} {
		if f, err := onced.ParseFingerprint(s); err != nil || f.Scheme != scheme {
			t.Errorf("%s: %v, %v", s, f, err)
		}
	}
}

// TestR52_AmbiguousDocuments: names that stand twice, and what follows the document,
// were read in different ways by those who checked and those who executed.
func TestR52_AmbiguousDocuments(t *testing.T) {
	for _, doc := range []string{
		`{"amount":5,"amount":500}`, `{"amount":5,"\u0061mount":500}`, `{"a":1} x`, `{"a":1}{"a":2}`, `{"a":1} {"a":1}`,
		`{"a":[{"amount":5,"x":1,"amount":500}]}`, "{\"a\":1}\x00",
	} {
		if got, err := fingerprint.JSON([]byte(doc)); err == nil {
			t.Errorf("%s was given %v", doc, got)
		}
	}
	names := map[string]bool{}
	for _, doc := range []string{`{"amount":5,"Amount":500}`, `{"amount":5}`, `{"Amount":5}`, `{"amount":500,"Amount":5}`} {
		print := mustJSON(t, doc)
		if names[print] {
			t.Errorf("%s is the same as one of other names", doc)
		}
		names[print] = true
	}
}
