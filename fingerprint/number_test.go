package fingerprint_test

import (
	"math/big"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onced/onced/fingerprint"
)

// TestRandomExponents: carries and borrows through exponents of any length, checked
// with big integers.
func TestRandomExponents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// An exponent close to a power of ten, where carries run far.
		power := rapid.IntRange(0, 60).Draw(t, "power")
		exponent := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(power)), nil)
		exponent.Add(exponent, big.NewInt(rapid.Int64Range(-40, 40).Draw(t, "beside")))
		if rapid.Bool().Draw(t, "negative") {
			exponent.Neg(exponent)
		}
		number := rapid.StringMatching(`-?(0|[1-9]0{0,30})(\.0{0,30}[0-9])?`).Draw(t, "number") + "e" + exponent.String()
		want, err := refCJ1([]byte(number), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fingerprint.JSON([]byte(number)); err != nil || got.String() != want {
			t.Fatalf("%s: got %v, %v; the reference %s", number, got, err, want)
		}
	})
}

// TestMillionDigits: exponents of a million digits are exact.
func TestMillionDigits(t *testing.T) {
	const n = 1_000_000
	nines, zeros := strings.Repeat("9", n), strings.Repeat("0", n)
	equal := [][2]string{
		{`10e` + nines, `1e1` + zeros},
		{`0.1e1` + zeros, `1e` + nines},
		{`10e-1` + zeros, `1e-` + nines},
		{`0.1e-` + nines, `1e-1` + zeros},
		{`1e+` + zeros + `7`, `1e7`},
		{`0e` + nines, `-0e-` + nines},
	}
	for _, pair := range equal {
		if mustJSON(t, pair[0]) != mustJSON(t, pair[1]) {
			t.Errorf("%.12s… and %.12s… differ", pair[0], pair[1])
		}
	}
	if mustJSON(t, `1e`+nines) == mustJSON(t, `1e`+nines[1:]) {
		t.Error("exponents of different lengths are equal")
	}
}

// TestCost: the memory that a number costs depends on its length, not on its value.
// BenchmarkCost shows the time.
func TestCost(t *testing.T) {
	docs := costProbe()
	if mustJSON(t, docs[0]) != mustJSON(t, docs[1]) {
		t.Errorf("%s and %s differ", docs[0], docs[1])
	}
	for _, doc := range docs {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		mustJSON(t, doc)
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<10 {
			t.Errorf("%s cost %d bytes of memory", doc, spent)
		}
	}
}

func costProbe() []string {
	return []string{`{"a":1e999999999}`, `{"a":10e999999998}`, `{"a":-1e-999999999}`, `{"a":1e99999999999999999999}`}
}

// BenchmarkCost shows what numbers cost that are too large to be written out.
func BenchmarkCost(b *testing.B) {
	for _, doc := range costProbe() {
		b.Run(doc, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fingerprint.JSON([]byte(doc)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
