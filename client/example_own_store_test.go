package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onced/onced/client"
)

// accounts stands for the program's own database, whose transactions are all or
// nothing. Beside the balances it has a table of witnesses, one row for each operation.
type accounts struct {
	mu       sync.Mutex // BEGIN … COMMIT
	balance  map[string]int
	witness  map[string]witness
	deadlock bool // the next transaction gets stuck
}

type witness struct {
	fence  uint64 // of the newest claim that was here
	done   bool
	result int
}

var errFenced = errors.New("accounts: somebody else holds the claim by now")

// Deposit changes the balance and writes the witness, in one transaction. A claim that
// is older than one that was here before changes nothing.
func (a *accounts) Deposit(key string, fence uint64, account string, cents int) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch w := a.witness[key]; {
	case fence < w.fence:
		return 0, errFenced
	case w.done:
		return w.result, nil
	}
	a.balance[account] += cents
	a.witness[key] = witness{fence: fence, done: true, result: a.balance[account]}
	return a.balance[account], nil
}

// Find reads the witness and leaves its own fence in it, in one transaction: what an
// earlier claim has not committed by now, it never will.
func (a *accounts) Find(key string, fence uint64) (result int, done bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.witness[key]
	if fence < w.fence {
		return 0, false, errFenced
	}
	w.fence = fence
	a.witness[key] = w
	return w.result, w.done, nil
}

// The effect is in the program's own store. Write a witness of the operation in the
// same transaction as the effect: who reads it knows for certain whether the effect
// happened. Its fence keeps out a former holder whose transaction was stuck, so that
// here nothing is left to chance.
func ExampleDo_ownStore() {
	s, stop := exampleServer()
	defer stop()
	c := s.Client()
	db := &accounts{balance: map[string]int{}, witness: map[string]witness{}, deadlock: true}

	var stuck func() error // the transaction of the first attempt
	deposit := func() {
		out, err := client.Do(context.Background(), c, client.Call{Key: "deposit-1", Method: "Deposit"},
			func(_ context.Context, cl *client.Claim) (int, error) {
				commit := func() (int, error) { return db.Deposit(cl.Key, cl.Fence, "alice", 500) }
				if db.deadlock {
					stuck = func() error { _, err := commit(); return err }
					return 0, errors.New("accounts: no answer to COMMIT")
				}
				return commit()
			},
			client.WithReconcile(func(_ context.Context, cl *client.Claim) client.Verdict {
				result, done, err := db.Find(cl.Key, cl.Fence)
				switch {
				case err != nil:
					return client.StillUnknown(err)
				case done:
					return client.Happened(result)
				}
				return client.DidNotHappen()
			}))
		fmt.Println("balance", out.Value, "attempt", out.Attempt, err)
	}

	deposit()
	db.deadlock = false
	s.Advance(time.Minute) // reconcile_after
	deposit()
	fmt.Println("the stuck transaction:", stuck())
	deposit()
	fmt.Println("alice has", db.balance["alice"])
	// Output:
	// balance 0 attempt 1 accounts: no answer to COMMIT
	// balance 500 attempt 3 <nil>
	// the stuck transaction: accounts: somebody else holds the claim by now
	// balance 500 attempt 3 <nil>
	// alice has 500
}
