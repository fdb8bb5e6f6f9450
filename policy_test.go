package onced_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
)

// TestDefaultPolicy: what is in force without a configuration is sound, and is
// what the documentation promises.
func TestDefaultPolicy(t *testing.T) {
	p := onced.DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	want := onced.Policy{
		ResultRetention: 7 * day, KeyRetention: 30 * day,
		DefaultLease: 30 * time.Second, MinLease: time.Second, MaxLease: day,
		MaxWait: 20 * time.Second, MaxResultBytes: 1 << 20, MaxCheckpointBytes: 64 << 10,
		MaxUnsettled: 1_000_000, MaxWaiters: 1024,
		Takeover: onced.TakeoverByCaller, Skew: 5 * time.Minute,
	}
	if p != want {
		t.Errorf("the default is %+v", p)
	}
}

// TestPolicyValidate: each rule, broken alone, is named; all at once are all named.
func TestPolicyValidate(t *testing.T) {
	tests := map[string]struct {
		edit func(*onced.Policy)
		says string // empty: sound
	}{
		"least lease":            {func(p *onced.Policy) { p.MinLease = time.Second - 1 }, "lease bounds"},
		"greatest lease":         {func(p *onced.Policy) { p.MaxLease = day + 1; p.ResultRetention = 8 * day }, "lease bounds"},
		"one lease":              {func(p *onced.Policy) { p.MinLease, p.DefaultLease, p.MaxLease = 5e9, 5e9, 5e9 }, ""},
		"default below":          {func(p *onced.Policy) { p.MinLease = time.Minute }, "default_lease"},
		"default above":          {func(p *onced.Policy) { p.MaxLease = 29 * time.Second }, "default_lease"},
		"result below lease":     {func(p *onced.Policy) { p.ResultRetention = day - 1 }, "result_retention"},
		"result as lease":        {func(p *onced.Policy) { p.ResultRetention = day }, ""},
		"key below result":       {func(p *onced.Policy) { p.KeyRetention = 7*day - 1 }, "key_retention"},
		"key as result":          {func(p *onced.Policy) { p.KeyRetention = 7 * day }, ""},
		"negative wait":          {func(p *onced.Policy) { p.MaxWait = -1 }, "max_wait"},
		"no wait":                {func(p *onced.Policy) { p.MaxWait = 0 }, ""},
		"long wait":              {func(p *onced.Policy) { p.MaxWait = 20*time.Second + 1 }, "max_wait"},
		"no result bytes":        {func(p *onced.Policy) { p.MaxResultBytes = 0 }, ""},
		"negative result":        {func(p *onced.Policy) { p.MaxResultBytes = -1 }, "max_result_bytes"},
		"large result":           {func(p *onced.Policy) { p.MaxResultBytes = 16<<20 + 1 }, "max_result_bytes"},
		"negative checkpoint":    {func(p *onced.Policy) { p.MaxCheckpointBytes = -1 }, "max_checkpoint_bytes"},
		"large checkpoint":       {func(p *onced.Policy) { p.MaxCheckpointBytes = 64<<10 + 1 }, "max_checkpoint_bytes"},
		"no unsettled":           {func(p *onced.Policy) { p.MaxUnsettled = 0 }, "max_unsettled"},
		"negative waiters":       {func(p *onced.Policy) { p.MaxWaiters = -1 }, "max_waiters"},
		"no waiters":             {func(p *onced.Policy) { p.MaxWaiters = 0 }, ""},
		"takeover unset":         {func(p *onced.Policy) { p.Takeover = 0 }, "takeover"},
		"takeover unknown":       {func(p *onced.Policy) { p.Takeover = 4 }, "takeover"},
		"negative reconcile":     {func(p *onced.Policy) { p.ReconcileAfter = ptr(time.Duration(-1)) }, "reconcile_after"},
		"reconcile at once":      {func(p *onced.Policy) { p.ReconcileAfter = ptr(time.Duration(0)) }, ""},
		"rerun, nobody takes":    {func(p *onced.Policy) { p.SafeToRerun, p.Takeover = true, onced.TakeoverByNobody }, "safe_to_rerun"},
		"rerun, operators take":  {func(p *onced.Policy) { p.SafeToRerun, p.Takeover = true, onced.TakeoverByOperator }, ""},
		"negative skew":          {func(p *onced.Policy) { p.Skew = -1 }, "key_time_skew"},
		"skew as key retention":  {func(p *onced.Policy) { p.Skew = p.KeyRetention }, "key_time_skew"},
		"no skew":                {func(p *onced.Policy) { p.Skew = 0 }, ""},
		"retention below leases": {func(p *onced.Policy) { p.ResultRetention = time.Second }, "result_retention"},
		"skew of the retention":  {func(p *onced.Policy) { p.Skew = p.KeyRetention }, "key_time_skew"},
	}
	for name, test := range tests {
		p := onced.DefaultPolicy()
		test.edit(&p)
		err := p.Validate()
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want a sentence on %s", name, err, test.says)
		case test.says != "" && strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: more than one sentence: %v", name, err)
		}
	}
	p := onced.DefaultPolicy()
	p.MinLease, p.MaxLease = time.Minute, time.Second // nothing lies within these
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "lease bounds 1m0s to 1s") {
		t.Errorf("crossed leases: %v", err)
	}
	if sentences := strings.Count(onced.Policy{MaxWaiters: -1}.Validate().Error(), "\n") + 1; sentences < 4 {
		t.Errorf("an empty policy is refused with %d sentences", sentences)
	}
}

// TestCheckLease: the bounds themselves are good; what is not is told them.
func TestCheckLease(t *testing.T) {
	p := onced.DefaultPolicy()
	for _, lease := range []time.Duration{time.Second, 1500 * time.Millisecond, day} {
		if err := p.CheckLease(lease); err != nil {
			t.Errorf("%v: %v", lease, err)
		}
	}
	for _, lease := range []time.Duration{-1 << 63, -time.Second, 0, 999 * time.Millisecond, time.Second - 1, day + 1, 25 * time.Hour, 1<<63 - 1} {
		err := p.CheckLease(lease)
		if err == nil {
			t.Errorf("%v is let through", lease)
			continue
		}
		for _, bound := range []string{"1s", "24h0m0s", "30s"} {
			if !strings.Contains(err.Error(), bound) {
				t.Errorf("%v: %q does not say %s", lease, err, bound)
			}
		}
	}
}
