package server

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// TestChainOrder holds the chain to its order. What the order is for, the other
// tests of this file show.
func TestChainOrder(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	c := &chain{service: r.server.service, metrics: r.metrics, admission: newAdmission(1, 0), log: slog.New(slog.DiscardHandler)}
	var names, unaryOnly []string
	for i, p := range c.places() {
		names = append(names, p.name)
		if p.stats != nil && i > 0 {
			t.Errorf("%s is a stats handler and stands inside of an interceptor: it sees calls before them", p.name)
		}
		if p.stats == nil && p.unary == nil {
			t.Errorf("%s is a place without anything in it", p.name)
		}
		if p.unary != nil && p.stream == nil {
			unaryOnly = append(unaryOnly, p.name)
		}
	}
	want := []string{"metrics", "generation", "replies", "logging", "authentication", "authorisation", "validation", "admission", "errors", "recovery"}
	if !slices.Equal(names, want) {
		t.Errorf("the chain is\n%v\nwant\n%v", names, want)
	}
	if want := []string{"replies", "validation", "admission"}; !slices.Equal(unaryOnly, want) {
		t.Errorf("for unary calls only: %v, want %v", unaryOnly, want)
	}
}

// TestGenerationHeader stands on answers and errors of all kinds, also on those
// that a place of the chain gives.
func TestGenerationHeader(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	want := []string{strconv.FormatUint(r.server.Generation(), 10)}
	fence := r.grant("k")
	for _, tt := range []struct {
		name string
		code codes.Code
		call func(ctx context.Context, opt grpc.CallOption) error
	}{
		{"answer", codes.OK, func(ctx context.Context, opt grpc.CallOption) error {
			_, err := r.client.Complete(ctx, completeRequest("k", fence, "x"), opt)
			return err
		}},
		{"invalid", codes.InvalidArgument, func(ctx context.Context, opt grpc.CallOption) error {
			_, err := r.client.Claim(ctx, &oncedv1.ClaimRequest{}, opt)
			return err
		}},
		{"panic", codes.Internal, func(ctx context.Context, opt grpc.CallOption) error {
			r.store.mad.Store(true)
			defer r.store.mad.Store(false)
			_, err := r.client.Claim(ctx, claimRequest("mad"), opt)
			return err
		}},
		{"health", codes.NotFound, func(ctx context.Context, opt grpc.CallOption) error {
			_, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: "none"}, opt)
			return err
		}},
	} {
		var header metadata.MD
		err := tt.call(r.Context(), grpc.Header(&header))
		if status.Code(err) != tt.code || !slices.Equal(header.Get(generationHeader), want) {
			t.Errorf("%s: %v, header %v; want %v and %v", tt.name, err, header, tt.code, want)
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stream, err := healthpb.NewHealthClient(r.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if header, err := stream.Header(); err != nil || !slices.Equal(header.Get(generationHeader), want) {
		t.Errorf("stream: header %v, %v", header, err)
	}
}

// TestPanic: the client gets a plain sentence, the operator the stack, and
// nobody what was panicked with. Logging and metrics see the status.
func TestPanic(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	r.store.mad.Store(true)
	_, err := r.client.Claim(r.Context(), claimRequest("k"))
	st := r.wantReason(err, codes.Internal, "INTERNAL", "unknown")
	log := r.log.String()
	if strings.Contains(st.Message()+log, errPanicText.Error()) {
		t.Errorf("what was panicked with is shown:\n%v\n%s", st.Message(), log)
	}
	if !strings.Contains(log, "(*oddStore).Update") || !strings.Contains(log, "code=Internal") || !strings.Contains(log, "key=k") {
		t.Errorf("log:\n%s", log)
	}
	r.counted(1, "onced_rpcs_total", "Claim", "Internal")
	r.counted(1, "onced_refusals_total", "n", "Claim", "INTERNAL")
	r.store.mad.Store(false)
	r.grant("k")
}

// TestStreamChain runs streams that panic, fail and are denied through the chain.
func TestStreamChain(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	c := &chain{service: r.server.service, metrics: r.metrics, admission: newAdmission(1, 0), log: slog.New(slog.NewTextHandler(r.log, nil))}
	s := grpc.NewServer(chainOptions(c.places())...)
	stream := func(name string, handler grpc.StreamHandler) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: handler}
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "odd", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		stream("Panics", func(srv any, _ grpc.ServerStream) error { return srv.(error) }),
		stream("Fails", func(any, grpc.ServerStream) error { return refuseStopping() }),
		stream("HasStatus", func(any, grpc.ServerStream) error { return status.Error(codes.DataLoss, "its own") }),
	}}, nil)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: oncedv1.IdempotencyService_ServiceDesc.ServiceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{stream("Unnamed", func(any, grpc.ServerStream) error { return nil })},
	}, nil)
	listener := bufconn.Listen(1 << 16)
	go s.Serve(listener)
	defer s.Stop()
	conn := dial(t, listener)
	for method, want := range map[string]codes.Code{
		"/odd/Panics": codes.Internal, "/odd/Fails": codes.Unavailable, "/odd/HasStatus": codes.DataLoss,
		"/onced.v1.IdempotencyService/Unnamed": codes.PermissionDenied,
	} {
		stream, err := conn.NewStream(r.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new(oncedv1.ClaimRequest)); status.Code(err) != want || err == io.EOF {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "interface conversion") || !strings.Contains(log, "chain_test.go") {
		t.Errorf("log:\n%s", log)
	}
}

