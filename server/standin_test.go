package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

// counting grants every claim, and counts what it was asked.
type counting struct {
	oncedv1.UnimplementedIdempotencyServiceServer
	claims, completions atomic.Int32
}

// Claim grants.
func (c *counting) Claim(context.Context, *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	c.claims.Add(1)
	return &oncedv1.ClaimResponse{Outcome: oncedv1.Outcome_OUTCOME_GRANTED}, nil
}

// Complete panics, which the chain has to bear.
func (c *counting) Complete(context.Context, *oncedv1.CompleteRequest) (*oncedv1.CompleteResponse, error) {
	c.completions.Add(1)
	panic("as asked")
}

// TestStandIn: a stand-in gets valid calls only, behind the whole chain, and the
// store is not asked.
func TestStandIn(t *testing.T) {
	answers := &counting{}
	r := &rig{
		T: t, clock: storagetest.NewClock(), registry: prometheus.NewPedanticRegistry(),
		log: &logBuffer{}, served: make(chan error, 1),
	}
	store := memory.New(r.clock)
	r.metrics = NewMetrics(r.registry)
	policies, err := NewPolicies(onced.DefaultPolicy(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.server, err = New(t.Context(), Config{
		Store: store, Policies: policies, Metrics: r.metrics,
		Logger: slog.New(slog.NewTextHandler(r.log, nil)), StandIn: answers,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.serve()

	var header metadata.MD
	for range 2 {
		answer, err := r.client.Claim(t.Context(), claimRequest("k"), grpc.Header(&header))
		if err != nil || answer.GetOutcome() != oncedv1.Outcome_OUTCOME_GRANTED {
			t.Fatalf("%v %v", answer, err)
		}
	}
	if len(header.Get(generationHeader)) != 1 {
		t.Errorf("no generation in %v", header)
	}
	if _, err := r.client.Complete(t.Context(), completeRequest("k", 1, "done")); status.Code(err) != codes.Internal {
		t.Errorf("a panic: %v", err)
	}
	for name, call := range map[string]func() error{
		"claim": func() error {
			_, err := r.client.Claim(t.Context(), &oncedv1.ClaimRequest{})
			return err
		},
		"completion": func() error {
			req := completeRequest("k", 1, "done")
			req.Result = nil
			_, err := r.client.Complete(t.Context(), req)
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("an invalid %s: %v", name, err)
		}
	}
	if answers.claims.Load() != 2 || answers.completions.Load() != 1 {
		t.Errorf("%d claims and %d completions came through; want 2 and 1", answers.claims.Load(), answers.completions.Load())
	}
	v, err := store.Get(t.Context(), onced.Identity{Namespace: "n", Key: "k", Method: "m"})
	if err != nil || v.Record != nil {
		t.Errorf("stored: %v %v", v.Record, err)
	}
}
