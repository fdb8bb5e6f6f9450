package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Results that are empty, or look like nothing, are results: they are replayed,
// and nothing runs again because of what they are, also after a restart.
func TestR25_EmptyResults(t *testing.T) {
	dir := newStore(t)
	var r runs
	for _, kind := range []string{"run", "replay", "replay after a restart"} {
		s := serve(t, dir)
		c := s.client()
		replay := kind != "run"
		emptyResult(t, c, &r, replay, &emptypb.Empty{})
		emptyResult(t, c, &r, replay, []byte{})
		emptyResult(t, c, &r, replay, "")
		emptyResult(t, c, &r, replay, false)
		emptyResult(t, c, &r, replay, 0)
		emptyResult(t, c, &r, replay, []string{})
		emptyResult(t, c, &r, replay, map[string]int(nil))
		emptyResult(t, c, &r, replay, struct{}{})
		s.stop()
	}
	r.are(t, 8)
}

// emptyResult runs an operation whose result is value, or demands its replay.
func emptyResult[T any](t *testing.T, c *client.Client, r *runs, replay bool, value T) {
	t.Helper()
	call := client.Call{Key: fmt.Sprintf("%T", value), Method: "act"}
	out, err := client.Do(t.Context(), c, call, func(context.Context, *client.Claim) (T, error) {
		r.n.Add(1)
		return value, nil
	})
	same := reflect.DeepEqual(out.Value, value)
	if m, ok := any(value).(proto.Message); ok {
		same = proto.Equal(m, any(out.Value).(proto.Message))
	}
	if err != nil || out.Replayed != replay || !same {
		t.Errorf("a result %#v (%T): %#v, %v", value, value, out, err)
	}
}

