package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// onDisk returns a harness over a store on a small disk of its own, and what makes
// that disk another size.
func onDisk(t *testing.T, size string) (h *harness, resize func(size string)) {
	t.Helper()
	mount, err := os.MkdirTemp("", "onced-disk-") // t.TempDir would settle where all its folders are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(mount) })
	if err := unix.Mount("onced-bolt", mount, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("ONCED_REQUIRE_ALL") != "" {
			t.Fatalf("a small disk cannot be mounted here: %v", err)
		}
		t.Skipf("NOT TESTED: a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", mount)
	return newHarness(t), func(size string) {
		t.Helper()
		if err := unix.Mount("onced-bolt", mount, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// run makes an update of a class.
func (h *harness) run(i int, class storage.Class, plan func(onced.View) onced.Plan) error {
	return h.store.Update(h.t.Context(), storage.Target{ID: benchmarkID(i), Class: class}, plan)
}

func (h *harness) claim(i int) error {
	return h.run(i, storage.ClassClaim, func(v onced.View) onced.Plan {
		return onced.Plan{Put: grant(v.ID, v.Now), UsesFence: true}
	})
}

// settle completes a claim with a result of some bytes.
func (h *harness) settle(i, size int) error {
	return h.run(i, storage.ClassSettlement, completed(size))
}

func (h *harness) sweep(i int) error { return h.run(i, storage.ClassSweep, gone) }

// completed plans a completion with a result of some bytes, and gone a deletion.
func completed(size int) func(onced.View) onced.Plan {
	return func(v onced.View) onced.Plan {
		r := *v.Record
		r.State, r.Revision = onced.StateCompleted, r.Revision+1
		r.Result = onced.NewResult("", false, make([]byte, size))
		return onced.Plan{Put: &r}
	}
}

func gone(onced.View) onced.Plan { return onced.Plan{Delete: true} }

// fill claims, from a number on, until there is no room for claims, and returns how
// many were granted. Each is settled at once with a result of size bytes; not at
// all, if size is 0.
func (h *harness) fill(from, size int) (n int) {
	h.t.Helper()
	for ; n < 100_000; n++ {
		err := h.claim(from + n)
		if err == nil && size > 0 {
			if err := h.settle(from+n, size); err != nil {
				h.t.Fatalf("settlement %d of a granted claim: %v", n, err)
			}
		}
		if errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrFailed) {
			return n
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	h.t.Fatal("the disk does not get full")
	return n
}

// The reserve is room for results of several pages too, when all that is free beside
// it lies scattered: a claim that is granted can be settled.
func TestR45_ScatteredRoomIsNoReserve(t *testing.T) {
	h, _ := onDisk(t, "16m")
	h.setReserve(2<<20, 2<<20)
	n := h.fill(0, 3000)
	for i := 0; i < n; i += 2 {
		if err := h.sweep(i); err != nil {
			t.Fatalf("sweep on a full disk: %v", err)
		}
	}
	if again := h.fill(n, 64<<10); again == 0 {
		t.Error("no claim was let in although every second operation is gone")
	} else {
		t.Logf("claims=%d, and %d after the sweep", n, again)
	}
}

// Where names and records are as long as they may be, and a full disk has been swept
// and claimed for long, pages in a row may be missing for a settlement. That ends
// nothing: it can be sent again, and the sweep goes on.
func TestR45_LargeRecordsOnAScatteredDisk(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { largeRecords(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func largeRecords(t *testing.T, random *rand.Rand) {
	h, _ := onDisk(t, "10m")
	h.setReserve(1<<20, 1<<20)
	run := func(i int, class storage.Class, plan func(onced.View) onced.Plan) error {
		id := benchmarkID(i)
		id.Key = fmt.Sprintf("%0*d", onced.MaxKey, i)
		id.Method += strings.Repeat("m", onced.MaxMethod-len(id.Method))
		return h.store.Update(t.Context(), storage.Target{ID: id, Class: class}, plan)
	}
	claim := func(v onced.View) onced.Plan {
		r := grant(v.ID, v.Now)
		r.Labels = map[string]string{"all of them": strings.Repeat("x", 200+random.IntN(onced.MaxLabels*(onced.MaxLabelName+onced.MaxLabelValue)))}
		return onced.Plan{Put: r, UsesFence: true}
	}
	var live []int
	next, swept, unsettled := 0, 0, 0
	fill := func(size int) {
		for ; ; next++ {
			err := run(next, storage.ClassClaim, claim)
			if errors.Is(err, storage.ErrFull) {
				return
			}
			if err == nil {
				err = run(next, storage.ClassSettlement, completed(size))
			}
			switch {
			case err == nil:
				live = append(live, next)
			case errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrFailed):
				unsettled++
			default:
				t.Fatalf("operation %d, with %+v: %v", next, h.store.Stats(), err)
			}
		}
	}
	fill(3000)
	var due []int // for what the sweep has found no room, the next pass comes again
	for range 60 {
		for range 20 {
			at := random.IntN(len(live))
			due, live = append(due, live[at]), slices.Delete(live, at, at+1)
		}
		before := len(due)
		due = slices.DeleteFunc(due, func(i int) bool { return run(i, storage.ClassSweep, gone) == nil })
		if len(due) == before {
			t.Fatalf("none of %d operations can be swept, with %+v", before, h.store.Stats())
		}
		swept += before - len(due)
		fill(64 << 10)
	}
	t.Logf("operations=%d swept=%d unsettled=%d", next, swept, unsettled)
}

// Settlements may use up the whole reserve. The sweep goes on nevertheless until all
// that has expired is gone, and what it frees lets claims in.
func TestR45_SweepWithTheReserveUsedUp(t *testing.T) {
	for _, largest := range []int{3000, 20_000, 100_000} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("results up to %d, %d", largest, seed), func(t *testing.T) {
				h, _ := onDisk(t, "2m")
				random := rand.New(rand.NewPCG(seed, 0))
				n := h.fill(0, 0)
				var settled []int
				refused := 0
				for _, i := range random.Perm(n) {
					if refused == 20 {
						break
					}
					err := storage.ErrFull
					for size := random.IntN(largest); size > 0 && errors.Is(err, storage.ErrFull); size /= 2 {
						err = h.settle(i, size)
					}
					switch {
					case err == nil:
						settled = append(settled, i)
					case errors.Is(err, storage.ErrFull) && !errors.Is(err, storage.ErrFailed):
						refused++
					default:
						t.Fatal(err)
					}
				}
				if refused < 20 {
					t.Fatal("the reserve is not used up")
				}
				passes := 0
				for left := settled; len(left) > 0; passes++ {
					var failed []int
					for _, i := range left {
						if err := h.sweep(i); err != nil {
							failed = append(failed, i)
						}
					}
					if len(failed) == len(left) {
						t.Fatalf("after %d passes of the sweep %d of %d operations are left for ever; %+v", passes, len(left), len(settled), h.store.Stats())
					}
					left = failed
				}
				// What is left unsettled fills the disk as it did before, and a few operations
				// leave pages behind that are not empty.
				if err := errors.Join(h.store.Room(t.Context()), h.claim(n)); len(settled) > n/10 && err != nil {
					t.Errorf("all that could be swept is gone, and a claim is refused: %v", err)
				}
				t.Logf("claims=%d settlements=%d refused=%d passes=%d", n, len(settled), refused, passes)
			})
		}
	}
}
