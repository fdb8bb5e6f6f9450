package fingerprint_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/onced/onced/fingerprint"
)

// equalPairs are documents of one value in two spellings.
var equalPairs = map[string][][2]string{
	"order of members": {
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{`{"x":{"d":1,"c":2}}`, `{"x":{"c":2,"d":1}}`},
		{`{"":1," ":2,"aa":3,"a":4}`, `{"aa":3,"a":4," ":2,"":1}`},
		{"{\"\U0001F600\":1,\"\uFB33\":2}", "{\"\uFB33\":2,\"\U0001F600\":1}"},
		{`{"abcdefgh1":1,"abcdefgh":2,"abcdefgh\u0000":3}`, `{"abcdefgh\u0000":3,"abcdefgh1":1,"abcdefgh":2}`},
		{`[{"b":[{"d":1,"c":2}],"a":null}]`, `[{"a":null,"b":[{"c":2,"d":1}]}]`},
	},
	"spelling of numbers": {
		{`{"a":1}`, `{"a":1.0}`},
		{`{"a":1}`, `{"a":1e0}`},
		{`{"a":1}`, `{"a":10e-1}`},
		{`{"a":100}`, `{"a":1e2}`},
		{`{"a":0.1}`, `{"a":0.10}`},
		{`{"a":0}`, `{"a":-0}`},
		{`{"a":0}`, `{"a":-0.0}`},
		{`{"a":100000000000000000000}`, `{"a":1e20}`},
		{`{"a":12345678901234567890.0}`, `{"a":12345678901234567890}`},
		{`{"a":1e999999999}`, `{"a":10e999999998}`},
		{`{"hours":1.0}`, `{"hours":1}`},
		{`100`, `1.0e+2`},
		{`1E2`, `1e+002`},
		{`0`, `-0e-0`},
		{`0`, `0.000e5`},
		{`0`, `0e99999999999999999999999`},
		{`-0.0E-99999999999999999999999`, `0`},
		{`0.001`, `1e-3`},
		{`0.001`, `0.0001e1`},
		{`-1.50`, `-15e-1`},
		{`1e-400`, `0.1e-399`},
		{`[1e400]`, `[1000e397]`},
		{`123e-5`, `0.00123`},
		{`5e1`, `0.5e2`},
		{`10e-0000000000000000000000001`, `1`},
		{`1e99999999999999999999`, `10e99999999999999999998`},
		{`0.1e100000000000000000000`, `1e99999999999999999999`},
		{`10e-100000000000000000000`, `1e-99999999999999999999`},
		{`0.01e-99999999999999999999`, `1e-100000000000000000001`},
		{`1e999999999999999999`, `0.1e1000000000000000000`},
		{`1e-999999999999999999`, `10e-1000000000000000000`},
		{`1e1000000000000000000`, `10e999999999999999999`},
		{`1e9223372036854775807`, `0.1e9223372036854775808`},
		{`1e-9223372036854775808`, `10e-9223372036854775809`},
		{`1e18446744073709551616`, `100e18446744073709551614`},
		{`1` + strings.Repeat("0", 5000), `1e5000`},
		{`0.` + strings.Repeat("0", 4999) + `1`, `1e-5000`},
		{strings.Repeat("7", 5000) + `.000`, strings.Repeat("7", 5000)},
		{`0.` + strings.Repeat("0", 4999) + `1e5000`, `1`},
	},
	"spelling of strings": {
		{`{"s":"\ud83d\ude00"}`, `{"s":"😀"}`},
		{`{"s":"\/"}`, `{"s":"/"}`},
		{`{"s":"\u0061"}`, `{"s":"a"}`},
		{`{"u":"a<b&c>d"}`, `{"u":"a\u003cb\u0026c\u003ed"}`},
		{`{"\u0061":1}`, `{"a":1}`},
		{`{"\ud83d\ude00":1}`, `{"😀":1}`},
		{`"\u000a\u0009"`, `"\n\t"`},
		{`"\b\f\r"`, `"\u0008\u000C\u000d"`},
		{`"\u0022\u005C"`, `"\"\\"`},
		{`"\u00e9"`, `"é"`},
		{`"\u00E9"`, `"\u00e9"`},
		{`"\uFEFF"`, "\"\ufeff\""},
		{`"\u2028\u2029"`, "\"\u2028\u2029\""},
		{`"\u007f"`, "\"\x7f\""},
		{`"\uffff"`, "\"\uffff\""},
		{`"\uD834\uDD1E"`, "\"\U0001D11E\""},
		{`"\udbff\udfff"`, "\"\U0010FFFF\""},
		{`"` + strings.Repeat(`\u0061`, 200) + `"`, `"` + strings.Repeat("a", 200) + `"`},
	},
	"white space": {
		{`{"a":1}`, " \t\r\n{ \t\r\n\"a\" \t\r\n: \t\r\n1 \t\r\n} \t\r\n"},
		{`[]`, "[ \n ]"},
		{`{}`, "{\r\n}"},
		{`[1,2]`, "[1 ,\t2]"},
		{`null`, " null\n"},
		{`"x"`, "\t\"x\" "},
	},
}

