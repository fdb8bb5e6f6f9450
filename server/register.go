package server

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Register registers the services of onced: the service, and OperatorService over
// the same store. It wraps the generated handlers for two
// things that have to happen exactly once: errors get their form on the wire,
// innermost, so that every interceptor sees what the client sees; and a request
// that cannot be decoded is refused as any other invalid one. gRPC would answer
// INTERNAL, before any interceptor has seen the call.
func Register(registrar grpc.ServiceRegistrar, s *Service) { s.register(registrar, s) }

// register registers what answers the calls: the service or its stand-in.
func (s *Service) register(registrar grpc.ServiceRegistrar, answers oncedv1.IdempotencyServiceServer) {
	registrar.RegisterService(s.wrapped(oncedv1.IdempotencyService_ServiceDesc), answers)
	registrar.RegisterService(s.wrapped(oncedv1.OperatorService_ServiceDesc), operators{Service: s})
}

// wrapped returns the description of a service with wrapped handlers.
func (s *Service) wrapped(desc grpc.ServiceDesc) *grpc.ServiceDesc {
	desc.Methods, desc.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i, m := range desc.Methods {
		desc.Methods[i].Handler = s.wrap(m)
	}
	for i, m := range desc.Streams {
		desc.Streams[i].Handler = s.wrapStream(m)
	}
	return &desc
}

func (s *Service) wrapStream(m grpc.StreamDesc) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		if err := m.Handler(srv, stream); err != nil {
			return s.refused(stream.Context(), m.StreamName, nil, err)
		}
		return nil
	}
}

func (s *Service) wrap(m grpc.MethodDesc) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		if interceptor == nil {
			interceptor = callDirectly
		}
		var malformed error
		decode := func(req any) error {
			var err error
			malformed, err = decodeRequest(dec, req)
			return err
		}
		intercept := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return interceptor(ctx, req, info, func(ctx context.Context, req any) (any, error) {
				if malformed != nil {
					return nil, s.refused(ctx, m.MethodName, req, malformed)
				}
				resp, err := handler(ctx, req)
				if err != nil {
					return nil, s.refused(ctx, m.MethodName, req, err)
				}
				return resp, nil
			})
		}
		return m.Handler(srv, ctx, decode, intercept)
	}
}

func callDirectly(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(ctx, req)
}

// refused gives an error its form on the wire, counts it, and logs what clients
// are not told.
func (s *Service) refused(ctx context.Context, rpc string, req any, err error) error {
	st := toStatus(err)
	var namespace string
	switch r := req.(type) {
	case interface{ GetRef() *oncedv1.OperationRef }:
		namespace = r.GetRef().GetNamespace()
	case interface{ GetNamespace() string }:
		namespace = r.GetNamespace()
	}
	s.observer.Refused(s.policies.Label(namespace), rpc, st.reason)
	if st.fault != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "a call met a fault",
			slog.String("rpc", rpc), slog.String("namespace", namespace), slog.Any("error", st.fault))
	}
	return st
}

// undecoded is a request that gRPC is asked to decode. It takes any bytes: a failure
// in gRPC's own decoder is on its way to the client before it can be given another
// form. The codec of our servers decodes it at once; another one takes it for an
// empty message and puts the bytes into its unknown fields.
type undecoded struct {
	*emptypb.Empty
	request   proto.Message
	decoded   bool
	malformed error // what is wrong with its content; nil: nothing
}

// decodeRequest decodes a request and says what is wrong with its content.
func decodeRequest(dec func(any) error, request any) (malformed, err error) {
	u := &undecoded{Empty: &emptypb.Empty{}, request: request.(proto.Message)}
	if err := dec(u); err != nil {
		return nil, err
	}
	if !u.decoded {
		u.decode(u.ProtoReflect().GetUnknown())
	}
	return u.malformed, nil
}

func (u *undecoded) decode(b []byte) {
	u.decoded = true
	if proto.Unmarshal(b, u.request) == nil {
		return
	}
	var v violations
	field, _ := unreadableField(u.request.ProtoReflect().Descriptor(), b)
	v.add(field, "cannot be read: text must be valid UTF-8, and bytes that are no text belong into a field of bytes")
	u.malformed = v.err()
}

// unreadableField returns the path of the first field of a message whose content
// cannot be read: text that is not UTF-8, or bytes that are no message.
func unreadableField(message protoreflect.MessageDescriptor, b []byte) (path string, found bool) {
	for len(b) > 0 {
		number, wireType, n := protowire.ConsumeField(b)
		if n < 0 {
			return "", true
		}
		_, _, tag := protowire.ConsumeTag(b)
		value := b[tag:n]
		b = b[n:]
		field := message.Fields().ByNumber(number)
		if field == nil || wireType != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(value)
		switch field.Kind() {
		case protoreflect.StringKind:
			if !utf8.Valid(content) {
				return string(field.Name()), true
			}
		case protoreflect.MessageKind:
			if inner, found := unreadableField(field.Message(), content); found {
				return strings.TrimSuffix(string(field.Name())+"."+inner, "."), true
			}
		}
	}
	return "", false
}
