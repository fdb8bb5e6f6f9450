package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// Observer is told what was decided, so that it can be counted. Its methods are
// called concurrently and must not block. The namespace that they are given is
// a label already (see [Policies.Label]), so no count grows with what callers
// send.
type Observer interface {
	// Claimed: a claim was answered with an outcome.
	Claimed(namespace string, outcome onced.Outcome)
	// Refused: a call was answered with an error. rpc is the method's short name,
	// reason that of the error's google.rpc.ErrorInfo.
	Refused(namespace, rpc, reason string)
	// Settled: an operation became COMPLETED or FAILED.
	Settled(namespace string, state onced.State, by onced.SettledBy)
	// Alarm: a report came in that means that an effect may have happened twice,
	// or that a decision was overruled.
	Alarm(namespace string, a onced.Alarm)
	// KeyTimeChanged: a key was found with another key_time than the claim named.
	KeyTimeChanged(namespace string)
	// Waiters: the number of held calls has changed.
	Waiters(delta int)
}

// ServiceConfig is what a [Service] needs. All of it is required.
type ServiceConfig struct {
	Store    storage.Store // stays the caller's to close, after the last call has ended
	Policies *Policies     // after [Policies.Remember]
	Logger   *slog.Logger
	Observer Observer
}

// Service implements the gRPC service onced.v1.IdempotencyService over a store.
// Its errors are those of the domain and of the store: only [Register] gives
// them their form on the wire. It is safe for concurrent use.
type Service struct {
	oncedv1.UnimplementedIdempotencyServiceServer

	store      storage.Store
	policies   *Policies
	log        *slog.Logger
	observer   Observer
	generation uint64
	unsettled  *unsettledCounts
	waiters    *waiters
	pages      pageTokens
}

// NewService returns a service that is ready to answer. It reads the store's
// generation and counts its unsettled operations, which takes a scan of them.
func NewService(ctx context.Context, cfg ServiceConfig) (*Service, error) {
	if cfg.Store == nil || cfg.Policies == nil || cfg.Logger == nil || cfg.Observer == nil {
		return nil, errors.New("server: store, policies, logger and observer are required")
	}
	meta, err := cfg.Store.Meta(ctx)
	if err != nil {
		return nil, fmt.Errorf("server: read the store's generation: %w", err)
	}
	unsettled, err := countUnsettled(ctx, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("server: count the unsettled operations: %w", err)
	}
	pages, err := newPageTokens()
	if err != nil {
		return nil, err
	}
	return &Service{
		store: cfg.Store, policies: cfg.Policies, log: cfg.Logger, observer: cfg.Observer,
		generation: meta.Generation, unsettled: unsettled,
		waiters: newWaiters(greatestWaiters, cfg.Observer.Waiters), pages: pages,
	}, nil
}

// Generation returns the generation of the store, which every answer carries.
func (s *Service) Generation() uint64 { return s.generation }

// Drain makes all calls that wait, now or later, answer UNAVAILABLE with reason
// STOPPING. Calls that need not wait are answered as ever. A second call does
// nothing.
func (s *Service) Drain() { s.waiters.drain() }

// transition is one decision of the domain on a view. It is pure, and the store
// may run it more than once. A plan that comes with a refusal is applied too.
type transition func(onced.View) (onced.Plan, error)

// update runs a transition in the store, and returns its refusal once what it
// was decided on, and what it changed, is durable.
func (s *Service) update(ctx context.Context, target storage.Target, decide transition) error {
	var (
		before  *onced.Record
		plan    onced.Plan
		refusal error
	)
	err := s.store.Update(ctx, target, func(v onced.View) onced.Plan {
		before = v.Record
		plan, refusal = decide(v)
		return plan
	})
	if err != nil {
		return err
	}
	s.applied(target.ID, before, plan)
	return refusal
}

// twinRounds is how often a report asks for a view with the right twin entry: an
// operation stands in another one only after it was released and claimed anew.
const twinRounds = 4

// updateWithTwin is update for a transition that may move the operation within
// its twin entry. Which entry that is stands in the record: a view without it is
// not decided on but asked for again, with the entry.
func (s *Service) updateWithTwin(ctx context.Context, target storage.Target, decide transition) error {
	for range twinRounds {
		var missing *onced.TwinID
		err := s.update(ctx, target, func(v onced.View) (onced.Plan, error) {
			if missing = onced.MissingTwin(v); missing != nil {
				return onced.Plan{}, nil
			}
			return decide(v)
		})
		if err != nil || missing == nil {
			return err
		}
		target.Twin = missing
	}
	return refuseOverloaded("the operation is claimed and released too fast to be reported on")
}

// applied follows a plan that is durable: counts, alarms, and those who wait.
func (s *Service) applied(id onced.Identity, before *onced.Record, plan onced.Plan) {
	if plan.Alarm != onced.AlarmNone {
		s.alarm(id, before, plan)
	}
	if plan.Put == nil && !plan.Delete {
		return
	}
	s.unsettled.change(id.Namespace, before, plan.Put)
	if after := plan.Put; after != nil && after.State.Settled() && (before == nil || !before.State.Settled()) {
		s.observer.Settled(s.policies.Label(id.Namespace), after.State, after.SettledBy)
	}
	s.waiters.notify(id)
}

func (s *Service) alarm(id onced.Identity, before *onced.Record, plan onced.Plan) {
	s.observer.Alarm(s.policies.Label(id.Namespace), plan.Alarm)
	s.log.Error("a holder reported an effect that may not have been the only one",
		slog.String("alarm", plan.Alarm.String()), operationAttr(id),
		slog.Uint64("reporting_attempt", uint64(plan.AlarmBy.Number)), slog.String("reporting_holder", plan.AlarmBy.Holder),
		slog.Uint64("newest_attempt", uint64(before.Attempt)), slog.String("newest_holder", before.Holder))
}

// mismatch logs a claim or lookup whose fingerprint is not the stored one: the
// same key was used for two things, which is a bug of one of the two callers.
// stored is nil when the operation is absent.
func (s *Service) mismatch(err error, stored *onced.Record, given []onced.Fingerprint, holder string) {
	var refusal *onced.Refusal
	if stored == nil || !errors.As(err, &refusal) || refusal.Reason != onced.RefusedFingerprint {
		return
	}
	s.log.Error("a key was used with other arguments than the first ones",
		operationAttr(stored.ID),
		slog.String("stored_fingerprints", joinFingerprints(stored.Fingerprints)), slog.String("stored_holder", stored.Holder),
		slog.String("given_fingerprints", joinFingerprints(given)), slog.String("given_holder", holder))
}

func operationAttr(id onced.Identity) slog.Attr {
	return slog.Group("operation",
		slog.String("namespace", id.Namespace), slog.String("key", id.Key), slog.String("method", id.Method))
}
