package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

// otherNamespaces is the label of all namespaces that are not configured.
const otherNamespaces = "other"

// Policies are the policies of all namespaces: those of the configuration, and
// one for every other name. After [Policies.Remember] they do not change and are
// safe for concurrent use.
type Policies struct {
	byDefault  onced.Policy
	configured map[string]onced.Policy
	// memories are the persisted memories by namespace; "" stands for all
	// namespaces without one of their own.
	memories map[string]onced.Memory
}

// NewPolicies returns the policies of a configuration: def for every namespace
// that byNamespace does not name. The error says everything that is wrong.
func NewPolicies(def onced.Policy, byNamespace map[string]onced.Policy) (*Policies, error) {
	var errs []error
	if err := def.Validate(); err != nil {
		errs = append(errs, eachOf("default policy", err))
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		if err := errors.Join(onced.ValidateNamespace(namespace), byNamespace[namespace].Validate()); err != nil {
			errs = append(errs, eachOf("namespace "+strconv.Quote(namespace), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Policies{byDefault: def, configured: maps.Clone(byNamespace)}, nil
}

// eachOf says of every one of the joined errors what it is about.
func eachOf(what string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, eachOf(what, e))
	}
	return errors.Join(errs...)
}

// Remember brings the store's persisted memories in line with the retentions now
// configured, and takes them over. It must be called once, before the first call
// is served: what was forgotten under a shorter retention must stay known as
// forgotten when the retention is made longer.
func (p *Policies) Remember(ctx context.Context, store storage.Store) error {
	now, err := storeTime(ctx, store, "")
	if err != nil {
		return fmt.Errorf("server: read the store's time: %w", err)
	}
	meta, err := store.Meta(ctx)
	if err != nil {
		return fmt.Errorf("server: read the store's memories: %w", err)
	}
	p.memories = p.remembered(meta.Memories, now.ExpiryTime)
	if maps.EqualFunc(meta.Memories, p.memories, sameMemory) {
		return nil // a full disk must not keep a server from starting that has nothing to write
	}
	err = store.UpdateMeta(ctx, func(m storage.Meta) storage.Meta {
		m.Memories = maps.Clone(p.memories)
		return m
	})
	if err != nil {
		return fmt.Errorf("server: store the memories: %w", err)
	}
	return nil
}

// remembered returns the memories under the configured retentions. A namespace
// that is configured for the first time goes on from what was in force for it
// before, the entry of "", and so does one that is no longer configured from its
// own.
func (p *Policies) remembered(stored map[string]onced.Memory, expiryTime time.Time) map[string]onced.Memory {
	next := maps.Clone(stored)
	if next == nil {
		next = map[string]onced.Memory{}
	}
	for namespace := range p.configured {
		if _, ok := next[namespace]; !ok {
			next[namespace] = stored[""]
		}
	}
	next[""] = stored[""]
	for namespace, memory := range next {
		next[namespace] = memory.WithRetention(p.policy(namespace).KeyRetention, expiryTime)
	}
	return next
}

func sameMemory(a, b onced.Memory) bool {
	return a.Retention == b.Retention && a.Since.Equal(b.Since)
}

// For returns the policy in force in a namespace. Every valid name exists.
func (p *Policies) For(namespace string) onced.Policy {
	policy := p.policy(namespace)
	memory, ok := p.memories[namespace]
	if !ok {
		memory = p.memories[""]
	}
	policy.MemorySince = memory.Since
	return policy
}

func (p *Policies) policy(namespace string) onced.Policy {
	if policy, ok := p.configured[namespace]; ok {
		return policy
	}
	return p.byDefault
}

// Names returns the configured namespaces, sorted.
func (p *Policies) Names() []string { return slices.Sorted(maps.Keys(p.configured)) }

// Label returns what stands for a namespace in metrics: its name when it is
// configured, else "other", because callers choose the names of those.
func (p *Policies) Label(namespace string) string {
	if _, ok := p.configured[namespace]; ok {
		return namespace
	}
	return otherNamespaces
}

// GetPolicy implements the RPC of this name.
func (s *Service) GetPolicy(ctx context.Context, req *oncedv1.GetPolicyRequest) (*oncedv1.GetPolicyResponse, error) {
	if err := validateGetPolicy(req); err != nil {
		return nil, err
	}
	now, err := storeTime(ctx, s.store, req.GetNamespace())
	if err != nil {
		return nil, err
	}
	return &oncedv1.GetPolicyResponse{Policy: policyToWire(s.policies.For(req.GetNamespace()), now)}, nil
}

// storeTime returns a view that holds no record, for the time and the epoch in
// it: no operation has an empty key.
func storeTime(ctx context.Context, store storage.Store, namespace string) (onced.View, error) {
	return store.Get(ctx, onced.Identity{Namespace: namespace})
}