// What is read while the file grows under it is what was stored, to the last
// byte.
func TestR26_ReadsWhileTheFileGrows(t *testing.T) {
	const writers, readers, each, size = 4, 2, 60, 64 << 10
	s := serve(t, newStore(t))
	c, r := s.client(), &runs{}
	store := func(key string, result []byte) error {
		_, err := client.Do(t.Context(), c, client.Call{Key: key, Method: "act"}, func(context.Context, *client.Claim) ([]byte, error) {
			r.n.Add(1)
			return result, nil
		})
		return err
	}
	stored := make([]byte, size)
	for i := range stored {
		stored[i] = byte(rand.N(256))
	}
	if err := store("read", stored); err != nil {
		t.Fatal(err)
	}
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				if err := store(fmt.Sprintf("written-%d-%d", w, i), bytes.Repeat([]byte{byte(w)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	var reads atomic.Int32
	for range readers {
		reading.Go(func() {
			for over := false; !over; reads.Add(1) {
				select {
				case <-done:
					over = true // one more read, of the file as it is at the end
				default:
				}
				resp, err := c.Lookup(t.Context(), &oncedv1.LookupRequest{Ref: c.Ref("read", "act")})
				if got := resp.GetOperation().GetResult().GetStored().GetData(); err != nil || !bytes.Equal(got, stored) {
					t.Errorf("what was read is not what was stored: %d bytes, %v", len(got), err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	t.Logf("reads=%d", reads.Load())
	r.are(t, 1+writers*each)
}

// Claims that are decided in one batch with refused calls, and perhaps more than
// once, are granted once each: no fence is given twice, the metrics count answers,
// and a stop waits for the batches that are pending.
func TestR27_SharedBatches(t *testing.T) {
	const callers = 64
	f := newSwitches(t)
	dir := newStore(t)
	s := f.serve(dir)
	c := s.caller()
	bound := claimOf("bound")
	bound.Fingerprints = []string{arguments("p")[0].String()}
	boundGrant := c.granted(bound)
	f.on("slow-commit")

	var granted sync.Map // key → fence
	claim := func(key string) error {
		resp, err := c.stub.Claim(c.ctx(), leased(key, time.Hour))
		if err == nil && resp.GetOutcome() == grantedOutcome {
			granted.Store(key, resp.GetOperation().GetFence())
		}
		return err
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			if err := claim(fmt.Sprintf("granted-%d", i)); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			mismatch := claimOf("bound")
			mismatch.Fingerprints = []string{arguments("p2")[0].String()}
			_, err := c.stub.Claim(c.ctx(), mismatch)
			refused(t, err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
		})
		all.Go(func() {
			_, err := c.stub.Fail(c.ctx(), failing(claimOf("bound"), boundGrant, unknown))
			refused(t, err, codes.FailedPrecondition, "CLAIM_LOST")
		})
	}
	all.Wait()
	if got := s.metric(`onced_claims_total{namespace="other",outcome="GRANTED"}`); got != callers+1 {
		t.Errorf("%v grants are counted, want %d", got, callers+1)
	}

	f.hold("a batch")
	for i := range callers {
		all.Go(func() {
			if err := claim(fmt.Sprintf("stopping-%d", i)); err != nil && status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		})
	}
	f.held("a batch")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	f.release()
	all.Wait()
	if exit := s.wait(); exit != 0 {
		t.Errorf("the server ended with status %d, want 0", exit)
	}
	isSound(t, dir)
	c = serve(t, dir).caller()
	fences, n := map[uint64]string{}, 0
	granted.Range(func(key, fence any) bool {
		n++
		if other, taken := fences[fence.(uint64)]; taken {
			t.Errorf("%v and %s have one fence", key, other)
		}
		fences[fence.(uint64)] = key.(string)
		if op := c.lookup(key.(string)); op.GetFence() != fence.(uint64) || op.GetState() != oncedv1.State_STATE_PENDING {
			t.Errorf("after the restart %v is %v, want it held under the fence %v", key, op, fence)
		}
		return true
	})
	if n < callers {
		t.Errorf("%d claims were granted, want %d and more", n, callers)
	}
	t.Logf("executions=%d, of which %d were granted while the server stopped", n, n-callers)
}

// Names are compared byte for byte and part for part: nothing that only looks
// alike, or that joins to the same text, is one operation.
func TestR28_NamesApart(t *testing.T) {
	type name struct{ namespace, key, method string }
	names := []name{
		{"a", "b:c", "m"},
		{"a:b", "c", "m"},
		{"a", "b", "c:m"},
		{"a", "b/c", "m"},
		{"a/b", "c", "m"},
		{"a", "b|c", "m"},
		{"a", "b", "c|m"},
		{"a", "b%3Ac", "m"},
		{"a", "b%00c", "m"},
		{"a", "ab", "m"},
		{"a", "a", "bm"},
		{"aa", "b", "m"},
		{"a", "order-10", "m"},
		{"a", "abc", "m"},
		{"a", "Abc", "m"},
		{"A", "abc", "m"},
		{"a", "caf\u00e9", "m"},
		{"a", "cafe\u0301", "m"},
		{"a", "../x", "m"},
		{"a", `"abc"`, "m"},
	}
	s := serve(t, newStore(t))
	conn, r := s.conn(), &runs{}
	result := func(n name) string { return strings.Join([]string{n.namespace, n.key, n.method}, "\n") }
	for _, replay := range []bool{false, true} {
		for _, n := range names {
			c := client.New(conn, client.WithNamespace(n.namespace))
			out, err := client.Do(t.Context(), c, client.Call{Key: n.key, Method: n.method}, r.returning(result(n)))
			if err != nil || out.Replayed != replay || out.Value != result(n) {
				t.Errorf("%q: %+v, %v", n, out, err)
			}
		}
	}
	for _, absent := range []string{"order-1", "order-100", "order"} {
		ref := &oncedv1.OperationRef{Namespace: "a", Key: absent, Method: "m"}
		if _, err := s.stub().Lookup(t.Context(), &oncedv1.LookupRequest{Ref: ref}); status.Code(err) != codes.NotFound {
			t.Errorf("lookup of %s answered %v, want NOT_FOUND", absent, err)
		}
	}
	r.are(t, len(names))
}
