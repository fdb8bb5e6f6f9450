package client

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// DefaultNamespace is the namespace of a client that names none.
const DefaultNamespace = "default"

// DefaultSettleBudget is how long a settlement is re-sent in the background
// before the client gives it up.
const DefaultSettleBudget = 15 * time.Minute

// ErrClosed is the error of a call on a client that was closed. Nothing was
// sent and nothing was executed.
var ErrClosed = errors.New("client: closed; nothing was executed")

// Client speaks with one onced for one namespace. All of it is safe for
// concurrent use; one Client serves a whole process.
//
// Callers use [Do]. Claim, Complete, Fail, Lookup, Renew and GetPolicy are the RPCs
// of onced.v1.IdempotencyService, for programs that drive the algorithm themselves.
// They send a request as it is; [Client.Ref] names an operation in the client's
// namespace, and [NewToken] mints the token of a claim. Every RPC is idempotent, so
// each is re-sent, unchanged, after UNAVAILABLE, after a try that took too long, and
// after RESOURCE_EXHAUSTED with a RetryInfo, until ctx ends: give it a deadline.
// Pauses are 100 ms, doubled up to 5 s, with full jitter, on top of what a RetryInfo
// asks for. Every other error is returned at once and as it came. When ctx ends
// first, the error matches both the context's error ([errors.Is]) and the status of
// the last try.
type Client struct {
	conn         grpc.ClientConnInterface
	stub         oncedv1.IdempotencyServiceClient
	operator     oncedv1.OperatorServiceClient
	namespace    string
	holder       string
	settleBudget time.Duration
	log          *slog.Logger
	generation   generationWatch
	reconnecting reconnecting
	pending      pendingSet
}

// Option changes how a [Client] works.
type Option func(*Client)

// WithNamespace sets the namespace of all operations: 1–128 bytes of letters,
// digits and . _ : / -. The default is [DefaultNamespace].
func WithNamespace(namespace string) Option {
	return func(c *Client) { c.namespace = namespace }
}

// WithHolder sets the label by which people are told who holds a claim, at most
// 256 bytes. The default is the host's name and the process id. It is shown to
// other callers and proves nothing.
func WithHolder(label string) Option {
	return func(c *Client) { c.holder = label }
}

// WithLogger sets where the client reports what its callers cannot be told: a
// settlement that was given up, a claim that was lost, a change of generation.
// Claim tokens, arguments and results are never logged. The default is
// [slog.Default].
func WithLogger(log *slog.Logger) Option {
	return func(c *Client) { c.log = log }
}

// WithSettleBudget sets how long a settlement is re-sent before it is given up;
// the default is [DefaultSettleBudget]. A budget below 5 s counts as 5 s, so that
// even a budget of zero sends it. The operation then lapses and is unresolved: it
// is not executed again, but its result is lost to later callers.
func WithSettleBudget(d time.Duration) Option {
	return func(c *Client) { c.settleBudget = d }
}

// OnGenerationChange sets a function that is called when an answer carries
// another generation of the store than the answers before. A higher one means
// that the store was restored from a backup; a lower one that an older store, or
// one beside it, is answering. Either may have forgotten operations. The function
// runs in the goroutine of the call that noticed, before that call is answered,
// and must not block.
func OnGenerationChange(f func(GenerationChange)) Option {
	return func(c *Client) { c.generation.onChange = f }
}

// RefuseOnGenerationChange makes every [Do] fail with [*GenerationChange],
// without executing anything, from the moment at which the store's generation is
// seen to differ from the first one that this client has seen. A new Client, made
// once people have looked at the restore, accepts it.
func RefuseOnGenerationChange() Option {
	return func(c *Client) { c.generation.refuse = true }
}

// New returns a client over a connection, which stays the caller's: close it
// after [Client.Close]. New sends nothing.
//
// The connection should have keepalive, for example [grpc.WithKeepaliveParams] with
// a Time of 10 s, which is what the server lets clients have at the shortest, and a
// Timeout of 3 s. Without it a connection that has died without a word swallows
// renewals and reports until the system gives it up, which may be long after the
// lease. Its pauses between attempts to connect should be bounded too, for example by
// [grpc.WithConnectParams] with a MaxDelay of 5 s: after an outage holders have their lease,
// at most a minute, to be heard of again.
func New(conn grpc.ClientConnInterface, opts ...Option) *Client {
	c := &Client{
		conn:         conn,
		stub:         oncedv1.NewIdempotencyServiceClient(conn),
		operator:     oncedv1.NewOperatorServiceClient(conn),
		namespace:    DefaultNamespace,
		holder:       defaultHolder(),
		settleBudget: DefaultSettleBudget,
		log:          slog.Default(),
	}
	for _, o := range opts {
		o(c)
	}
	c.generation.log = c.log
	return c
}

// Namespace is that of all calls that name none, as [WithNamespace] has set it.
func (c *Client) Namespace() string { return c.namespace }

// Ref names an operation in the client's namespace.
func (c *Client) Ref(key, method string) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: c.namespace, Key: key, Method: method}
}

// defaultHolder is host/pid, or the pid alone where the host has no name that
// may stand in a label.
func defaultHolder() string {
	host, err := os.Hostname()
	label := fmt.Sprintf("%s/%d", host, os.Getpid())
	if err != nil || onced.ValidateHolder(label) != nil {
		return fmt.Sprintf("pid %d", os.Getpid())
	}
	return label
}