// differPairs are documents of two values.
var differPairs = map[string][][2]string{
	"numbers": {
		{`9007199254740992`, `9007199254740993`},
		{`999999999999999999`, `1000000000000000000`},
		{`0.1`, `0.1000000000000000055511151231257827`},
		{`1e-400`, `0`},
		{`1e400`, `1e401`},
		{`123456789012345678901234567890`, `123456789012345678901234567891`},
		{`1`, `-1`},
		{`1e-1`, `1e1`},
		{`1e99999999999999999999`, `1e99999999999999999998`},
		{`1e99999999999999999999`, `1e-99999999999999999999`},
		{`1e-99999999999999999999`, `0`},
		{`12`, `1.2`},
		{`[1,2]`, `[12]`},
		{`10`, `1e0`},
		{`1e18446744073709551617`, `10`},
		{`1e9999999999999999999`, `1e-8446744073709551617`},
		{`1e9223372036854775808`, `1e-9223372036854775808`},
	},
	"types": {
		{`1`, `"1"`},
		{`1`, `true`},
		{`{}`, `{"a":null}`},
		{`{"a":null}`, `{"a":""}`},
		{`[]`, `{}`},
		{`null`, `false`},
		{`null`, `"null"`},
		{`false`, `0`},
		{`""`, `[]`},
		{`""`, `0`},
		{`{}`, `null`},
		{`"1e0"`, `1`},
		{`{"a":1}`, `["a",1]`},
		{`{"a":1}`, `[["a",1]]`},
	},
	"arrays": {
		{`[1,2]`, `[2,1]`},
		{`[]`, `[null]`},
		{`[]`, `[[]]`},
		{`[[],[]]`, `[[[]]]`},
		{`[[1],2]`, `[[1,2]]`},
		{`[1,[2,3]]`, `[[1,2],3]`},
		{`["a","b"]`, `["ab"]`},
		{`["a","b"]`, `["a,b"]`},
		{`["",""]`, `[""]`},
		{`[null]`, `[null,null]`},
	},
	"strings": {
		{"\"\u00e9\"", "\"e\u0301\""},
		{`"a"`, `"A"`},
		{`"a"`, `"a "`},
		{`""`, `" "`},
		{`""`, `"\u0000"`},
		{`"\u0000"`, `"0"`},
		{`"\\u0061"`, `"a"`},
		{`"\ufeff"`, `""`},
		{`"ﬁ"`, `"fi"`},
		{`"\n"`, `"\\n"`},
		{`"\ufffd"`, `"?"`},
		{"\"\u212b\"", "\"\u00c5\""},
	},
	"names": {
		{`{"A":1}`, `{"a":1}`},
		{`{"amount":5,"Amount":500}`, `{"amount":5}`},
		{"{\"\u00e9\":1}", "{\"e\u0301\":1}"},
		{`{"a":1,"b":2}`, `{"a":2,"b":1}`},
		{`{"a":{"b":1}}`, `{"a.b":1}`},
		{`{"a":{"b":1}}`, `{"b":{"a":1}}`},
		{`{"":1}`, `{}`},
		{`{"":1}`, `{" ":1}`},
		{`{"a":{},"b":1}`, `{"a":{"b":1}}`},
		{`{"a":"b","c":"d"}`, `{"a":"b\"c\":\"d"}`},
		{`{"a":1}`, `{"a\u0000":1}`},
		{`{"__proto__":1}`, `{}`},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":1},{}]}`},
	},
}

