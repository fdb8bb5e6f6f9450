package oncegrpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// callingOn makes the handlers of a rig call a method of another one, with what f makes of
// their context, and return the other's error unless it is nil.
func (r *rig) callingOn(next *callerRig, method string, f func(context.Context) context.Context, opts ...grpc.CallOption) {
	r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		if f != nil {
			ctx = f(ctx)
		}
		a := invoke(ctx, next.conn, method, request(), opts...)
		return a.resp, a.err
	})
}

// forwarding copies all that a handler was called with into its own calls.
func forwarding(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, incoming(ctx))
}

func child(t *testing.T, namespace, key, method, step string) string {
	t.Helper()
	k, err := (&client.Claim{Namespace: namespace, Key: key, Method: method}).Child(step)
	if err != nil {
		t.Fatal(err)
	}
	return MetadataKey + ": " + k
}

const toolsPay = toolsService + "/Pay"

// A handler that is executed again makes the same calls.
func TestChildKeysAreTheSameInTheNextExecution(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	first := true
	r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		a := invoke(ctx, next.conn, "Pay", request("account", "a"))
		if a.err == nil && first {
			first = false
			return nil, client.NotExecuted(status.Error(codes.Aborted, "later"))
		}
		return a.resp, a.err
	})
	_ = r.send("Pay", request(), MetadataKey, "k")
	r.send("Pay", request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.wantRuns(2)
	next.wantRuns(1)
	key := child(t, "default", "k", toolsPay, toolsPay)
	next.wantCame(key, key)
}

// The same when the second execution is a takeover, by another process.
func TestChildKeysAreTheSameAfterATakeover(t *testing.T) {
	onced := oncetest.New(t)
	next := newCallerRig(t, onced)
	for _, outcome := range []error{errors.New("killed"), nil} {
		r := newRigOn(t, onced, nil)
		r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
			a := invoke(ctx, next.conn, "Pay", request())
			return a.resp, errors.Join(a.err, outcome)
		})
		if a := r.send("Rerun", request(), MetadataKey, "k"); (a.err == nil) != (outcome == nil) {
			t.Errorf("got %v", a.err)
		}
		r.wantRuns(1)
		onced.Advance(2 * time.Minute)
	}
	next.wantRuns(1)
	key := child(t, "default", "k", toolsService+"/Rerun", toolsPay)
	next.wantCame(key, key)
}

// The key of a call within a handler depends on all that names its operation, and on
// the step.
func TestChildKeysDiffer(t *testing.T) {
	onced := oncetest.New(t)
	next := newCallerRig(t, onced)
	r := newStaffedRig(t, onced, staff(), WithNamespace(tenantOf))
	var want []string
	for _, c := range []struct{ token, method, key, next, step string }{
		{"a1", "Pay", "k", "Pay", ""},
		{"g", "Pay", "k", "Pay", ""},
		{"a1", "Idempotent", "k", "Pay", ""},
		{"a1", "Renamed", "k", "Pay", ""},
		{"a1", "Pay", "k2", "Pay", ""},
		{"a1", "Pay", "k3", "Idempotent", ""},
		{"a1", "Pay", "k4", "Pay", "charge"},
		{"a1", "Pay", "k5", "Pay", "refund"},
		{"a1", "Pay", "ключ", "Optional", "refund"},
	} {
		opts := []grpc.CallOption{}
		step := toolsService + "/" + c.next
		if c.step != "" {
			step = c.step
			opts = append(opts, WithStep(c.step))
		}
		r.callingOn(next, c.next, nil, opts...)
		a := r.send(c.method, request(), "authorization", "Bearer "+c.token, MetadataKeyBin, c.key)
		a.wantOutcome(t, OutcomeExecuted)
		p := staff()[c.token]
		name := toolsService + "/" + c.method
		if c.method == "Renamed" {
			name = "tools.v0/OldName"
		}
		want = append(want, child(t, p.tenant, c.key, name, step))
	}
	next.wantCame(want...)
	if n := len(slices.Compact(slices.Sorted(slices.Values(want)))); n != len(want) {
		t.Errorf("%d different keys of %d", n, len(want))
	}
	next.wantRuns(int64(len(want)))
}

// Two calls of one method are one, unless steps tell them apart.
func TestSteps(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	for method, steps := range map[string][]string{"Pay": {"", ""}, "Idempotent": {"charge", "fee"}, "Ignoring": {"charge", "charge"}} {
		r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
			for _, step := range steps {
				var opts []grpc.CallOption
				if step != "" {
					opts = append(opts, WithStep(step))
				}
				if a := invoke(ctx, next.conn, method, request(), opts...); a.err != nil {
					return nil, a.err
				}
			}
			return response(), nil
		})
		before := next.ran.Load()
		r.send(method, request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
		runs := int64(1)
		if steps[0] != steps[1] {
			runs = 2
		}
		next.wantRuns(before + runs)
		if keys := next.wire.keys(); len(keys) != 2 || (keys[0] == keys[1]) != (runs == 1) {
			t.Errorf("%s: there came %q", method, keys)
		}
	}
}

func TestStepsThatCannotBeUsed(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	for _, step := range []string{"null", "undefined", "00000000-0000-0000-0000-000000000000"} {
		r.callingOn(next, "Pay", nil, WithStep(step))
		a := r.send("Pay", request(), MetadataKey, "k-"+step)
		if status.Code(a.err) != codes.InvalidArgument || !strings.Contains(a.err.Error(), "nothing was sent") {
			t.Errorf("step %q: %v", step, a.err)
		}
	}
	next.wantCame()
}

