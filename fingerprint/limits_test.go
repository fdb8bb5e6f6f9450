package fingerprint_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/onced/onced/fingerprint"
)

// allocated returns what a call allocates in all, in bytes. At no time does it hold
// more.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// shortNames are n names, the shortest that there are.
func shortNames(n int) []string {
	var letters []string
	for c := rune(' '); c < 0x7f; c++ {
		if c != '"' && c != '\\' {
			letters = append(letters, string(c))
		}
	}
	names, from := []string{""}, 0
	for len(names) < n {
		end := len(names)
		for _, prefix := range names[from:end] {
			for _, c := range letters {
				names = append(names, prefix+c)
			}
		}
		from = end
	}
	return names[:n]
}

// manyMembers is an object of about size bytes with values of one kind under the
// shortest names, the last name first.
func manyMembers(value string, size int) string {
	names := shortNames(size / (len(value) + 6))
	var b strings.Builder
	b.WriteString(`{"z":0`)
	for i := len(names) - 1; i >= 0; i-- {
		if names[i] != "z" {
			fmt.Fprintf(&b, `,"%s":%s`, names[i], value)
		}
	}
	b.WriteByte('}')
	return b.String()
}

// TestMemory: what a document takes beside itself is what [fingerprint.JSON] says,
// whatever is in it, and one of a few names again and again takes next to nothing.
func TestMemory(t *testing.T) {
	const size = 2 << 20
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	nested := func(open, end string) string {
		return strings.Repeat(open, 998) + `0` + strings.Repeat(end, 998)
	}
	docs := hostile(size)
	for name, doc := range map[string]string{
		"members, empty arrays":  manyMembers(`[]`, size),
		"members, empty objects": manyMembers(`{}`, size),
		"members, arrays":        manyMembers(`[1]`, size),
		"members, ones":          manyMembers(`1`, size),
		"members, nulls":         manyMembers(`null`, size),
		"half escaped":           `"` + fill(`abcdefghij\n`) + `"`,
		"arrays, nested":         nested(`[`+strings.Repeat(`[],`, 40), `]`),
		"objects, nested":        nested(`{"a":[],"":`, `}`),
		"members late":           `[` + manyMembers(`[]`, size/16) + `,"` + fill(`x`) + `",` + manyMembers(`[]`, size) + `]`,
		"members differ":         `{"":` + manyMembers(`1`, size/2) + `,"?":` + manyMembers(`[]`, size/2) + `}`,
	} {
		docs[name] = []byte(doc)
	}
	for name, doc := range docs {
		var err error
		taken := allocated(func() { _, err = fingerprint.JSON(doc) })
		if most := 9*uint64(len(doc)) + 2<<20; err != nil || taken > most {
			t.Errorf("%s: %d bytes take %d, want at most %d; %v", name, len(doc), taken, most, err)
		}
	}
	for _, members := range []string{`"a":1,"b":1,`, `"a":[],"":[],`, `"a":{},"a":{},`, `"c":{"a":1},"b":0,"a":[1],`} {
		doc := []byte(`{` + fill(members) + `"z":1}`)
		var err error
		taken := allocated(func() { _, err = fingerprint.JSON(doc) })
		if err == nil || taken > 256<<10 {
			t.Errorf("%s: takes %d bytes; %v", members, taken, err)
		}
	}
}

// TestManyMembers: an object's names are compared while it is read, and what is left
// out and what is not stay what they are.
func TestManyMembers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{127, 128, 129, 255, 256, 257, 1000} {
		names := shortNames(n)
		r.Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
		var members []string
		for i, name := range names {
			members = append(members, fmt.Sprintf(`"%s":%s`, name, []string{`1`, `"x"`, `[]`, `{"b":[2],"a":null}`, `true`, `[[0]]`}[i%6]))
		}
		object := func(members []string) []byte { return []byte(` {` + strings.Join(members, ",") + `}`) }
		for i, paths := range [][]string{nil, names[:1], names[n-1:], names[n/3 : n/2]} {
			opts, identity := []fingerprint.Option{nil}[:0], paths
			if paths = slices.DeleteFunc(slices.Clone(paths), func(s string) bool { return s == "" || strings.Contains(s, ".") }); len(paths) > 0 {
				opts, identity = []fingerprint.Option{fingerprint.Identity(paths...)}, paths
			}
			want, err := refCJ1(object(members), identity, nil)
			if got := mustJSON(t, string(object(members)), opts...); err != nil || got != want {
				t.Errorf("%d members, selection %d: got %s, the reference %s, %v", n, i, got, want, err)
			}
			if len(paths) == 0 {
				continue
			}
			want, err = refCJ1(object(members), nil, paths)
			if got := mustJSON(t, string(object(members)), fingerprint.Ignore(paths...)); err != nil || got != want {
				t.Errorf("%d members, less %d: got %s, the reference %s, %v", n, i, got, want, err)
			}
		}
		for _, from := range []int{0, 1, n / 2, n - 1} {
			for _, to := range []int{from + 1, n} {
				twice := slices.Insert(slices.Clone(members), max(to, from+1), members[from])
				at := len(object(twice[:max(to, from+1)]))
				if got, err := fingerprint.JSON(object(twice)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the name at byte %d stands twice", at)) {
					t.Errorf("%d members, %d again at %d, byte %d: got %v, %v", n, from, to, at, got, err)
				}
			}
		}
	}
}

// TestTooLarge: a text that cannot be addressed is refused before it is read.
func TestTooLarge(t *testing.T) {
	doc := make([]byte, 512<<20+1) // never written, so that it takes no memory
	if got, err := fingerprint.JSON(doc); err == nil || !strings.Contains(err.Error(), "larger than 512 MiB") {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := fingerprint.JSON(doc[1:]); err == nil || strings.Contains(err.Error(), "larger") {
		t.Errorf("the largest text: %v", err)
	}
}
