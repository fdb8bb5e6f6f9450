package onced_test

import (
	"flag"
	"fmt"
	"log"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
	"pgregory.net/rapid"
)

// invariant is a promise that is checked after every step of a history.
type invariant struct {
	name  string
	holds func(*history, step) error
}

// The promises, each by its number in the documentation. The sixth, durability
// before any answer, is the stores' own and is tested with them.
var (
	invariant1 = invariant{"a plain grant happens only from absent or RELEASED, and RELEASED is reached only when no attempt had an effect", grantsOnlyWhatIsFree}
	invariant2 = invariant{"a settled operation does not change until its key retention ends", settledStays}
	invariant3 = invariant{"a replay carries the first bytes, or says that it carries none", replaysTheFirst}
	invariant4 = invariant{"PENDING and UNRESOLVED never become absent", unsettledStays}
	invariant5 = invariant{"a refusal adds nothing but doubt", refusalsAddOnlyDoubt}
	invariant7 = invariant{"what cannot be read is neither granted, swept nor rewritten", unreadableStays}
	invariant8 = invariant{"a token gets one attempt, and fences grow", tokensAndFences}
	oneEffect  = invariant{"one effect a key", atMostOneEffect}
	twinFollow = invariant{"a twin entry follows its operations", twinFollows}
	sweepsHide = invariant{"nobody can see a sweep", sweepsAreInvisible}
)

func (h *history) check(s step) {
	h.t.Helper()
	for _, i := range h.invariants {
		if err := i.holds(h, s); err != nil {
			h.t.Fatalf("%s: %v\nafter %s, in an honest history: %v\n%s", i.name, err, s.event, h.honest, strings.Join(h.trace, "\n"))
		}
	}
}

// remember keeps what later steps are compared with.
func (h *history) remember(s step) {
	before, after := s.before[s.id].shown, s.after[s.id].shown
	if before == nil && s.plan.Put != nil || s.after[s.id].record == nil { // forgotten for good
		delete(h.memo.first, s.id)
		for k := range h.memo.holds {
			if k.id == s.id {
				delete(h.memo.holds, k)
			}
		}
	}
	switch {
	case after == nil: // forgotten, unless a clock that was wrong goes back
	case !after.State.Settled():
		delete(h.memo.first, s.id)
	case before == nil || !before.State.Settled():
		h.memo.first[s.id] = outcomeOf(s.plan.Put)
	}
	if s.plan.UsesFence {
		h.topFence = s.plan.Put.Fence
	}
	if s.err == nil && (s.answer.Outcome == onced.OutcomeGranted || s.answer.Outcome == onced.OutcomeTakenOver) {
		h.memo.holds[hold{s.id, s.message.call.request.Token}] = terms{s.answer.Outcome, s.op.Attempt, s.op.Fence}
	}
}

func outcomeOf(r *onced.Record) outcome {
	o := outcome{digest: r.SettledDigest}
	if r.Result != nil {
		o.bytes = string(r.Result.Bytes)
	}
	return o
}

// grantsOnlyWhatIsFree is invariant 1.
func grantsOnlyWhatIsFree(h *history, s step) error {
	if !s.decided {
		return nil
	}
	before, after := s.before[s.id].shown, s.after[s.id].shown
	granted := s.err == nil && s.answer.Outcome == onced.OutcomeGranted
	if granted && after.Doubt {
		return fmt.Errorf("granted in doubt: %+v", after.Record)
	}
	if granted && s.plan.UsesFence && before != nil && before.State != onced.StateReleased {
		return fmt.Errorf("granted from %v/%v", before.State, before.Reason)
	}
	if s.plan.Put == nil || after == nil || after.State != onced.StateReleased {
		return nil
	}
	if word := wordThatReleased(s); before.State != onced.StateReleased &&
		(word == onced.NotExecuted && before.Doubt || word == onced.DidNotHappen && (!before.ByTakeover || before.Contradicted)) {
		return fmt.Errorf("%v released %+v", word, before.Record)
	}
	if n := firstUnaccounted(&after.Record); n != 0 {
		return fmt.Errorf("RELEASED although attempt %d of %d has not been accounted for", n, after.Attempt)
	}
	if o := h.outside[s.id]; h.honest && (o.happened > 0 || len(o.underWay) > 0 || h.mayBegin(s.id)) {
		return fmt.Errorf("RELEASED with %d effects, %d under way, more to begin: %v", o.happened, len(o.underWay), h.mayBegin(s.id))
	}
	return nil
}

