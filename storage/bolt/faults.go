//go:build faults

package bolt

import (
	"io/fs"
	"syscall"
)

// Faults are switches around each commit, for tests of whole processes. They are
// called by the committer, one at a time, and may take their time; any may be
// nil. Nothing of this is in a build without the tag faults.
type Faults struct {
	// BeforeCommit runs before anything of a batch is written. Its error takes the
	// place of the commit's: [DiskFull] for a write that found no room.
	BeforeCommit func() error
	// AfterCommit runs when bbolt has committed, and before that counts as
	// durable: while it runs, the sync is held. Its error is that of the sync.
	AfterCommit func() error
	// BeforeAnswer runs when a commit counts as durable, and before any of its
	// answers leaves.
	BeforeAnswer func()
	// BatchLimit is how many updates a commit takes at most; 0: as ever.
	BatchLimit int
}

// DiskFull is the error of a write to a full disk.
var DiskFull error = &fs.PathError{Op: "write", Path: fileData, Err: syscall.ENOSPC}

// WithFaults returns the options with switches around each commit.
func (o Options) WithFaults(f Faults) Options {
	o.hooks = hooks{beforeCommit: f.BeforeCommit, afterCommit: f.AfterCommit, beforeAnswer: f.BeforeAnswer}
	o.batchLimit = f.BatchLimit
	return o
}
