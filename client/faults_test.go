package client_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// sent is one call as it left the client, which may use its request for another one
// when it has given the call up.
type sent struct {
	rpc string
	req proto.Message
	at  time.Time
}

// fault is what happens to one call: send lets it through to the server.
type fault func(ctx context.Context, send func(context.Context) error) error

// faults stand between the clients and the connection.
type faults struct {
	mu   sync.Mutex
	sent []sent
	rule func(sent) fault // nil: the call goes through
	edit func(rpc string, reply any)
	head func(rpc string, header metadata.MD)
}

func (f *faults) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	_, rpc, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	s := sent{rpc: rpc, req: proto.Clone(req.(proto.Message)), at: time.Now()}
	f.mu.Lock()
	f.sent = append(f.sent, s)
	var happen fault
	if f.rule != nil {
		happen = f.rule(s)
	}
	edit, head := f.edit, f.head
	f.mu.Unlock()
	answer := &answer{reply: reply.(proto.Message)}
	send := func(ctx context.Context) error { return answer.get(ctx, method, s.req, cc, invoke, opts) }
	if happen == nil {
		happen = func(ctx context.Context, send func(context.Context) error) error { return send(ctx) }
	}
	err := happen(ctx, send)
	header := answer.deliver(opts)
	if err == nil && edit != nil {
		edit(rpc, reply)
	}
	if header != nil && head != nil {
		head(rpc, header)
	}
	return err
}

// answer is what came back of one call. A call may arrive when its caller has gone, and
// more than once: each has a reply of its own, and the caller is given the last one that
// is there when it returns.
type answer struct {
	mu     sync.Mutex
	reply  proto.Message // the caller's
	got    proto.Message
	header metadata.MD
}

func (a *answer) get(ctx context.Context, method string, req any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts []grpc.CallOption) error {
	got, header := a.reply.ProtoReflect().New().Interface(), metadata.MD(nil)
	own := []grpc.CallOption{grpc.Header(&header)}
	for _, o := range opts {
		if _, callers := o.(grpc.HeaderCallOption); !callers {
			own = append(own, o)
		}
	}
	err := invoke(ctx, method, req, got, cc, own...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got, a.header = got, header
	return err
}

// deliver gives the caller what is there, and returns the header.
func (a *answer) deliver(opts []grpc.CallOption) metadata.MD {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got != nil {
		proto.Merge(a.reply, a.got)
	}
	for _, o := range opts {
		if o, ok := o.(grpc.HeaderCallOption); ok {
			*o.HeaderAddr = a.header
		}
	}
	return a.header
}

// set makes a rule for all calls from now on; nil ends it. The rule is asked for one
// call at a time.
func (f *faults) set(rule func(sent) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = rule
}

// always makes the same fault happen to all calls of some RPCs.
func (f *faults) always(happen fault, rpcs ...string) { f.times(-1, happen, rpcs...) }

// times makes the same fault happen to the next n calls of some RPCs.
func (f *faults) times(n int, happen fault, rpcs ...string) {
	f.set(func(s sent) fault {
		for _, rpc := range rpcs {
			if rpc == s.rpc && n != 0 {
				n--
				return happen
			}
		}
		return nil
	})
}

// editReplies changes answers on their way back.
func (f *faults) editReplies(edit func(rpc string, reply any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.edit = edit
}

// editHeaders changes the headers of answers on their way back.
func (f *faults) editHeaders(head func(rpc string, header metadata.MD)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head = head
}

func (f *faults) all() []sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sent(nil), f.sent...)
}

// lost: the call is carried out, and its answer is lost with the connection.
func lost(ctx context.Context, send func(context.Context) error) error {
	_ = send(ctx)
	return status.Error(codes.Unavailable, "the connection broke")
}

// swallowed: the call is carried out, and its answer never comes.
func swallowed(ctx context.Context, send func(context.Context) error) error {
	_ = send(ctx)
	return hole(ctx, send)
}

// hole: the call never arrives, and nobody says so.
func hole(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// refusedWith: the call never arrives, and something on the way answers.
func refusedWith(code codes.Code) fault {
	return func(context.Context, func(context.Context) error) error { return status.Error(code, "from the way") }
}

// late: the call arrives after d, whatever has become of its caller.
func late(d time.Duration) fault {
	return func(ctx context.Context, send func(context.Context) error) error {
		go func() {
			pass(d)
			_ = send(context.WithoutCancel(ctx))
		}()
		return hole(ctx, send)
	}
}
