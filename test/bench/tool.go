package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncegrpc"
)

// The methods of a small service, which a child process serves twice: bare, and behind
// a guard.
const (
	toolName   = "bench.v1.Tool"
	toolAct    = toolName + "/Act"   // has side effects
	toolActed  = toolName + "/Acted" // tells how often Act ran
	textName   = ".google.protobuf.StringValue"
	countName  = ".google.protobuf.Int64Value"
	nobodyName = ".google.protobuf.Empty"
)

// toolFile describes the service to a guard, as generated code does.
var toolFile = &descriptorpb.FileDescriptorProto{
	Name: proto.String("bench/v1/tool.proto"), Package: proto.String("bench.v1"), Syntax: proto.String("proto3"),
	Dependency: []string{"google/protobuf/empty.proto", "google/protobuf/wrappers.proto"},
	Service: []*descriptorpb.ServiceDescriptorProto{{
		Name: proto.String("Tool"),
		Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Act"), InputType: proto.String(textName), OutputType: proto.String(textName)},
			{
				Name: proto.String("Acted"), InputType: proto.String(nobodyName), OutputType: proto.String(countName),
				Options: &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()},
			},
		},
	}},
}

// describeTool makes the service known to the program.
func describeTool() error {
	file, err := protodesc.NewFile(toolFile, protoregistry.GlobalFiles)
	if err != nil {
		return err
	}
	return protoregistry.GlobalFiles.RegisterFile(file)
}

// tool is the service. It is safe for concurrent use.
type tool struct{ acted atomic.Int64 }

// act answers with the number of its run and what it was asked for, so that no two runs
// answer alike.
func (t *tool) act(_ context.Context, req *wrapperspb.StringValue) (any, error) {
	return wrapperspb.String(fmt.Sprintf("%d %s", t.acted.Add(1), req.GetValue())), nil
}

func (t *tool) told(context.Context, *emptypb.Empty) (any, error) {
	return wrapperspb.Int64(t.acted.Load()), nil
}

// toolServer is a server with a service of its own.
func toolServer(opts ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(opts...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: toolName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{toolMethod("Act", (*tool).act), toolMethod("Acted", (*tool).told)},
	}, &tool{})
	return s
}

// toolMethod describes a method to gRPC, as generated code does.
func toolMethod[T any](name string, handle func(*tool, context.Context, *T) (any, error)) grpc.MethodDesc {
	info := grpc.UnaryServerInfo{FullMethod: "/" + toolName + "/" + name}
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := new(T)
		if err := decode(req); err != nil {
			return nil, err
		}
		if intercept == nil {
			return handle(srv.(*tool), ctx, req)
		}
		return intercept(ctx, req, &info, func(ctx context.Context, req any) (any, error) {
			return handle(srv.(*tool), ctx, req.(*T))
		})
	}}
}

// serveTool serves the service bare and behind a guard that claims at an onced, whose
// address is the only argument.
func serveTool(args []string) (err error) {
	if len(args) != 1 {
		return errors.New("the tool needs the address of onced and nothing else")
	}
	if err := describeTool(); err != nil {
		return err
	}
	conn, err := grpc.NewClient(args[0],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}))
	if err != nil {
		return err
	}
	defer conn.Close()
	guard := oncegrpc.NewGuard(client.New(conn), oncegrpc.WithoutAuthentication())
	guarded := toolServer(grpc.ChainUnaryInterceptor(guard.UnaryServerInterceptor()))
	if unguarded, err := guard.Check(guarded); err != nil || len(unguarded) > 0 {
		return errors.Join(fmt.Errorf("%d methods are not guarded", len(unguarded)), err)
	}
	return serveChild(toolServer(), guarded)
}
