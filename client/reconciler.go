package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	// DefaultWorkers is how many operations of one method a [Reconciler] asks about at
	// once.
	DefaultWorkers = 8
	// DefaultInterval is about how long a [Reconciler] pauses between its rounds.
	DefaultInterval = time.Minute

	shortestInterval = time.Second
	longestInterval  = 24 * time.Hour
	// stopGrace is how long Run waits for functions that do not heed their context.
	stopGrace = 500 * time.Millisecond
	// listed is how many operations are fetched at once.
	listed = 200
)

// Reconciler finds out, in the background, what became of the unresolved operations
// of a namespace: those whose callers have died, or have given up. It lists them by
// method, takes each over when the namespace's policy allows it, asks, and settles or
// releases it. It executes nothing: what is released is executed by the next caller.
//
// Any number of processes may run one; each operation is asked about by one of them
// at a time. A panic of a function that asks counts as [StillUnknown] here, and is
// logged. Operations rest between two askings as in [WithReconcile]. While
// onced cannot be reached nothing is asked, and nothing is logged.
// Where the policy lets nobody take over, after the downstream window, and when their
// attempts are used up, operations are left to people, and a warning says how many
// there are.
//
// The client's credentials need the role operator in the namespace, for the list.
// The fields must not be changed once Run was called.
type Reconciler struct {
	Client *Client
	// Methods says how the operations of each method are reconciled. Those of other
	// methods are left alone.
	Methods map[string]Reconciliation
	// Workers is how many operations of one method are asked about at once; 0 means
	// [DefaultWorkers].
	// A function that hangs takes up a worker for as long: bound its time.
	Workers int
	// Interval is about how long to pause between two rounds over the operations of
	// one method, half as long at least and half as long again at most: 1 s–24 h; 0
	// means [DefaultInterval].
	Interval time.Duration
}

// Run reconciles until ctx ends, and returns nil then, within a second: the context of
// each function that still asks has ended too, and what does not heed it goes on
// without being waited for. Its verdict is reported all the same; [Client.Close] waits
// for that. An error says that nothing can be reconciled as things are: the
// configuration is wrong, or onced refuses to list the operations.
func (r *Reconciler) Run(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	caller := ctx
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	var methods, workers sync.WaitGroup
	for method, how := range r.Methods {
		methods.Go(func() {
			free := make(chan struct{}, cmp.Or(r.Workers, DefaultWorkers))
			if err := (&rounds{Reconciler: r, method: method, how: how, free: free, workers: &workers}).run(ctx); err != nil {
				stop(err)
			}
		})
	}
	methods.Wait()
	idle := make(chan struct{})
	go func() {
		workers.Wait()
		close(idle)
	}()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	}
	if caller.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

func (r *Reconciler) validate() error {
	var err error
	if r.Client == nil {
		err = errors.Join(err, errors.New("a client is required"))
	}
	if len(r.Methods) == 0 {
		err = errors.Join(err, errors.New("name the methods that are to be reconciled"))
	}
	for method, how := range r.Methods {
		if bad := onced.ValidateMethod(method); bad != nil {
			err = errors.Join(err, bad)
		}
		if how.Ask == nil || how.DownstreamWindow < 0 {
			err = errors.Join(err, fmt.Errorf("method %q needs a function that asks, and a window that is not negative", method))
		}
	}
	if r.Workers < 0 {
		err = errors.Join(err, errors.New("workers must not be negative"))
	}
	if r.Interval != 0 && (r.Interval < shortestInterval || r.Interval > longestInterval) {
		err = errors.Join(err, fmt.Errorf("interval %v must be %v to %v, or zero", r.Interval, shortestInterval, longestInterval))
	}
	if err != nil {
		return fmt.Errorf("client: nothing is reconciled: %w", err)
	}
	return nil
}

// rounds goes over the operations of one method, again and again.
type rounds struct {
	*Reconciler
	method  string
	how     Reconciliation
	free    chan struct{} // holds one for each worker that is busy
	workers *sync.WaitGroup
	said    int // how many operations were last said to be left to people
}

// run goes on until ctx ends. It returns the error of a list that will never be
// answered.
func (r *rounds) run(ctx context.Context) error {
	interval := cmp.Or(r.Interval, DefaultInterval)
	for {
		left, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case hopeless(err):
			return fmt.Errorf("client: the unresolved operations of method %q cannot be reconciled: %w", r.method, err)
		case err != nil:
			r.Client.log.WarnContext(ctx, "unresolved operations could not be listed", "method", r.method, "error", err)
		case left > 0 && left != r.said:
			r.Client.log.WarnContext(ctx, "unresolved operations are left to people: it is too late to ask about them, their attempts are used up, or the policy lets nobody take over",
				"method", r.method, "operations", left)
		}
		r.said = left
		if !sleep(ctx, interval/2+jitter(interval)) {
			return nil
		}
	}
}