// refused are documents that have no fingerprint.
var refused = map[string][]string{
	"name twice": {
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"amount":5,"amount":500}`, `{"amount":5,"\u0061mount":500}`,
		`{"a":1,"a":1}`, `{"a":1,"b":2,"a":3}`, `{"b":1,"a":2,"b":3}`, `[[{"x":{"a":null,"b":[],"a":null}}]]`, `{"":1,"":2}`,
		`{"a/b":1,"a\/b":2}`, `{"😀":1,"\ud83d\ude00":2}`, `{"a":{},"a":[]}`, `{"c":1,"b":{"z":1,"y":2,"z":1}}`,
		`{"\u0000":1,"\u0000":2}`, `{"z":1,"y":1,"x":1,"w":1,"v":1,"u":1,"t":1,"s":1,"r":1,"q":1,"p":1,"o":1,"n":1,"z":1}`,
	},
	"more than one value": {
		`{"a":1} x`, `{"a":1}{"a":2}`, `1 2`, `[] []`, `null,`, `{}}`, `[]]`, `1 ]`, "{}\x00", "1\x00", `"a""b"`, `{}//x`, `{}/**/`, `1,1`,
	},
	"nothing": {``, ` `, "\t\r\n"},
	"no JSON": {
		`{"a":NaN}`, `{"a":1,}`, `[1,]`, `[,1]`, `[1 2]`, `{,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{'a':1}`, `{1:1}`, `{null:1}`, `{"a" 1}`,
		`{"a"::1}`, `{"a":1 "b":2}`, `[`, `{`, `[1`, `{"a":1`, `]`, `}`, `[}`, `{]`, `nul`, `True`, `NULL`, `undefined`, `Infinity`,
		`-Infinity`, `[1,,2]`, `:`, `,`, `"`, `"a`, `'a'`, `/*x*/1`, "`a`", `nullx`, `truefalse`, `{[]:1}`,
	},
	"no numbers": {
		`{"a":01}`, `00`, `-01`, `+1`, `.5`, `1.`, `1.e1`, `-`, `--1`, `1e`, `1e+`, `1e1.5`, `0x10`, `1_000`, `1,000`, `-.5`, `1ee1`,
		`1e+-1`, `0b1`, `1f`, `00.5`, `١`, `-NaN`, `1 000`, `- 1`, `1 .5`,
	},
	"no strings": {
		`"\x41"`, `"\u12"`, `"\u12g4"`, `"\'"`, `"\a"`, `"\0"`, `"\U0041"`, "\"a\nb\"", "\"a\tb\"", "\"\x00\"", "\"\x1f\"", `"\u{41}"`, `"\`,
	},
	"surrogates": {
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\udc00\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\ud83d \ude00"`, `{"\ud800":1}`,
		`"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\ud83d\ude00\ud83d"`, `"a\uDFFFb"`, "\"\xed\xa0\x80\"", "\"\xed\xa0\xbd\xed\xb8\x80\"",
	},
	"UTF-8": {
		"\"\xff\"", "\"\xc3\"", "\"\xc3\x28\"", "\"\x80\"", "\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xe0\x80\xaf\"", "\"\xf0\x80\x80\xaf\"",
		"\"\xf4\x90\x80\x80\"", "\"\xf8\x88\x80\x80\x80\"", "{\"\xff\":1}", "{\"a\":[\"\xe2\x82\"]}", "\xff", "[1]\xff", "\"\xe9\"", "\"\xf0\x9f\x98\"",
	},
	"byte order mark": {"\ufeff{}", "\ufeff", "{}\ufeff", "\ufeff\ufeff1", "\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}"},
	"white space": {
		"\v1", "\f1", "1\v", "[\v]", "\u00a01", "1\u0085", "\u20281", "{\u3000}", "\x00", "\x001", "[1,\x002]", "\u200b1",
	},
	"nesting": {
		strings.Repeat("[", 10001), strings.Repeat("[", 1001) + strings.Repeat("]", 1001),
		strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001),
		strings.Repeat(`[{"a":`, 500) + "[]" + strings.Repeat("}]", 500), strings.Repeat("[", 1<<20),
	},
}

func TestEqual(t *testing.T) {
	for group, pairs := range equalPairs {
		for _, pair := range pairs {
			if a, b := mustJSON(t, pair[0]), mustJSON(t, pair[1]); a != b {
				t.Errorf("%s: %.80s and %.80s differ", group, pair[0], pair[1])
			}
		}
	}
}

func TestDiffer(t *testing.T) {
	for group, pairs := range differPairs {
		for _, pair := range pairs {
			if a, b := mustJSON(t, pair[0]), mustJSON(t, pair[1]); a == b {
				t.Errorf("%s: %.80s and %.80s are equal", group, pair[0], pair[1])
			}
		}
	}
}

// TestTables: every document of the tables has the reference's fingerprint, and no two
// different values of all tables together share one.
func TestTables(t *testing.T) {
	seen := map[string]string{}
	for _, tables := range []map[string][][2]string{equalPairs, differPairs} {
		for _, pairs := range tables {
			for _, pair := range pairs {
				for _, doc := range pair {
					tree, err := refParse([]byte(doc))
					if err != nil {
						t.Fatalf("%.80s: %v", doc, err)
					}
					value, print := refEncode(tree), mustJSON(t, doc)
					if other, ok := seen[print]; ok && other != value {
						t.Errorf("%.80s has the fingerprint of another value", doc)
					}
					seen[print] = value
					if want, _ := refCJ1([]byte(doc), nil, nil); print != want {
						t.Errorf("%.80s: got %s, the reference %s", doc, print, want)
					}
				}
			}
		}
	}
}

