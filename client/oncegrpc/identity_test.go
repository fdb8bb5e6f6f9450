package oncegrpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// principal is who authentication has found to call.
type principal struct{ tenant, user string }

type principalKey struct{}

// tokens are the bearer tokens that the tests' authentication knows.
type tokens map[string]principal

// authenticate is an interceptor as services have it outside of the guard.
func (known tokens) authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return nil, status.Error(codes.Unauthenticated, "send one bearer token")
	}
	p, ok := known[strings.TrimPrefix(values[0], "Bearer ")]
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "the token is not known")
	}
	return handler(context.WithValue(ctx, principalKey{}, p), req)
}

var errNobody = errors.New("nobody was authenticated")

func tenantOf(ctx context.Context) (string, error) {
	p, ok := ctx.Value(principalKey{}).(principal)
	if !ok {
		return "", errNobody
	}
	return p.tenant, nil
}

func userOf(ctx context.Context) (string, error) {
	p, ok := ctx.Value(principalKey{}).(principal)
	if !ok {
		return "", errNobody
	}
	return p.user, nil
}

// staff are the callers of most of these tests. Alice has two credentials.
func staff() tokens {
	return tokens{"a1": {"acme", "alice"}, "a2": {"acme", "alice"}, "b": {"acme", "bob"}, "g": {"globex", "gina"}, "none": {"", "nobody"}}
}

// authenticated makes a guard tell its callers apart, instead of not at all.
func authenticated(g *Guard) { g.unauthenticated = false }

// newStaffedRig starts a tool that authenticates its callers.
func newStaffedRig(t *testing.T, onced *oncetest.Server, known tokens, opts ...Option) *rig {
	t.Helper()
	return newRigOn(t, onced, []grpc.UnaryServerInterceptor{known.authenticate}, append([]Option{authenticated}, opts...)...)
}

// as calls a method with a bearer token, under a key.
func (r *rig) as(token, method, key string, req *dynamicpb.Message) answer {
	return r.send(method, req, "authorization", "Bearer "+token, MetadataKey, key)
}

// wantSecretKept fails the test if an answer holds any of these words.
func wantSecretKept(t *testing.T, a answer, secrets ...string) {
	t.Helper()
	all := a.err.Error() + a.resp.String() + status.Convert(a.err).Proto().String()
	for _, md := range []metadata.MD{a.header, a.trailer} {
		for name, values := range md {
			all += name + strings.Join(values, " ")
		}
	}
	for _, secret := range secrets {
		if strings.Contains(all, secret) {
			t.Errorf("the caller is told %q: %s", secret, all)
		}
	}
}

func TestTenantsAreApart(t *testing.T) {
	r := newStaffedRig(t, oncetest.New(t), staff(), WithNamespace(tenantOf))
	r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		tenant, err := tenantOf(ctx)
		return response("id", "of "+tenant), err
	})
	for token, want := range map[string]string{"a1": "of acme", "g": "of globex"} {
		a := r.as(token, "Pay", "1", request("account", token))
		a.wantOutcome(t, OutcomeExecuted)
		if got := text(a.resp, "id"); got != want {
			t.Errorf("%s got %q", token, got)
		}
	}
	r.wantRuns(2)
	again := r.as("g", "Pay", "1", request("account", "g"))
	again.wantOutcome(t, OutcomeReplayed)
	if text(again.resp, "id") != "of globex" {
		t.Errorf("globex got %v", again.resp)
	}
	r.as("b", "Pay", "1", request("account", "a1")).wantOutcome(t, OutcomeReplayed) // the same tenant, and no subject
	if len(r.stored("acme")) != 1 || len(r.stored("globex")) != 1 || len(r.stored("default")) != 0 {
		t.Errorf("stored: %v, %v, %v", r.stored("acme"), r.stored("globex"), r.stored("default"))
	}
}

// What a caller writes does not choose its namespace or subject.
func TestMetadataIsNoIdentity(t *testing.T) {
	r := newStaffedRig(t, oncetest.New(t), staff(), WithNamespace(tenantOf), WithSubject(userOf))
	for _, name := range []string{"namespace", "onced-namespace", "tenant", "x-tenant", "subject", "onced-subject", "x-user"} {
		r.send("Pay", request("account", name), "authorization", "Bearer g", MetadataKey, name, name, "acme").wantOutcome(t, OutcomeExecuted)
	}
	if ops := r.stored("globex"); len(ops) != 7 || slices.ContainsFunc(ops, func(op *oncedv1.OperationDetails) bool { return op.GetSubject() != "gina" }) {
		t.Errorf("stored: %v", ops)
	}
}

func TestSubjects(t *testing.T) {
	r := newStaffedRig(t, oncetest.New(t), staff(), WithNamespace(tenantOf), WithSubject(userOf))
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		return response("id", "SECRET"), nil
	})
	r.as("a1", "Pay", "k", request("account", "a")).wantOutcome(t, OutcomeExecuted)
	for _, req := range []*dynamicpb.Message{request("account", "a"), request("account", "other")} {
		a := r.as("b", "Pay", "k", req)
		a.wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH")
		wantSecretKept(t, a, "SECRET", "alice", "acme", "process-1", "COMPLETED", "attempt")
	}
	r.wantRuns(1)
	// A credential is not who it stands for.
	r.as("a2", "Pay", "k", request("account", "a")).wantOutcome(t, OutcomeReplayed)
	r.as("g", "Pay", "k", request("account", "a")).wantOutcome(t, OutcomeExecuted)
	if got := r.stored("acme")[0].GetSubject(); got != "alice" {
		t.Errorf("the subject is %q", got)
	}
}

