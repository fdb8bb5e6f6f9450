package bolt

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onced/onced"
)

// TestDueKey: keys of one kind sort by time, then by identity, and can be taken
// apart again; for all times that there are, the zero one included.
func TestDueKey(t *testing.T) {
	drawTime := rapid.Custom(func(t *rapid.T) time.Time {
		seconds := rapid.OneOf(rapid.Just(time.Time{}.Unix()), rapid.Int64Range(-3, 3), rapid.Int64Range(-1<<55, 1<<55))
		return time.Unix(seconds.Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTime.Draw(t, "a"), drawTime.Draw(t, "b")
		identity := rapid.SliceOfN(rapid.Byte(), 1, 5)
		idA, idB := identity.Draw(t, "identity a"), identity.Draw(t, "identity b")
		want := a.Compare(b)
		if want == 0 {
			want = bytes.Compare(idA, idB)
		}
		key := dueKey(onced.DueExpiry, a, idA)
		if got := bytes.Compare(key, dueKey(onced.DueExpiry, b, idB)); got != want {
			t.Errorf("%v %x sorts as %d against %v %x, want %d", a, idA, got, b, idB, want)
		}
		kind, at, id, err := parseDueKey(key)
		if err != nil || kind != onced.DueExpiry || at != a || !bytes.Equal(id, idA) {
			t.Errorf("taken apart: %v %v %x %v", kind, at, id, err)
		}
	})
}

// TestWithPrefix: a span holds the keys with its prefix, and no others.
func TestWithPrefix(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xFE, 0xFF}), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		prefix, k := key.Draw(t, "prefix"), key.Draw(t, "key")
		in := withPrefix(bytes.Clone(prefix))
		got := bytes.Compare(k, in.low) >= 0 && (in.high == nil || bytes.Compare(k, in.high) < 0)
		if want := bytes.HasPrefix(k, prefix); got != want {
			t.Errorf("%x in the span of %x: %t, want %t", k, prefix, got, want)
		}
	})
}
