package oncegrpc

import (
	"context"
	"errors"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/fingerprint"
)

// UnaryServerInterceptor returns the interceptor that guards unary methods. It stands
// inside of whatever decides who may call: authentication, authorisation, limits. What
// refuses requests for what they hold is given to [WithValidation]: outside it would come
// between a caller and the answer to an earlier call. Interceptors inside are part of
// the handler: they run once for each execution and not for replays, and their errors mean
// what the handler's mean.
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
	if c.wrong != nil {
		return nil, refuse(ctx, c.cannotWork(c.wrong))
	}
	if s == harmless {
		return c.plain(ctx, c.handler)
	}
	k, err := c.keyOf(incoming(ctx), c.req)
	switch {
	case s == off && (k.given || err != nil):
		return nil, refuse(ctx, c.keyNotGuarded())
	case s == off:
		return c.plain(ctx, c.handler)
	case err != nil:
		return nil, refuse(ctx, c.keyRefused(err))
	case s == guarded && !k.given:
		return nil, refuse(ctx, c.keyRequired())
	case !k.given:
		return c.plain(ctx, c.unprotected)
	}
	if cl := client.ClaimFromContext(ctx); cl != nil && cl.Key == k.key && cl.Method == c.name {
		return nil, refuse(ctx, client.NotExecuted(c.cannotWork(errTwice)))
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

// errTwice is what is wrong where a call comes to a guard from inside of one.
var errTwice = errors.New("the call has passed a guard before, and would wait for itself: give the server one interceptor of a guard")

// plain runs a handler without a guard.
func (c *call) plain(ctx context.Context, handler grpc.UnaryHandler) (any, error) {
	if c.validate != nil {
		if err := c.validate(ctx, c.req); err != nil {
			return nil, orStatus(err, codes.InvalidArgument)
		}
	}
	return handler(ctx, c.req)
}

// unprotected runs the handler for a call without a key, and says so. An error is still
// without headers: it may be tried again, or not, as without a guard.
func (c *call) unprotected(ctx context.Context, req any) (any, error) {
	resp, err := c.handler(ctx, req)
	if err != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(HeaderOutcome, OutcomeUnprotected))
		return nil, err
	}
	mark(ctx, OutcomeUnprotected, "", time.Time{})
	return resp, nil
}

// operation names the operation that the call is. It is fixed before the handler can
// change the request.
func (c *call) operation(ctx context.Context, key string) (client.Call, error) {
	if c.misconfigured != nil {
		return client.Call{}, c.cannotWork(c.misconfigured)
	}
	namespace, subject, err := c.caller(ctx)
	if err != nil {
		return client.Call{}, err
	}
	msg, ok := c.req.(proto.Message)
	if !ok {
		return client.Call{}, c.refusal(reasonMisconfigured, "the request of %s is a %T and no protobuf message, so it cannot be told from others; nothing was executed", c.name, c.req)
	}
	arguments, err := fingerprint.Message(c.withoutKey(msg), c.arguments...)
	if err != nil {
		return client.Call{}, c.refusal(reasonArgumentsInvalid, "the request cannot be told from others; nothing was executed: %v", err)
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
	run := func(ctx context.Context, cl *client.Claim) (proto.Message, error) {
		ran = true
		outcome := OutcomeExecuted
		defer func() { mark(ctx, outcome, op.Key, cl.FirstClaimedAt) }() // of a panic too, which is answered outside
		if resp, failed = c.handler(ctx, c.req); failed != nil {
			err := c.classified(failed)
			if client.IsNotExecuted(err) {
				outcome = OutcomeNotExecuted
			}
			return nil, err
		}
		msg := c.result(resp)
		if msg != nil && resp != nil {
			msg = snapshot(msg)
			resp = msg
		}
		return msg, nil
	}
	out, err := client.Do(ctx, c.client, op, run, c.options(client.ClaimTimeout(c.claimTimeout), client.NoWait())...)
	if wait := c.waitUntil(ctx); wait > 0 && !ran && errors.As(err, new(*client.InProgress)) {
		// Only now is there anything to wait for: an onced that does not answer is not
		// waited for as long.
		out, err = client.Do(ctx, c.client, op, run, c.options(client.ClaimTimeout(wait))...)
	}
	switch lost := new(client.ClaimLost); {
	case !ran:
		return c.earlier(ctx, op, out, err)
	case failed != nil:
		return nil, handedOn(failed)
	case errors.As(err, &lost):
		return nil, refuse(ctx, detailed(reasonClaimLost, "it was executed, but its claim was lost before that was reported, so somebody else may have executed it too; ask again under the same key for the answer that counts: "+lost.Error(), factsOf(op)))
	}
	return resp, nil
}

// snapshot copies a response: it is sent when its report has been answered, and until
// then the service may go on to change what the handler returned. What cannot be copied,
// such as a nil pointer of some kinds, stays as it is.
func snapshot(m proto.Message) (copied proto.Message) {
	defer func() {
		if recover() != nil {
			copied = m
		}
	}()
	return proto.Clone(m)
}

// result is what a response is stored as. A nil one is sent as an empty message. What is
// no message completes the operation without a result.
func (m *method) result(resp any) proto.Message {
	if resp == nil {
		if mt, err := protoregistry.GlobalTypes.FindMessageByName(m.output); err == nil {
			return mt.New().Interface()
		}
	}
	msg, _ := resp.(proto.Message)
	return msg
}

// answerTime is how long before its deadline a caller is told that it waits in vain.
const answerTime = 250 * time.Millisecond

// waitUntil is how long the call may wait for somebody who executes, so that its caller
// still gets an answer.
func (c *call) waitUntil(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(c.wait, time.Until(end)-answerTime)
	}
	return c.wait
}

// options are those of a Do of the call, and how it claims.
func (c *call) options(opts ...client.DoOption) []client.DoOption {
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
		return nil, failureOf(op, failed)
	case errors.As(err, &unavailable):
		mark(ctx, OutcomeReplayed, op.Key, unavailable.FirstClaimedAt)
		return nil, refuse(ctx, c.refused(ctx, op, err))
	case err != nil:
		return nil, refuse(ctx, c.refused(ctx, op, err))
	}
	resp := out.Value
	if name := resp.ProtoReflect().Descriptor().FullName(); c.output != "" && name != c.output {
		mark(ctx, OutcomeReplayed, op.Key, out.FirstClaimedAt)
		return nil, refuse(ctx, detailed(reasonResultUnavailable, "it was executed, and answered with a "+string(name)+", which this release does not send; nothing was executed now: get the result from where the effect happened", factsOf(op)))
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