// A subject mismatch answers the same whatever became of the operation.
func TestSubjectMismatchDisclosesNoState(t *testing.T) {
	for name, outcome := range map[string]error{
		"completed": nil, "failed": client.Final(status.Error(codes.NotFound, "SECRET")), "unresolved": errors.New("SECRET"), "released": client.NotExecuted(status.Error(codes.NotFound, "SECRET")),
	} {
		t.Run(name, func(t *testing.T) {
			r := newStaffedRig(t, oncetest.New(t), staff(), WithSubject(userOf))
			r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
				return response("id", "SECRET"), outcome
			})
			_ = r.as("a1", "Pay", "k", request())
			a := r.as("b", "Pay", "k", request())
			if facts := a.wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH"); len(facts) != 2 {
				t.Errorf("it tells %v", facts)
			}
			wantSecretKept(t, a, "SECRET", "alice", "process-1", "first_claim_time")
			r.wantRuns(1)
		})
	}
}

// A subject that is absent is one of its own.
func TestAbsentSubject(t *testing.T) {
	known := staff()
	known["system"] = principal{"acme", ""}
	r := newStaffedRig(t, oncetest.New(t), known, WithSubject(userOf))
	r.as("a1", "Pay", "k1", request()).wantOutcome(t, OutcomeExecuted)
	r.as("system", "Pay", "k1", request()).wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH")
	r.as("system", "Pay", "k2", request()).wantOutcome(t, OutcomeExecuted)
	r.as("system", "Pay", "k2", request()).wantOutcome(t, OutcomeReplayed)
	r.as("a1", "Pay", "k2", request()).wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH")
	r.wantRuns(2)
}

func TestCallersThatCannotBeNamed(t *testing.T) {
	teapot := status.Error(codes.ResourceExhausted, "too many calls of this tenant")
	busy := status.Error(codes.Unavailable, "the directory is down")
	failing := func(err error) ContextFunc { return func(context.Context) (string, error) { return "x", err } }
	returning := func(s string) ContextFunc {
		return func(ctx context.Context) (string, error) { _, err := userOf(ctx); return s, err }
	}
	for name, c := range map[string]struct {
		opts []Option
		code codes.Code
		says string
	}{
		"no namespace":              {[]Option{WithNamespace(returning(""))}, codes.PermissionDenied, "namespace must have"},
		"a namespace's error":       {[]Option{WithNamespace(failing(errors.New("not in the directory")))}, codes.PermissionDenied, "not in the directory"},
		"a subject's error":         {[]Option{WithSubject(failing(errors.New("not in the directory")))}, codes.PermissionDenied, "not in the directory"},
		"a namespace's status":      {[]Option{WithNamespace(failing(teapot))}, codes.ResourceExhausted, "too many calls"},
		"a subject's status":        {[]Option{WithSubject(failing(teapot))}, codes.ResourceExhausted, "too many calls"},
		"a wrapped status":          {[]Option{WithSubject(failing(errors.Join(teapot)))}, codes.ResourceExhausted, "too many calls"},
		"one that may pass":         {[]Option{WithSubject(failing(busy))}, codes.Unavailable, "directory"},
		"an error that says OK":     {[]Option{WithSubject(failing(&okError{}))}, codes.PermissionDenied, "says OK"},
		"a context that has ended":  {[]Option{WithSubject(failing(context.Canceled))}, codes.PermissionDenied, "canceled"},
		"an impossible namespace":   {[]Option{WithNamespace(returning("a b"))}, codes.PermissionDenied, "namespace"},
		"a namespace without bound": {[]Option{WithNamespace(returning(strings.Repeat("n", 129)))}, codes.PermissionDenied, "namespace"},
		"an impossible subject":     {[]Option{WithSubject(returning("a\nb"))}, codes.PermissionDenied, "subject"},
		"a subject without bound":   {[]Option{WithSubject(returning(strings.Repeat("s", 257)))}, codes.PermissionDenied, "subject"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStaffedRig(t, oncetest.New(t), staff(), c.opts...)
			for _, method := range []string{"Pay", "Optional", "ReadKeyed"} {
				a := r.as("a1", method, "k", request())
				if status.Code(a.err) != c.code || !strings.Contains(a.err.Error(), c.says) {
					t.Errorf("%s: %v, want %v with %q", method, a.err, c.code, c.says)
				}
				if got := a.trailer.Get("grpc-retry-pushback-ms"); len(a.header) != 0 || (c.code != codes.Unavailable) != slices.Equal(got, []string{"-1"}) {
					t.Errorf("%s: headers %v, trailers %v", method, a.header, a.trailer)
				}
			}
			r.wantNothing()
			for _, method := range []string{"Read", "Off", "Optional"} { // they have no operation, and so no caller
				if a := r.send(method, request(), "authorization", "Bearer a1"); a.err != nil {
					t.Errorf("%s: %v", method, a.err)
				}
			}
		})
	}
}

// okError is an error whose status is none.
type okError struct{}

func (*okError) Error() string              { return "it says OK" }
func (*okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// A caller who may no longer call gets no stored answer either.
func TestRevokedCallersGetNoReplays(t *testing.T) {
	known := staff()
	r := newStaffedRig(t, oncetest.New(t), known, WithNamespace(tenantOf), WithSubject(userOf))
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		return response("id", "SECRET"), nil
	})
	r.as("a1", "Pay", "k", request()).wantOutcome(t, OutcomeExecuted)
	delete(known, "a1")
	a := r.as("a1", "Pay", "k", request())
	if status.Code(a.err) != codes.Unauthenticated {
		t.Errorf("got %v", a.err)
	}
	wantSecretKept(t, a, "SECRET", HeaderOutcome)
	r.as("a2", "Pay", "k", request()).wantOutcome(t, OutcomeReplayed)
	r.wantRuns(1)
}
