package server

import (
	"context"

	"google.golang.org/grpc"
)

// Authenticated is an interceptor that authenticates and does nothing else.
func Authenticated(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, err := authenticate(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}
