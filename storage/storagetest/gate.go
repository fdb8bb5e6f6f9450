package storagetest

import (
	"errors"
	"sync"
)

// ErrSync is what [Gate.Sync] returns for a sync that was told to fail.
var ErrSync = errors.New("storagetest: sync failed on purpose")

// Gate stands where a backend syncs, and gives a harness its HoldSync and
// FailSync: the backend calls Sync in place of, or just before, each sync. The
// zero Gate is open. It is safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	held chan struct{} // closed by release; nil: not held
	fail bool
}

// HoldSync makes Sync block until release is called.
func (g *Gate) HoldSync() (release func()) {
	held := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = held
	return sync.OnceFunc(func() { close(held) })
}

// FailSync makes the next call of Sync return [ErrSync].
func (g *Gate) FailSync() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = true
}

// Sync returns when it is not held, and then once ErrSync if it was told to
// fail.
func (g *Gate) Sync() error {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held != nil {
		<-held
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	fail := g.fail
	g.fail = false
	if fail {
		return ErrSync
	}
	return nil
}
