package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server"
	"github.com/onced/onced/storage"
	"github.com/onced/onced/storage/memory"
	"github.com/onced/onced/storage/storagetest"
)

const day = 24 * time.Hour

func TestGetPolicy(t *testing.T) {
	after := 90 * time.Second
	w := newWire(t, func(p *onced.Policy) {
		p.ResultRetention, p.KeyRetention = 2*day, 10*day
		p.MinLease, p.DefaultLease, p.MaxLease = 2*time.Second, 3*time.Second, 4*time.Second
		p.MaxWait, p.MaxResultBytes, p.MaxCheckpointBytes = 5*time.Second, 6, 7
		p.Takeover, p.ReconcileAfter, p.SafeToRerun = onced.TakeoverByOperator, &after, true
		p.FingerprintRequired, p.KeyTimeRequired, p.KeyTimeFromKey, p.Skew = true, true, true, time.Minute
	})
	get := func(namespace string) *oncedv1.Policy {
		resp, err := w.client.GetPolicy(t.Context(), &oncedv1.GetPolicyRequest{Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetPolicy()
	}
	want := &oncedv1.Policy{
		ResultRetention: durationpb.New(2 * day), KeyRetention: durationpb.New(10 * day),
		DefaultLease: durationpb.New(3 * time.Second), MinLease: durationpb.New(2 * time.Second), MaxLease: durationpb.New(4 * time.Second),
		MaxWait: durationpb.New(5 * time.Second), MaxResultBytes: 6, MaxCheckpointBytes: 7,
		MemorySince: timestamppb.New(start), Generation: w.svc.Generation(),
		Takeover: oncedv1.TakeoverPolicy_TAKEOVER_POLICY_OPERATOR, ReconcileAfter: durationpb.New(after), SafeToRerun: true,
		FingerprintRequired: true, KeyTimeRequired: true, KeyTimeFromKey: true, KeyTimeSkew: durationpb.New(time.Minute),
	}
	if got := get("n"); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	byDefault := get("any:name/what.so-ever_1")
	if byDefault.GetReconcileAfter() != nil || byDefault.GetKeyRetention().AsDuration() != 30*day || byDefault.GetMaxResultBytes() != 1<<20 ||
		byDefault.GetTakeover() != oncedv1.TakeoverPolicy_TAKEOVER_POLICY_CALLER {
		t.Errorf("%v", byDefault)
	}
	w.clock.Advance(15 * day)
	if since := get("n").GetMemorySince().AsTime(); !since.Equal(start.Add(5 * day)) {
		t.Errorf("memory since %v", since)
	}
}

func TestNewPolicies(t *testing.T) {
	bad := onced.DefaultPolicy()
	bad.KeyRetention = time.Hour // shorter than the result's
	_, err := server.NewPolicies(bad, map[string]onced.Policy{"no blanks": onced.DefaultPolicy(), "n": bad})
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"default policy: key_retention", `namespace "no blanks": namespace may`, `namespace "n": key_retention`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not say %q", err, part)
		}
	}
	policies, err := server.NewPolicies(onced.DefaultPolicy(), map[string]onced.Policy{"b": onced.DefaultPolicy(), "a": onced.DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	if names := policies.Names(); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names %q", names)
	}
	if a, c := policies.Label("a"), policies.Label("c"); a != "a" || c != "other" {
		t.Errorf("labels %q %q", a, c)
	}
}

// memoryTest starts a store's server again and again under other configurations.
type memoryTest struct {
	*testing.T
	clock *storagetest.Clock
	store storage.Store
	metas int // how often the facts about the store were written
}

func (m *memoryTest) UpdateMeta(ctx context.Context, fn func(storage.Meta) storage.Meta) error {
	m.metas++
	return m.store.UpdateMeta(ctx, fn)
}

// started returns the policies of a start under key retentions by namespace, ""
// the default's.
func (m *memoryTest) started(retentions map[string]time.Duration) *server.Policies {
	m.Helper()
	policy := func(retention time.Duration) onced.Policy {
		p := onced.DefaultPolicy()
		p.ResultRetention, p.KeyRetention = day, retention
		return p
	}
	byNamespace := map[string]onced.Policy{}
	for namespace, retention := range retentions {
		if namespace != "" {
			byNamespace[namespace] = policy(retention)
		}
	}
	policies, err := server.NewPolicies(policy(retentions[""]), byNamespace)
	if err != nil {
		m.Fatal(err)
	}
	if err := policies.Remember(m.Context(), metaStore{m.store, m}); err != nil {
		m.Fatal(err)
	}
	return policies
}

type metaStore struct {
	storage.Store
	m *memoryTest
}

func (s metaStore) UpdateMeta(ctx context.Context, fn func(storage.Meta) storage.Meta) error {
	return s.m.UpdateMeta(ctx, fn)
}

func (m *memoryTest) since(p *server.Policies, namespace string, want time.Time) {
	m.Helper()
	if got := p.For(namespace).MemorySince; !got.Equal(want) {
		m.Errorf("memory of %q since %v, want %v", namespace, got, want)
	}
}

// What was forgotten under a shorter retention stays known as forgotten.
func TestRemember(t *testing.T) {
	clock := storagetest.NewClock()
	m := &memoryTest{T: t, clock: clock, store: memory.New(clock)}
	first := map[string]time.Duration{"": 30 * day, "a": 2 * day}
	p := m.started(first)
	m.since(p, "a", time.Time{})
	m.since(p, "x", time.Time{})
	if m.metas != 1 {
		t.Errorf("%d writes", m.metas)
	}

	clock.Advance(100 * day)
	m.since(m.started(first), "a", time.Time{})
	if m.metas != 1 {
		t.Error("a start that changes nothing has written")
	}

	// a is made longer, b is new and goes on from the default's.
	second := map[string]time.Duration{"": 30 * day, "a": 50 * day, "b": 60 * day}
	p = m.started(second)
	m.since(p, "a", start.Add(98*day))
	m.since(p, "b", start.Add(70*day))
	m.since(p, "x", time.Time{})

	// The default is made longer, too late for what b knows already; a is not
	// configured any more and keeps what it knows.
	clock.Advance(10 * day)
	p = m.started(map[string]time.Duration{"": 90 * day, "b": 60 * day})
	m.since(p, "a", start.Add(98*day))
	m.since(p, "b", start.Add(70*day))
	m.since(p, "x", start.Add(80*day))
	if got := p.For("a").KeyRetention; got != 90*day {
		t.Errorf("a's retention %v is not the default's", got)
	}

	// Shorter and longer again within a day: it never moves back.
	clock.Advance(day)
	p = m.started(map[string]time.Duration{"": day, "b": 60 * day})
	m.since(p, "x", start.Add(80*day))
	p = m.started(map[string]time.Duration{"": 90 * day, "b": 60 * day})
	m.since(p, "x", start.Add(110*day))
	m.since(p, "a", start.Add(110*day))
	m.since(p, "b", start.Add(70*day))

	meta, err := m.store.Meta(t.Context())
	if err != nil || len(meta.Memories) != 3 || !meta.Memories["a"].Since.Equal(start.Add(110*day)) || meta.Memories["b"].Retention != 60*day {
		t.Errorf("persisted %+v, %v", meta.Memories, err)
	}
}

// The history of a retry that comes after a retention was made longer: the key
// was forgotten under the shorter one, and is not granted again.
func TestRetentionMadeLonger(t *testing.T) {
	short := func(p *onced.Policy) { p.ResultRetention, p.KeyRetention = day, day }
	clock := storagetest.NewClock()
	store := memory.New(clock)
	w := newWireOver(t, store, clock, short)
	clock.Advance(10 * day)
	minted := timestamppb.New(start.Add(10 * day))
	keyTime := func(r *oncedv1.ClaimRequest) { r.KeyTime = minted }
	w.must(completed)(w.grant("k", "a", keyTime).complete("done"))
	clock.Advance(2 * day)
	err := store.Update(t.Context(), storage.Target{ID: identity("k")}, func(v onced.View) onced.Plan {
		return onced.Sweep(v, onced.Policy{ResultRetention: day, KeyRetention: day})
	})
	if err != nil {
		t.Fatal(err)
	}
	longer := newWireOver(t, store, clock)
	if op := longer.claim(unresolved, "k", "b", keyTime).GetOperation(); op.GetReason() != historyLost {
		t.Errorf("%v", op)
	}
}
