package oncegrpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func TestGuardsThatDoNotTellCallersApart(t *testing.T) {
	constant := func(context.Context) (string, error) { return "acme", nil }
	lenient := func(ctx context.Context) (string, error) {
		p, _ := ctx.Value(principalKey{}).(principal)
		return p.user, nil
	}
	careless := func(ctx context.Context) (string, error) { return ctx.Value(principalKey{}).(principal).user, nil } // panics for nobody
	for name, c := range map[string]struct {
		opts   []Option
		refuse bool
	}{
		"nothing said":                          {nil, true},
		"a constant namespace":                  {[]Option{WithNamespace(constant)}, true},
		"a constant subject":                    {[]Option{WithSubject(constant)}, true},
		"both constant":                         {[]Option{WithNamespace(constant), WithSubject(constant)}, true},
		"a subject that may be empty":           {[]Option{WithSubject(lenient)}, true},
		"a namespace that may be empty":         {[]Option{WithNamespace(lenient)}, true},
		"functions that are nil":                {[]Option{WithNamespace(nil), WithSubject(nil)}, true},
		"a subject":                             {[]Option{WithSubject(userOf)}, false},
		"a namespace":                           {[]Option{WithNamespace(tenantOf)}, false},
		"a constant namespace and a subject":    {[]Option{WithNamespace(constant), WithSubject(userOf)}, false},
		"a function that panics for nobody":     {[]Option{WithSubject(careless)}, false},
		"said that nobody is authenticated":     {[]Option{WithoutAuthentication()}, false},
		"said so, and a constant namespace too": {[]Option{WithoutAuthentication(), WithNamespace(constant)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStaffedRig(t, oncetest.New(t), staff(), c.opts...)
			_, err := r.guard.Check(r.server)
			if says := err != nil && strings.Contains(err.Error(), "WithoutAuthentication"); says != c.refuse {
				t.Errorf("Check: %v", err)
			}
			for _, method := range []string{"Pay", "Optional", "ReadKeyed", "Field"} {
				a := r.as("a1", method, "k", request())
				if !c.refuse {
					a.wantOutcome(t, OutcomeExecuted)
					continue
				}
				a.wantRefused(t, codes.Internal, reasonMisconfigured)
				if !strings.Contains(a.err.Error(), "WithoutAuthentication") {
					t.Errorf("it does not say what to do: %v", a.err)
				}
			}
			if c.refuse {
				r.wantNothing()
				// There is nothing to replay to strangers.
				r.send("Read", request(), "authorization", "Bearer a1").wantOutcome(t, "")
				r.send("Off", request(), "authorization", "Bearer a1").wantOutcome(t, "")
			}
		})
	}
}

// Only the calls that the guard is about ask who calls, and each one asks anew.
func TestWhenCallersAreNamed(t *testing.T) {
	asked := 0
	counting := func(ctx context.Context) (string, error) {
		asked++
		return userOf(ctx)
	}
	r := newStaffedRig(t, oncetest.New(t), staff(), WithSubject(counting))
	if asked != 1 {
		t.Errorf("NewGuard asked %d times", asked)
	}
	for _, method := range []string{"Read", "Off", "Optional"} {
		_ = r.send(method, request(), "authorization", "Bearer a1")
	}
	if asked != 1 {
		t.Errorf("unguarded calls asked %d times", asked-1)
	}
	_ = r.as("a1", "Pay", "k", request())
	_ = r.as("a1", "Pay", "k", request())
	if asked != 3 {
		t.Errorf("two guarded calls asked %d times", asked-1)
	}
}

// Inside of the guard, authentication comes too late: the functions see nobody, and
// every call is refused.
func TestAuthenticationInsideTheGuard(t *testing.T) {
	r := newRig(t, authenticated, WithSubject(userOf))
	a := r.as("a1", "Pay", "k", request())
	if status.Code(a.err) != codes.PermissionDenied || !strings.Contains(a.err.Error(), errNobody.Error()) || len(a.header) != 0 {
		t.Errorf("got %v", a.err)
	}
	r.wantNothing()
}

// One guard may serve several servers, and one onced several guards.
func TestOneGuardForSeveralServers(t *testing.T) {
	onced := oncetest.New(t)
	first := newStaffedRig(t, onced, staff(), WithSubject(userOf))
	second := newStaffedRig(t, onced, staff(), WithSubject(userOf))
	first.as("a1", "Pay", "k", request()).wantOutcome(t, OutcomeExecuted)
	second.as("a1", "Pay", "k", request()).wantOutcome(t, OutcomeReplayed)
	second.as("b", "Pay", "k", request()).wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH")
	second.wantRuns(0)
	for range 2 {
		server := grpc.NewServer(grpc.UnaryInterceptor(first.guard.UnaryServerInterceptor()))
		if unguarded, err := first.guard.Check(server); err != nil || len(unguarded) != 0 {
			t.Errorf("Check: %q, %v", unguarded, err)
		}
	}
	if subjects := first.stored("default"); len(subjects) != 1 || slices.ContainsFunc(subjects, func(op *oncedv1.OperationDetails) bool { return op.GetSubject() != "alice" }) {
		t.Errorf("stored: %v", subjects)
	}
}
