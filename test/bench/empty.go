package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

const emptyMethod = "/bench.Empty/Call"

// emptyService has one method that does nothing: what it costs is what gRPC costs.
var emptyService = grpc.ServiceDesc{
	ServiceName: "bench.Empty", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return &emptypb.Empty{}, decode(&emptypb.Empty{})
		},
	}},
}

func serveEmpty() error {
	s := grpc.NewServer()
	s.RegisterService(&emptyService, struct{}{})
	return serveChild(s)
}

// startEmpty starts the empty server in a child process and connects to it.
func (r *rig) startEmpty(conns int) ([]*grpc.ClientConn, error) {
	addresses, err := r.startChild(roleEmpty)
	if err != nil {
		return nil, err
	}
	return r.connect(addresses[0], conns)
}

// callEmpty calls the method that does nothing.
func callEmpty(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return conn.Invoke(ctx, emptyMethod, &emptypb.Empty{}, &emptypb.Empty{})
}
