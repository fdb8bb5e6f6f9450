package server

import "sync"

// heapFloorSize is many times what a server holds that does nothing large.
const heapFloorSize = 32 << 20

// heapFloor is memory that is never touched and so costs none.
var heapFloor = sync.OnceValue(func() []byte { return make([]byte, heapFloorSize) })

// KeepHeapFloor makes the garbage collector of this process wait, for the life of
// the process, until at least 32 MiB have been allocated since it ran last. Beside
// the few MiB that a server holds it would otherwise run for every few MiB more,
// at a fifth of the processor time. It is for main functions of servers. The second
// call does nothing.
func KeepHeapFloor() { heapFloor() }
