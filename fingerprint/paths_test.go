package fingerprint_test

import (
	"strings"
	"testing"

	"github.com/onced/onced/fingerprint"
)

const order = `{"id":"o-1","amount":5.0,"trace":"t1","meta":{"ts":1,"who":"ann","deep":{"x":1,"y":[{"z":1}]}},"list":[{"id":1}],"none":null}`

// TestSelected: the fingerprint of a selection is that of the document which it leaves.
func TestSelected(t *testing.T) {
	only, but := fingerprint.Identity, fingerprint.Ignore
	for name, c := range map[string]struct {
		opts []fingerprint.Option
		same string // the document that is left
	}{
		"one":                  {[]fingerprint.Option{only("id")}, `{"id":"o-1"}`},
		"two":                  {[]fingerprint.Option{only("id", "amount")}, `{"amount":5,"id":"o-1"}`},
		"two options":          {[]fingerprint.Option{only("id"), only("amount")}, `{"amount":5,"id":"o-1"}`},
		"an object":            {[]fingerprint.Option{only("meta")}, `{"meta":{"ts":1,"who":"ann","deep":{"x":1,"y":[{"z":1}]}}}`},
		"inside":               {[]fingerprint.Option{only("meta.who")}, `{"meta":{"who":"ann"}}`},
		"deep inside":          {[]fingerprint.Option{only("meta.deep.x", "meta.who")}, `{"meta":{"who":"ann","deep":{"x":1}}}`},
		"an array":             {[]fingerprint.Option{only("list")}, `{"list":[{"id":1}]}`},
		"null":                 {[]fingerprint.Option{only("none")}, `{"none":null}`},
		"one is absent":        {[]fingerprint.Option{only("id", "gone", "meta.gone")}, `{"id":"o-1"}`},
		"overlapping":          {[]fingerprint.Option{only("meta.deep", "meta.deep.x", "meta.deep")}, `{"meta":{"deep":{"x":1,"y":[{"z":1}]}}}`},
		"ignore":               {[]fingerprint.Option{but("trace", "meta", "none")}, `{"id":"o-1","amount":5,"list":[{"id":1}]}`},
		"ignore inside":        {[]fingerprint.Option{but("trace", "meta.ts", "meta.deep.y", "list")}, `{"id":"o-1","amount":5,"meta":{"who":"ann","deep":{"x":1}},"none":null}`},
		"ignore what is not":   {[]fingerprint.Option{but("gone", "meta.gone.further")}, order},
		"ignore overlapping":   {[]fingerprint.Option{but("meta.ts", "meta", "meta.deep.x")}, `{"id":"o-1","amount":5,"trace":"t1","list":[{"id":1}],"none":null}`},
		"ignore in others":     {[]fingerprint.Option{but("none.x", "trace.x", "meta.ts.x", "list.id", "meta.deep.y.z", "id.a.b")}, order},
		"ignore in some":       {[]fingerprint.Option{but("none.x", "meta.ts.x", "meta.who", "meta.deep", "list")}, `{"id":"o-1","amount":5,"trace":"t1","meta":{"ts":1},"none":null}`},
		"ignore nothing":       {[]fingerprint.Option{but()}, order},
		"ignore all of a part": {[]fingerprint.Option{but("id", "amount", "trace", "list", "none", "meta.ts", "meta.who", "meta.deep.x", "meta.deep.y")}, `{"meta":{"deep":{}}}`},
	} {
		if got, want := mustJSON(t, order, c.opts...), mustJSON(t, c.same); got != want {
			t.Errorf("%s: got %s, and %s is %s", name, got, c.same, want)
		}
	}
}

// TestIgnoreInNoObject: those who have no trace send null for it, or something else.
// There is nothing in it to leave out.
func TestIgnoreInNoObject(t *testing.T) {
	for _, value := range []string{`null`, `""`, `0`, `true`, `[]`, `[{"trace":1}]`, `[[{"trace":1,"meta":{"trace":2}}]]`} {
		for _, doc := range []string{value, `{"meta":` + value + `}`, `{"z":1,"meta":` + value + `,"a":{"trace":1}}`} {
			if mustJSON(t, doc, fingerprint.Ignore("meta.trace", "trace.x.y")) != mustJSON(t, doc) {
				t.Errorf("%s is not itself", doc)
			}
		}
	}
}

// TestIdentityOfAbsent: a named member that is absent is absent, whether the objects
// on the way to it are there or not; null is there.
func TestIdentityOfAbsent(t *testing.T) {
	opt := fingerprint.Identity("id", "meta.who.name")
	want := mustJSON(t, `{"id":1}`)
	for _, doc := range []string{`{"id":1}`, `{"id":1,"meta":{}}`, `{"id":1,"meta":{"who":{}}}`, `{"meta":{"who":{"age":7}},"id":1.0}`} {
		if got := mustJSON(t, doc, opt); got != want {
			t.Errorf("%s is not %s", doc, `{"id":1}`)
		}
	}
	for _, doc := range []string{`{"id":1,"meta":{"who":{"name":null}}}`, `{"id":1,"meta":{"who":{"name":""}}}`, `{"id":null}`} {
		if mustJSON(t, doc, opt) == want {
			t.Errorf("%s is %s", doc, `{"id":1}`)
		}
	}
}

