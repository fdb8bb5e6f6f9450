package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncegrpc"
	"github.com/onced/onced/client/oncetest"
)

// A service becomes safe to call again with two lines: one makes the guard, one puts it
// behind authentication.
func Example() {
	s, stop := exampleServer() // in a program: conn, err := grpc.NewClient("127.0.0.1:7443", …)
	defer stop()
	onced := s.Client() // and onced := client.New(conn)

	guard := oncegrpc.NewGuard(onced, oncegrpc.WithSubject(callerOf))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, guard.UnaryServerInterceptor()))
	registerTickets(server, &tickets{})
	if _, err := guard.Check(server); err != nil {
		log.Fatal(err)
	}
	conn, stopServing := serve(server)
	defer stopServing()

	// A caller gets no answer, it thinks, and asks again under the same key.
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer alice", "idempotency-key", "order-1/ticket")
	for range 2 {
		var header metadata.MD
		number := &wrapperspb.StringValue{}
		if err := conn.Invoke(ctx, createTicket, wrapperspb.String("printer on fire"), number, grpc.Header(&header)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(number.Value, header.Get(oncegrpc.HeaderOutcome))
	}

	// The key stands for that call alone, and for that caller.
	err := conn.Invoke(ctx, createTicket, wrapperspb.String("printer drowned"), &wrapperspb.StringValue{})
	fmt.Println(status.Code(err))
	// Output:
	// T-1 [executed]
	// T-1 [replayed]
	// FailedPrecondition
}

// Every mutating call carries a key: one that its caller has kept, or else a new one,
// which is the same in all retries that gRPC makes of the call.
func ExampleUnaryClientInterceptor() {
	conn, stop := helpdesk(&tickets{}, grpc.WithUnaryInterceptor(oncegrpc.UnaryClientInterceptor()))
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer alice")
	create := func(title string, opts ...grpc.CallOption) string {
		number := &wrapperspb.StringValue{}
		if err := conn.Invoke(ctx, createTicket, wrapperspb.String(title), number, opts...); err != nil {
			log.Fatal(err)
		}
		return number.Value
	}

	fmt.Println(create("printer on fire", oncegrpc.WithKey("order-1/ticket")))
	fmt.Println(create("printer on fire", oncegrpc.WithKey("order-1/ticket"))) // after a restart, say
	fmt.Println(create("printer on fire"))                                     // another intent
	fmt.Println(create("printer on fire"))                                     // and one more
	// Output:
	// T-1
	// T-1
	// T-2
	// T-3
}

// A handler learns about its claim from its context: the fence keeps a former holder out
// of a store that refuses smaller ones, and the attempt is for people.
func Example_claim() {
	service := &tickets{}
	service.before = func(ctx context.Context, title string) error {
		claim := client.ClaimFromContext(ctx)
		fmt.Printf("attempt %d of %q, fenced: %v\n", claim.Attempt, claim.Key, claim.Fence > 0)
		if claim.Attempt == 1 {
			// Nothing was done yet, so the next try may execute.
			return client.NotExecuted(status.Error(codes.Unavailable, "the queue is full"))
		}
		return nil
	}
	conn, stop := helpdesk(service)
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer alice", "idempotency-key", "order-1/ticket")
	for range 3 {
		number := &wrapperspb.StringValue{}
		err := conn.Invoke(ctx, createTicket, wrapperspb.String("printer on fire"), number)
		fmt.Printf("%v %q\n", status.Code(err), number.Value)
	}
	// Output:
	// attempt 1 of "order-1/ticket", fenced: true
	// Unavailable ""
	// attempt 2 of "order-1/ticket", fenced: true
	// OK "T-1"
	// OK "T-1"
}

