package fingerprint_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onced/onced/fingerprint"
)

// toolCall is what an agent sends to a tool: about 2 KB of names, short texts, ids,
// amounts, a few levels deep.
func toolCall() []byte {
	var b strings.Builder
	b.WriteString(`{"customer_id":"cus_01HZX3W8N5T2","subject":"Cannot sign in after the password reset","body":"Hello,\n\nI have reset my password twice today, and the portal still says \"unknown user\".\nCould you please have a look? My account is 9007199254740993.\n\nBest regards,\nZoë","priority":"high","channel":"email","dry_run":false,"due":null,`)
	b.WriteString(`"tags":["billing","login","eu-west-1","vip"],"contact":{"name":"Zoë Müller","email":"zoe@example.com","phone":"+49 30 1234567","address":{"street":"Unter den Linden 1","city":"Berlin","zip":"10117","country":"DE","geo":{"lat":52.5170365,"lon":13.3888599}}},"lines":[`)
	for i := range 11 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"SKU-%04d","title":"Item number %d","quantity":%d,"unit_price":%d.50,"discount":0.1,"taxable":true}`, i*37, i, i+1, 10*i+9)
	}
	b.WriteString(`],"metadata":{"source":"agent","model":"support-v3","conversation":"conv_7f3a","locale":"de-DE","attempts":1,"score":0.8732,"notes":"The user asked twice; see the earlier ticket, and keep the tone friendly. Do not promise a date."},"total":1234.50,"currency":"EUR"}`)
	return []byte(b.String())
}

// BenchmarkJSON compares cj1 with what it takes to bring the same document into the
// standard library's form, which is no fingerprint yet.
func BenchmarkJSON(b *testing.B) {
	doc := toolCall()
	b.Run("cj1", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fingerprint.JSON(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cj1-ignore", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fingerprint.JSON(doc, fingerprint.Ignore("metadata.conversation", "total")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unmarshal-marshal", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := json.Unmarshal(doc, &v); err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHostile shows that time is linear in what was sent, whatever it is. The
// rates of one kind at two sizes are about the same.
func BenchmarkHostile(b *testing.B) {
	for _, size := range []int{1 << 20, 16 << 20} {
		for name, doc := range hostile(size) {
			b.Run(fmt.Sprintf("%s/%dMiB", name, size>>20), func(b *testing.B) {
				b.SetBytes(int64(len(doc)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := fingerprint.JSON(doc); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// hostile returns documents of about size bytes that make naive work quadratic.
func hostile(size int) map[string][]byte {
	fill := func(s string, n int) string { return strings.Repeat(s, n/len(s)) }
	nested := func(open, inner, end string) string {
		return strings.Repeat(open, 1000) + inner + strings.Repeat(end, 1000)
	}
	prefix := strings.Repeat("p", 60)
	var names, ordered bytes.Buffer
	for i := 0; names.Len() < size; i++ {
		fmt.Fprintf(&names, `,"%s%07d":1`, prefix, (i*7919)%10_000_000)
		fmt.Fprintf(&ordered, `,"%s%07d":{}`, prefix, i)
	}
	object := func(members []byte) []byte { return append(append([]byte{'{'}, members[1:]...), '}') }
	return map[string][]byte{
		"nested-objects":      []byte(nested(`{"a":`, `"`+fill("x", size)+`"`, `}`)),
		"nested-arrays-late":  []byte(nested(`[`, `0`, `,"`+fill("x", size/1000)+`"]`)),
		"nested-long-names":   []byte(nested(`{"`+fill("n", size/1000)+`":`, `0`, `}`)),
		"empty-arrays":        []byte(`[` + fill("[],", size) + `[]]`),
		"empty-objects":       object(ordered.Bytes()),
		"names-common-prefix": object(names.Bytes()),
		"ones":                []byte(`[` + fill("1,", size) + `1]`),
		"long-integer":        []byte(fill("7", size)),
		"long-zeros":          []byte("1" + fill("0", size)),
		"long-fraction":       []byte("0." + fill("0", size) + "1"),
		"long-exponent":       []byte("10e" + fill("9", size)),
		"long-borrow":         []byte("0.1e1" + fill("0", size)),
		"escapes":             []byte(`"` + fill(`\u0061`, size) + `"`),
		"escaped-slashes":     []byte(`"` + fill(`\\`, size) + `"`),
		"white-space":         []byte(fill(" ", size) + "1"),
		"same-names-deep":     []byte(`[` + fill(`{"b":{"b":{"b":1}}},`, size) + `0]`),
	}
}

// BenchmarkMessage shows pb1 on a Struct of a tool call.
func BenchmarkMessage(b *testing.B) {
	m := new(structpb.Struct)
	if err := m.UnmarshalJSON(toolCall()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fingerprint.Message(m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHostileMessage shows pb1 on what is deep, wide or hidden.
func BenchmarkHostileMessage(b *testing.B) {
	md := orderType(b)
	for _, size := range []int{1 << 20, 4 << 20} {
		deep, anys := []byte(strings.Repeat("x", size)), &anypb.Any{TypeUrl: "x/google.protobuf.BytesValue"}
		deep = bytesField(13, string(deep))
		for range 990 {
			deep = bytesField(9, string(deep))
		}
		anys.Value = bytesField(1, strings.Repeat("x", size))
		for range 31 {
			anys = packedAny("x/google.protobuf.Any", anys)
		}
		var unknown, entries []byte
		for i := 0; len(unknown) < size; i++ {
			unknown = append(unknown, varintField(protowire.Number(101+i*7919%1000), 1)...)
		}
		for i := 0; len(entries) < size; i++ {
			entries = append(entries, bytesField(5, string(bytesField(1, fmt.Sprintf("%060d", i*7919))))...)
		}
		for name, wire := range map[string][]byte{
			"deep": deep, "any-in-any": bytesField(15, string(marshalled(b, anys))), "unknown": unknown, "map": entries,
			"empty-messages": bytes.Repeat(bytesField(4, ""), size/2), "list": bytesField(6, strings.Repeat("\x02", size)),
		} {
			m := rewired(b, md, wire)
			b.Run(fmt.Sprintf("%s/%dMiB", name, size>>20), func(b *testing.B) {
				b.SetBytes(int64(len(wire)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := fingerprint.Message(m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRaw shows raw1.
func BenchmarkRaw(b *testing.B) {
	doc := toolCall()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		fingerprint.Raw(doc)
	}
}
