package oncegrpc

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// What the policy of the namespace says of keys reaches the callers.

func fromKeys(p *onced.Policy) { p.KeyTimeRequired, p.KeyTimeFromKey = true, true }

func TestNamespaceThatReadsKeyTimes(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t, oncetest.WithPolicy(fromKeys)))
	r.do("Pay", request()).wantOutcome(t, OutcomeExecuted) // a minted key tells its time
	r.wire.keys()
	a := r.send("Pay", request(), MetadataKey, "order-1")
	a.wantRefused(t, codes.InvalidArgument, reasonArgumentsInvalid)
	if !strings.Contains(a.err.Error(), "key_time") {
		t.Errorf("it says %v", a.err)
	}
	r.wantRuns(1)
}

// A try that comes after its operation was forgotten is not taken for a new one.
func TestKeyOlderThanMemory(t *testing.T) {
	onced := oncetest.New(t, oncetest.WithPolicy(fromKeys))
	r := newRigOn(t, onced, nil)
	key := client.NewKey()
	r.send("Pay", request(), MetadataKey, key).wantOutcome(t, OutcomeExecuted)
	onced.Advance(31 * 24 * time.Hour)
	for range 2 {
		r.send("Pay", request(), MetadataKey, key).wantUnresolved(t, "HISTORY_LOST")
	}
	r.wantRuns(1)
}

// A lease that the namespace does not allow is the service's mistake, and not the
// caller's.
func TestLeaseThatTheNamespaceRefuses(t *testing.T) {
	r := newRigOn(t, oncetest.New(t, oncetest.WithPolicy(func(p *onced.Policy) { p.MaxLease = time.Minute })), nil)
	a := r.send("Leased", request(), MetadataKey, "k")
	a.wantRefused(t, codes.Internal, reasonMisconfigured)
	if !strings.Contains(a.err.Error(), "lease") {
		t.Errorf("it says %v", a.err)
	}
	r.wantNothing()
	r.send("Pay", request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
}
