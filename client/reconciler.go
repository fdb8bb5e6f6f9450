package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	// DefaultWorkers is how many operations a [Reconciler] asks about at once.
	DefaultWorkers = 8
	// DefaultInterval is about how long a [Reconciler] pauses between its rounds.
	DefaultInterval = time.Minute

	// longestRest bounds the pauses before an operation is asked about again.
	longestRest = 6 * time.Hour
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
// at a time. After [StillUnknown] it is asked about again when an interval has passed,
// then two, four and so on, up to 6 h; after 16 attempts only an operator can go on.
//
// Where the policy lets nobody take over, and after the downstream window, operations
// are left to people, and a warning says how many there are.
//
// The client's credentials need the role operator in the namespace, for the list.
// The fields must not be changed once Run was called.
type Reconciler struct {
	Client *Client
	// Methods says how the operations of each method are reconciled. Those of other
	// methods are left alone.
	Methods map[string]Reconciliation
	// Workers is how many operations are asked about at once; 0 means
	// [DefaultWorkers].
	Workers int
	// Interval is about how long to pause between two rounds over the operations of
	// one method, half as long at least and half as long again at most; 0 means
	// [DefaultInterval].
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
	free := make(chan struct{}, cmp.Or(r.Workers, DefaultWorkers))
	for method, how := range r.Methods {
		methods.Go(func() {
			if err := (&rounds{r, method, how, free, &workers}).run(ctx); err != nil {
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
	if r.Workers < 0 || r.Interval < 0 {
		err = errors.Join(err, errors.New("workers and interval must not be negative"))
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
			return fmt.Errorf("client: the unresolved operations of method %q cannot be listed: %w", r.method, err)
		case err != nil:
			r.Client.log.WarnContext(ctx, "unresolved operations could not be listed", "method", r.method, "error", err)
		case left > 0:
			r.Client.log.WarnContext(ctx, "unresolved operations are left to people: it is too late to ask about them, or the policy lets nobody take over",
				"method", r.method, "operations", left)
		}
		if !sleep(ctx, interval/2+jitter(interval)) {
			return nil
		}
	}
}

// round goes over the operations once, and tells how many are left to people.
func (r *rounds) round(ctx context.Context) (left int, err error) {
	c := r.Client
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
			return left, nil // the server was started again and does not know the token: the next round begins anew
		case err != nil:
			return left, err
		}
		ops, now := page.GetOperations(), page.GetAnswerTime()
		rand.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		for _, op := range ops {
			switch {
			case nobody, r.how.over(op.GetOperation(), now) != nil:
				left++
			case !r.resting(op, now):
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

// hopeless tells whether asking again for the list would be answered alike.
func hopeless(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	}
	return false
}

// resting tells whether an operation was asked about too short a while ago. It goes
// by the record, so that a restart or a second process does not ask more often.
func (r *Reconciler) resting(op *oncedv1.OperationDetails, at *timestamppb.Timestamp) bool {
	if !op.GetByTakeover() {
		return false
	}
	rest := cmp.Or(r.Interval, DefaultInterval)
	for n := op.GetOperation().GetAttempt(); n > 2 && rest < longestRest; n-- {
		rest *= 2
	}
	return at.AsTime().Sub(moment(op.GetOperation().GetClaimTime())) < min(rest, longestRest)
}

// reconcile takes one operation over, if it may be, and finds out what became of it.
func (r *Reconciler) reconcile(ctx context.Context, op *oncedv1.OperationDetails, how Reconciliation) {
	c, o := r.Client, op.GetOperation()
	call := Call{Key: o.GetRef().GetKey(), Method: o.GetRef().GetMethod(), Subject: op.GetSubject()}
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

// report logs why an operation could not be taken over, unless somebody else is at it
// or it is too early.
func (a *acquisition) report(ctx context.Context, err error) {
	var unresolved *Unresolved
	var failed *Failed
	var busy *InProgress
	early := errors.As(err, &unresolved) && unresolved.TakeoverRefused == oncedv1.TakeoverRefused_TAKEOVER_REFUSED_NOT_YET
	if early || ctx.Err() != nil || errors.As(err, &failed) || errors.As(err, &busy) {
		return
	}
	a.c.log.WarnContext(ctx, "an unresolved operation could not be taken over", "key", a.call.Key, "method", a.call.Method, "error", err)
}
