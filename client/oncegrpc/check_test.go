package oncegrpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// checked is what Check says of a server that has services of these methods, each under
// a name that is new to the program.
func checked(t *testing.T, g *Guard, services map[string][]toolMethod) (unguarded []string, err error) {
	t.Helper()
	server := grpc.NewServer()
	for name, methods := range services {
		registerService(name, methods)
		server.RegisterService((&rig{t: t}).service(name, methods), t)
	}
	return g.Check(server)
}

// inUse is a guard whose interceptors were asked for.
func inUse(t *testing.T, opts ...Option) *Guard {
	g := NewGuard(oncetest.New(t).Client(), append([]Option{WithoutAuthentication()}, opts...)...)
	g.UnaryServerInterceptor()
	g.StreamServerInterceptor()
	return g
}

// wantSaid fails the test unless an error says all of these, one in each of its lines.
func wantSaid(t *testing.T, err error, each ...string) {
	t.Helper()
	if len(each) == 0 {
		if err != nil {
			t.Errorf("Check: %v", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("Check says nothing; want %q", each)
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != len(each) {
		t.Errorf("Check says %d things, want %d: %v", len(lines), len(each), err)
	}
	for _, want := range each {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Check says %q, and not %q", err, want)
		}
	}
}

func TestCheckOfAServerInOrder(t *testing.T) {
	unguarded, err := checked(t, inUse(t), map[string][]toolMethod{
		"CheckB": {
			{name: "Zeta", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}},
			{name: "Alpha", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}},
			{name: "Guarded"},
			{name: "Read", level: readOnly},
			{name: "ReadOff", level: readOnly, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}},
			{name: "ReadKeyed", level: readOnly, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_REQUIRED}},
			{name: "Idempotent", level: descriptorpb.MethodOptions_IDEMPOTENT},
			{name: "IdempotentOff", level: descriptorpb.MethodOptions_IDEMPOTENT, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}},
			{name: "Optional", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OPTIONAL}},
		},
		"CheckA": {{name: "Off", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}}},
	})
	wantSaid(t, err)
	if want := []string{
		"oncegrpc.test.v1.CheckA/Off", "oncegrpc.test.v1.CheckB/Alpha",
		"oncegrpc.test.v1.CheckB/IdempotentOff", "oncegrpc.test.v1.CheckB/Zeta",
	}; !slices.Equal(unguarded, want) {
		t.Errorf("unguarded: %q, want %q", unguarded, want)
	}
}

func TestCheckOfAnEmptyServer(t *testing.T) {
	unguarded, err := inUse(t).Check(grpc.NewServer())
	if len(unguarded) != 0 || err != nil {
		t.Errorf("got %q, %v", unguarded, err)
	}
}

func TestCheckOfInterceptorsNotInUse(t *testing.T) {
	c := oncetest.New(t).Client()
	off := &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}
	_, err := checked(t, NewGuard(c, WithoutAuthentication()), map[string][]toolMethod{"CheckUnused": {{name: "Pay"}}})
	wantSaid(t, err, "UnaryServerInterceptor")

	streaming := map[string][]toolMethod{"CheckUnusedStream": {{name: "Off", option: off, streams: true}, {name: "Read", level: readOnly, streams: true}}}
	g := NewGuard(c, WithoutAuthentication())
	g.UnaryServerInterceptor()
	unguarded, err := checked(t, g, streaming)
	wantSaid(t, err, "StreamServerInterceptor")
	if want := []string{"oncegrpc.test.v1.CheckUnusedStream/Off"}; !slices.Equal(unguarded, want) {
		t.Errorf("unguarded: %q, want %q", unguarded, want)
	}
	_, err = checked(t, g, map[string][]toolMethod{"CheckReadStream": {{name: "Read", level: readOnly, streams: true}}})
	wantSaid(t, err) // needs no stream interceptor

	g = NewGuard(c)
	_, err = checked(t, g, map[string][]toolMethod{"CheckAllWrong": {{name: "Feed", streams: true}}})
	wantSaid(t, err, "WithoutAuthentication", "UnaryServerInterceptor", "StreamServerInterceptor", "oncegrpc.test.v1.CheckAllWrong/Feed streams")
}

