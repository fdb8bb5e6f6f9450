package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/onced/onced"
)

// policyFile is a namespace's policy as the file has it. What is not set comes
// from the file's default policy, and what that does not set from onced's own.
type policyFile struct {
	ResultRetention     *duration     `yaml:"result_retention,omitempty"`
	KeyRetention        *duration     `yaml:"key_retention,omitempty"`
	DefaultLease        *duration     `yaml:"default_lease,omitempty"`
	MinLease            *duration     `yaml:"min_lease,omitempty"`
	MaxLease            *duration     `yaml:"max_lease,omitempty"`
	MaxWait             *duration     `yaml:"max_wait,omitempty"`
	MaxResultBytes      *int64        `yaml:"max_result_bytes,omitempty"`
	MaxCheckpointBytes  *int64        `yaml:"max_checkpoint_bytes,omitempty"`
	MaxUnsettled        *int64        `yaml:"max_unsettled,omitempty"`
	MaxWaiters          *int          `yaml:"max_waiters,omitempty"`
	Takeover            *takeoverWord `yaml:"takeover,omitempty"`
	ReconcileAfter      *duration     `yaml:"reconcile_after,omitempty"`
	SafeToRerun         *bool         `yaml:"safe_to_rerun,omitempty"`
	FingerprintRequired *bool         `yaml:"fingerprint_required,omitempty"`
	KeyTimeRequired     *bool         `yaml:"key_time_required,omitempty"`
	KeyTimeFromKey      *bool         `yaml:"key_time_from_key,omitempty"`
	KeyTimeSkew         *duration     `yaml:"key_time_skew,omitempty"`
}

// over returns the policy with what the file sets laid over it.
func (f policyFile) over(p onced.Policy) onced.Policy {
	setDuration(&p.ResultRetention, f.ResultRetention)
	setDuration(&p.KeyRetention, f.KeyRetention)
	setDuration(&p.DefaultLease, f.DefaultLease)
	setDuration(&p.MinLease, f.MinLease)
	setDuration(&p.MaxLease, f.MaxLease)
	setDuration(&p.MaxWait, f.MaxWait)
	set(&p.MaxResultBytes, f.MaxResultBytes)
	set(&p.MaxCheckpointBytes, f.MaxCheckpointBytes)
	set(&p.MaxUnsettled, f.MaxUnsettled)
	set(&p.MaxWaiters, f.MaxWaiters)
	if f.Takeover != nil {
		p.Takeover = onced.TakeoverPolicy(*f.Takeover)
	}
	if f.ReconcileAfter != nil {
		after := time.Duration(*f.ReconcileAfter)
		p.ReconcileAfter = &after
	}
	set(&p.SafeToRerun, f.SafeToRerun)
	set(&p.FingerprintRequired, f.FingerprintRequired)
	set(&p.KeyTimeRequired, f.KeyTimeRequired)
	set(&p.KeyTimeFromKey, f.KeyTimeFromKey)
	setDuration(&p.Skew, f.KeyTimeSkew)
	return p
}

// fileOf writes a whole policy as a file would.
func fileOf(p onced.Policy) policyFile {
	f := policyFile{
		ResultRetention: textual(p.ResultRetention), KeyRetention: textual(p.KeyRetention),
		DefaultLease: textual(p.DefaultLease), MinLease: textual(p.MinLease), MaxLease: textual(p.MaxLease),
		MaxWait: textual(p.MaxWait), MaxResultBytes: &p.MaxResultBytes, MaxCheckpointBytes: &p.MaxCheckpointBytes,
		MaxUnsettled: &p.MaxUnsettled, MaxWaiters: &p.MaxWaiters,
		SafeToRerun: &p.SafeToRerun, FingerprintRequired: &p.FingerprintRequired,
		KeyTimeRequired: &p.KeyTimeRequired, KeyTimeFromKey: &p.KeyTimeFromKey, KeyTimeSkew: textual(p.Skew),
	}
	word := takeoverWord(p.Takeover)
	f.Takeover = &word
	if p.ReconcileAfter != nil {
		f.ReconcileAfter = textual(*p.ReconcileAfter)
	}
	return f
}

func textual(d time.Duration) *duration { v := duration(d); return &v }

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func setDuration(to *time.Duration, from *duration) {
	if from != nil {
		*to = time.Duration(*from)
	}
}

// takeoverWord is a takeover policy as the file spells it.
type takeoverWord onced.TakeoverPolicy

var takeoverWords = map[string]onced.TakeoverPolicy{
	"nobody": onced.TakeoverByNobody, "operator": onced.TakeoverByOperator, "caller": onced.TakeoverByCaller,
}

// UnmarshalText reads nobody, operator or caller.
func (w *takeoverWord) UnmarshalText(b []byte) error {
	policy, ok := takeoverWords[string(b)]
	if !ok {
		return fmt.Errorf("takeover %q must be nobody, operator or caller", b)
	}
	*w = takeoverWord(policy)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (w takeoverWord) MarshalText() ([]byte, error) {
	for word, policy := range takeoverWords {
		if policy == onced.TakeoverPolicy(w) {
			return []byte(word), nil
		}
	}
	return nil, fmt.Errorf("unknown takeover policy %d", w)
}

func checkLevel(s string) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("log_level %q must be debug, info, warn or error", s)
	}
	return nil
}
