package oncegrpc

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
)

// A handler that passes its request on does not pass on its own key, which another
// tenant may use too.
func TestInboundKeysInRequestsGoNoFurther(t *testing.T) {
	next := newCallerRig(t, oncetest.New(t))
	next.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		return response("id", []string{"", "of A", "of B"}[next.ran.Load()]), nil
	})
	tenant := func(ctx context.Context) (string, error) {
		return metadata.ValueFromIncomingContext(ctx, "tenant")[0], nil
	}
	for _, opts := range [][]grpc.CallOption{nil, {WithKey("1")}} {
		next.ran.Store(0)
		r := newRigOn(t, oncetest.New(t), nil, WithNamespace(tenant))
		r.handle(func(ctx context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
			a := invoke(ctx, next.conn, "Field", req, opts...)
			return a.resp, a.err
		})
		of := func(tenant string) answer {
			return r.call(metadata.AppendToOutgoingContext(t.Context(), "tenant", tenant), "Field", "", request("request_id", "1", "amount", 5))
		}
		a, b := of("A"), of("B")
		switch {
		case opts == nil && (status.Code(a.err) != codes.InvalidArgument || status.Code(b.err) != codes.InvalidArgument):
			t.Errorf("A got %v and %v, B %v and %v", a.resp, a.err, b.resp, b.err)
		case opts != nil && (a.err != nil || b.err != nil): // who says it wants it
			t.Errorf("got %v, %v", a.err, b.err)
		}
	}
}

// A callee that was renamed, and keeps its name in operations, gets the same child keys.
func TestChildKeysOfRenamedMethods(t *testing.T) {
	s := oncetest.New(t)
	next, r := newCallerRig(t, s), newRigOn(t, s, nil)
	var want string
	var got answer
	r.handle(func(ctx context.Context, _ string, _ *dynamicpb.Message) (proto.Message, error) {
		want, _ = client.ClaimFromContext(ctx).Child("tools.v0/OldName")
		got = invoke(ctx, next.conn, "Renamed", request())
		return got.resp, got.err
	})
	r.call(t.Context(), "Pay", "k", request())
	if key := got.header.Get(HeaderKey); len(key) != 1 || key[0] != want {
		t.Errorf("the key is %v, want %s", key, want)
	}
}

// Who leaves is not told that onced is down, and neither is the log.
func TestCallersWhoLeaveAreNoOutage(t *testing.T) {
	var log bytes.Buffer
	var seen error
	outside := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		resp, err := h(ctx, req)
		seen = err
		return resp, err
	}
	r := newRigOn(t, oncetest.New(t), []grpc.UnaryServerInterceptor{outside}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	r.call(t.Context(), "Pay", "k", request())
	if status.Code(seen) != codes.Canceled || log.Len() > 0 {
		t.Errorf("got %v, and the log has %q", seen, log.String())
	}
}

// claimLost answers every claim with CLAIM_LOST, as when its token was used.
type claimLost struct{ grpc.ClientConnInterface }

func (claimLost) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	s, err := status.New(codes.FailedPrecondition, "lost").WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: "CLAIM_LOST"})
	if err != nil {
		return err
	}
	return s.Err()
}

// CLAIM_LOST means that it was executed. A claim that was refused so executed nothing.
func TestClaimsThatAreLostBeforeTheyAreGiven(t *testing.T) {
	r := newRig(t)
	r.guard.client = client.New(claimLost{})
	a := r.call(t.Context(), "Pay", "k", request())
	a.wantRefused(t, codes.Unavailable, reasonUnavailable)
	r.wantRuns(0)
}

// What is sent is what is stored, also where the service goes on to change it.
func TestResponsesThatAreSharedAreSentAsTheyAreStored(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		r := newRigOn(t, s, nil, WithWait(time.Minute))
		shared := response("id", "first")
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			s.Down()
			time.AfterFunc(time.Second, func() {
				fill(shared, []any{"id", "second"})
				s.Up()
			})
			return shared, nil
		})
		first, second := r.call(t.Context(), "Pay", "k", request()), r.call(t.Context(), "Pay", "k", request())
		if first.err != nil || second.err != nil || text(first.resp, "id") != "first" || text(second.resp, "id") != "first" {
			t.Errorf("executed: %v, %v; replayed: %v, %v", first.resp, first.err, second.resp, second.err)
		}
	})
}

// A guard inside of a guard would wait for itself. It says so, and nothing is in doubt.
func TestGuardInsideAGuard(t *testing.T) {
	s := oncetest.New(t)
	outer := NewGuard(s.Client(), WithoutAuthentication())
	r := newRigOn(t, s, []grpc.UnaryServerInterceptor{outer.UnaryServerInterceptor()})
	for range 2 {
		wantInfo(t, r.call(t.Context(), "Pay", "k", request()).err, codes.Internal, reasonMisconfigured)
	}
	r.wantRuns(0)
}

// A field that shares a oneof with the answer would clear it.
func TestReplayedFieldInAOneof(t *testing.T) {
	m := messageDesc("OneofResponse", "id string", "replayed bool")
	m.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("answer")}}
	for _, f := range m.Field {
		f.OneofIndex = proto.Int32(0)
	}
	file := register(&descriptorpb.FileDescriptorProto{
		Name: proto.String("oncegrpc/test/v1/oneof.proto"), Package: proto.String("oncegrpc.test.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{m},
	})
	if _, err := replayedFieldOf(file.Messages().ByName("OneofResponse"), "replayed"); err == nil {
		t.Error("it is accepted")
	}
}
