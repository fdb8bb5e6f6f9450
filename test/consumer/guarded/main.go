// Command guarded is a user's gRPC service behind a guard: it takes orders, each once
// for every key. It imports of onced what such a service needs and no more, and its
// test looks at what that brings into the program.
//
//	guarded ONCED-ADDRESS LISTEN-ADDRESS
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncegrpc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guarded:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: guarded ONCED-ADDRESS LISTEN-ADDRESS")
	}
	conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	server, err := newServer(client.New(conn), &orders{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	return server.Serve(listener)
}

// newServer is the service behind a guard.
func newServer(c *client.Client, o *orders) (*grpc.Server, error) {
	guard := oncegrpc.NewGuard(c, oncegrpc.WithoutAuthentication())
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.UnaryServerInterceptor()))
	server.RegisterService(&ordersService, o)
	_, err := guard.Check(server)
	return server, err
}

// orders is the service. It is safe for concurrent use.
type orders struct{ placed atomic.Int64 }

// place places an order for an article, and answers with the order's number.
func (o *orders) place(*wrapperspb.StringValue) *wrapperspb.Int64Value {
	return wrapperspb.Int64(o.placed.Add(1))
}

const placeMethod = "/shop.v1.Orders/Place"

// ordersService is what would be generated if the service had a .proto file.
var ordersService = grpc.ServiceDesc{
	ServiceName: "shop.v1.Orders", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Place",
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			article := &wrapperspb.StringValue{}
			if err := decode(article); err != nil {
				return nil, err
			}
			return intercept(ctx, article, &grpc.UnaryServerInfo{Server: srv, FullMethod: placeMethod}, func(_ context.Context, req any) (any, error) {
				return srv.(*orders).place(req.(*wrapperspb.StringValue)), nil
			})
		},
	}},
}
