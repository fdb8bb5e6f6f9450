package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// callLogger logs one line for a call, when it has ended: which operation, and
// what was answered; never what a request or an answer holds beside that.
type callLogger struct{ log *slog.Logger }

// ServerReporter implements [interceptors.ServerReportable].
func (l callLogger) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	return &callLog{log: l.log, ctx: ctx, meta: meta}, ctx
}

// callLog is the line of one call.
type callLog struct {
	log     *slog.Logger
	ctx     context.Context
	meta    interceptors.CallMeta
	outcome oncedv1.Outcome
}

// PostMsgReceive implements [interceptors.Reporter].
func (*callLog) PostMsgReceive(any, error, time.Duration) {}

// PostMsgSend implements [interceptors.Reporter].
func (c *callLog) PostMsgSend(answer any, err error, _ time.Duration) {
	if a, ok := answer.(*oncedv1.ClaimResponse); ok && err == nil {
		c.outcome = a.GetOutcome()
	}
}

// PostCall implements [interceptors.Reporter].
func (c *callLog) PostCall(err error, took time.Duration) {
	code := status.Code(err)
	level := callLevel(code)
	if !c.log.Enabled(c.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("rpc", c.meta.Service+"/"+c.meta.Method), slog.String("code", code.String()), slog.Duration("took", took),
	}
	if c.outcome != oncedv1.Outcome_OUTCOME_UNSPECIFIED {
		attrs = append(attrs, slog.String("outcome", onced.Outcome(c.outcome).String()))
	}
	var st *statusError
	if errors.As(err, &st) {
		attrs = append(attrs, slog.String("reason", st.reason))
	}
	if id, ok := callOperation(c.meta.ReqOrNil); ok {
		attrs = append(attrs, operationAttr(id))
	}
	c.log.LogAttrs(c.ctx, level, "call", attrs...)
}

// callOperation returns the operation that a request names, if it may be named:
// one that is refused for its identity could be anything, of any length.
func callOperation(req any) (onced.Identity, bool) {
	r, ok := req.(interface{ GetRef() *oncedv1.OperationRef })
	if !ok {
		return onced.Identity{}, false
	}
	ref := r.GetRef()
	id := onced.Identity{Namespace: ref.GetNamespace(), Key: ref.GetKey(), Method: ref.GetMethod()}
	err := errors.Join(onced.ValidateNamespace(id.Namespace), onced.ValidateKey(id.Key))
	if id.Method != "" {
		err = errors.Join(err, onced.ValidateMethod(id.Method))
	}
	return id, err == nil
}

// callLevel returns the level at which a call that ended with a code is logged.
// Debug is for what is in order, and for what comes in floods when server or
// network cannot keep up: that is counted, and its cause logged where it begins.
func callLevel(code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.NotFound, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted:
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
