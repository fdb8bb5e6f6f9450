package client

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// tokenSize is the length of the claim tokens that the client mints.
const tokenSize = 32

// longestWait is how long a server holds a call at most.
const longestWait = onced.GreatestWait

// Call names an operation and says what is claimed. Only Key and Method are
// required; everything but them may be left zero.
type Call struct {
	// Namespace is that of the operation; empty means the client's, which
	// [WithNamespace] sets. A service that many tenants use gives each one of its own,
	// from who is authenticated and never from what was sent.
	Namespace string

	// Key is the idempotency key: the same in every retry of one intent, also
	// after a restart of the caller, and another one for another intent. It is
	// 1–512 bytes of UTF-8 without control characters and without white space at
	// its ends. An empty key is refused and never replaced by one.
	Key string

	// Method is what is run, for example "crm.v1.Tickets/CreateTicket": a name
	// that stays the same across releases, 1–256 bytes as a key's.
	Method string

	// Subject is on whose behalf, for example an end user. The first call binds
	// it; later ones with another subject, or with none, get [*Mismatch].
	Subject string

	// Fingerprints identify the arguments, at most 3 of distinct schemes. The
	// first call binds them; later ones with other arguments get [*Mismatch].
	Fingerprints []onced.Fingerprint

	// Lease is how long onced keeps the claim after the holder was last heard of,
	// not how long the execution may take: the client renews it. 1 s–24 h; zero
	// means the namespace's default.
	Lease time.Duration

	// KeyTime is when the key was first minted, if that is known: it tells a late
	// retry, whose operation may have been forgotten, from a new operation.
	KeyTime time.Time

	// Labels are kept for operators from the first claim: at most 16, names of
	// 1–64 bytes, values of at most 256.
	Labels map[string]string

	// TwinGuard stops the call with [*BlockedByTwin] while the same act, by
	// method, subject and first fingerprint, stands under another key.
	TwinGuard *onced.TwinGuard
}

// NewToken mints a claim token: 32 random bytes for one claim. A token may be
// stored in order to report, never in order to claim again, and is a secret.
func NewToken() []byte {
	token := make([]byte, tokenSize)
	_, _ = rand.Read(token) // never fails: it ends the process instead
	return token
}

// validate refuses, before anything is sent, what no server may be asked.
func (c *Client) validate(call *Call, o *doOptions) error {
	id := onced.Identity{Namespace: c.namespaceOf(call), Key: call.Key, Method: call.Method}
	_, badFingerprint := onced.ParseFingerprints(fingerprints(call))
	err := errors.Join(id.Validate(), onced.ValidateSubject(call.Subject), badFingerprint,
		onced.ValidateHolder(c.holder), onced.ValidateLabels(call.Labels))
	if call.Lease < 0 {
		err = errors.Join(err, fmt.Errorf("lease %v must not be negative; leave it zero for the namespace's default", call.Lease))
	}
	if o.claimTimeout < 0 {
		err = errors.Join(err, fmt.Errorf("claim timeout %v must not be negative; leave it zero to try until the context ends", o.claimTimeout))
	}
	if window := o.reconcile.DownstreamWindow; window < 0 {
		err = errors.Join(err, fmt.Errorf("downstream window %v must not be negative; leave it zero if the outside system forgets nothing", window))
	}
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "client: nothing was sent and nothing was executed: %v", err)
	}
	return nil
}

// namespaceOf is the namespace of a call.
func (c *Client) namespaceOf(call *Call) string { return cmp.Or(call.Namespace, c.namespace) }

// refOf names the operation of a call.
func (c *Client) refOf(call *Call) *oncedv1.OperationRef {
	return &oncedv1.OperationRef{Namespace: c.namespaceOf(call), Key: call.Key, Method: call.Method}
}

// claimRequest is the claim of a call under a new token.
func (c *Client) claimRequest(call *Call) *oncedv1.ClaimRequest {
	req := &oncedv1.ClaimRequest{
		Ref:        c.refOf(call),
		ClaimToken: NewToken(),
		Subject:    call.Subject,
		Holder:     c.holder,
		Lease:      lease(call.Lease),
		Labels:     call.Labels,
		TwinGuard:  twinGuard(call.TwinGuard),

		Fingerprints: fingerprints(call),
	}
	if !call.KeyTime.IsZero() {
		req.KeyTime = timestamppb.New(call.KeyTime)
	}
	return req
}

// fingerprints are those of a call as they stand on the wire.
func fingerprints(call *Call) []string {
	var list []string
	for _, f := range call.Fingerprints {
		list = append(list, f.String())
	}
	return list
}

// lease is a lease on the wire, where unset means the namespace's default.
func lease(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func twinGuard(g *onced.TwinGuard) *oncedv1.TwinGuard {
	if g == nil {
		return nil
	}
	w := &oncedv1.TwinGuard{ConfirmedTwinKey: g.Confirmed}
	switch g.Block {
	case onced.BlockUnsettled:
		w.Block = oncedv1.TwinGuard_BLOCK_UNSETTLED
	case onced.BlockUnsettledOrRecent:
		w.Block = oncedv1.TwinGuard_BLOCK_UNSETTLED_OR_RECENT
	}
	if g.Window != 0 {
		w.Window = durationpb.New(g.Window)
	}
	return w
}
