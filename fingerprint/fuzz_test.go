package fingerprint_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/onced/onced/fingerprint"
)

// seeds are documents that the fuzz targets begin with.
var seeds = []string{
	`{"a":1,"b":[1.50,-0,1e400,{"c":null}],"\u0061b":"\ud83d\ude00"}`,
	`[]`, `""`, `0`, `-12.50e-3`, `{"":{"":[[],{}]}}`, `1e99999999999999999999`, `"\u0000\/"`, ` true `,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[1,]`, `"\ud800"`, "\"\xff\"", "\ufeff1", `01`, `1 1`, `nul`, ``,
}

// FuzzJSON holds the package against the reference: it refuses the same documents,
// and gives the others the same fingerprint. It accepts nothing that the standard
// library does not take for JSON.
func FuzzJSON(f *testing.F) {
	for _, doc := range seeds {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := fingerprint.JSON(doc)
		want, refErr := refCJ1(doc, nil, nil)
		if (err == nil) != (refErr == nil) {
			t.Fatalf("%q: error is %v, the reference's %v", doc, err, refErr)
		}
		if err != nil {
			return
		}
		if got.String() != want {
			t.Fatalf("%q: got %v, the reference %v", doc, got, want)
		}
		if again, err := fingerprint.JSON(doc); err != nil || again != got {
			t.Fatalf("%q: second time %v, %v", doc, again, err)
		}
		if !json.Valid(doc) || !utf8.Valid(doc) {
			t.Fatalf("%q was accepted and is not valid JSON", doc)
		}
	})
}

// FuzzRespelling spells an accepted document in another way: nothing changes.
func FuzzRespelling(f *testing.F) {
	for i, doc := range seeds {
		f.Add([]byte(doc), uint64(i))
	}
	f.Fuzz(func(t *testing.T, doc []byte, seed uint64) {
		want, err := fingerprint.JSON(doc)
		tree, refErr := refParse(doc)
		if err != nil || refErr != nil {
			return
		}
		spelled := respell(rand.New(rand.NewPCG(seed, 0)), tree)
		if got, err := fingerprint.JSON([]byte(spelled)); err != nil || got != want {
			t.Fatalf("%q is %v;\n%q is %v, %v", doc, want, spelled, got, err)
		}
	})
}

// FuzzChange changes one value of an accepted document: the fingerprint changes.
func FuzzChange(f *testing.F) {
	for i, doc := range seeds {
		f.Add([]byte(doc), uint64(i))
	}
	f.Fuzz(func(t *testing.T, doc []byte, seed uint64) {
		before, err := fingerprint.JSON(doc)
		tree, refErr := refParse(doc)
		if err != nil || refErr != nil {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		changed := respell(r, change(r, tree))
		after, err := fingerprint.JSON([]byte(changed))
		if err == nil && after == before {
			t.Fatalf("%q and %q are both %v", doc, changed, after)
		}
	})
}

// trees draws the values of documents.
func trees() *rapid.Generator[any] {
	text := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"", "a", "b", "id", "Id", "\x00", "é", "e\u0301", "\ufeff", "😀", "\u2028", `"\/`}),
	)
	number := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,24})?`),
		rapid.SampledFrom([]string{"0", "-0.0", "1e999999999", "1e-999999999999999999", "-1e1000000000000000000", "9007199254740993"}),
	)
	scalar := rapid.OneOf(
		rapid.Just(any(nil)),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(number, func(s string) any { return refNumber(s) }),
	)
	var tree func(depth int) *rapid.Generator[any]
	tree = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return scalar
		}
		return rapid.Custom(func(t *rapid.T) any {
			inner := tree(depth - 1)
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				return scalar.Draw(t, "scalar")
			case 1:
				return rapid.SliceOfN(inner, 0, 5).Draw(t, "array")
			}
			object := refObject{}
			for _, name := range rapid.SliceOfNDistinct(text, 0, 6, rapid.ID).Draw(t, "names") {
				object = append(object, refMember{name, inner.Draw(t, "value")})
			}
			return object
		})
	}
	return tree(4)
}

// TestRandom: any spelling of any value has the reference's fingerprint, and a
// changed value has another.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := trees().Draw(t, "tree")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		one, two, changed := respell(r, tree), respell(r, tree), respell(r, change(r, tree))
		want, err := refCJ1([]byte(one), nil, nil)
		if err != nil {
			t.Fatalf("the reference refuses %q: %v", one, err)
		}
		for _, doc := range []string{one, two} {
			if got, err := fingerprint.JSON([]byte(doc)); err != nil || got.String() != want {
				t.Fatalf("%q: got %v, %v; the reference %v", doc, got, err, want)
			}
		}
		if got, err := fingerprint.JSON([]byte(changed)); err != nil || got.String() == want {
			t.Fatalf("%q after a change from %q: %v, %v", changed, one, got, err)
		}
	})
}

// TestRandomPaths: a selection gives what the reference gives, refusals included.
func TestRandomPaths(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "id", "Id", "é", "c"})
	path := rapid.StringMatching(`(a|b|id|é)(\.(a|b|id)){0,2}`)
	var tree func(depth int) *rapid.Generator[any]
	tree = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			if depth == 0 || rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
				return []any{nil, "x", refNumber("1"), []any{}, refObject{}}[rapid.IntRange(0, 4).Draw(t, "leaf")]
			}
			object := refObject{}
			for _, name := range rapid.SliceOfNDistinct(names, 0, 4, rapid.ID).Draw(t, "names") {
				object = append(object, refMember{name, tree(depth-1).Draw(t, "value")})
			}
			return object
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := respell(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), tree(3).Draw(t, "tree"))
		paths := rapid.SliceOfN(path, 1, 3).Draw(t, "paths")
		for _, only := range []bool{true, false} {
			opt, identity, ignore := fingerprint.Identity(paths...), paths, []string(nil)
			if !only {
				opt, identity, ignore = fingerprint.Ignore(paths...), nil, paths
			}
			got, err := fingerprint.JSON([]byte(doc), opt)
			want, refErr := refCJ1([]byte(doc), identity, ignore)
			if (err == nil) != (refErr == nil) || err == nil && got.String() != want {
				t.Fatalf("%s, identity %v, paths %v: got %v, %v; the reference %v, %v", doc, only, paths, got, err, want, refErr)
			}
		}
	})
}
