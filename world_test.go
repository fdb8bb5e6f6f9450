package onced_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/onced/onced"
)

// start is when every world begins. Its nanoseconds must survive all arithmetic.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.UTC)

// tb is what the tests report to: a [testing.T], or a property's own.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is the smallest store that transitions can run on: it makes the view,
// runs one transition, and applies its plan at once. Its methods work on the
// operation id unless they say otherwise.
type world struct {
	t      tb
	id     onced.Identity
	policy onced.Policy
	epoch  onced.Epoch

	now        time.Time
	expiryHeld time.Duration // how far expiry time lies behind now
	fence      uint64        // the last one used
	records    map[onced.Identity]*onced.Record
	twins      map[string]*onced.TwinEntry
	unreadable bool // the record of every operation
	audit      []onced.AuditEntry

	plan onced.Plan // of the last transition
}

// newWorld returns an empty store under the default policy that remembers one
// key retention back.
func newWorld(t tb) *world {
	p := onced.DefaultPolicy()
	w := &world{
		t: t, policy: p, now: start,
		id:      onced.Identity{Namespace: "acme", Key: "order-1", Method: "send_email"},
		records: map[onced.Identity]*onced.Record{},
		twins:   map[string]*onced.TwinEntry{},
	}
	w.begin(start.Add(-p.KeyRetention))
	return w
}

// begin makes the store anew at a moment, as an init does.
func (w *world) begin(at time.Time) {
	generation := uint64(at.Unix())
	w.epoch = onced.Epoch{Generation: generation, HistoryStart: at, ServingSince: at}
	w.fence = generation << 32
}

// restart lets the process end and start again at once.
func (w *world) restart() { w.epoch.ServingSince = w.now }

// restore starts a new generation over the records as they are, a second after
// the last change: the backup is as old as the caller made it.
func (w *world) restore() {
	w.advance(time.Second)
	w.epoch.Generation = max(uint64(w.now.Unix()), w.epoch.Generation+1)
	w.epoch.BlindUntil, w.epoch.ServingSince = w.now, w.now
	w.fence = w.epoch.Generation << 32
}

func (w *world) advance(d time.Duration) { w.now = w.now.Add(d) }

// record is what is stored, nil when nothing is.
func (w *world) record() *onced.Record { return w.records[w.id] }

func (w *world) view(id onced.Identity, twin *onced.TwinID) onced.View {
	v := onced.View{
		ID: id, Now: w.now, ExpiryTime: w.now.Add(-w.expiryHeld), NextFence: w.fence + 1, Epoch: w.epoch,
		Record: w.records[id], Unreadable: w.unreadable, TwinID: twin,
	}
	if twin != nil {
		v.Twin = w.twins[string(twin.Encode())]
	}
	return v
}

// run runs one transition on an operation and applies its plan. A report is
// decided on a view with the twin entry that the record stands in.
func (w *world) run(id onced.Identity, twin *onced.TwinID, transition func(onced.View) onced.Plan) {
	w.t.Helper()
	v := w.view(id, twin)
	if missing := onced.MissingTwin(v); twin == nil && missing != nil {
		v = w.view(id, missing)
	}
	before := copyView(v)
	plan := transition(v)
	if !reflect.DeepEqual(before, v) {
		w.t.Fatalf("a transition changed its view\nbefore %+v\nafter  %+v", before.Record, v.Record)
	}
	w.apply(v, plan)
	w.plan = plan
}

func (w *world) apply(v onced.View, plan onced.Plan) {
	w.t.Helper()
	if plan.UsesFence {
		if plan.Put == nil || plan.Put.Fence != v.NextFence {
			w.t.Fatalf("a plan uses the fence %d and does not store it", v.NextFence)
		}
		w.fence = v.NextFence
	}
	switch {
	case plan.Put != nil && plan.Delete:
		w.t.Fatal("a plan puts and deletes one record")
	case plan.Put != nil && plan.Put.ID != v.ID:
		w.t.Fatalf("a plan for %v puts %v", v.ID, plan.Put.ID)
	case plan.Put != nil:
		w.records[v.ID] = plan.Put
	case plan.Delete:
		delete(w.records, v.ID)
	}
	if (plan.PutTwin != nil || plan.DeleteTwin) && v.TwinID == nil {
		w.t.Fatal("a plan changes a twin entry that is not in its view")
	}
	if plan.PutTwin != nil {
		w.twins[string(v.TwinID.Encode())] = plan.PutTwin
	}
	if plan.DeleteTwin {
		delete(w.twins, string(v.TwinID.Encode()))
	}
	if plan.Audit != nil {
		w.audit = append(w.audit, *plan.Audit)
	}
}

