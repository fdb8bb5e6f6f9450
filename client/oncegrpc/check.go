package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
)

// Check looks at a server at its start, after its services were registered. It returns
// the methods with side effects that are not guarded, by their full names and in order,
// for people to look at, and an error for what cannot work: a guard that does not
// tell callers apart or whose interceptors were never asked for, options that are
// impossible, streams that would have to be guarded. That the interceptors were given to
// this server, and stand inside its authentication, it cannot see.
func (g *Guard) Check(server *grpc.Server) (unguarded []string, err error) {
	errs := []error{g.misconfigured}
	if !g.unary.Load() {
		errs = append(errs, errors.New("the guard's UnaryServerInterceptor is not in use; give it to grpc.NewServer"))
	}
	services := server.GetServiceInfo()
	streams := false
	names := map[string]*method{}
	for _, service := range slices.Sorted(maps.Keys(services)) {
		for _, info := range slices.SortedFunc(slices.Values(services[service].Methods), byName) {
			full := service + "/" + info.Name
			m := g.methods.of(full)
			streaming := info.IsClientStream || info.IsServerStream
			if m.wrong != nil {
				errs = append(errs, m.wrong)
			}
			switch s := g.stanceOn(context.Background(), m, metaOf(full, info)); {
			case s == harmless:
			case s == off:
				unguarded = append(unguarded, full)
				streams = streams || streaming
			case streaming:
				unguarded = append(unguarded, full)
				errs = append(errs, m.streamRefused())
				streams = true
			case names[m.name] != nil && names[m.name].output != m.output:
				errs = append(errs, fmt.Errorf("%s and another method of the server are both named %q in operations, and answer with different messages; give one of them another name", full, m.name))
			default:
				names[m.name] = m
			}
		}
	}
	if streams && !g.stream.Load() {
		errs = append(errs, errors.New("the server has streams with side effects, and the guard's StreamServerInterceptor is not in use; give it to grpc.NewServer"))
	}
	if err := errors.Join(errs...); err != nil {
		return unguarded, fmt.Errorf("oncegrpc: %w", err)
	}
	return unguarded, nil
}

func byName(a, b grpc.MethodInfo) int { return strings.Compare(a.Name, b.Name) }

// metaOf describes a method to a selector.
func metaOf(full string, info grpc.MethodInfo) interceptors.CallMeta {
	if !info.IsClientStream && !info.IsServerStream {
		return interceptors.NewServerCallMeta(full, nil, nil)
	}
	return interceptors.NewServerCallMeta(full, &grpc.StreamServerInfo{
		FullMethod: full, IsClientStream: info.IsClientStream, IsServerStream: info.IsServerStream,
	}, nil)
}
