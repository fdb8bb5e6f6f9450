package oncegrpc

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func TestMethodsOfOperations(t *testing.T) {
	for method, want := range map[string]string{
		"Pay":     "oncegrpc.test.v1.Tools/Pay",
		"Renamed": "tools.v0/OldName",
	} {
		r := newRig(t)
		r.send(method, request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
		if got := r.only().GetOperation().GetRef().GetMethod(); got != want {
			t.Errorf("%s is stored as %q, want %q", method, got, want)
		}
		r.send(method, request(), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	}
}

// A method that was renamed answers what its callers began under the old name.
func TestRenamedMethodKeepsItsOperations(t *testing.T) {
	old := newRig(t)
	old.guard.methods.known.Store(toolsService+"/Renamed", &method{name: "tools.v0/OldName", output: responseDesc.FullName()}) // as it was called then
	old.send("Renamed", request("account", "a"), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	renamed := newRigOn(t, old.onced, nil)
	renamed.send("Renamed", request("account", "a"), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	renamed.send("Pay", request("account", "a"), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	renamed.wantRuns(1)
}

func TestLeases(t *testing.T) {
	for method, want := range map[string]time.Duration{"Pay": 30 * time.Second, "Leased": 90 * time.Second} {
		r := newRig(t)
		r.send(method, request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
		if got := r.only().GetOperation().GetLease().AsDuration(); got != want {
			t.Errorf("%s: lease %v, want %v", method, got, want)
		}
	}
}

// What of a request tells it from others.
func TestArguments(t *testing.T) {
	base := []any{"account", "a", "amount", 5, "trace", "t1"}
	changed := map[string]*dynamicpb.Message{
		"account": request("account", "b", "amount", 5, "trace", "t1"),
		"amount":  request("account", "a", "amount", 6, "trace", "t1"),
		"trace":   request("account", "a", "amount", 5, "trace", "t2"),
		"header":  request("account", "a", "amount", 5, "trace", "t1", "header.request_id", "x"),
		"unset":   request("account", "a"),
	}
	for method, free := range map[string][]string{
		"Pay":         nil,
		"Ignoring":    {"trace"},
		"Identified":  {"amount", "trace", "header", "unset"},
		"NestedField": {"trace"},
	} {
		for name, req := range changed {
			if method == "NestedField" && name == "header" {
				continue // that is its key
			}
			t.Run(method+"/"+name, func(t *testing.T) {
				r := newRig(t)
				r.send(method, request(base...), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
				again := r.send(method, req, MetadataKey, "k")
				if slices.Contains(free, name) {
					again.wantOutcome(t, OutcomeReplayed)
				} else {
					again.wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
				}
				r.wantRuns(1)
			})
		}
	}
}

// A method whose descriptor is not linked into the program is guarded: nothing is known
// that would speak against it.
func TestUnknownMethodsAreGuarded(t *testing.T) {
	r := newRigServing(t, oncetest.New(t), nil, func(r *rig) {
		r.server.RegisterService(r.service("Unheard", []toolMethod{{name: "Of"}}), r)
	})
	r.sendTo("Unheard", "Of", request()).wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
	r.sendTo("Unheard", "Of", request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.sendTo("Unheard", "Of", request(), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	if got := r.only().GetOperation().GetRef().GetMethod(); got != "oncegrpc.test.v1.Unheard/Of" {
		t.Errorf("stored as %q", got)
	}
	r.wantRuns(1)
	if unguarded, err := r.guard.Check(r.server); err == nil || slices.Contains(unguarded, "oncegrpc.test.v1.Unheard/Of") {
		t.Errorf("Check: %q, %v", unguarded, err) // an error because of Tools.Feed
	}
}

// Names are not made up from dots and slashes: what is no method in the descriptors is
// unknown.
func TestNamesThatAreNoMethods(t *testing.T) {
	for _, full := range []string{
		"", "/", "oncegrpc.test.v1.Request", "/oncegrpc.test.v1.Tools", "/oncegrpc.test.v1.Tools/", "/oncegrpc.test.v1/Tools/Read",
		"/oncegrpc.test.v1.Tools/read", "/grpc.health.v1.Health.x/Check", "/x.grpc.health.v1.Health/Check",
	} {
		if m := (&methods{}).of(full); m.stance != guarded {
			t.Errorf("%q is not guarded: %+v", full, m)
		}
	}
	if m := (&methods{}).of("oncegrpc.test.v1.Tools/Read"); m.stance != harmless {
		t.Error("without its slash, a method is not found")
	}
}

// What is done with calls, by the mode and by what the descriptor says of side effects.
func TestStances(t *testing.T) {
	const idempotent, unknown = descriptorpb.MethodOptions_IDEMPOTENT, descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
	for mode, want := range map[oncedv1.Guard_Mode]map[descriptorpb.MethodOptions_IdempotencyLevel]stance{
		oncedv1.Guard_MODE_UNSPECIFIED: {unknown: guarded, idempotent: guarded, readOnly: harmless},
		oncedv1.Guard_MODE_REQUIRED:    {unknown: guarded, idempotent: guarded, readOnly: guarded},
		oncedv1.Guard_MODE_OPTIONAL:    {unknown: optional, idempotent: optional, readOnly: optional},
		oncedv1.Guard_MODE_OFF:         {unknown: off, idempotent: off, readOnly: harmless},
	} {
		for level, want := range want {
			if got := stanceOf(mode, level); got != want {
				t.Errorf("%v, %v: %v, want %v", mode, level, got, want)
			}
		}
	}
}
