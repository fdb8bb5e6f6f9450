package main

import (
	"slices"
	"time"

	"github.com/onced/onced"
)

// mutant is the state machine with one rule off, and bounds within which a
// property breaks for it. The real rules have no switches: a mutant changes what
// a transition is shown, or what it has planned.
type mutant struct {
	name   string
	rule   string // the rule that is off
	breaks string // the property for which a counterexample is sought
	in     bounds
	off    func(*rules)
}

// mutants are all rules that look odd enough for somebody to take them out.
func mutants() []mutant {
	return slices.Concat(
		grantMutants(), tokenMutants(), memoryMutants(), takeoverMutants(), rerunMutants(),
		holderMutants(), lastWordMutants(), repeatMutants(), fencedMutants(), fenceMutants(),
		restoredMutants(), blindMutants(), operatorMutants(), storeMutants(),
	)
}

func (m mutant) model(states int) *model {
	r := realRules()
	m.off(&r)
	b := m.in
	b.States, b.Watch = states, m.breaks
	return newModel(b, r)
}

// Bounds from which those of the mutants are made.
var (
	pair  = bounds{Callers: 2, Tokens: 2, Takeover: true}
	trio  = bounds{Callers: 3, Tokens: 1, Takeover: true}
	after = trio.but(func(b *bounds) { b.Restores = 1 }) // a restore
)

func (b bounds) but(change func(*bounds)) bounds {
	change(&b)
	return b
}

// saying narrows bounds to some of the reports.
func (b bounds) saying(kinds message) bounds {
	b.Says = kinds
	return b
}

// beforeClaim puts change before every claim.
func beforeClaim(r *rules, change func(*onced.View, *onced.Policy, *onced.ClaimRequest)) {
	inner := r.claim
	r.claim = func(v onced.View, p onced.Policy, c onced.ClaimRequest) (onced.Plan, onced.ClaimAnswer, error) {
		change(&v, &p, &c)
		return inner(v, p, c)
	}
}

// afterClaim puts change after every claim that is not refused.
func afterClaim(r *rules, change func(*onced.Plan, onced.ClaimAnswer)) {
	inner := r.claim
	r.claim = func(v onced.View, p onced.Policy, c onced.ClaimRequest) (onced.Plan, onced.ClaimAnswer, error) {
		plan, a, err := inner(v, p, c)
		if err == nil {
			change(&plan, a)
		}
		return plan, a, err
	}
}

// said is a report that is being made.
type said struct {
	holder onced.Holder
	kind   message
}

// beforeReport puts change before every Complete, Fail and Renew.
func beforeReport(r *rules, change func(*onced.View, *said)) {
	complete, fail, renew := r.complete, r.fail, r.renew
	r.complete = func(v onced.View, p onced.Policy, h onced.Holder, result *onced.Result) (onced.Plan, *onced.Operation, error) {
		s := said{h, completed}
		change(&v, &s)
		return complete(v, p, s.holder, result)
	}
	r.fail = func(v onced.View, p onced.Policy, h onced.Holder, f onced.FailRequest) (onced.Plan, *onced.Operation, error) {
		s := said{h, kindOf(f.Disposition)}
		change(&v, &s)
		return fail(v, p, s.holder, f)
	}
	r.renew = func(v onced.View, p onced.Policy, h onced.Holder, lease time.Duration, c *onced.Checkpoint) (onced.Plan, *onced.Operation, error) {
		s := said{h, renewed}
		change(&v, &s)
		return renew(v, p, s.holder, lease, c)
	}
}

// afterReport puts change after every Complete, Fail and Renew.
func afterReport(r *rules, change func(onced.View, said, *onced.Plan, *error)) {
	complete, fail, renew := r.complete, r.fail, r.renew
	r.complete = func(v onced.View, p onced.Policy, h onced.Holder, result *onced.Result) (onced.Plan, *onced.Operation, error) {
		plan, op, err := complete(v, p, h, result)
		change(v, said{h, completed}, &plan, &err)
		return plan, op, err
	}
	r.fail = func(v onced.View, p onced.Policy, h onced.Holder, f onced.FailRequest) (onced.Plan, *onced.Operation, error) {
		plan, op, err := fail(v, p, h, f)
		change(v, said{h, kindOf(f.Disposition)}, &plan, &err)
		return plan, op, err
	}
	r.renew = func(v onced.View, p onced.Policy, h onced.Holder, lease time.Duration, c *onced.Checkpoint) (onced.Plan, *onced.Operation, error) {
		plan, op, err := renew(v, p, h, lease, c)
		change(v, said{h, renewed}, &plan, &err)
		return plan, op, err
	}
}

// beforeResolve puts change before every Resolve.
func beforeResolve(r *rules, change func(*onced.View, *onced.ResolveRequest)) {
	inner := r.resolve
	r.resolve = func(v onced.View, p onced.Policy, q onced.ResolveRequest) (onced.Plan, *onced.Operation, error) {
		change(&v, &q)
		return inner(v, p, q)
	}
}

// edit gives the view a changed copy of its record, if it has one.
func edit(v *onced.View, change func(*onced.Record)) {
	if v.Record == nil {
		return
	}
	r := *v.Record
	r.Attempts = slices.Clone(r.Attempts)
	change(&r)
	v.Record = &r
}

// shown is the operation as it is now. An absent one has the zero state.
func shown(v *onced.View, p *onced.Policy) onced.Operation {
	if op, ok, err := onced.Show(*v, *p); ok && err == nil {
		return *op
	}
	return onced.Operation{}
}

// attemptOf is the index of the newest attempt of a token, or -1.
func attemptOf(r *onced.Record, token onced.Digest) int {
	if r == nil {
		return -1
	}
	for i, a := range slices.Backward(r.Attempts) {
		if a.Token == token {
			return i
		}
	}
	return -1
}

// isFormer reports whether a token is an older attempt's.
func isFormer(r *onced.Record, token onced.Digest) bool {
	i := attemptOf(r, token)
	return i >= 0 && r.Attempts[i].Number != r.Attempt
}

// isPresent reports whether a token is the newest attempt's.
func isPresent(r *onced.Record, token onced.Digest) bool {
	i := attemptOf(r, token)
	return i >= 0 && r.Attempts[i].Number == r.Attempt
}

// unknownTo makes a token count as never seen.
func unknownTo(r *onced.Record, token onced.Digest) {
	for i, a := range r.Attempts {
		if a.Token == token {
			r.Attempts[i].Token = onced.Digest{1, byte(i)}
		}
	}
}

// asHeld makes the record look like a running plain grant without doubt.
func asHeld(r *onced.Record) {
	r.State, r.Reason = onced.StatePending, onced.ReasonNone
	r.ByTakeover, r.Doubt, r.Contradicted = false, false, false
}