// A handler that copies the metadata which it was called with does not give its own key
// to those whom it calls.
func TestInboundKeysGoNoFurther(t *testing.T) {
	for name, place := range map[string]func(key string) []string{
		"text":          func(key string) []string { return []string{MetadataKey, key} },
		"-bin":          func(key string) []string { return []string{MetadataKeyBin, "ключ" + key} },
		"both":          func(key string) []string { return []string{MetadataKey, key, MetadataKeyBin, key} },
		"ASCII in -bin": func(key string) []string { return []string{MetadataKeyBin, key} },
	} {
		t.Run(name, func(t *testing.T) {
			onced := oncetest.New(t)
			next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
			for _, method := range []string{"Pay", "Field", "Read", "Off", "Optional"} {
				r.callingOn(next, method, forwarding)
				pairs := place("k" + method)
				r.send("Field", request(), append(pairs, "x", "y")...).wantOutcome(t, OutcomeExecuted)
				if md := next.wire.came; len(md) != 1 || !slices.Equal(md[0].Get("x"), []string{"y"}) {
					t.Errorf("the rest of the metadata came as %v", md)
				}
				if method == "Read" || method == "Off" {
					next.wantCame("")
				} else {
					next.wantCame(child(t, "default", pairs[1], toolsService+"/Field", toolsService+"/"+method))
				}
			}
		})
	}
}

// Nor where the handler makes the call within an operation of its own.
func TestInboundKeysGoNoFurtherThanNestedOperations(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		_, err := client.Do(ctx, r.client, client.Call{Key: "inner", Method: "step"}, func(ctx context.Context, _ *client.Claim) (string, error) {
			return "", invoke(forwarding(ctx), next.conn, "Pay", request()).err
		})
		return response(), err
	})
	r.send("Pay", request(), MetadataKey, "outer").wantOutcome(t, OutcomeExecuted)
	next.wantCame(child(t, "default", "inner", "step", toolsPay))
}

// What a handler says explicitly is what is sent.
func TestExplicitKeysInHandlers(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	r.callingOn(next, "Pay", forwarding, WithKey("mine"))
	r.send("Pay", request(), MetadataKey, "k1").wantOutcome(t, OutcomeExecuted)
	r.callingOn(next, "Idempotent", func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, MetadataKey, "mine too")
	})
	r.send("Pay", request(), MetadataKey, "k2").wantOutcome(t, OutcomeExecuted)
	r.callingOn(next, "Idempotent", nil, WithKey("k3")) // its own key, on purpose
	r.send("Pay", request(), MetadataKey, "k3").wantOutcome(t, OutcomeExecuted)
	next.wantCame(MetadataKey+": mine", MetadataKey+": mine too", MetadataKey+": k3")
}

// A handler that is not guarded has no operation: its calls have keys of their own.
func TestUnguardedHandlersMintKeys(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	r.callingOn(next, "Pay", nil)
	for _, method := range []string{"Off", "Off", "Read", "Optional"} {
		if a := r.send(method, request()); a.err != nil {
			t.Errorf("%s: %v", method, a.err)
		}
	}
	keys := next.wire.keys()
	if len(slices.Compact(slices.Sorted(slices.Values(keys)))) != 4 || slices.ContainsFunc(keys, func(k string) bool { return !uuid7.MatchString(k) }) {
		t.Errorf("there came %q", keys)
	}
}

// In a chain of services, trying the first one again executes nothing twice, however
// often each of them is asked.
func TestChainOfThreeServices(t *testing.T) {
	onced := oncetest.New(t)
	third, second, first := newCallerRig(t, onced), newCallerRig(t, onced), newCallerRig(t, onced)
	second.callingOn(third, "Pay", forwarding)
	tries := 0
	first.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		a := invoke(forwarding(ctx), second.conn, "Pay", request())
		if tries++; tries < 3 {
			return nil, client.NotExecuted(status.Error(codes.Unavailable, "not yet")) // retried by the client
		}
		return a.resp, a.err
	})
	for range 2 {
		if a := first.do("Pay", request(), WithKey("k")); a.err != nil || text(a.resp, "id") != "first" {
			t.Errorf("got %v, %v", a.resp, a.err)
		}
	}
	first.wantRuns(3)
	second.wantRuns(1)
	third.wantRuns(1)
	toSecond := child(t, "default", "k", toolsPay, toolsPay)
	toThird := child(t, "default", strings.TrimPrefix(toSecond, MetadataKey+": "), toolsPay, toolsPay)
	second.wantCame(toSecond, toSecond, toSecond)
	third.wantCame(toThird)
}

// A failure of a callee is no word on the caller's own operation.
func TestFailuresOfCalleesProveNothing(t *testing.T) {
	onced := oncetest.New(t)
	next, r := newCallerRig(t, onced), newRigOn(t, onced, nil)
	next.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		return nil, client.Final(status.Error(codes.NotFound, "no such account"))
	})
	r.callingOn(next, "Pay", nil)
	if a := r.send("Pay", request(), MetadataKey, "k"); status.Code(a.err) != codes.NotFound {
		t.Errorf("got %v", a.err)
	}
	r.send("Pay", request(), MetadataKey, "k").wantUnresolved(t, "DECLARED")
	next.wantRuns(1)
}
