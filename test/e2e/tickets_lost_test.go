package e2e

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/onced/onced/client/oncegrpc"
)

// lossy stands between a gRPC client and a server. Every request arrives; of the answers
// it loses some, each with the whole connection.
type lossy struct {
	net.Listener
	answers atomic.Int32 // that came from the server, in all
	lost    atomic.Int32
}

// newLossy loses the answers of which lose, told their number from 1, says so.
func newLossy(t testing.TB, to string, lose func(n int32) bool) *lossy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lossy{Listener: listener}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			open[in], open[out] = true, true
			mu.Unlock()
			end := func() { in.Close(); out.Close() }
			all.Go(func() {
				defer end()
				_, _ = io.Copy(out, in)
			})
			all.Go(func() {
				defer end()
				l.answer(in, out, lose)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l
}

// answer passes the frames of a server on until one begins an answer that is to be lost.
func (l *lossy) answer(to io.Writer, from io.Reader, lose func(n int32) bool) {
	const headersFrame = 1
	begun := map[[4]byte]bool{} // streams whose answer has begun
	head := make([]byte, 9)     // length, type, flags, stream
	for {
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		size, stream := int64(head[0])<<16|int64(head[1])<<8|int64(head[2]), [4]byte(head[5:])
		if head[3] == headersFrame && !begun[stream] {
			begun[stream] = true
			if lose(l.answers.Add(1)) {
				l.lost.Add(1)
				return
			}
		}
		if _, err := to.Write(head); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, size); err != nil {
			return
		}
	}
}

// twoOfThree loses two answers out of three.
func twoOfThree(n int32) bool { return n%3 != 0 }

// none loses nothing.
func none(int32) bool { return false }

// Answers are lost after their requests have arrived, between the caller and the tool,
// between the tool and onced, and on both ways. gRPC tries again, as does the tool: each
// key has had one effect, and the caller has its ticket.
func TestR41_LostAnswers(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]struct{ callers, onced func(int32) bool }{
		"to the caller": {twoOfThree, none},
		"to the tool":   {none, twoOfThree},
		"to both":       {twoOfThree, twoOfThree},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, newStore(t))
			below := newLossy(t, s.GRPC, lose.onced)
			p := startTool(t, below.Addr().String())
			above := newLossy(t, p.GRPC, lose.callers)
			a := agentAt(t, above.Addr().String(), retries(`"UNAVAILABLE"`))
			const keys = 5
			ids := map[string]bool{}
			for n := range keys {
				f := a.create(t.Context(), keyOf(n), grpc.WaitForReady(true))
				if f.err != nil {
					t.Fatal(f.err)
				}
				ids[f.ticket.GetId()] = true
				if tries := f.outcome(); (tries == oncegrpc.OutcomeReplayed) != (above.lost.Load() > 0) {
					t.Errorf("after %d lost answers the ticket is %s", above.lost.Load(), tries)
				}
			}
			if len(ids) != keys || above.lost.Load()+below.lost.Load() == 0 {
				t.Errorf("%d keys have the tickets %v, with %d and %d answers lost", keys, ids, above.lost.Load(), below.lost.Load())
			}
			effected(t, ticketCreated, keys, p)
		})
	}
}
