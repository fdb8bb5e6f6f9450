package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

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
	h := onSmallDisk(t, 12<<20)
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
	random := rand.New(rand.NewPCG(1, 0))
	h := onSmallDisk(t, 10<<20)
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
	for range 40 {
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
	for seed, largest := range []int{3000, 20_000, 100_000} {
		t.Run(fmt.Sprint("results up to ", largest), func(t *testing.T) {
			sweepAll(t, rand.New(rand.NewPCG(uint64(seed), 0)), largest)
		})
	}
}

func sweepAll(t *testing.T, random *rand.Rand, largest int) {
	h := onSmallDisk(t, 2<<20)
	n := h.fill(0, 0)
	settled := h.useUpReserve(random.Perm(n), func() int { return random.IntN(largest) })
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
	// What is left unsettled fills the disk as it did before, and a few operations leave
	// pages behind that are not empty.
	if err := errors.Join(h.store.Room(t.Context()), h.claim(n)); len(settled) > n/10 && err != nil {
		t.Errorf("all that could be swept is gone, and a claim is refused: %v", err)
	}
	t.Logf("claims=%d settlements=%d passes=%d", n, len(settled), passes)
}

// useUpReserve settles claims with results of some size, or of less where there is no
// room for so much, until twenty have found none, and returns those that it settled.
func (h *harness) useUpReserve(claims []int, size func() int) (settled []int) {
	h.t.Helper()
	refused := 0
	for _, i := range claims {
		err := storage.ErrFull
		for size := size(); size > 0 && errors.Is(err, storage.ErrFull); size /= 2 {
			err = h.settle(i, size)
		}
		switch {
		case err == nil:
			settled = append(settled, i)
		case !errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrFailed):
			h.t.Fatal(err)
		default:
			if refused++; refused == 20 {
				return settled
			}
		}
	}
	h.t.Fatal("the reserve is not used up")
	return nil
}