// TestConcurrent: calls share buffers, and nothing else.
func TestConcurrent(t *testing.T) {
	docs := [][]byte{toolCall(), []byte(order), []byte(`{"b":[` + strings.Repeat(`{"y":1,"x":2},`, 500) + `0],"a":1}`)}
	bad := []byte(`{"b":1,"a":[{"d":1,"c":"x"},{"z":1,"y":2,"z":3}]}`)
	var group sync.WaitGroup
	for _, doc := range docs {
		want, err := refCJ1(doc, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for range 200 {
				if got, err := fingerprint.JSON(doc); err != nil || got.String() != want {
					t.Errorf("got %v, %v, want %s", got, err, want)
				}
				if got, err := fingerprint.JSON(bad); err == nil {
					t.Errorf("%s was given %v", bad, got)
				}
			}
		})
	}
	group.Wait()
}

func TestRefused(t *testing.T) {
	for group, docs := range refused {
		for _, doc := range docs {
			got, err := fingerprint.JSON([]byte(doc))
			if err == nil || got.Digest != "" {
				t.Errorf("%s: %.80q was given %v", group, doc, got)
				continue
			}
			if len(err.Error()) > 400 || !strings.HasPrefix(err.Error(), "cj1: ") || !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s: %.80q: not a sentence with a next step: %v", group, doc, err)
			}
		}
	}
}

// TestRefusedAnywhere: a fault makes a document unfit wherever it stands, also where
// the options leave it out.
func TestRefusedAnywhere(t *testing.T) {
	for group, docs := range refused {
		for _, doc := range docs {
			inside := `{"id":1,"z":{"y":[` + doc + `]},"a":2}`
			if _, err := refParse([]byte(inside)); err == nil {
				continue // such as an empty one: a fault of the whole, not of a part
			}
			for name, opts := range map[string][]fingerprint.Option{
				"no option": nil,
				"identity":  {fingerprint.Identity("id")},
				"ignore":    {fingerprint.Ignore("z")},
			} {
				if got, err := fingerprint.JSON([]byte(inside), opts...); err == nil {
					t.Errorf("%s: %.80q, %s, was given %v", group, inside, name, got)
				}
			}
		}
	}
}

func TestDeepest(t *testing.T) {
	for _, doc := range []string{
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		strings.Repeat("[", 1000) + "1" + strings.Repeat("]", 1000),
		strings.Repeat(`{"a":`, 1000) + `1` + strings.Repeat("}", 1000),
		strings.Repeat(`[{"b":2,"a":`, 500) + "null" + strings.Repeat("}]", 500),
	} {
		want, err := refCJ1([]byte(doc), nil, nil)
		if got := mustJSON(t, doc); err != nil || got != want {
			t.Errorf("%.40s…: got %s, the reference %s, %v", doc, got, want, err)
		}
	}
}

// TestLong: what does not fit into one buffer is hashed as if it did.
func TestLong(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, doc := range []string{
		`"` + long + `"`, `["` + long + `","` + long + `"]`, `[` + strings.Repeat(`"abc",`, 3000) + `[` + strings.Repeat(`7,`, 5000) + `0]]`,
		`{"` + long + `":"` + long + `","` + long[1:] + `":[1]}`, `[` + strings.Repeat(`{"b":"`+long+`","a":0},`, 5) + `null]`,
		`[` + strings.Repeat("[],", 4000) + `{}]`, `-0.` + strings.Repeat("0", 200) + strings.Repeat("9", 9000) + `e-7`,
		`"` + strings.Repeat(`\n`, 16384) + `"`, `"` + strings.Repeat(`\n`, 127) + `"`, `"` + strings.Repeat(`\n`, 128) + `"`,
	} {
		want, err := refCJ1([]byte(doc), nil, nil)
		if got := mustJSON(t, doc); err != nil || got != want {
			t.Errorf("%.40s…: got %s, the reference %s, %v", doc, got, want, err)
		}
	}
	for _, n := range []int{126, 127, 128, 129, 16383, 16384} {
		doc := `{"b` + strings.Repeat("x", n-1) + `":"` + strings.Repeat("y", n) + `","a` + strings.Repeat("x", n-1) + `":` + strings.Repeat("7", n) + `}`
		want, err := refCJ1([]byte(doc), nil, nil)
		if got := mustJSON(t, doc); err != nil || got != want {
			t.Errorf("names of %d bytes: got %s, the reference %s, %v", n, got, want, err)
		}
	}
}

func mustJSON(t *testing.T, doc string, opts ...fingerprint.Option) string {
	t.Helper()
	f, err := fingerprint.JSON([]byte(doc), opts...)
	if err != nil {
		t.Fatalf("%.80q: %v", doc, err)
	}
	return f.String()
}
