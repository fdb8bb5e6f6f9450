package fingerprint_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/onced/onced/fingerprint"
)

// sentences are all that an error about a document may say, but for places in it.
var sentences = map[string]bool{
	"cj1: the document is empty; send one JSON value, {} if there are no arguments":                              true,
	"cj1: arrays and objects are nested deeper than 1000; flatten the document":                                  true,
	"cj1: something follows the JSON value; send exactly one":                                                    true,
	"cj1: the document begins with a byte order mark, at byte N; send it without one":                            true,
	"cj1: the name at byte N stands twice in its object; send each name once":                                    true,
	"cj1: not JSON by RFC 8259 at byte N; send one valid JSON value in UTF-8":                                    true,
	"cj1: not JSON by RFC 8259 at byte N: it ends too early; send one valid JSON value in UTF-8":                 true,
	"cj1: not JSON by RFC 8259 at byte N: a byte is not UTF-8; send one valid JSON value in UTF-8":               true,
	"cj1: not JSON by RFC 8259 at byte N: an escape stands for no character; send one valid JSON value in UTF-8": true,
	"cj1: a path leads into \"id\", which is not an object, at byte N; name \"id\" itself":                       true,
	"cj1: the document has none of the members that make its identity; name members that it has, or send them":   true,
	"cj1: the options name members, and the document is not an object; send an object, or leave the options out": true,
}

var place = regexp.MustCompile(`byte [0-9]+`)

// TestErrorsShowNothing: errors have nothing of the document in them, neither values
// nor names nor the characters that a fault is about.
func TestErrorsShowNothing(t *testing.T) {
	docs := map[string]bool{}
	for _, group := range refused {
		for _, doc := range group {
			for _, around := range [][2]string{
				{"", ""},
				{`{"alice@corp.example":"`, `"}`},
				{`{"alice@corp.example":[`, `]}`},
				{`{"id":"alice@corp.example","z":`, `}`},
				{`{"`, `":"alice@corp.example"}`},
				{`{"alice@corp.example":{"id":[{"id":1},`, ``},
				{`[1,`, ` alice@corp.example]`},
			} {
				docs[around[0]+doc+around[1]] = true
			}
		}
	}
	for _, doc := range []string{
		`{"alice@corp.example":1,"alice@corp.example":2}`, `{"alice@corp.example" 1}`, `{"a":1 "alice@corp.example":2}`, `{alice:1}`, `alice`,
		`["\qalice"]`, `["\u12alice"]`, `"\ud800alice"`, "\"alice\n\"", `{"alice":`, `nulalice`, `1alice`, `{"id":"alice"}`, `["alice"]`, `{"alice":{"id":1}}`,
		`{"b":1,"alice":1,"b":{},"alice":2}`, `{"id":null,"alice":1}`,
	} {
		docs[doc] = true
	}
	for doc := range docs {
		for _, opts := range [][]fingerprint.Option{nil, {fingerprint.Identity("id.x", "none")}, {fingerprint.Ignore("id.x")}} {
			_, err := fingerprint.JSON([]byte(doc), opts...)
			if err == nil {
				continue
			}
			if said := place.ReplaceAllString(err.Error(), "byte N"); !sentences[said] {
				t.Errorf("%.80q: %v", doc, err)
			}
		}
	}
}

// TestErrorsSayWhere: the place of a fault is that of its first byte, from 0.
func TestErrorsSayWhere(t *testing.T) {
	for doc, says := range map[string]string{
		`{"a":1,"a":2}`:                           "the name at byte 7 ",
		` { "a" : 1 , "\u0061" : 2 }`:             "the name at byte 13 ",
		`{"b":1,"a":2,"b":3}`:                     "the name at byte 13 ",
		`{"b":{},"a":[{"x":1}],"\u0062":{"b":1}}`: "the name at byte 22 ",
		`[0,{"c":1,"b":{"z":1,"y":2, "z":1}}]`:    "the name at byte 28 ",
		`{"c":1,"b":1,"c":1,"b":1}`:               "the name at byte ",
		"\ufeff{}":                                "byte order mark, at byte 0",
		`{"a":"\ud83dsecret"}`:                    "at byte 6: an escape",
		"{\"a\":\"abc\xff\"}":                     "a byte is not UTF-8",
		`{"a":`:                                   "at byte 5: it ends",
		`{"a":NaN}`:                               "at byte 5;",
		`{"a":01}`:                                "at byte 6;",
		`{"a":1} x`:                               "at byte 8;",
	} {
		if _, err := fingerprint.JSON([]byte(doc)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; should say %q", doc, err, says)
		}
	}
}

// TestLongPathInError: an error is a line, however long the path that it is about.
func TestLongPathInError(t *testing.T) {
	name := strings.Repeat("n", 1<<16)
	_, err := fingerprint.JSON([]byte(`{"`+name+`":1}`), fingerprint.Identity(name+".x"))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}
