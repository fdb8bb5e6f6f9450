package oncegrpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// keyOption and stepOption are options of one call.
type keyOption struct {
	grpc.EmptyCallOption
	key string
}

type stepOption struct {
	grpc.EmptyCallOption
	step string
}

// WithKey sets the key of a call: the same in every try of one intent, also after a
// restart of the caller. It is for calls through [UnaryClientInterceptor], which refuses
// a key that cannot be used with INVALID_ARGUMENT, before anything is sent.
func WithKey(key string) grpc.CallOption { return keyOption{key: key} }

// WithStep names a call within the guarded handler that makes it, where the handler
// calls one method for several purposes. The name stays the same across releases. It is
// for calls through [UnaryClientInterceptor].
func WithStep(step string) grpc.CallOption { return stepOption{step: step} }

// UnaryClientInterceptor returns the interceptor that sends a key with each call of a
// method that is guarded, as its descriptor says, or may be. The key is
//
//   - that of [WithKey], if the call has it;
//   - the one in the call's outgoing metadata, or in the method's key_field, if it has
//     either;
//   - inside a guarded handler, or another function that [client.Do] runs, the
//     [client.Claim.Child] of its operation for the step of [WithStep], or else for the
//     name that the called method has in operations: an execution that is tried again
//     makes the same call, and two calls of one method without a step are one. The key
//     that the handler itself was called with goes no further: in copied metadata it is
//     left out, in the key_field of a request that is passed on it is refused;
//   - otherwise a new one. It is the same in all retries and hedges of gRPC itself, since
//     they are below interceptors, but not in those of the caller: a caller that
//     calls again needs WithKey. So does a call through an interceptor that retries and
//     stands before this one: to this one each of its tries is a call of its own. Put
//     this one first.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	known := &methods{}
	return func(ctx context.Context, full string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		m := known.of(full)
		ctx, err := m.keyed(ctx, req, opts)
		if err != nil {
			return m.notSent(err)
		}
		return invoke(ctx, full, req, reply, cc, opts...)
	}
}

// notSent refuses a call that cannot have a key.
func (m *method) notSent(err error) error {
	return m.refusal(reasonOf(err), "oncegrpc: nothing was sent: %v", err)
}

// keyed returns the context of a call with its key in the metadata.
func (m *method) keyed(ctx context.Context, req any, opts []grpc.CallOption) (context.Context, error) {
	claim := client.ClaimFromContext(ctx)
	ctx = withoutInbound(ctx, claim)
	explicit, step := optionsOf(opts)
	if !explicit.given && m.stance != guarded && m.stance != optional {
		return ctx, nil
	}
	if m.wrong != nil {
		return nil, m.wrong
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	k, err := m.keyOf(md, req)
	switch {
	case err != nil:
		return nil, err
	case explicit.given:
		if err := k.add(explicit.key); err != nil {
			return nil, err
		}
	case k.given && claim != nil && inbound(ctx, claim, []string{k.key}): // in the request: the metadata has lost it
		return nil, badKey(reasonKeyInvalid, "the request carries, in the field of the key, the key of the operation that makes the call: two callers of yours may use the same one; clear the field and the key is derived, or say WithKey")
	case k.given: // it is sent in the header that can carry it
	case claim != nil:
		if step == "" {
			step = m.name // it stays when the method is renamed
		}
		if k.key, err = claim.Child(step); err != nil {
			return nil, err
		}
	default:
		k.key = client.NewKey()
	}
	if err := onced.ValidateKey(k.key); err != nil {
		return nil, err
	}
	md = md.Copy()
	delete(md, MetadataKey)
	delete(md, MetadataKeyBin)
	md.Set(metadataOf(MetadataKey, MetadataKeyBin, k.key))
	return metadata.NewOutgoingContext(ctx, md), nil
}

// optionsOf finds the options of this package among those of a call; the last one of a
// kind counts.
func optionsOf(opts []grpc.CallOption) (key givenKey, step string) {
	for _, o := range opts {
		switch o := o.(type) {
		case keyOption:
			key = givenKey{o.key, true}
		case stepOption:
			step = o.step
		}
	}
	return key, step
}

// withoutInbound takes the key of the operation that a handler runs for out of what it
// sends on: a handler that copies the metadata that it was called with would give all its
// calls the same key.
func withoutInbound(ctx context.Context, claim *client.Claim) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx)
	if claim == nil || !ok {
		return ctx
	}
	md = md.Copy()
	for _, name := range []string{MetadataKey, MetadataKeyBin} {
		if inbound(ctx, claim, md.Get(name)) {
			delete(md, name)
		}
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// inbound tells whether keys are those that the handler itself was called with. Within a
// nested operation the claim is not that of the handler.
func inbound(ctx context.Context, claim *client.Claim, keys []string) bool {
	came := incoming(ctx)
	return slices.Equal(keys, []string{claim.Key}) || slices.Equal(keys, came.Get(MetadataKey)) || slices.Equal(keys, came.Get(MetadataKeyBin))
}
