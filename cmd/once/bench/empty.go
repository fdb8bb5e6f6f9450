package bench

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// emptyMethod takes nothing and answers nothing.
const (
	emptyService = "onced.bench.Empty"
	emptyMethod  = "/" + emptyService + "/Call"
)

// empty is a bare gRPC server: what the transport alone costs.
type empty struct {
	conns []*grpc.ClientConn
	calls int // of a pair
	next  atomic.Uint64
}

func newEmpty(address string, cfg Config) (*empty, error) {
	conns, err := dial(address, cfg.Callers)
	if err != nil {
		return nil, err
	}
	e := &empty{conns: conns, calls: 2}
	if cfg.LeaveUnsettled {
		e.calls = 1
	}
	return e, nil
}

func (e *empty) close()     { closeAll(e.conns) }
func (*empty) name() string { return "the empty server" }

func (e *empty) pair(ctx context.Context, r *round) error {
	for range e.calls {
		if err := e.call(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (e *empty) replay(ctx context.Context, r *round, _ *rand.Rand) error { return e.call(ctx, r) }

func (e *empty) call(ctx context.Context, r *round) error {
	conn := e.conns[e.next.Add(1)%uint64(len(e.conns))]
	start := time.Now()
	err := conn.Invoke(ctx, emptyMethod, &emptypb.Empty{}, &emptypb.Empty{})
	r.claim.observe(time.Since(start))
	if err != nil {
		return at(e.name(), err)
	}
	return nil
}

// emptyDesc describes the service, which needs no generated code.
var emptyDesc = grpc.ServiceDesc{
	ServiceName: emptyService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := decode(&emptypb.Empty{}); err != nil {
				return nil, err
			}
			return &emptypb.Empty{}, nil
		},
	}},
}