// wordThatReleased is what the holder said in a step; 0 for an operator.
func wordThatReleased(s step) onced.Disposition {
	if s.message == nil {
		return 0
	}
	return s.message.fail.Disposition
}

// firstUnaccounted is the first attempt of which nothing says that it had no
// effect: neither itself, nor a later verdict, nor an operator. 0: all are.
func firstUnaccounted(r *onced.Record) uint32 {
	accounted := map[uint32]bool{}
	through := r.AttemptBase
	for _, a := range r.Attempts {
		word := !a.Reports.Has(onced.Unknown) && len(a.Facts) == 0
		accounted[a.Number] = word && a.Reports.Has(onced.NotExecuted)
		if word && a.Reports.Has(onced.DidNotHappen) {
			through = max(through, a.Number)
		}
	}
	for n := through + 1; n <= r.Attempt; n++ {
		if !accounted[n] {
			return n
		}
	}
	return 0
}

// settledStays is invariant 2. Only a reopening by an operator, a restore, and
// the end of the key retention end a settlement; the bytes may go before.
func settledStays(h *history, s step) error {
	if s.lost {
		return nil
	}
	for id, was := range s.before {
		if was.shown == nil || !was.shown.State.Settled() || s.reopens(id) {
			continue
		}
		is := s.after[id].shown
		if is == nil {
			if end := was.shown.SettleTime.Add(min(shortRetention, h.policy.KeyRetention)); h.now.Before(end) || h.now.Before(was.record.KeyExpire) {
				return fmt.Errorf("%v was forgotten at %v", was.shown.State, h.now)
			}
			continue
		}
		a, b := was.shown, is
		if a.State != b.State || a.SettledDigest != b.SettledDigest || !a.SettleTime.Equal(b.SettleTime) || a.SettledBy != b.SettledBy ||
			a.Attempt != b.Attempt || a.Fence != b.Fence || (a.Result == nil) != (b.Result == nil) || (a.Failure == nil) != (b.Failure == nil) {
			return fmt.Errorf("%v became %v: %+v, then %+v", a.State, b.State, a.Record, b.Record)
		}
	}
	return nil
}

func (s step) reopens(id onced.Identity) bool {
	return s.id == id && s.message != nil && s.message.kind == resolveMessage && s.message.resolve.Resolution == onced.ResolveReopen
}

// replaysTheFirst is invariant 3.
func replaysTheFirst(h *history, s step) error {
	if s.err != nil || s.answer.Outcome != onced.OutcomeReplayed && s.answer.Outcome != onced.OutcomeFailed {
		return nil
	}
	first, known := h.memo.first[s.id]
	if !known {
		return fmt.Errorf("replayed what was never settled: %+v", s.op.Record)
	}
	if s.op.SettledDigest != first.digest {
		return fmt.Errorf("replayed another outcome than the first: %+v", s.op.Record)
	}
	r := s.op.Result
	if s.answer.Outcome == onced.OutcomeFailed {
		if s.op.Failure == nil || s.op.Failure.Identity() != first.digest && !s.op.Failure.Erased {
			return fmt.Errorf("replayed failure %+v", s.op.Failure)
		}
		return nil
	}
	switch {
	case r == nil || r.Identity() != first.digest:
		return fmt.Errorf("replayed result %+v", r)
	case r.Presence == onced.Stored && string(r.Bytes) != first.bytes:
		return fmt.Errorf("replayed %q, and first was %q", r.Bytes, first.bytes)
	case r.Presence != onced.Stored && r.Bytes != nil:
		return fmt.Errorf("carries bytes and says %v", r.Presence)
	}
	return nil
}