// TestDeadlinePassed: a call whose caller has given up never reaches its handler.
func TestDeadlinePassed(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	c := &chain{service: r.server.service}
	ctx, cancel := context.WithDeadline(r.Context(), time.Unix(0, 0))
	defer cancel()
	info := &grpc.UnaryServerInfo{FullMethod: oncedv1.IdempotencyService_Claim_FullMethodName}
	_, err := c.inTime(ctx, claimRequest("k"), info, func(context.Context, any) (any, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}

// TestRoles: every RPC of onced's services names who may call it, and who has
// none of its roles is refused, as is a call without a principal.
func TestRoles(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	as := func(have roles) context.Context {
		return context.WithValue(r.Context(), principalKey{}, principal{roles: have})
	}
	everyone, err := authenticate(r.Context())
	if err != nil {
		t.Fatal(err)
	}
	for service, info := range r.server.grpc.GetServiceInfo() {
		if !strings.HasPrefix(service, "onced.") {
			if authorize(r.Context(), "/"+service+"/Any") != nil {
				t.Errorf("%s is not for everyone", service)
			}
			continue
		}
		for _, m := range info.Methods {
			full := "/" + service + "/" + m.Name
			need, restricted := requiredRoles(full)
			if need == 0 || !restricted {
				t.Errorf("%s names no role", full)
			}
			if err := authorize(everyone, full); err != nil {
				t.Errorf("%s without access control: %v", full, err)
			}
			if err := authorize(as(need), full); err != nil {
				t.Errorf("%s by one who may: %v", full, err)
			}
			for _, ctx := range []context.Context{r.Context(), as(0), as(^need)} {
				if status.Code(authorize(ctx, full)) != codes.PermissionDenied {
					t.Errorf("%s by one who may not is not refused", full)
				}
			}
		}
	}
	c := &chain{service: r.server.service}
	info := &grpc.UnaryServerInfo{FullMethod: oncedv1.OperatorService_ListOperations_FullMethodName}
	_, err = c.authorizeUnary(as(roleCaller|roleReader), &oncedv1.ListOperationsRequest{}, info, nil)
	r.wantReason(err, codes.PermissionDenied, "NAMESPACE_DENIED", "no")
}

// TestMessageAboveLimit is refused before any interceptor, and counted all the
// same; the operation stays as it was.
func TestMessageAboveLimit(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	fence := r.grant("k")
	_, err := r.client.Complete(r.Context(), completeRequest("k", fence, strings.Repeat("x", maxMessage)))
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("%v", err)
	}
	r.counted(1, "onced_rpcs_total", "Complete", "ResourceExhausted")
	if _, err := r.client.Complete(r.Context(), completeRequest("k", fence, "small")); err != nil {
		t.Errorf("a small result afterwards: %v", err)
	}
}
