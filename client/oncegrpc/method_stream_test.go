package oncegrpc

import (
	"context"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client/oncetest"
)

// streamed calls a method that streams, with metadata in pairs, and returns its first
// answer and what came with it.
func (r *rig) streamed(method string, pairs ...string) answer {
	r.t.Helper()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(r.t.Context(), metadata.Pairs(pairs...)))
	defer cancel()
	a := answer{resp: dynamicpb.NewMessage(responseDesc)}
	s, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+toolsService+"/"+method)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = s.SendMsg(request())
	_ = s.CloseSend()
	a.err = s.RecvMsg(a.resp)
	a.header, _ = s.Header()
	for err := a.err; err == nil; {
		err = s.RecvMsg(dynamicpb.NewMessage(responseDesc))
	}
	a.trailer = s.Trailer()
	return a
}

func TestStreams(t *testing.T) {
	keys := map[string][]string{
		"none": {}, "a good one": {MetadataKey, "k"}, "one in -bin": {MetadataKeyBin, "k"}, "an empty one": {MetadataKey, ""},
		"one that cannot be used": {MetadataKeyBin, "\xff"}, "two": {MetadataKey, "k1", MetadataKey, "k2"},
	}
	for name, pairs := range keys {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.streamed("Feed", pairs...).wantRefused(t, codes.Unimplemented, reasonStream)
			r.streamed("FeedOptional", pairs...).wantRefused(t, codes.Unimplemented, reasonStream)
			if name == "none" {
				r.wantNothing()
				r.streamed("FeedOff", pairs...).wantOutcome(t, "")
			} else {
				r.streamed("FeedOff", pairs...).wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
				r.wantNothing()
			}
			before := r.ran.Load()
			a := r.streamed("Watch", pairs...)
			a.wantOutcome(t, "")
			if text(a.resp, "id") != "first" {
				t.Errorf("the stream begins with %v", a.resp)
			}
			r.wantRuns(before + 1)
		})
	}
}

// A stream that the option or the descriptor make impossible does not pass as one that
// changes nothing.
func TestStreamsThatAreImpossible(t *testing.T) {
	m := readMethod("oncegrpc.test.v1.Tools/Watch")
	m.wrong = context.Canceled
	r := newRig(t)
	r.guard.methods.known.Store(toolsService+"/Watch", m)
	r.streamed("Watch").wantRefused(t, codes.Internal, reasonMisconfigured)
	r.wantNothing()
}

func TestSelector(t *testing.T) {
	var asked []interceptors.CallMeta
	only := selector.MatchFunc(func(_ context.Context, meta interceptors.CallMeta) bool {
		asked = append(asked, meta)
		return meta.Method == "Pay"
	})
	r := newRig(t, WithSelector(only))

	// What is matched is guarded, as it says.
	r.send("Pay", request()).wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
	r.send("Pay", request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.send("Pay", request(), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	r.wantRuns(1)
	for _, meta := range asked {
		if meta.FullMethod() != "/"+toolsService+"/Pay" || meta.ReqOrNil == nil || meta.IsClient || meta.Typ != interceptors.Unary {
			t.Errorf("the selector was asked about %+v", meta)
		}
	}

	// The rest is as with MODE_OFF.
	for i, method := range []string{"Idempotent", "ReadKeyed", "Optional", "Field", "Off", "Renamed"} {
		r.send(method, request(), MetadataKey, "k").wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
		r.send(method, request()).wantOutcome(t, "")
		r.wantRuns(int64(i + 2))
	}
	r.send("Field", request("request_id", "k")).wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
	r.send("Read", request(), MetadataKey, "k").wantOutcome(t, "")
	r.streamed("Feed").wantOutcome(t, "")
	r.streamed("FeedOff").wantOutcome(t, "")
	r.streamed("Watch", MetadataKey, "k").wantOutcome(t, "")
	r.streamed("Feed", MetadataKey, "k").wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
	if keys := r.storedKeys(); len(keys) != 1 {
		t.Errorf("stored: %q", keys)
	}
}

// A selector cannot make a method guarded that its option leaves alone.
func TestSelectorOfEverything(t *testing.T) {
	r := newRig(t, WithSelector(selector.MatchFunc(func(context.Context, interceptors.CallMeta) bool { return true })))
	r.send("Off", request(), MetadataKey, "k").wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
	r.send("Off", request()).wantOutcome(t, "")
	r.send("Read", request()).wantOutcome(t, "")
	r.send("Optional", request()).wantOutcome(t, OutcomeUnprotected)
	r.send("Pay", request()).wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
}

// Old clients ask for reflection under its old name.
func TestInfrastructureUnderOldNames(t *testing.T) {
	for _, full := range []string{"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "grpc.channelz.v1.Channelz/GetServers"} {
		if m := (&methods{}).of(full); m.stance != harmless || m.wrong != nil {
			t.Errorf("%s: %+v", full, m)
		}
	}
}

// gRPC's own services work behind a guard, without keys.
func TestInfrastructureBehindAGuard(t *testing.T) {
	for name, opts := range map[string][]Option{
		"unauthenticated": nil,
		"selected":        {WithSelector(selector.MatchFunc(func(context.Context, interceptors.CallMeta) bool { return false }))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigServing(t, oncetest.New(t), nil, func(r *rig) {
				healthv1.RegisterHealthServer(r.server, health.NewServer())
				reflection.Register(r.server)
			}, opts...)
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), MetadataKey, ""))
			defer cancel()
			h := healthv1.NewHealthClient(r.conn)
			if resp, err := h.Check(ctx, &healthv1.HealthCheckRequest{}); err != nil || resp.GetStatus() != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("Check: %v, %v", resp, err)
			}
			if resp, err := h.List(ctx, &healthv1.HealthListRequest{}); err != nil {
				t.Errorf("List: %v, %v", resp, err)
			}
			watch, err := h.Watch(ctx, &healthv1.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := watch.Recv(); err != nil {
				t.Errorf("Watch: %v, %v", resp, err)
			}
			v1, err := reflectionv1.NewServerReflectionClient(r.conn).ServerReflectionInfo(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := v1.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
				t.Fatal(err)
			}
			if resp, err := v1.Recv(); err != nil || len(resp.GetListServicesResponse().GetService()) < 3 {
				t.Errorf("reflection: %v, %v", resp, err)
			}
		})
	}
}
