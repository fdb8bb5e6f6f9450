package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// DefaultClaimTimeout is how long a guard tries to get an answer of onced before it
// answers UNAVAILABLE.
const DefaultClaimTimeout = 5 * time.Second

// Guard guards the methods of a gRPC server. Its interceptors are safe for concurrent
// use, and one Guard may serve several servers. [NewGuard] makes one.
type Guard struct {
	client  *client.Client
	log     *slog.Logger
	methods methods

	namespace       ContextFunc
	subject         ContextFunc
	validate        ValidateFunc
	selected        selector.Matcher
	wait            time.Duration
	claimTimeout    time.Duration
	attached        bool
	unauthenticated bool
	unary, stream   atomic.Bool // its interceptors were asked for
	misconfigured   error
}

// ContextFunc tells something about the caller from the context of a call: what
// authentication has put there. It must return an error for a context in which there is
// no authenticated caller, and must not read what a caller can write, such as metadata. A
// gRPC status is answered as it is; any other error as PERMISSION_DENIED.
type ContextFunc func(context.Context) (string, error)

// ValidateFunc looks at a request and says what is wrong with it. A gRPC status is
// answered as it is; any other error as INVALID_ARGUMENT.
type ValidateFunc func(ctx context.Context, req any) error

// Option changes how a [Guard] works.
type Option func(*Guard)

// WithNamespace takes the namespace of each call from its authenticated caller, for a
// service of several tenants: the same key of two tenants is two operations, and
// neither learns of the other's. Without it all calls are in the client's namespace. An
// empty one is refused, and so are null, undefined and the nil UUID, here and as subjects.
func WithNamespace(f ContextFunc) Option { return func(g *Guard) { g.namespace = f } }

// WithSubject takes the subject of each call, on whose behalf it is made, from its
// authenticated caller. A key that was first used for one subject is refused to every
// other, so who can guess keys can use them up for others: callers who do not trust each
// other have namespaces of their own. Empty means that there is none.
func WithSubject(f ContextFunc) Option { return func(g *Guard) { g.subject = f } }

// WithoutAuthentication says that the callers are not authenticated: everybody who can
// reach the server and knows a key gets its answer. Without it, and without a
// [WithNamespace] or [WithSubject] that refuses a context in which nobody was
// authenticated, the guard refuses every guarded call.
func WithoutAuthentication() Option { return func(g *Guard) { g.unauthenticated = true } }

// WithValidation has the requests of unary calls validated by the guard, guarded or not,
// instead of by an interceptor outside. A request that is refused but was executed before,
// by an earlier release for example, still gets its answer; of any other nothing is stored.
func WithValidation(f ValidateFunc) Option { return func(g *Guard) { g.validate = f } }

// WithSelector guards only the methods that a matcher of go-grpc-middleware matches,
// for services whose .proto files are somebody else's. Those that it does not match are
// treated as with MODE_OFF. It is also asked by [Guard.Check], without a request.
func WithSelector(m selector.Matcher) Option { return func(g *Guard) { g.selected = m } }

// WithWait has a call wait for the answer while somebody else executes its operation, up
// to d and to 250 ms before the caller's deadline. The default is not to wait. A call that
// has waited in vain, or does not wait, is ABORTED.
func WithWait(d time.Duration) Option { return func(g *Guard) { g.wait = d } }

// WithClaimTimeout sets how long the guard tries to get an answer of onced; the default
// is [DefaultClaimTimeout]. It counts neither the handler nor [WithWait].
func WithClaimTimeout(d time.Duration) Option { return func(g *Guard) { g.claimTimeout = d } }

// WithCallerCancellation has handlers cancelled when their callers leave, as without
// a guard. What they had begun is then unresolved, unless they say otherwise.
func WithCallerCancellation() Option { return func(g *Guard) { g.attached = true } }

// WithLogger sets where the guard says why calls were answered UNAVAILABLE, which their
// callers are not told. Arguments and results are never logged. The default is
// [slog.Default].
func WithLogger(log *slog.Logger) Option { return func(g *Guard) { g.log = log } }

// NewGuard returns a guard that claims through c, which stays the caller's: close it
// after the server has stopped. It sends nothing. What is wrong with the options makes
// the guard refuse every guarded call; [Guard.Check] says it at the start.
func NewGuard(c *client.Client, opts ...Option) *Guard {
	g := &Guard{client: c, log: slog.Default(), claimTimeout: DefaultClaimTimeout}
	for _, o := range opts {
		o(g)
	}
	g.misconfigured = errors.Join(g.clientMissing(), g.timesWrong(), g.authenticationMissing())
	return g
}

func (g *Guard) clientMissing() error {
	if g.client == nil {
		return errors.New("there is no client: give NewGuard one")
	}
	return nil
}

func (g *Guard) timesWrong() error {
	if g.wait < 0 || g.claimTimeout <= 0 {
		return fmt.Errorf("a wait of %v and a claim timeout of %v: give a wait of zero or more, and a timeout above zero", g.wait, g.claimTimeout)
	}
	return nil
}

// authenticationMissing reports a guard that takes callers in whom nobody has
// authenticated: then authentication is not outside it, or is not heeded, and replays
// go to strangers. It shows in a context that nobody has put anything into.
func (g *Guard) authenticationMissing() error {
	if g.unauthenticated || refusesNobody(g.namespace) || refusesNobody(g.subject) {
		return nil
	}
	return errors.New("callers are not told apart: put authentication outside the guard and give WithSubject or WithNamespace a function that refuses a context without an authenticated caller, or say WithoutAuthentication")
}

func refusesNobody(f ContextFunc) (refuses bool) {
	if f == nil {
		return false
	}
	defer func() {
		if recover() != nil {
			refuses = true // it relies on what authentication puts there
		}
	}()
	_, err := f(context.Background())
	return err != nil
}

// caller tells the namespace and the subject of a call.
func (g *Guard) caller(ctx context.Context) (namespace, subject string, err error) {
	namespace = g.client.Namespace()
	if g.namespace != nil {
		if namespace, err = tell(ctx, g.namespace, onced.ValidateNamespace); err != nil {
			return "", "", err
		}
	}
	if g.subject != nil {
		if subject, err = tell(ctx, g.subject, onced.ValidateSubject); err != nil {
			return "", "", err
		}
	}
	return namespace, subject, nil
}

// tell asks a function about the caller, and refuses what cannot stand in an operation.
func tell(ctx context.Context, f ContextFunc, validate func(string) error) (string, error) {
	s, err := f(ctx)
	if err != nil {
		return "", orStatus(err, codes.PermissionDenied)
	}
	if onced.Placeholder(s) {
		return "", status.Errorf(codes.PermissionDenied, "%q stands for nobody, so nothing was executed", s)
	}
	if err := validate(s); err != nil {
		return "", status.Errorf(codes.PermissionDenied, "this caller cannot have an operation, so nothing was executed: %v", err)
	}
	return s, nil
}

// orStatus makes an error a status of this code, unless it is one.
func orStatus(err error, code codes.Code) error {
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		return err
	}
	return status.Error(code, err.Error())
}

// stance is what a guard does with the calls of a method.
type stance int

const (
	guarded  stance = iota // they need a key
	optional               // those with a key are guarded
	harmless               // they have no side effects
	off                    // they have, and are not guarded: a key is refused
)

// stanceOn says what is done with the calls of a method.
func (g *Guard) stanceOn(ctx context.Context, m *method, meta interceptors.CallMeta) stance {
	s := m.stance
	if s != harmless && g.selected != nil && !g.selected.Match(ctx, meta) {
		s = off
	}
	return s
}
