package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
)

const (
	firstPause = 100 * time.Millisecond // doubled after every try
	mostPause  = 5 * time.Second
	firstTry   = 5 * time.Second // doubled after every try that took longer
	longestTry = time.Minute     // enough for the largest message over a slow line
	maxMessage = 17 << 20        // bytes of an answer, as the server's own limit
)

// errorDomain is the domain of the ErrorInfo in onced's own refusals.
const errorDomain = "onced"

// effort says how hard one request is tried.
type effort struct {
	try        time.Duration // how long the first try may take
	longestTry time.Duration
	mostPause  time.Duration
	again      func(error) (least time.Duration, again bool) // whether to re-send after an error
}

// untilAnswered is the effort of every request but settlements and renewals. held
// is how long the server was asked to hold the call.
func untilAnswered(held time.Duration) effort {
	return effort{try: firstTry + held, longestTry: longestTry, mostPause: mostPause, again: worthRepeating}
}

// untilSettled is the effort of a settlement: only a refusal by onced itself
// ends it. What stands between the client and onced must not turn an execution
// into an unresolved one.
func untilSettled() effort {
	return effort{try: firstTry, longestTry: longestTry, mostPause: mostPause, again: unlessRefused}
}

// whileHeld is the effort of a renewal: tries short and close enough that one gets
// through when the network comes back with a sixth of the lease left.
func whileHeld(lease time.Duration) effort {
	try := min(max(lease/10, 500*time.Millisecond), firstTry)
	return effort{try: try, longestTry: try, mostPause: min(lease/20, mostPause), again: worthRepeating}
}

// sending is what is known of how a request travelled.
type sending struct {
	at         time.Time // when the newest try was sent
	unanswered bool      // a try may have been carried out, and its answer is not known
}

// rpc is a method of the generated stub.
type rpc[Req, Resp any] func(context.Context, Req, ...grpc.CallOption) (Resp, error)

// exchange sends a request, unchanged and as often as the effort allows, until it
// is answered or refused or ctx ends. Every request of onced may be repeated
// blindly: a repeat is answered as the first was and changes nothing.
func exchange[Req, Resp any](ctx context.Context, c *Client, e effort, call rpc[Req, Resp], req Req) (Resp, sending, error) {
	var s sending
	var last error
	for n := 0; ; n++ {
		s.at = time.Now()
		resp, err := attempt(ctx, c, e.try, call, req)
		if err == nil {
			s.unanswered = false
			return resp, s, nil
		}
		s.note(err)
		if ctx.Err() == nil || last == nil {
			last = err
		}
		least, again := e.again(err)
		if !again && !(ctx.Err() != nil && status.Code(err) == codes.Canceled) {
			return resp, s, err
		}
		if status.Code(err) == codes.DeadlineExceeded {
			e.try = min(2*e.try, max(e.try, e.longestTry))
		}
		if !sleep(ctx, least+jitter(backoff(n, e.mostPause))) {
			return resp, s, &unanswered{ended: ctx.Err(), last: last}
		}
	}
}

// attempt sends a request once and takes note of the generation that answers.
func attempt[Req, Resp any](ctx context.Context, c *Client, timeout time.Duration, call rpc[Req, Resp], req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var header metadata.MD
	resp, err := call(ctx, req, grpc.Header(&header), grpc.MaxCallRecvMsgSize(maxMessage))
	c.generation.observe(header)
	if status.Code(err) == codes.Unavailable {
		c.reconnect()
	}
	return resp, err
}

// reconnecting is when a client's connection was last told to try again at once. It is
// safe for concurrent use; the zero value is ready.
type reconnecting struct {
	mu   sync.Mutex
	last time.Time
}

// reconnect has the connection try again at once, if it has lost its server. Its own
// pauses grow to two minutes in a long outage, which is longer than the time that a
// server gives holders after it: those that still renew would lapse. The pauses of
// exchange are bounded.
//
// gRPC goes through its subchannels without a lock here (ResetConnectBackoff), while it
// makes and drops some under one. So it is told only while it waits in vain with those
// that it has, by one goroutine at a time, and not often. A connection whose own pauses
// are bounded needs none of this; see [New].
func (c *Client) reconnect() {
	conn, ok := c.conn.(interface {
		GetState() connectivity.State
		ResetConnectBackoff()
	})
	if !ok || conn.GetState() != connectivity.TransientFailure || !c.reconnecting.mu.TryLock() {
		return
	}
	defer c.reconnecting.mu.Unlock()
	if now := time.Now(); now.Sub(c.reconnecting.last) >= firstPause {
		c.reconnecting.last = now
		conn.ResetConnectBackoff()
	}
}

// note keeps whether a failed try may have been carried out. A refusal is decided
// on the record and says how it stands; a request that was not taken up leaves what
// earlier tries may have done.
func (s *sending) note(err error) {
	ours := refusal(err) != nil
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted:
		s.unanswered = s.unanswered || !ours
	case codes.InvalidArgument, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied:
	default:
		s.unanswered = !ours
	}
}

// worthRepeating tells whether a failed try is re-sent, and the pause that the
// server asked for. The time-out of a try counts; whether the caller's context
// has ended is seen elsewhere.
func worthRepeating(err error) (least time.Duration, again bool) {
	least, asked := retryInfo(err)
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return least, true
	case codes.ResourceExhausted:
		return least, asked
	default:
		return 0, false
	}
}

// unlessRefused re-sends after everything but a refusal by onced itself, and a
// message that is too large to be taken.
func unlessRefused(err error) (least time.Duration, again bool) {
	least, asked := retryInfo(err)
	ours := refusal(err) != nil
	switch status.Code(err) {
	case codes.Unavailable:
		return least, true
	case codes.ResourceExhausted:
		return least, asked || ours
	case codes.InvalidArgument:
		return 0, false
	default:
		return least, !ours
	}
}

// tooLarge tells whether a message was refused for its size by gRPC itself.
func tooLarge(err error) bool {
	_, asked := retryInfo(err)
	return status.Code(err) == codes.ResourceExhausted && !asked && refusal(err) == nil
}

// retryInfo is the pause that the server asked for, if it did.
func retryInfo(err error) (time.Duration, bool) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}

// refusal is onced's own decision in an error, or nil. onced answers "I do not know
// whether this was carried out" with claimed = unknown; that decides nothing.
func refusal(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain && info.GetMetadata()["claimed"] != "unknown" {
			return info
		}
	}
	return nil
}

// refusedFor tells whether onced refused a request for this reason.
func refusedFor(err error, reason onced.RefusalReason) bool {
	return refusal(err).GetReason() == string(reason)
}

// backoff is the longest pause after try n, counted from 0.
func backoff(n int, most time.Duration) time.Duration {
	d := firstPause
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

// jitter is a random part of d: callers that failed together must not come back
// together.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// sleep reports whether it slept to the end; ctx ends it early.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unanswered is the error of a request whose context ended before onced had
// answered it. Its gRPC code is that of the last try.
type unanswered struct {
	ended error // why there was no further try
	last  error
}

func (u *unanswered) Error() string {
	return fmt.Sprintf("onced gave no answer: %v; last try: %v", u.ended, u.last)
}

func (u *unanswered) Unwrap() []error { return []error{u.ended, u.last} }

// answerPending tells whether an error leaves open what onced has decided.
func answerPending(err error) bool {
	var u *unanswered
	return errors.As(err, &u)
}