// TestPathsRefused: options that say nothing, or that the document contradicts.
func TestPathsRefused(t *testing.T) {
	only, but := fingerprint.Identity, fingerprint.Ignore
	for name, c := range map[string]struct {
		doc  string
		opts []fingerprint.Option
		says string
	}{
		"both":                {order, []fingerprint.Option{only("id"), but("trace")}, "exclude each other"},
		"both, other order":   {order, []fingerprint.Option{but("trace"), only("id")}, "exclude each other"},
		"both, one empty":     {order, []fingerprint.Option{only("id"), but()}, "exclude each other"},
		"no path":             {order, []fingerprint.Option{only()}, "at least one"},
		"empty path":          {order, []fingerprint.Option{only("")}, "empty name"},
		"empty path of many":  {order, []fingerprint.Option{but("id", "")}, "empty name"},
		"dot":                 {order, []fingerprint.Option{but(".")}, "empty name"},
		"empty name":          {order, []fingerprint.Option{only("meta..who")}, "empty name"},
		"dot first":           {order, []fingerprint.Option{only(".id")}, "empty name"},
		"dot last":            {order, []fingerprint.Option{only("id.")}, "empty name"},
		"nil":                 {order, []fingerprint.Option{nil}, "nil"},
		"none is there":       {order, []fingerprint.Option{only("gone", "meta.gone")}, "none of the members"},
		"empty document":      {`{}`, []fingerprint.Option{only("id")}, "none of the members"},
		"through a string":    {order, []fingerprint.Option{only("id", "trace.x")}, `"trace", which is not an object`},
		"through an array":    {order, []fingerprint.Option{only("list.id")}, `"list", which is not an object`},
		"through null":        {order, []fingerprint.Option{only("id", "none.x")}, `"none", which is not an object, at byte 120`},
		"through a number":    {order, []fingerprint.Option{only("id", "meta.ts.x")}, `"meta.ts", which is not an object, at byte 51`},
		"deep in an array":    {order, []fingerprint.Option{only("meta.deep.y.z", "id")}, `"meta.deep.y", which is not an object, at byte 83`},
		"array document":      {`[{"id":1}]`, []fingerprint.Option{only("id")}, "the document is not an object"},
		"string document":     {`"id"`, []fingerprint.Option{only("id")}, "the document is not an object"},
		"null document":       {`null`, []fingerprint.Option{only("id")}, "the document is not an object"},
		"empty input":         {``, []fingerprint.Option{only("id")}, "empty"},
		"twice, ignored":      {`{"id":1,"t":1,"t":2}`, []fingerprint.Option{but("t")}, "twice"},
		"twice, not named":    {`{"id":1,"t":1,"t":2}`, []fingerprint.Option{only("id")}, "twice"},
		"twice, inside":       {`{"id":1,"m":{"t":1,"u":0,"\u0074":2}}`, []fingerprint.Option{only("id")}, "twice"},
		"named one twice":     {`{"id":1,"id":1}`, []fingerprint.Option{only("id")}, "twice"},
		"one on the way":      {`{"m":{"id":1},"m":{}}`, []fingerprint.Option{only("m.id")}, "twice"},
		"trailing":            {`{"id":1} 2`, []fingerprint.Option{only("id")}, "send exactly one"},
		"surrogate, ignored":  {`{"id":1,"t":"\ud800"}`, []fingerprint.Option{but("t")}, "byte 13"},
		"UTF-8, not named":    {"{\"id\":1,\"t\":\"\xff\"}", []fingerprint.Option{only("id")}, "UTF-8"},
		"too deep, not named": {`{"id":1,"t":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, []fingerprint.Option{only("id")}, "deeper"},
	} {
		got, err := fingerprint.JSON([]byte(c.doc), c.opts...)
		if err == nil {
			t.Errorf("%s: was given %v", name, got)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; should say %q", name, err, c.says)
		}
	}
}

// TestOptionsAreReusable: an option keeps nothing of the calls that it was used in.
func TestOptionsAreReusable(t *testing.T) {
	opt := fingerprint.Identity("id")
	if _, err := fingerprint.JSON([]byte(`[]`), opt, fingerprint.Ignore("x")); err == nil {
		t.Fatal("both options were taken")
	}
	if mustJSON(t, order, opt) != mustJSON(t, `{"id":"o-1"}`) {
		t.Error("the option has changed")
	}
}
