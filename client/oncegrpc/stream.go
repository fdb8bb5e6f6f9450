package oncegrpc

import (
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
)

// StreamServerInterceptor returns the interceptor that refuses streams which would have
// to be guarded: a stream cannot be replayed. A server without methods that stream needs
// none. Streams without side effects pass, and those that are not guarded, unless they
// carry a key.
func (g *Guard) StreamServerInterceptor() grpc.StreamServerInterceptor {
	g.stream.Store(true)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx := stream.Context()
		m := g.methods.of(info.FullMethod)
		s := g.stanceOn(ctx, m, interceptors.NewServerCallMeta(info.FullMethod, info, nil))
		k, err := keyInMetadata(incoming(ctx))
		switch {
		case m.wrong != nil:
			return refuse(ctx, m.cannotWork(m.wrong))
		case s == guarded || s == optional:
			return refuse(ctx, m.streamRefused())
		case s == off && (k.given || err != nil):
			return refuse(ctx, m.keyNotGuarded())
		}
		return handler(srv, stream)
	}
}

// streamRefused refuses a stream that would have to be guarded.
func (m *method) streamRefused() error {
	return m.refusal(reasonStream, "%s streams and has side effects, and a stream cannot be replayed; nothing was executed: offer a unary method, or have the service set MODE_OFF", m.name)
}