func TestCheckOfStreams(t *testing.T) {
	unguarded, err := checked(t, inUse(t), map[string][]toolMethod{"CheckStreams": {
		{name: "Feed", streams: true},
		{name: "Optional", streams: true, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OPTIONAL}},
		{name: "Keyed", streams: true, level: readOnly, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_REQUIRED}},
		{name: "Off", streams: true, option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OFF}},
		{name: "Watch", streams: true, level: readOnly},
	}})
	wantSaid(t, err, "CheckStreams/Feed streams", "CheckStreams/Optional streams", "CheckStreams/Keyed streams")
	want := []string{"CheckStreams/Feed", "CheckStreams/Keyed", "CheckStreams/Off", "CheckStreams/Optional"}
	for i := range want {
		want[i] = "oncegrpc.test.v1." + want[i]
	}
	if !slices.Equal(unguarded, want) {
		t.Errorf("unguarded: %q, want %q", unguarded, want)
	}
}

// Two methods may share a name, one old and one new, but not where the one's stored
// answer is none that the other gives.
func TestCheckOfSharedNames(t *testing.T) {
	named := func(name string) *oncedv1.Guard { return &oncedv1.Guard{Method: name} }
	_, err := checked(t, inUse(t), map[string][]toolMethod{"CheckSame": {{name: "Old", option: named("oncegrpc.test.v1.CheckSame/New")}, {name: "New"}}})
	wantSaid(t, err)

	methods := []toolMethod{
		{name: "One", option: named("shared")},
		{name: "Three", option: &oncedv1.Guard{Method: "shared", Mode: oncedv1.Guard_MODE_OFF}},
		{name: "Two", option: named("shared")},
	}
	registerServiceOf("CheckShared", methods, messageDesc("CheckSharedRequest", "id string"), func(m toolMethod) string {
		return map[string]string{"One": "Response", "Two": "Other", "Three": "Header"}[m.name]
	})
	server := grpc.NewServer()
	server.RegisterService((&rig{t: t}).service("CheckShared", methods), t)
	_, err = inUse(t).Check(server)
	wantSaid(t, err, `"shared"`)
	if err != nil && !strings.Contains(err.Error(), "oncegrpc.test.v1.CheckShared/Two") {
		t.Errorf("Check does not say which: %v", err)
	}
}

func TestCheckOfTimes(t *testing.T) {
	for name, opt := range map[string]Option{"wait": WithWait(-1), "claim timeout": WithClaimTimeout(0), "claim timeout ": WithClaimTimeout(-1)} {
		_, err := inUse(t, opt).Check(grpc.NewServer())
		wantSaid(t, err, strings.TrimSpace(name))
	}
}

// gRPC's own services change nothing, and need no keys; neither do they show in Check.
func TestCheckOfInfrastructure(t *testing.T) {
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	unguarded, err := inUse(t).Check(server)
	if len(unguarded) != 0 || err != nil {
		t.Errorf("got %q, %v", unguarded, err)
	}
}

// Check asks the selector as the interceptors do, but for the request.
func TestCheckAsksTheSelector(t *testing.T) {
	var asked []interceptors.CallMeta
	only := selector.MatchFunc(func(_ context.Context, meta interceptors.CallMeta) bool {
		asked = append(asked, meta)
		return meta.Method == "In" || meta.Method == "Feed"
	})
	unguarded, err := checked(t, inUse(t, WithSelector(only)), map[string][]toolMethod{"CheckSelected": {
		{name: "In"},
		{name: "Out"},
		{name: "OutOptional", option: &oncedv1.Guard{Mode: oncedv1.Guard_MODE_OPTIONAL}},
		{name: "Read", level: readOnly},
		{name: "Feed", streams: true},
		{name: "OutFeed", streams: true},
	}})
	wantSaid(t, err, "CheckSelected/Feed streams")
	want := []string{"Feed", "Out", "OutFeed", "OutOptional"}
	for i := range want {
		want[i] = "oncegrpc.test.v1.CheckSelected/" + want[i]
	}
	if !slices.Equal(unguarded, want) {
		t.Errorf("unguarded: %q, want %q", unguarded, want)
	}
	for _, meta := range asked {
		if meta.Service != "oncegrpc.test.v1.CheckSelected" || meta.IsClient || meta.ReqOrNil != nil {
			t.Errorf("the selector was asked about %+v", meta)
		}
		if streams := strings.HasSuffix(meta.Method, "Feed"); streams != (meta.Typ == interceptors.ServerStream) {
			t.Errorf("%s is described as %v", meta.Method, meta.Typ)
		}
	}
}