// unsettledStays is invariant 4. A restored RELEASED is unresolved as well.
func unsettledStays(h *history, s step) error {
	for id, was := range s.before {
		unsettled := was.shown != nil && was.shown.State.Unsettled()
		if s.lost { // the backup's own words
			unsettled = was.record != nil && was.record.State.Unsettled()
		}
		if unsettled && s.after[id].shown == nil {
			return fmt.Errorf("%v is absent", id)
		}
		if unsettled && s.after[id].record == nil {
			return fmt.Errorf("%v is no longer stored", id)
		}
	}
	return nil
}

// refusalsAddOnlyDoubt is invariant 5: an error, and every answer that neither
// grants nor settles, leaves the record as it was or adds doubt. A claim that
// makes a HISTORY_LOST record is the one exception, and there was none before.
func refusalsAddOnlyDoubt(_ *history, s step) error {
	if s.message == nil || !s.plan.Changes() {
		return nil
	}
	before, after := s.before[s.id].record, s.plan.Put
	if s.before[s.id].shown == nil {
		before = nil
	}
	switch {
	case s.message.kind == claimMessage && s.plan.UsesFence && s.err == nil:
		return nil // a grant, a takeover, or a lost history
	case s.err == nil && s.message.kind != claimMessage:
		return nil // accepted
	case before == nil || after == nil || s.plan.Delete || s.plan.Audit != nil:
		return fmt.Errorf("a refusal made %+v", s.plan)
	case !after.Doubt || before.State != after.State && (before.State != onced.StateReleased || after.State != onced.StateUnresolved):
		return fmt.Errorf("a refusal added no doubt, or moved %v to %v", before.State, after.State)
	}
	same := *after
	same.State, same.Reason, same.DoubtTime = before.State, before.Reason, before.DoubtTime
	same.Doubt, same.Contradicted, same.ByTakeover = before.Doubt, before.Contradicted, before.ByTakeover
	same.ReleaseTime, same.KeyExpire, same.ByOperator = before.ReleaseTime, before.KeyExpire, before.ByOperator
	same.Generation, same.Revision, same.UpdateTime = before.Generation, before.Revision, before.UpdateTime
	if !reflect.DeepEqual(*before, same) {
		return fmt.Errorf("a refusal changed %+v to %+v", before, after)
	}
	return nil
}

// unreadableStays is invariant 7.
func unreadableStays(h *history, s step) error {
	if !h.unreadable || !s.decided {
		return nil
	}
	if s.plan.Changes() || s.before[s.id].record != s.after[s.id].record {
		return fmt.Errorf("it was changed: %+v", s.plan)
	}
	if s.message != nil && reason(h.t, s.err) != onced.RefusedUnreadable {
		return fmt.Errorf("answered %v, %v", s.answer.Outcome, s.err)
	}
	return nil
}

// tokensAndFences is invariant 8.
func tokensAndFences(h *history, s step) error {
	if s.plan.UsesFence && s.plan.Put.Fence <= h.topFence {
		return fmt.Errorf("fence %x after %x", s.plan.Put.Fence, h.topFence)
	}
	if r := s.plan.Put; r != nil {
		for i, a := range r.Attempts {
			if slices.ContainsFunc(r.Attempts[:i], func(b onced.Attempt) bool { return b.Token == a.Token || b.Fence >= a.Fence || b.Number >= a.Number }) {
				return fmt.Errorf("attempt %d is not new: %+v", a.Number, r.Attempts)
			}
		}
	}
	if s.err != nil || s.answer.Outcome != onced.OutcomeGranted && s.answer.Outcome != onced.OutcomeTakenOver {
		return nil
	}
	now := terms{s.answer.Outcome, s.op.Attempt, s.op.Fence}
	first, again := h.memo.holds[hold{s.id, s.message.call.request.Token}]
	if again == s.plan.UsesFence {
		if s.before[s.id].shown != nil { // else the key was forgotten, and its tokens with it
			return fmt.Errorf("told %+v before, and now as new = %v: %+v", first, s.plan.UsesFence, now)
		}
	}
	if again && !s.plan.UsesFence && now != first {
		return fmt.Errorf("first told %+v, then %+v", first, now)
	}
	return nil
}

// atMostOneEffect is the promise itself.
func atMostOneEffect(h *history, _ step) error {
	for id, o := range h.outside {
		if h.honest && o.happened > 1 {
			return fmt.Errorf("%v had %d", id, o.happened)
		}
	}
	return nil
}

