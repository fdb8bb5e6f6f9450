package server

import (
	"context"
	"sync"

	"github.com/onced/onced"
	"github.com/onced/onced/storage"
)

// countPage is how many index entries one read of the count at start takes.
const countPage = 1000

// unsettledCounts counts the unsettled operations of every namespace that has
// any. The counts bound what new claims may add: they are taken from the store
// at start, follow what this process changes, and may be exceeded by the claims
// that are being decided at the same time.
type unsettledCounts struct {
	mu          sync.Mutex
	byNamespace map[string]int64
}

// countUnsettled counts what the store's index of unsettled work holds.
func countUnsettled(ctx context.Context, store storage.Store) (*unsettledCounts, error) {
	now, err := storeTime(ctx, store, "")
	if err != nil {
		return nil, err
	}
	counts := &unsettledCounts{byNamespace: map[string]int64{}}
	end := now.Now.Add(onced.GreatestLease) // no entry lies later
	for cursor := storage.Cursor(nil); ; {
		page, err := store.ScanDue(ctx, onced.DueUnsettled, end, cursor, countPage)
		if err != nil {
			return nil, err
		}
		for _, due := range page.Due {
			counts.byNamespace[due.ID.Namespace]++
		}
		if cursor = page.Next; cursor == nil {
			return counts, nil
		}
	}
}

// full reports whether a namespace has as many unsettled operations as limit.
func (c *unsettledCounts) full(namespace string, limit int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byNamespace[namespace] >= limit
}

// change follows a record that was stored; nil is an absent one.
func (c *unsettledCounts) change(namespace string, before, after *onced.Record) {
	was, is := unsettled(before), unsettled(after)
	if was == is {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.byNamespace[namespace]++
		return
	}
	if c.byNamespace[namespace]--; c.byNamespace[namespace] <= 0 {
		delete(c.byNamespace, namespace)
	}
}

func unsettled(r *onced.Record) bool { return r != nil && r.State.Unsettled() }
