package client

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// settleGrace is how long a call waits at most until its report is answered; then
// the report goes on in the background.
const settleGrace = 5 * time.Second

// holding is what a holder shows with every report.
type holding struct {
	ref   *oncedv1.OperationRef
	token []byte
	fence uint64
}

// report is one report of a holder.
type report struct {
	name  string     // for the log
	level slog.Level // of the log, when it is not accepted
	send  func(context.Context) (*oncedv1.Operation, error)
}

// completion reports a result. A result whose bytes are too many for the server's
// messages is reported without them: it is no reason not to complete.
func (c *Client) completion(h holding, r result) report {
	send := func(ctx context.Context, req *oncedv1.CompleteRequest) (*oncedv1.Operation, error) {
		req.Ref, req.ClaimToken, req.Fence = h.ref, h.token, h.fence
		resp, _, err := exchange(ctx, c, untilSettled(), c.stub.Complete, req)
		return resp.GetOperation(), err
	}
	return report{name: "Complete", level: slog.LevelError, send: func(ctx context.Context) (*oncedv1.Operation, error) {
		if r.stored != nil {
			op, err := send(ctx, &oncedv1.CompleteRequest{Result: &oncedv1.CompleteRequest_Stored{Stored: r.stored}})
			if !tooLarge(err) {
				return op, err
			}
		}
		return send(ctx, &oncedv1.CompleteRequest{Result: &oncedv1.CompleteRequest_Omitted{Omitted: r.omitted}})
	}}
}

// failure reports an attempt that has no result. Details that are too many for the
// server's messages are left out: the failure is the outcome all the same.
func (c *Client) failure(h holding, d oncedv1.Disposition, f *oncedv1.Failure) report {
	send := func(ctx context.Context, f *oncedv1.Failure) (*oncedv1.Operation, error) {
		req := &oncedv1.FailRequest{Ref: h.ref, ClaimToken: h.token, Fence: h.fence, Disposition: d, Failure: f}
		resp, _, err := exchange(ctx, c, untilSettled(), c.stub.Fail, req)
		return resp.GetOperation(), err
	}
	r := report{name: "Fail " + strings.TrimPrefix(d.String(), "DISPOSITION_"), level: slog.LevelWarn}
	if d == oncedv1.Disposition_DISPOSITION_FINAL {
		r.level = slog.LevelError
	}
	r.send = func(ctx context.Context) (*oncedv1.Operation, error) {
		op, err := send(ctx, f)
		if f.GetDetails() == nil || !tooLarge(err) {
			return op, err
		}
		return send(ctx, &oncedv1.Failure{Code: f.GetCode(), Message: f.GetMessage()})
	}
	return r
}

// outcome is the report on a function that has returned. Only its own word makes
// an error more than "nobody knows".
func (c *Client) outcome(h holding, t reflect.Type, v any, err error) report {
	if err == nil {
		return c.completion(h, encode(t, v))
	}
	if said := declarationOf(err); said != nil {
		return c.failure(h, said.disposition, said.failure)
	}
	return c.failure(h, oncedv1.Disposition_DISPOSITION_UNKNOWN, nil)
}

// settlement is a report on its way.
type settlement struct {
	answered chan struct{} // closed when it is over
	// Set before that: the operation as it stands then, or why the report was not
	// accepted.
	op  *oncedv1.Operation
	err error
}

// settle sends a report, detached from the caller's context, until onced has
// answered it or the settle budget is spent, which is enough for one try at least. A
// Complete never becomes a Fail: what was executed was executed. after runs when it
// is over.
func (c *Client) settle(ctx context.Context, p *pending, h holding, r report, after func()) *settlement {
	s := &settlement{answered: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.settleBudget, firstTry))
	p.retain()
	go func() {
		defer p.release()
		defer close(s.answered)
		defer after()
		defer cancel()
		if s.op, s.err = r.send(ctx); s.err != nil && !errors.Is(s.err, errDecided) {
			c.log.Log(ctx, r.level, "a report was not accepted", "report", r.name, "namespace", h.ref.GetNamespace(), "key", h.ref.GetKey(), "method", h.ref.GetMethod(),
				"fence", h.fence, "gave_up", answerPending(s.err), "error", s.err)
		}
	}()
	return s
}

// wait waits for the answer until ctx ends, at most for the grace, and tells
// whether it has come.
func (s *settlement) wait(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settleGrace)
	defer cancel()
	return s.waitAll(ctx)
}

// waitAll waits for the answer until ctx ends, and tells whether it has come.
func (s *settlement) waitAll(ctx context.Context) bool {
	select {
	case <-s.answered:
	case <-ctx.Done():
	}
	return s.over() // both may have been ready
}

// over tells whether the answer has come, or is not waited for any more.
func (s *settlement) over() bool {
	select {
	case <-s.answered:
		return true
	default:
		return false
	}
}

// lostBy tells whether onced's refusal of a report or a renewal means that the
// claim is not held any more.
func lostBy(err error) bool {
	return refusedFor(err, onced.RefusedClaimLost) || refusedFor(err, onced.RefusedAlreadySettled)
}
