package bolt

import (
	"fmt"
	"testing"

	"github.com/onced/onced"
)

// TestKill: what was answered is there after kill -9, which comes right after an
// answer; and fences are not given twice. The store is the same one throughout.
func TestKill(t *testing.T) {
	h := newHarness(t)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	answered := map[string]uint64{}
	fences := map[uint64]string{}
	const rounds = 25
	for round := range rounds {
		c := startChild(t, "write", h.dir)
		for range 1 + round*3 {
			var key string
			var fence uint64
			line := c.line(t)
			if _, err := fmt.Sscanf(line, "%s %d", &key, &fence); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if other := fences[fence]; other != "" {
				t.Fatalf("fence %d was given to %s and to %s", fence, other, key)
			}
			answered[key], fences[fence] = fence, key
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for c.out.Scan() { // answered, too, before it died
			var key string
			var fence uint64
			if n, _ := fmt.Sscanf(c.out.Text(), "%s %d", &key, &fence); n == 2 {
				answered[key], fences[fence] = fence, key
			}
		}
		_ = c.Wait()
	}
	h.store = h.open(h.dir)
	for key, fence := range answered {
		v, err := h.store.Get(t.Context(), onced.Identity{Namespace: "n", Key: key, Method: "m"})
		if err != nil || v.Record == nil || v.Record.Fence != fence {
			t.Fatalf("%s was answered with fence %d, and %v is left (%v)", key, fence, v.Record, err)
		}
	}
	t.Logf("%d updates were answered before %d kills, and all are there", len(answered), rounds)
}
