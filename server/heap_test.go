package server

import (
	"runtime"
	"testing"
)

// TestKeepHeapFloor: the floor outlives collections.
func TestKeepHeapFloor(t *testing.T) {
	KeepHeapFloor()
	KeepHeapFloor()
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc < heapFloorSize {
		t.Errorf("%d bytes are held", m.HeapAlloc)
	}
}
