package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The second of two identical calls is replayed with the first bytes, also after
// a restart, and after a kill right behind the acknowledgement.
func TestReplayOutlivesTheServer(t *testing.T) {
	const result = `{"invoice":4711}`
	dir := newStore(t)
	s := serve(t, dir)
	c := s.caller()
	first := claimOf("replayed")
	granted := c.granted(first)
	c.complete(completion(first, granted, result))
	s.kill() // no answer is awaited after the acknowledgement

	s = serve(t, dir)
	s.caller().replayed("replayed", result, granted)
	s.stop()
	s = serve(t, dir)
	s.caller().replayed("replayed", result, granted)
	s.stop()
}

// A granted claim that nobody settled is not given to anybody else by a restart.
func TestClaimOutlivesTheServer(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	first := claimOf("held")
	granted := s.caller().granted(first)
	s.kill()

	c := serve(t, dir).caller()
	c.answered(claimOf("held"), inProgressOutcome)
	again := c.granted(first)
	for name, same := range map[string]bool{
		"attempt":   again.GetOperation().GetAttempt() == granted.GetOperation().GetAttempt(),
		"fence":     again.GetOperation().GetFence() == granted.GetOperation().GetFence(),
		"lease end": proto.Equal(again.GetOperation().GetLeaseEnd(), granted.GetOperation().GetLeaseEnd()),
	} {
		if !same {
			t.Errorf("the re-sent claim answered another %s: %v, first %v", name, again, granted)
		}
	}
	c.complete(completion(first, granted, "late"))
}

// Another result under the token that has reported one is refused, and the first
// bytes stay.
func TestOtherResultRefused(t *testing.T) {
	c := serve(t, newStore(t)).caller()
	first := claimOf("settled")
	granted := c.granted(first)
	c.complete(completion(first, granted, "one"))
	c.complete(completion(first, granted, "one"))
	_, err := c.stub.Complete(c.ctx(), completion(first, granted, "two"))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another result answered %v, want FAILED_PRECONDITION", err)
	}
	c.replayed("settled", "one", granted)
}

// A result over the limit is omitted, with its size and digest: the operation is
// executed all the same, and a retry is told so.
func TestResultOverTheLimit(t *testing.T) {
	c := serve(t, newStore(t)).caller()
	first := claimOf("large")
	granted := c.granted(first)
	big := completion(first, granted, "")
	big.Result = &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{Body: &oncedv1.Payload_Data{Data: bytes.Repeat([]byte{7}, 2<<20)}}}
	c.complete(big)
	omitted := c.claim(claimOf("large")).GetOperation().GetResult().GetOmitted()
	if omitted.GetSize() != 2<<20 || len(omitted.GetSha256()) != 32 {
		t.Errorf("the retry has %v, want omitted with size and digest", omitted)
	}
}

// The largest result that a policy can allow is stored and replayed whole.
func TestGreatestResult(t *testing.T) {
	result := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	s := serve(t, newStore(t), "--config", configFile(t, fmt.Sprintf("default:\n  max_result_bytes: %d\n", len(result))))
	for _, replayed := range []bool{false, true} {
		out, err := client.Do(t.Context(), s.client(), client.Call{Key: "greatest", Method: "act"},
			func(context.Context, *client.Claim) ([]byte, error) { return result, nil })
		if err != nil || out.Replayed != replayed || !bytes.Equal(out.Value, result) {
			t.Errorf("got %d bytes, replayed %v, %v", len(out.Value), out.Replayed, err)
		}
	}
}

// A message above the limit of the transport changes nothing: the operation stays
// claimed, and a small result settles it.
func TestMessageAboveTheLimit(t *testing.T) {
	c := serve(t, newStore(t)).caller()
	first := claimOf("huge")
	granted := c.granted(first)
	huge := completion(first, granted, "")
	huge.Result = &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{Body: &oncedv1.Payload_Data{Data: make([]byte, 18<<20)}}}
	if _, err := c.stub.Complete(c.ctx(), huge); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 18 MiB answered %v, want RESOURCE_EXHAUSTED", err)
	}
	c.answered(claimOf("huge"), inProgressOutcome)
	c.complete(completion(first, granted, "small"))
}

// The server is ready within a second, in the median of five starts. What decides
// here is the processor time that it takes: on a busy machine the clock tells of
// other processes.
func TestReadyWithinASecond(t *testing.T) {
	var took, busy []time.Duration
	for range 5 {
		dir := newStore(t)
		start := time.Now()
		s := serve(t, dir)
		took = append(took, time.Since(start))
		s.kill()
		busy = append(busy, s.cmd.ProcessState.UserTime()+s.cmd.ProcessState.SystemTime())
	}
	slices.Sort(took)
	slices.Sort(busy)
	t.Logf("starts took %v, median %v; processor time %v, median %v", took, took[2], busy, busy[2])
	if busy[2] > time.Second && !raceEnabled {
		t.Errorf("a start takes %v of processor time, more than the second in which the server is to be ready", busy[2])
	}
}

// Sub-second leases are kept: 1500 ms is 1500 ms.
func TestLeaseKeepsItsFractions(t *testing.T) {
	c := serve(t, newStore(t)).caller()
	req := claimOf("fractions")
	req.Lease = durationpb.New(1500 * time.Millisecond)
	op := c.granted(req).GetOperation()
	if got := op.GetLeaseEnd().AsTime().Sub(op.GetClaimTime().AsTime()); got != 1500*time.Millisecond {
		t.Errorf("the lease is %v, want 1.5s", got)
	}
}

// Tokens are never printed: what a server logs at its most talkative level holds
// none, in no encoding.
func TestNoTokenInTheLog(t *testing.T) {
	s := serve(t, newStore(t), "--log-level", "debug")
	c := s.caller()
	req := claimOf("secret")
	req.ClaimToken = []byte("a-token-that-reads-as-text-0123456789")
	granted := c.granted(req)
	c.complete(completion(req, granted, "a result that nobody logs"))
	_, _ = client.New(s.conn()).Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: refOf("secret")})
	s.stop()
	for _, secret := range []string{"a-token-that-reads-as-text", "YS10b2tlbi10aGF0", "612d746f6b656e", "a result that nobody logs"} {
		if bytes.Contains([]byte(s.log.String()), []byte(secret)) {
			t.Errorf("the log holds %q:\n%s", secret, s.log)
		}
	}
}