// twinFollows: an operation that stands in a twin entry is where its state says.
// One that a restore has made unresolved is left where the restore found it.
func twinFollows(h *history, s step) error {
	for id, is := range s.after {
		r := is.record
		if r == nil || r.Twin == nil || !s.decided || s.id != id || s.plan.Put == nil || s.before[id].record == nil {
			continue
		}
		was := s.before[id].record.State
		e := h.twins[string(r.Twin.Encode())]
		unsettled := e != nil && slices.ContainsFunc(e.Unsettled, func(k onced.TwinKey) bool { return k.Key == id.Key })
		last := e != nil && e.Last != nil && e.Last.Key == id.Key
		switch {
		case r.State.Settled() && !was.Settled() && (unsettled || !last),
			r.State == onced.StateReleased && was != r.State && (unsettled || last),
			r.State.Unsettled() && last:
			return fmt.Errorf("%v from %v: unsettled %v, last %v", r.State, was, unsettled, last)
		}
	}
	return nil
}

// sweepsAreInvisible: what a sweep does is what everybody is shown already.
func sweepsAreInvisible(_ *history, s step) error {
	if s.event != "sweep" {
		return nil
	}
	if r := s.before[s.id].record; r != nil && r.State.Unsettled() && s.plan.Changes() {
		return fmt.Errorf("%v was swept", r.State)
	}
	was, is := s.before[s.id].shown, s.after[s.id].shown
	if was == nil || is == nil {
		if was != is {
			return fmt.Errorf("shown %v, then %v", was, is)
		}
		return nil
	}
	a, b := was.Record, is.Record
	a.ResultExpire, a.KeyExpire, b.ResultExpire, b.KeyExpire = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("shown %+v, then %+v", a, b)
	}
	return nil
}

// everything is what must hold at every step of every history.
var everything = []invariant{
	invariant1, invariant2, invariant3, invariant4, invariant5, invariant7, invariant8,
	oneEffect, twinFollow, sweepsHide,
}

// checkHistories runs random histories under some invariants. The salt makes
// them others than those of the next test, although the seed is the same.
func checkHistories(t *testing.T, salt int, invariants ...invariant) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		for range salt {
			rapid.Byte().Draw(t, "salt")
		}
		choose := &rapidChooser{t: t}
		choose.steps = 1 + choose.pick("steps", 200)
		newHistory(t, choose, invariants).run()
	})
}

func TestInvariant1_GrantsOnlyWhatIsFree(t *testing.T) { checkHistories(t, 1, invariant1) }

func TestInvariant2_SettledStays(t *testing.T) { checkHistories(t, 2, invariant2) }

func TestInvariant3_ReplaysTheFirst(t *testing.T) { checkHistories(t, 3, invariant3) }

func TestInvariant4_UnsettledStays(t *testing.T) { checkHistories(t, 4, invariant4) }

func TestInvariant5_RefusalsAddOnlyDoubt(t *testing.T) { checkHistories(t, 5, invariant5) }

func TestInvariant7_UnreadableStays(t *testing.T) { checkHistories(t, 7, invariant7) }

func TestInvariant8_TokensAndFences(t *testing.T) { checkHistories(t, 8, invariant8) }

// TestAtMostOneEffect is the promise: while everybody is truthful, no key has
// more than one effect, whatever messages, clocks and stores do.
func TestAtMostOneEffect(t *testing.T) { checkHistories(t, 9, oneEffect) }

// TestHistories checks everything at once.
func TestHistories(t *testing.T) { checkHistories(t, 10, everything...) }

// FuzzHistory lets bytes drive the same histories, under all invariants. The
// seeds in testdata are histories in which an invariant breaks once the rule that
// names the file is left out.
func FuzzHistory(f *testing.F) {
	f.Fuzz(func(t *testing.T, choices []byte) {
		newHistory(t, &byteChooser{choices}, everything).run()
	})
}

// TestMain fixes the seed of the random histories, so that a run is like the
// last one; -rapid.seed=0 asks for others.
func TestMain(m *testing.M) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": histories, "rapid.nofailfile": "true"} {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				log.Fatal(err)
			}
		}
	}
	m.Run()
}
