// Package storagetest is the conformance suite of storage backends: what
// package storage says that a backend must do, as tests. Every backend passes
// the same suite; what differs between backends, how a sync is held or made to
// fail and how a power loss is simulated, comes in through a [Harness].
//
// A backend's test is a harness and one function:
//
//	func TestConformance(t *testing.T) {
//		t.Run("memory", func(t *testing.T) { storagetest.Run(t, newHarness) })
//	}
//
// so that one topic of one backend runs by
//
//	go test -run 'TestConformance/memory/durability' ./storage/memory
package storagetest

import (
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// Harness is one backend under test, over one store. Its methods are called at
// any time, also while calls of the store are running: Store and Clock from any
// goroutine, the others from the test's only.
type Harness interface {
	// Store returns the store that is open.
	Store() storage.Store

	// Clock returns the clock that every store of this harness is given.
	Clock() *Clock

	// HoldSync makes the store's next syncs block, before what they sync counts as
	// durable, until release is called. A second call of release does nothing. A
	// hold that is made while a sync is held by another is for those after it.
	HoldSync() (release func())

	// FailSync makes the store's next sync fail with its outcome unknown; one that
	// is held, when it is released.
	FailSync()

	// Reopen closes the store, unless it is closed or has failed, and opens it
	// again. With crash it does what a power loss does: nothing is flushed, and
	// what was not synced may be gone. No call of the store is running then.
	Reopen(crash bool) storage.Store

	// Restore opens a new store over what Backup wrote, as it was written: with
	// the generation and the fences of the backup.
	Restore(backup []byte) storage.Store

	// Corrupt replaces the stored bytes of a record, which exists, by bytes that
	// no build can read.
	Corrupt(id onced.Identity)

	// CorruptTwin does the same to a twin entry, which exists.
	CorruptTwin(id onced.TwinID)

	// FutureState changes a stored record, which exists, to a state that only a
	// later build knows, and leaves it valid otherwise.
	FutureState(id onced.Identity)
}

// topics are the parts of the suite, each a file of this package.
var topics = []struct {
	name string
	run  func(*testing.T, newFunc)
}{
	{"semantics", testSemantics},
	{"results", testResults},
	{"payloads", testPayloads},
	{"identities", testIdentities},
	{"fences", testFences},
	{"unreadable", testUnreadable},
	{"concurrency", testConcurrency},
	{"durability", testDurability},
	{"failures", testFailures},
	{"contexts", testContexts},
	{"due", testDue},
	{"times", testTimes},
	{"meta", testMeta},
	{"audit", testAudit},
	{"backup", testBackup},
	{"closing", testClosing},
	{"histories", testHistories},
}

// Run runs the whole suite, a subtest for each topic. newHarness makes a
// harness over a fresh store that was initialised at the clock's wall time, and
// cleans up with t.Cleanup.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) { topic.run(t, newHarness) })
	}
}