// round goes over the operations once, and tells how many are left to people.
func (r *rounds) round(ctx context.Context) (left int, err error) {
	c := r.Client
	if err := cmp.Or(c.pending.refusal(), c.generation.refusal()); err != nil {
		return 0, err
	}
	policy, err := c.GetPolicy(ctx)
	if err != nil {
		return 0, err
	}
	nobody := policy.GetTakeover() == oncedv1.TakeoverPolicy_TAKEOVER_POLICY_NOBODY
	req := &oncedv1.ListOperationsRequest{
		Namespace: c.namespace, Method: r.method, States: []oncedv1.State{oncedv1.State_STATE_UNRESOLVED}, PageSize: listed,
	}
	for {
		page, _, err := exchange(ctx, c, untilAnswered(0), c.operator.ListOperations, req)
		switch {
		case status.Code(err) == codes.InvalidArgument && req.PageToken != "":
			return left, errLostPlace
		case err != nil:
			return left, err
		}
		ops, now := page.GetOperations(), page.GetAnswerTime()
		rand.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		for _, op := range ops {
			switch {
			case nobody, op.GetOperation().GetAttemptsLeft() == 0, r.how.over(op.GetOperation(), now) != nil:
				left++
			case !tooEarly(op.GetOperation(), policy, now) && resting(op.GetOperation(), now) <= 0:
				r.give(ctx, op)
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return left, nil
		}
	}
}

// give waits for a worker and gives it an operation. Several reconcilers that list the
// same operations take them in different orders.
func (r *rounds) give(ctx context.Context, op *oncedv1.OperationDetails) {
	select {
	case r.free <- struct{}{}:
	case <-ctx.Done():
		return
	}
	r.workers.Go(func() {
		defer func() { <-r.free }()
		r.reconcile(ctx, op, r.how)
	})
}

// errLostPlace says that a page token is not known any more.
var errLostPlace = errors.New("the server was started again and does not know where the list went on; the next round begins anew")

// hopeless tells whether every later round would fail in the same way.
func hopeless(err error) bool {
	if changed := new(GenerationChange); errors.Is(err, ErrClosed) || errors.As(err, &changed) {
		return true
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	}
	return false
}

// tooEarly tells whether a takeover would be refused for certain. The moment of doubt is
// not in the record as it is shown: the server knows whether it is time.
func tooEarly(op *oncedv1.Operation, policy *oncedv1.Policy, at *timestamppb.Timestamp) bool {
	after := max(op.GetLease().AsDuration(), time.Minute)
	if policy.GetReconcileAfter() != nil {
		after = policy.GetReconcileAfter().AsDuration()
	}
	from := moment(op.GetClaimTime())
	if op.GetReason() == oncedv1.Reason_REASON_LAPSED {
		from = moment(op.GetLeaseEnd())
	}
	return moment(at).Before(from.Add(after))
}

// reconcile takes one operation over, if it may be, and finds out what became of it.
func (r *Reconciler) reconcile(ctx context.Context, op *oncedv1.OperationDetails, how Reconciliation) {
	c, o := r.Client, op.GetOperation()
	call := Call{
		Namespace: o.GetRef().GetNamespace(), Key: o.GetRef().GetKey(), Method: o.GetRef().GetMethod(),
		Subject: op.GetSubject(), KeyTime: moment(op.GetKeyTime()),
	}
	for _, f := range op.GetFingerprints() {
		if f, err := onced.ParseFingerprint(f); err == nil {
			call.Fingerprints = append(call.Fingerprints, f)
		}
	}
	p, err := c.pending.begin(&call)
	if err != nil {
		return
	}
	defer p.release()
	how.Ask = c.surviving(how.Ask)
	a := &acquisition{c: c, call: &call, p: p, doOptions: doOptions{noWait: true, reconcile: how}, takeOver: o.GetAttempt()}
	g, err := a.acquire(ctx)
	switch {
	case err != nil:
		a.report(ctx, err)
	case a.asks(g):
		a.find(ctx, g)
	case g.answer.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED:
		a.giveBack(ctx, g) // it was released meanwhile
	}
}

// surviving turns a panic into "still unknown". In the background it is nobody's call
// that has failed, and one operation must not end the process again and again.
func (c *Client) surviving(ask ReconcileFunc) ReconcileFunc {
	return func(ctx context.Context, cl *Claim) (v Verdict) {
		defer func() {
			if p := recover(); p != nil {
				c.log.ErrorContext(ctx, "a function that asks about an operation has panicked",
					"namespace", cl.Namespace, "key", cl.Key, "method", cl.Method, "attempt", cl.Attempt, "panic", p, "stack", string(debug.Stack()))
				v = StillUnknown(errors.New("asking has panicked"))
			}
		}()
		return ask(ctx, cl)
	}
}

// report logs why an operation could not be taken over, unless somebody else is at it
// or it is too early.
func (a *acquisition) report(ctx context.Context, err error) {
	var unresolved *Unresolved
	var failed *Failed
	var busy *InProgress
	later := errors.As(err, &unresolved) && unresolved.TakeoverRefused != oncedv1.TakeoverRefused_TAKEOVER_REFUSED_POLICY && unresolved.Err == nil
	if later || ctx.Err() != nil || errors.As(err, &failed) || errors.As(err, &busy) {
		return
	}
	a.c.log.WarnContext(ctx, "an unresolved operation could not be taken over", "namespace", a.c.namespaceOf(a.call), "key", a.call.Key, "method", a.call.Method, "error", err)
}