func token(name string) onced.Digest { return onced.TokenDigest([]byte("token of " + name)) }

func fingerprint(scheme, content string) onced.Fingerprint {
	d := onced.TokenDigest([]byte(content))
	return onced.Fingerprint{Scheme: scheme, Digest: string(d[:])}
}

// request is a plain claim by the named caller, with everything that a claim
// can bind.
func request(name string) onced.ClaimRequest {
	return onced.ClaimRequest{
		Token: token(name), Fingerprints: []onced.Fingerprint{fingerprint("cj1", "arguments")},
		Subject: "alice", Holder: "host of " + name, Lease: 30 * time.Second,
		KeyTime: start, Labels: map[string]string{"team": "crm"},
	}
}

func (w *world) claimWith(c onced.ClaimRequest) (answer onced.ClaimAnswer, err error) {
	w.t.Helper()
	w.run(w.id, c.TwinID(w.id), func(v onced.View) onced.Plan {
		var plan onced.Plan
		plan, answer, err = onced.Claim(v, w.policy, c)
		return plan
	})
	return answer, err
}

// claim makes a plain claim that must answer as wanted.
func (w *world) claim(name string, want onced.Outcome) onced.ClaimAnswer {
	w.t.Helper()
	return w.wantOutcome(request(name), want)
}

// takeOver claims the newest attempt, once it is due.
func (w *world) takeOver(name string) onced.ClaimAnswer {
	w.t.Helper()
	w.due()
	c := request(name)
	c.TakeOverAttempt = w.record().Attempt
	return w.wantOutcome(c, onced.OutcomeTakenOver)
}

func (w *world) wantOutcome(c onced.ClaimRequest, want onced.Outcome) onced.ClaimAnswer {
	w.t.Helper()
	answer, err := w.claimWith(c)
	if err != nil || answer.Outcome != want {
		w.t.Fatalf("claim answered %v, %v; want %v", answer.Outcome, err, want)
	}
	return answer
}

// due lets pass more than any takeover has to wait for.
func (w *world) due() {
	w.lapse()
	w.advance(2 * max(time.Minute, w.record().Lease))
}

// lapse moves the clock to the effective end of a running lease.
func (w *world) lapse() {
	op := w.show()
	w.advance(op.LeaseRemaining)
}

// holder is the named caller, with the fence of the newest claim that it made.
func (w *world) holder(name string) onced.Holder {
	h := onced.Holder{Token: token(name)}
	if r := w.record(); r != nil {
		for _, a := range r.Attempts {
			if a.Token == h.Token {
				h.Fence = a.Fence
			}
		}
	}
	return h
}

func (w *world) completeWith(h onced.Holder, result *onced.Result) (op *onced.Operation, err error) {
	w.t.Helper()
	w.run(w.id, nil, func(v onced.View) onced.Plan {
		var plan onced.Plan
		plan, op, err = onced.Complete(v, w.policy, h, result)
		return plan
	})
	return op, err
}

func (w *world) failWith(h onced.Holder, f onced.FailRequest) (op *onced.Operation, err error) {
	w.t.Helper()
	w.run(w.id, nil, func(v onced.View) onced.Plan {
		var plan onced.Plan
		plan, op, err = onced.Fail(v, w.policy, h, f)
		return plan
	})
	return op, err
}

func (w *world) renewWith(h onced.Holder, lease time.Duration, c *onced.Checkpoint) (op *onced.Operation, err error) {
	w.t.Helper()
	w.run(w.id, nil, func(v onced.View) onced.Plan {
		var plan onced.Plan
		plan, op, err = onced.Renew(v, w.policy, h, lease, c)
		return plan
	})
	return op, err
}

func (w *world) resolveWith(q onced.ResolveRequest) (op *onced.Operation, err error) {
	w.t.Helper()
	w.run(w.id, nil, func(v onced.View) onced.Plan {
		var plan onced.Plan
		plan, op, err = onced.Resolve(v, w.policy, q)
		return plan
	})
	return op, err
}

