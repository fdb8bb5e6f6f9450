package oncegrpc

import (
	"context"
	"errors"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/fingerprint"
)

// UnaryServerInterceptor returns the interceptor that guards unary methods. It stands
// inside of whatever decides who may call: authentication, authorisation, limits. What
// refuses requests for what they hold belongs inside, or to [WithValidation], so that it
// does not come between a caller and the answer to an earlier call. Interceptors
// inside it run once for each execution, and not for replays.
func (g *Guard) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	g.unary.Store(true)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := &call{Guard: g, method: g.methods.of(info.FullMethod), req: req, handler: handler}
		return c.answer(ctx, g.stanceOn(ctx, c.method, interceptors.NewServerCallMeta(info.FullMethod, nil, req)))
	}
}

// call is one call of a method.
type call struct {
	*Guard
	*method
	req     any
	handler grpc.UnaryHandler
}

// answer answers the call.
func (c *call) answer(ctx context.Context, s stance) (any, error) {
	if s == harmless {
		return c.plain(ctx)
	}
	k, err := c.keyOf(incoming(ctx), c.req)
	switch {
	case s == off && (k.given || err != nil):
		return nil, refuse(ctx, c.keyNotGuarded())
	case s == off:
		return c.plain(ctx)
	case err != nil:
		return nil, refuse(ctx, err)
	case s == guarded && !k.given:
		return nil, refuse(ctx, c.keyRequired())
	case !k.given:
		resp, err := c.plain(ctx)
		if err == nil {
			mark(ctx, OutcomeUnprotected, "", time.Time{})
		}
		return resp, err
	}
	op, err := c.operation(ctx, k.key)
	if err != nil {
		return nil, refuse(ctx, err)
	}
	if c.validate != nil {
		if err := c.validate(ctx, c.req); err != nil {
			return c.known(ctx, op, orStatus(err, codes.InvalidArgument))
		}
	}
	return c.once(ctx, op)
}

// plain runs the handler without a guard.
func (c *call) plain(ctx context.Context) (any, error) {
	if c.validate != nil {
		if err := c.validate(ctx, c.req); err != nil {
			return nil, orStatus(err, codes.InvalidArgument)
		}
	}
	return c.handler(ctx, c.req)
}

// operation names the operation that the call is. It is fixed before the handler can
// change the request.
func (c *call) operation(ctx context.Context, key string) (client.Call, error) {
	if err := errors.Join(c.misconfigured, c.wrong); err != nil {
		return client.Call{}, refusal(reasonMisconfigured, "the guard of %s cannot work, so nothing was executed: %v", c.name, err)
	}
	namespace, subject, err := c.caller(ctx)
	if err != nil {
		return client.Call{}, err
	}
	msg, ok := c.req.(proto.Message)
	if !ok {
		return client.Call{}, refusal(reasonMisconfigured, "the request of %s is a %T and no protobuf message, so it cannot be told from others; nothing was executed", c.name, c.req)
	}
	arguments, err := fingerprint.Message(msg, c.arguments...)
	if err != nil {
		return client.Call{}, refusal(reasonArgumentsInvalid, "the request cannot be told from others; nothing was executed: %v", err)
	}
	return client.Call{
		Namespace: namespace, Key: key, Method: c.name, Subject: subject,
		Fingerprints: []onced.Fingerprint{arguments}, Lease: c.lease,
	}, nil
}

// once runs the handler, unless it has run before.
func (c *call) once(ctx context.Context, op client.Call) (any, error) {
	var resp any
	var failed error
	ran := false
	out, err := client.Do(ctx, c.client, op, func(ctx context.Context, _ *client.Claim) (proto.Message, error) {
		ran = true
		if resp, failed = c.handler(ctx, c.req); failed != nil {
			return nil, c.classified(failed)
		}
		msg, _ := resp.(proto.Message) // what is none completes the operation without a result
		return msg, nil
	}, c.options()...)
	switch lost := new(client.ClaimLost); {
	case !ran:
		return c.earlier(ctx, op, out, err)
	case failed != nil:
		outcome := OutcomeExecuted
		if client.IsNotExecuted(c.classified(failed)) {
			outcome = OutcomeNotExecuted
		}
		mark(ctx, outcome, op.Key, out.FirstClaimedAt)
		return nil, failed
	case errors.As(err, &lost):
		return nil, refuse(ctx, detailed(reasonClaimLost, "it was executed, but its claim was lost before that was reported, so somebody else may have executed it too; ask again under the same key for the answer that counts: "+lost.Error(),
			map[string]string{"key": op.Key, "method": op.Method}))
	}
	mark(ctx, OutcomeExecuted, op.Key, out.FirstClaimedAt)
	return resp, nil
}

// options are those of the call's Do.
func (c *call) options() []client.DoOption {
	opts := []client.DoOption{client.ClaimTimeout(c.claimTimeout + c.wait)}
	if c.wait == 0 {
		opts = append(opts, client.NoWait())
	}
	if !c.attached {
		opts = append(opts, client.Detached())
	}
	if c.safeToRerun {
		opts = append(opts, client.SafeToRerun())
	}
	return opts
}

// known answers a call whose request is refused with what became of it before. Only where
// it was not claimed before does the refusal stand, and then nothing is stored.
func (c *call) known(ctx context.Context, op client.Call, rejected error) (any, error) {
	looking, cancel := context.WithTimeout(ctx, c.claimTimeout)
	defer cancel()
	out, err := client.LookupOutcome[proto.Message](looking, c.client, op)
	if errors.Is(err, client.ErrNotClaimed) {
		return nil, rejected
	}
	return c.earlier(ctx, op, out, err)
}

// earlier answers with the outcome of an earlier call, or with why there is none.
func (c *call) earlier(ctx context.Context, op client.Call, out client.Outcome[proto.Message], err error) (any, error) {
	failed, unavailable := new(client.Failed), new(client.ResultUnavailable)
	switch {
	case errors.As(err, &failed):
		mark(ctx, OutcomeReplayed, op.Key, failed.FirstClaimedAt)
		return nil, failureOf(c.method, failed)
	case errors.As(err, &unavailable):
		mark(ctx, OutcomeReplayed, op.Key, unavailable.FirstClaimedAt)
		return nil, refuse(ctx, c.refused(ctx, op.Key, err))
	case err != nil:
		return nil, refuse(ctx, c.refused(ctx, op.Key, err))
	}
	resp := out.Value
	if name := resp.ProtoReflect().Descriptor().FullName(); c.output != "" && name != c.output {
		mark(ctx, OutcomeReplayed, op.Key, out.FirstClaimedAt)
		return nil, refuse(ctx, detailed(reasonResultUnavailable, "it was executed, and answered with a "+string(name)+", which this release does not send; nothing was executed now: get the result from where the effect happened",
			map[string]string{"key": op.Key, "method": op.Method}))
	}
	if c.replayed != "" {
		setReplayed(resp.ProtoReflect(), c.replayed)
	}
	mark(ctx, OutcomeReplayed, op.Key, out.FirstClaimedAt)
	return resp, nil
}

// setReplayed sets the field by which a response says that it is a replay.
func setReplayed(resp protoreflect.Message, name protoreflect.Name) {
	if fd := resp.Descriptor().Fields().ByName(name); fd != nil {
		resp.Set(fd, protoreflect.ValueOfBool(true))
	}
}
