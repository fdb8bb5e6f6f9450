package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// effects is an outside system that can be asked what has happened in it.
type effects struct {
	mu    sync.Mutex
	of    map[string]int // effects by key
	asked map[string]int
}

func (e *effects) act(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of[key]++
}

// ask is a client.ReconcileFunc.
func (e *effects) ask(_ context.Context, cl *client.Claim) client.Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked[cl.Key]++
	if e.of[cl.Key] == 0 {
		return client.DidNotHappen()
	}
	return client.Happened("done")
}

func (e *effects) about() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked)
}

// A thousand callers have died; for every second one the effect is there. While a
// reconciler finds out which, the server is killed twice. In the end it has asked about
// all of them, and the next calls execute what had no effect, and nothing else.
func TestReconcilerServerKilledTwice(t *testing.T) {
	const operations, workers = 1000, 8
	dir, address, config := newStore(t), freeAddress(t), configFile(t, "default:\n  default_lease: 10s\n  reconcile_after: 1s\n")
	up := func() *process { return serve(t, dir, "--listen", address, "--config", config) }
	s, e, start := up(), &effects{of: map[string]int{}, asked: map[string]int{}}, time.Now()
	conn := dial(t, address)
	dead := caller{t: t, stub: oncedv1.NewIdempotencyServiceClient(conn)}
	each(operations, workers, func(n int) {
		dead.granted(leased(keyOf(n), time.Second))
		if n%2 == 0 {
			e.act(keyOf(n))
		}
	})

	c := client.New(conn, client.WithLogger(slog.New(slog.DiscardHandler)))
	r := &client.Reconciler{Client: c, Workers: workers, Interval: time.Second, Methods: map[string]client.Reconciliation{"act": {Ask: e.ask}}}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()
	for _, n := range []int{operations / 3, 2 * operations / 3, operations} {
		eventually(t, "a part to be asked about", func() bool { return e.about() >= n || len(stopped) > 0 })
		if n < operations {
			s.kill()
			s = up()
		}
	}
	eventually(t, "all to be reported", func() bool { return unsettled(t, conn) == 0 })
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	asked := 0
	for _, times := range e.asked {
		asked += times
	}

	var mu sync.Mutex
	ran := 0
	each(operations, workers, func(n int) {
		op := dead.lookup(keyOf(n))
		want := [...]oncedv1.State{oncedv1.State_STATE_COMPLETED, oncedv1.State_STATE_RELEASED}[n%2]
		out, err := client.Do(t.Context(), c, client.Call{Key: keyOf(n), Method: "act"}, func(_ context.Context, cl *client.Claim) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			ran++
			e.act(cl.Key)
			return "done", nil
		})
		if op.GetState() != want || err != nil || out.Value != "done" || out.Replayed != (n%2 == 0) {
			t.Errorf("%s was %v, and the next call got %+v, %v", keyOf(n), op, out, err)
		}
	})
	executed(t, ran, operations/2)
	for key, n := range e.of {
		if n != 1 {
			t.Errorf("%s has had %d effects", key, n)
		}
	}
	if left := c.Close(t.Context()); left != nil {
		t.Errorf("the client leaves %v", left)
	}
	s.kill()
	isSound(t, dir)
	t.Logf("operations=%d asked=%d kills=2 took=%v", operations, asked, time.Since(start).Round(time.Second))
}

func keyOf(n int) string { return fmt.Sprintf("k%04d", n) }

// each does something for every number below n, with so many workers.
func each(n, workers int, do func(n int)) {
	var all sync.WaitGroup
	numbers := make(chan int)
	for range workers {
		all.Go(func() {
			for n := range numbers {
				do(n)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	all.Wait()
}

// unsettled tells how many operations are pending or unresolved; more than one count
// as one.
func unsettled(t testing.TB, conn grpc.ClientConnInterface) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := oncedv1.NewOperatorServiceClient(conn).ListOperations(ctx, &oncedv1.ListOperationsRequest{
		Namespace: client.DefaultNamespace, PageSize: 1,
		States: []oncedv1.State{oncedv1.State_STATE_PENDING, oncedv1.State_STATE_UNRESOLVED},
	}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.GetOperations())
}
