package main

import (
	"debug/buildinfo"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client/oncegrpc"
	"github.com/onced/onced/client/oncetest"
)

const oncedModule = "github.com/onced/onced"

// oncedPackages is what of onced may be in the program.
var oncedPackages = []string{
	oncedModule,
	oncedModule + "/client",
	oncedModule + "/client/oncegrpc",
	oncedModule + "/fingerprint",
	oncedModule + "/gen/onced/v1",
}

// modules is whose code may be in the program besides: gRPC and what it needs, its
// interceptors, and a tokenizer. No store, no SQL driver, no MCP, no metrics.
var modules = []string{
	oncedModule,
	"github.com/go-json-experiment/json",
	"github.com/grpc-ecosystem/go-grpc-middleware/v2",
	"golang.org/x/net",
	"golang.org/x/sys",
	"golang.org/x/text",
	"google.golang.org/genproto/googleapis/rpc",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
}

// TestWhatIsInTheProgram builds the program and looks at whose code is in it. Its result
// may be cached: whatever is in the program is in the program of this test as well, so
// that a change of it is a change of the test.
func TestWhatIsInTheProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "guarded")
	goCommand(t, "build", "-buildvcs=false", "-o", program, ".")
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range info.Deps {
		found = append(found, m.Path)
		if !slices.Contains(modules, m.Path) {
			t.Errorf("the program has code of %s; if every guarded service is to have it, add it to modules", m.Path)
		}
	}
	if !slices.Contains(found, oncedModule) || !slices.Contains(found, "google.golang.org/grpc") {
		t.Errorf("of what a guard needs, modules are missing in %q", found)
	}

	found = strings.Fields(goCommand(t, "list", "-buildvcs=false", "-deps", "."))
	for _, p := range found {
		ours := p == oncedModule || strings.HasPrefix(p, oncedModule+"/")
		switch {
		case ours && !slices.Contains(oncedPackages, p):
			t.Errorf("the program has the package %s; if every guarded service is to have it, add it to oncedPackages", p)
		case p == "database/sql" || strings.HasPrefix(p, "database/sql/"):
			t.Errorf("the program has the package %s", p)
		}
	}
	for _, p := range oncedPackages {
		if !slices.Contains(found, p) {
			t.Errorf("the program has no package %s; take it out of oncedPackages", p)
		}
	}
}

// goCommand runs the go command here and returns what it prints.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	var failure strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &failure)
	}
	return string(out)
}

func TestAnOrderIsPlacedOnce(t *testing.T) {
	onced, o := oncetest.New(t), &orders{}
	server, err := newServer(onced.Client(), o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	for _, want := range []string{oncegrpc.OutcomeExecuted, oncegrpc.OutcomeReplayed} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), oncegrpc.MetadataKey, "order-1")
		var number wrapperspb.Int64Value
		var header metadata.MD
		err := conn.Invoke(ctx, placeMethod, wrapperspb.String("tea"), &number, grpc.Header(&header))
		if got := header.Get(oncegrpc.HeaderOutcome); err != nil || number.GetValue() != 1 || !slices.Equal(got, []string{want}) {
			t.Errorf("order %d, %q, %v; want order 1, %q", number.GetValue(), got, err, want)
		}
	}
	if n := o.placed.Load(); n != 1 {
		t.Errorf("%d orders were placed, want 1", n)
	}
}
