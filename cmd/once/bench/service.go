package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// What all claims of a bench say. The holder's label is for people; the server
// without a store tells by it which claims are of settled keys.
const (
	method       = "bench.v1.Tickets/CreateTicket"
	holderFirst  = "first"
	holderReplay = "again"
	contentType  = "application/octet-stream"
)

// keyRange are count keys from the one of number first on.
type keyRange struct{ first, count uint64 }

// service is a server of IdempotencyService, with or without a store, and what was
// done with its keys.
type service struct {
	label     string
	namespace string
	pairs     bool // claims are completed
	result    []byte
	conns     []*grpc.ClientConn
	stubs     []oncedv1.IdempotencyServiceClient

	seed    uint64        // of the keys, which no other run has
	next    atomic.Uint64 // number of the next new key
	made    atomic.Uint64 // records
	settled keyRange      // what replays are of; not changed while there are callers
}

func newService(label, address string, cfg Config) (*service, error) {
	conns, err := dial(address, cfg.Callers)
	if err != nil {
		return nil, err
	}
	s := &service{
		label: label, namespace: cfg.Namespace, pairs: !cfg.LeaveUnsettled, result: resultOf(cfg.ResultBytes),
		conns: conns, seed: rand.Uint64(), //nolint:gosec // a number that is not used twice, no secret
	}
	for _, c := range conns {
		s.stubs = append(s.stubs, oncedv1.NewIdempotencyServiceClient(c))
	}
	return s, nil
}

func (s *service) close()       { closeAll(s.conns) }
func (s *service) name() string { return s.label }

// resultOf returns a result of n bytes, always the same and without repetition.
func resultOf(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// act is what a caller sends for one key: as long as what the client of onced
// makes of it, and in no order, like keys of real callers.
type act struct {
	stub        oncedv1.IdempotencyServiceClient
	ref         *oncedv1.OperationRef
	token       []byte
	fingerprint string
}

// act returns that of a number. The same number gives the same act.
func (s *service) act(n uint64) act {
	b := random(rand.NewPCG(s.seed, n), 16+32+32)
	return act{
		stub:        s.stubs[n%uint64(len(s.stubs))],
		ref:         &oncedv1.OperationRef{Namespace: s.namespace, Key: hex.EncodeToString(b[:16]), Method: method},
		token:       b[16:48],
		fingerprint: "raw1:" + hex.EncodeToString(b[48:]),
	}
}

func (a act) claimRequest(holder string) *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{Ref: a.ref, ClaimToken: a.token, Fingerprints: []string{a.fingerprint}, Holder: holder}
}

// recordBytes returns how many bytes callers have sent to be stored for one
// record: an encoded claim, and the result.
func (s *service) recordBytes() float64 {
	n := proto.Size(s.act(0).claimRequest(holderFirst))
	if s.pairs {
		n += len(s.result)
	}
	return float64(n)
}

// pair claims a new key and, unless claims are left unsettled, completes it.
func (s *service) pair(ctx context.Context, r *round) error {
	if s.pairs {
		return s.settle(ctx, r)
	}
	_, _, err := s.claim(ctx, r)
	return err
}

// settle claims a new key and completes it.
func (s *service) settle(ctx context.Context, r *round) error {
	a, fence, err := s.claim(ctx, r)
	if err != nil {
		return err
	}
	start := time.Now()
	answer, err := a.stub.Complete(ctx, &oncedv1.CompleteRequest{
		Ref: a.ref, ClaimToken: a.token, Fence: fence,
		Result: &oncedv1.CompleteRequest_Stored{Stored: payload(s.result)},
	})
	r.complete.observe(time.Since(start))
	if err != nil {
		return at(s.label+" refused to complete", err)
	}
	if state := answer.GetOperation().GetState(); state != oncedv1.State_STATE_COMPLETED {
		return fmt.Errorf("%s: a completed operation is %v, not COMPLETED", s.label, state)
	}
	return nil
}

func payload(result []byte) *oncedv1.Payload {
	return &oncedv1.Payload{ContentType: contentType, Body: &oncedv1.Payload_Data{Data: result}}
}

// claim claims a new key, which must be granted, and returns its fence.
func (s *service) claim(ctx context.Context, r *round) (a act, fence uint64, err error) {
	a = s.act(s.next.Add(1) - 1)
	start := time.Now()
	answer, err := a.stub.Claim(ctx, a.claimRequest(holderFirst))
	r.claim.observe(time.Since(start))
	if err != nil {
		return a, 0, at(s.label+" refused a claim", err)
	}
	if o := answer.GetOutcome(); o != oncedv1.Outcome_OUTCOME_GRANTED {
		return a, 0, fmt.Errorf("%s answered the claim of a new key with %v, not GRANTED", s.label, o)
	}
	s.made.Add(1)
	return a, answer.GetOperation().GetFence(), nil
}

// replay claims a settled key, under a token of its own as any later caller, and
// must get its result.
func (s *service) replay(ctx context.Context, r *round, source *rand.Rand) error {
	a := s.act(s.settled.first + source.Uint64N(s.settled.count))
	a.token = random(source, len(a.token))
	start := time.Now()
	answer, err := a.stub.Claim(ctx, a.claimRequest(holderReplay))
	r.replay.observe(time.Since(start))
	if err != nil {
		return at(s.label+" refused the claim of a settled key", err)
	}
	if o := answer.GetOutcome(); o != oncedv1.Outcome_OUTCOME_REPLAYED {
		return fmt.Errorf("%s answered the claim of a settled key with %v, not REPLAYED", s.label, o)
	}
	if !bytes.Equal(answer.GetOperation().GetResult().GetStored().GetData(), s.result) {
		return errors.New(s.label + " replayed other bytes than those that the operation was completed with")
	}
	return nil
}

// random returns n bytes, a multiple of 8.
func random(source rand.Source, n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, source.Uint64())
	}
	return b
}
