package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
	return h.run(i, storage.ClassSettlement, func(v onced.View) onced.Plan {
		r := *v.Record
		r.State, r.Revision = onced.StateCompleted, r.Revision+1
		r.Result = onced.NewResult("", false, make([]byte, size))
		return onced.Plan{Put: &r}
	})
}

func (h *harness) sweep(i int) error {
	return h.run(i, storage.ClassSweep, func(onced.View) onced.Plan { return onced.Plan{Delete: true} })
}

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
				if refused == 0 {
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
				// What is left unsettled fills the disk as it did. A few operations leave
				// pages behind that are not empty.
				if err := errors.Join(h.store.Room(t.Context()), h.claim(n)); len(settled) > n/10 && err != nil {
					t.Errorf("all that could be swept is gone, and a claim is refused: %v", err)
				}
				t.Logf("claims=%d settlements=%d refused=%d passes=%d", n, len(settled), refused, passes)
			})
		}
	}
}