// The calls of a guarded handler have keys that come from its own operation, so that a
// second execution makes the same calls. Steps tell apart what one handler asks the same
// method for.
func ExampleWithStep() {
	downstream := &tickets{}
	desk, stopDesk := helpdesk(downstream, grpc.WithUnaryInterceptor(oncegrpc.UnaryClientInterceptor()))
	defer stopDesk()

	service := &tickets{}
	service.before = func(ctx context.Context, title string) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer helpdesk")
		// The last call is the first one once more, as a second execution would make it.
		for _, step := range []string{"for the technician", "for the customer", "for the technician"} {
			number := &wrapperspb.StringValue{}
			if err := desk.Invoke(ctx, createTicket, wrapperspb.String(title), number, oncegrpc.WithStep(step)); err != nil {
				return err
			}
			fmt.Println(step, number.Value)
		}
		return nil
	}
	conn, stop := helpdesk(service)
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer alice", "idempotency-key", "order-1/ticket")
	if err := conn.Invoke(ctx, createTicket, wrapperspb.String("printer on fire"), &wrapperspb.StringValue{}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// for the technician T-1
	// for the customer T-2
	// for the technician T-1
}

// The rest of this file is the service of the examples, as generated code and main
// functions have it.

const createTicket = "/helpdesk.v1.Tickets/CreateTicket"

type tickets struct {
	created int
	before  func(ctx context.Context, title string) error // nil does nothing
}

func (s *tickets) create(ctx context.Context, title *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if s.before != nil {
		if err := s.before(ctx, title.Value); err != nil {
			return nil, err
		}
	}
	s.created++
	return wrapperspb.String(fmt.Sprintf("T-%d", s.created)), nil
}

func registerTickets(server *grpc.Server, s *tickets) {
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "helpdesk.v1.Tickets", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "CreateTicket",
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			req := &wrapperspb.StringValue{}
			if err := decode(req); err != nil {
				return nil, err
			}
			return intercept(ctx, req, &grpc.UnaryServerInfo{Server: s, FullMethod: createTicket}, func(ctx context.Context, req any) (any, error) {
				return s.create(ctx, req.(*wrapperspb.StringValue))
			})
		},
	}}}, s)
}

type callerKey struct{}

// authenticate finds out who calls. Its tokens are names, which yours are not.
func authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	tokens := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(tokens) != 1 {
		return nil, status.Error(codes.Unauthenticated, "send a bearer token")
	}
	return handler(context.WithValue(ctx, callerKey{}, tokens[0]), req)
}

// callerOf is who authenticate has found.
func callerOf(ctx context.Context) (string, error) {
	caller, ok := ctx.Value(callerKey{}).(string)
	if !ok {
		return "", errors.New("nobody was authenticated")
	}
	return caller, nil
}

// helpdesk serves tickets behind a guard, with an onced of its own.
func helpdesk(service *tickets, opts ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	s, stopOnced := exampleServer()
	guard := oncegrpc.NewGuard(s.Client(), oncegrpc.WithSubject(callerOf))
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, guard.UnaryServerInterceptor()))
	registerTickets(server, service)
	conn, stopServing := serve(server, opts...)
	return conn, func() { stopServing(); stopOnced() }
}

// serve runs a server within the program, and returns a connection to it.
func serve(server *grpc.Server, opts ...grpc.DialOption) (conn *grpc.ClientConn, stop func()) {
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///helpdesk", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() { _ = conn.Close(); server.Stop() }
}

// exampleServer starts an onced, which ends with stop.
func exampleServer() (s *oncetest.Server, stop func()) {
	t := &exampleTB{}
	return oncetest.New(t), t.stop
}

// exampleTB stands for the test that an example does not have.
type exampleTB struct {
	testing.TB
	ends []func()
}

func (*exampleTB) Helper()                        {}
func (*exampleTB) Log(...any)                     {}
func (*exampleTB) Errorf(format string, a ...any) { log.Printf(format, a...) }
func (*exampleTB) Fatalf(format string, a ...any) { log.Fatalf(format, a...) }
func (t *exampleTB) Cleanup(end func())           { t.ends = append(t.ends, end) }

func (t *exampleTB) stop() {
	for _, end := range t.ends {
		end()
	}
}
