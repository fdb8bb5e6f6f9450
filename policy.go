package onced

import (
	"errors"
	"fmt"
	"time"
)

// Limits that no policy can exceed.
const (
	LeastLease         = time.Second
	GreatestLease      = 24 * time.Hour
	GreatestWait       = 20 * time.Second
	GreatestResult     = 16 << 20 // bytes
	GreatestCheckpoint = 64 << 10 // bytes of a checkpoint
	LeastTwinWindow    = time.Second
	GreatestTwinWindow = 24 * time.Hour
	outageGrace        = time.Minute // how long a restart may show a lapsed claim as held
	leastReconcile     = time.Minute
	leastRetryAfter    = 50 * time.Millisecond
	greatestRetry      = 30 * time.Second
	twinEntryLifetime  = 24 * time.Hour // after its last settlement, nothing unsettled
)

// RetryAfter is after how long it makes a difference to ask again about an operation in
// progress, with so much left of its lease: at the latest after 30 s, since it may end
// before, and not sooner than after 50 ms.
func RetryAfter(leaseRemaining time.Duration) time.Duration {
	return max(leastRetryAfter, min(leaseRemaining, greatestRetry))
}

// TakeoverPolicy says who may take over an unresolved operation.
type TakeoverPolicy uint8

// The takeover policies.
const (
	TakeoverByNobody   TakeoverPolicy = iota + 1 // only an operator's Resolve ends doubt
	TakeoverByOperator                           // callers with the operator role
	TakeoverByCaller                             // any caller of the namespace
)

var takeoverPolicyNames = [...]string{"", "NOBODY", "OPERATOR", "CALLER"}

// String returns the policy's name as it stands on the wire, without the prefix.
func (t TakeoverPolicy) String() string { return enumName(takeoverPolicyNames[:], int(t)) }

// Policy is what a namespace's configuration decides, with the part of the
// namespace's memory that outlives a change of configuration.
type Policy struct {
	ResultRetention time.Duration // how long the bytes of an outcome are kept after settlement
	KeyRetention    time.Duration // how long the key is remembered after settlement or release

	DefaultLease, MinLease, MaxLease time.Duration

	MaxWait            time.Duration
	MaxResultBytes     int64
	MaxCheckpointBytes int64
	MaxUnsettled       int64 // operations of the namespace
	MaxWaiters         int   // held calls of one operation

	Takeover TakeoverPolicy
	// ReconcileAfter is how long after the moment of doubt a takeover is let
	// through; nil means the longer of the operation's lease and one minute, so
	// that the earlier attempt's outside request has landed.
	ReconcileAfter *time.Duration
	// SafeToRerun lets a plain claim of a lapsed or declared operation execute
	// again at once, as a takeover.
	SafeToRerun bool

	FingerprintRequired bool
	KeyTimeRequired     bool
	KeyTimeFromKey      bool          // read it from UUIDv7 and ULID keys that come without one
	Skew                time.Duration // tolerated between the callers' clocks and the store's

	// MemorySince is the persisted start of the namespace's memory: set when a
	// configuration changed KeyRetention, and only ever moved forward.
	MemorySince time.Time
}

// DefaultPolicy is in force in every namespace that is not configured.
func DefaultPolicy() Policy {
	return Policy{
		ResultRetention: 7 * 24 * time.Hour, KeyRetention: 30 * 24 * time.Hour,
		DefaultLease: 30 * time.Second, MinLease: LeastLease, MaxLease: GreatestLease,
		MaxWait: GreatestWait, MaxResultBytes: 1 << 20, MaxCheckpointBytes: GreatestCheckpoint,
		MaxUnsettled: 1_000_000, MaxWaiters: 1024,
		Takeover: TakeoverByCaller, Skew: 5 * time.Minute,
	}
}

// Validate reports everything that is wrong with the policy, a sentence each.
func (p Policy) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.MinLease >= LeastLease && p.MaxLease <= GreatestLease && p.MinLease <= p.MaxLease,
		"lease bounds %v to %v must lie within %v to %v", p.MinLease, p.MaxLease, LeastLease, GreatestLease)
	check(p.DefaultLease >= p.MinLease && p.DefaultLease <= p.MaxLease,
		"default_lease %v must lie within the lease bounds %v to %v", p.DefaultLease, p.MinLease, p.MaxLease)
	check(p.ResultRetention >= p.MaxLease,
		"result_retention %v must not be shorter than max_lease %v: an outcome would be forgotten while its caller may still be retrying", p.ResultRetention, p.MaxLease)
	check(p.KeyRetention >= p.ResultRetention,
		"key_retention %v must not be shorter than result_retention %v", p.KeyRetention, p.ResultRetention)
	check(p.MaxWait >= 0 && p.MaxWait <= GreatestWait, "max_wait %v must lie within 0s to %v", p.MaxWait, GreatestWait)
	check(p.MaxResultBytes >= 0 && p.MaxResultBytes <= GreatestResult,
		"max_result_bytes %d must lie within 0 to %d", p.MaxResultBytes, GreatestResult)
	check(p.MaxCheckpointBytes >= 0 && p.MaxCheckpointBytes <= GreatestCheckpoint,
		"max_checkpoint_bytes %d must lie within 0 to %d", p.MaxCheckpointBytes, GreatestCheckpoint)
	check(p.MaxUnsettled >= 1, "max_unsettled %d must be at least 1", p.MaxUnsettled)
	check(p.MaxWaiters >= 0, "max_waiters %d must not be negative", p.MaxWaiters)
	check(p.Takeover >= TakeoverByNobody && p.Takeover <= TakeoverByCaller, "takeover must be nobody, operator or caller")
	check(p.ReconcileAfter == nil || *p.ReconcileAfter >= 0, "reconcile_after must not be negative")
	check(!p.SafeToRerun || p.Takeover != TakeoverByNobody, "safe_to_rerun needs takeover operator or caller: a rerun is a takeover")
	check(p.Skew >= 0 && p.Skew < p.KeyRetention,
		"key_time_skew %v must lie within 0s and key_retention %v: with more, no key would be young enough to be granted", p.Skew, p.KeyRetention)
	return errors.Join(errs...)
}

// CheckLease reports whether a lease that was asked for lies within the bounds;
// zero and negative ones do not.
func (p Policy) CheckLease(d time.Duration) error {
	if d < p.MinLease || d > p.MaxLease {
		return fmt.Errorf("lease %v must lie within %v to %v; leave it unset for %v", d, p.MinLease, p.MaxLease, p.DefaultLease)
	}
	return nil
}

// reconcileAfter is how long after the moment of doubt a takeover is due.
func (p Policy) reconcileAfter(lease time.Duration) time.Duration {
	if p.ReconcileAfter != nil {
		return *p.ReconcileAfter
	}
	return max(lease, leastReconcile)
}
