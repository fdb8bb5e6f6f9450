package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// shortLeases is a configuration in which claims lapse within seconds, and may be taken
// over a second later.
const shortLeases = "default:\n  default_lease: 1s\n  reconcile_after: 1s\n"

// held is how many operations the other process holds.
const held = 20

// holdRole executes operations at the same time, and answers "running" when all are
// under way. It answers how each was told to stop, and does not heed it; on a line they
// return their results, and it answers what became of each.
func holdRole(r *role) error {
	conn, err := grpc.NewClient(os.Getenv("ONCED_SERVER"), dialOptions()...)
	if err != nil {
		return err
	}
	c := client.New(conn, client.WithLogger(slog.New(slog.DiscardHandler)))
	var running, told, all sync.WaitGroup
	running.Add(held)
	told.Add(held)
	stops, ends, goOn := make([]error, held), make([]error, held), make(chan struct{})
	for n := range held {
		all.Go(func() {
			_, ends[n] = client.Do(context.Background(), c, client.Call{Key: keyOf(n), Method: "act"}, func(ctx context.Context, _ *client.Claim) (string, error) {
				running.Done()
				<-ctx.Done()
				stops[n] = context.Cause(ctx)
				told.Done()
				<-goOn
				return "by the first holder", nil
			})
		})
	}
	running.Wait()
	if err := r.answer("running"); err != nil {
		return err
	}
	told.Wait()
	if err := r.answers(stops); err != nil {
		return err
	}
	r.lines.Scan()
	close(goOn)
	all.Wait()
	return r.answers(ends)
}

// answers answers with the number of each word.
func (r *role) answers(errs []error) error {
	count := map[string]int{}
	for _, err := range errs {
		word := wordFor(err)
		if lost := new(client.ClaimLost); errors.As(err, &lost) && lost.Err == nil {
			word = "lost by its own clock"
		}
		count[word]++
	}
	return json.NewEncoder(os.Stdout).Encode(count)
}

// allSay waits for the other process's answer and demands a word for each operation.
func (p *player) allSay(word string) {
	p.t.Helper()
	if got := p.answer(); len(got) != 1 || got[word] != held {
		p.t.Fatalf("the other process answers %v, want %d of %s", got, held, word)
	}
}

// onced is down until the lease of every holder has ended. They go on, and renew when
// it is back: none of their operations is unresolved then, and their results count.
func TestOutageLongerThanLeases(t *testing.T) {
	dir, address, config := newStore(t), freeAddress(t), configFile(t, shortLeases)
	s := serve(t, dir, "--listen", address, "--config", config)
	holder := startRole(t, "hold", s)
	holder.says("running")
	s.kill()
	holder.allSay("lost by its own clock")

	s = serve(t, dir, "--listen", address, "--config", config)
	c := s.caller()
	var first [held]time.Time
	eventually(t, "the claims to outlast two more leases", func() bool {
		outlast := true
		for n := range held {
			op := c.lookup(keyOf(n))
			if op.GetState() != oncedv1.State_STATE_PENDING || op.GetAttempt() != 1 {
				t.Fatalf("the operation of a holder that renews is %v", op)
			}
			end := op.GetLeaseEnd().AsTime()
			if first[n].IsZero() {
				first[n] = end
			}
			outlast = outlast && end.Sub(first[n]) > 2*time.Second
		}
		return outlast
	})
	holder.tell("return")
	holder.allSay("settled")
	for n := range held {
		out := s.once(0, "lookup", "--key", keyOf(n), "--method", "act", "-o", "json")
		if !strings.Contains(out, "STATE_COMPLETED") || !strings.Contains(out, "by the first holder") {
			t.Errorf("once lookup shows %s", out)
		}
	}
}

// A holder is cut off while onced serves: nothing arrives, and nobody says so. Its own
// clock tells it to stop, before anybody can be given the claim. Its late result counts
// only where nobody has found out otherwise.
func TestHolderCutOff(t *testing.T) {
	s := serve(t, newStore(t), "--config", configFile(t, shortLeases))
	w := newWire(t, s.GRPC)
	holder := startRole(t, "hold", &process{ready: ready{GRPC: w.Addr().String()}})
	holder.says("running")
	w.cut()
	holder.allSay("lost by its own clock")

	c := s.caller()
	for n := range held {
		req := takeover(keyOf(n), 1)
		req.Lease = durationpb.New(time.Minute)
		var taken *oncedv1.ClaimResponse
		eventually(t, "the claim to be taken over", func() bool {
			taken = c.claim(req)
			return taken.GetOutcome() == takenOverOutcome
		})
		c.complete(completion(req, taken, "found by the second"))
	}
	w.mend()
	holder.tell("return")
	holder.allSay("lost")
	for n := range held {
		c.replayed(keyOf(n), "found by the second", c.claim(claimOf(keyOf(n))))
	}
}

// The connection of a holder, which gRPC tries to make again ever more rarely, is back
// before its claim lapses, however long the outage was.
func TestOutageEndsForConnections(t *testing.T) {
	for _, down := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour} {
		t.Run(down.String(), func(t *testing.T) {
			inLab(t, func(l *lab) {
				over := make(chan error, 1)
				go func() {
					_, err := client.Do(l.Context(), l.client(), client.Call{Key: "k", Method: "act"}, func(context.Context, *client.Claim) (string, error) {
						pass(down + 10*time.Minute)
						return "done", nil
					})
					over <- err
				}()
				pass(time.Minute)
				l.down()
				pass(down)
				l.up()
				conn := l.connect()
				defer conn.Close()
				other := caller{t: l.T, stub: oncedv1.NewIdempotencyServiceClient(conn)}
				for at := time.Duration(0); at < 3*time.Minute; at += time.Second {
					if op := other.lookup("k"); op.GetState() != oncedv1.State_STATE_PENDING {
						l.Errorf("%v after the outage the operation of a live holder is %v", at, op)
						break
					}
					pass(time.Second)
				}
				if err := <-over; err != nil {
					l.Error(err)
				}
				if op := other.lookup("k"); op.GetState() != oncedv1.State_STATE_COMPLETED || op.GetAttempt() != 1 {
					l.Errorf("got %v", op)
				}
			})
		})
	}
}

// wire is a way to a server that can be cut: what is sent stays on the way.
type wire struct {
	net.Listener
	mu   sync.Mutex
	open chan struct{} // closed while it is not cut
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, open: make(chan struct{})}
	close(w.open)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			all.Go(func() { w.carry(out, in) })
			all.Go(func() { w.carry(in, out) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.mend()
	})
	return w
}

// carry brings what is sent to its end, until either side closes.
func (w *wire) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		open := w.open
		w.mu.Unlock()
		<-open
		if _, sent := to.Write(buf[:n]); errors.Join(err, sent) != nil {
			return
		}
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}