func (w *world) eraseWith(q onced.EraseRequest) (op *onced.Operation, err error) {
	w.t.Helper()
	w.run(w.id, nil, func(v onced.View) onced.Plan {
		var plan onced.Plan
		plan, op, err = onced.EraseResult(v, w.policy, q)
		return plan
	})
	return op, err
}

func (w *world) lookup(q onced.LookupRequest) (*onced.Operation, error) {
	return onced.Lookup(w.view(w.id, nil), w.policy, q)
}

// show is the operation as operators see it; nil when absent.
func (w *world) show() *onced.Operation {
	w.t.Helper()
	op, _, err := onced.Show(w.view(w.id, nil), w.policy)
	w.ok(err)
	return op
}

func (w *world) sweep() {
	w.t.Helper()
	w.run(w.id, nil, func(v onced.View) onced.Plan { return onced.Sweep(v, w.policy) })
}

// complete, fail, renew, resolve and erase must be accepted.
func (w *world) complete(name string) {
	w.t.Helper()
	_, err := w.completeWith(w.holder(name), result())
	w.ok(err)
}

func (w *world) fail(name string, d onced.Disposition) {
	w.t.Helper()
	_, err := w.failWith(w.holder(name), failReport(d))
	w.ok(err)
}

func (w *world) renew(name string) {
	w.t.Helper()
	_, err := w.renewWith(w.holder(name), 30*time.Second, nil)
	w.ok(err)
}

func (w *world) resolve(as onced.Resolution) {
	w.t.Helper()
	_, err := w.resolveWith(resolution(as))
	w.ok(err)
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// result and failure are what the tests settle with.
func result() *onced.Result {
	return onced.NewResult("application/json", true, []byte(`{"ticket":7}`))
}

func failure() *onced.Failure {
	return &onced.Failure{
		Code: "FAILED_PRECONDITION", Message: "the mailbox is full",
		Details: onced.NewResult("text/plain", true, []byte("quota 0")),
	}
}

func failReport(d onced.Disposition) onced.FailRequest {
	f := onced.FailRequest{Disposition: d}
	if d == onced.Final {
		f.Failure = failure()
	}
	return f
}

func resolution(as onced.Resolution) onced.ResolveRequest {
	q := onced.ResolveRequest{Resolution: as, Evidence: "seen in the outside system", Who: "olga"}
	switch as {
	case onced.ResolveCompleted:
		q.Result = result()
	case onced.ResolveFailed:
		q.Failure = failure()
	}
	return q
}

// reason is why err refused; empty without an error.
func reason(t tb, err error) onced.RefusalReason {
	t.Helper()
	if err == nil {
		return ""
	}
	return refusal(t, err).Reason
}

// refusal is what every error of a transition is.
func refusal(t tb, err error) *onced.Refusal {
	t.Helper()
	refusal := new(onced.Refusal)
	if !errors.As(err, &refusal) {
		t.Fatalf("the error of a transition is no refusal: %v", err)
	}
	if refusal.Message == "" || refusal.Error() != refusal.Message {
		t.Errorf("refusal %s says %q", refusal.Reason, refusal.Error())
	}
	return refusal
}

func copyView(v onced.View) onced.View {
	v.Record = copyRecord(v.Record)
	if v.Twin != nil {
		c := *v.Twin
		c.Unsettled, c.Last = slices.Clone(c.Unsettled), copyOf(c.Last)
		v.Twin = &c
	}
	v.TwinID = copyOf(v.TwinID)
	return v
}

// copyRecord copies a record so deep that nothing is shared.
func copyRecord(r *onced.Record) *onced.Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	for i := range c.Attempts {
		c.Attempts[i].Facts = slices.Clone(c.Attempts[i].Facts)
	}
	c.Fingerprints, c.Labels = slices.Clone(r.Fingerprints), maps.Clone(r.Labels)
	c.Result = copyResult(r.Result)
	if c.Failure = copyOf(r.Failure); c.Failure != nil {
		c.Failure.Details = copyResult(c.Failure.Details)
	}
	if c.Checkpoint = copyOf(r.Checkpoint); c.Checkpoint != nil {
		c.Checkpoint.Payload.Bytes = slices.Clone(c.Checkpoint.Payload.Bytes)
	}
	c.Twin, c.LastResolve = copyOf(r.Twin), copyOf(r.LastResolve)
	return &c
}

func copyResult(r *onced.Result) *onced.Result {
	c := copyOf(r)
	if c != nil {
		c.Bytes = slices.Clone(c.Bytes)
	}
	return c
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
