package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// answer makes a status with details: a reason is an ErrorInfo of onced's, with what
// it says of the claim; a delay above 0 is a RetryInfo.
func answer(code codes.Code, reason, claimed string, delay time.Duration) error {
	var details []protoadapt.MessageV1
	if reason != "" {
		details = append(details, &errdetails.ErrorInfo{Domain: "onced", Reason: reason, Metadata: map[string]string{"claimed": claimed}})
	}
	if delay > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	}
	st, err := status.New(code, "said").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func TestWhatIsResent(t *testing.T) {
	foreign := func() error {
		st, err := status.New(codes.FailedPrecondition, "said").WithDetails(&errdetails.ErrorInfo{Domain: "proxy", Reason: "CLAIM_LOST"})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for name, c := range map[string]struct {
		err                     error
		always, whenSettling    bool
		delay                   time.Duration
		unanswered, unanswered2 bool // after no lost try, and after one
	}{
		"unavailable":                  {answer(codes.Unavailable, "", "", 0), true, true, 0, true, true},
		"overloaded":                   {answer(codes.Unavailable, "OVERLOADED", "no", time.Second), true, true, time.Second, false, true},
		"store failed":                 {answer(codes.Unavailable, "NOT_READY", "unknown", time.Second), true, true, time.Second, true, true},
		"time-out":                     {answer(codes.DeadlineExceeded, "", "", 0), true, true, 0, true, true},
		"time-out, by onced":           {answer(codes.DeadlineExceeded, "DEADLINE_EXCEEDED", "unknown", 0), true, true, 0, true, true},
		"quota, to be asked again":     {answer(codes.ResourceExhausted, "UNSETTLED_QUOTA", "no", time.Second), true, true, time.Second, false, true},
		"store full":                   {answer(codes.ResourceExhausted, "STORAGE_FULL", "no", 0), false, true, 0, false, true},
		"too large":                    {answer(codes.ResourceExhausted, "", "", 0), false, false, 0, true, true},
		"cancelled":                    {answer(codes.Canceled, "", "", 0), false, true, 0, true, true},
		"internal":                     {answer(codes.Internal, "INTERNAL", "unknown", 0), false, true, 0, true, true},
		"internal, on the way":         {answer(codes.Internal, "", "", 0), false, true, 0, true, true},
		"unknown":                      {errors.New("not a status"), false, true, 0, true, true},
		"aborted":                      {answer(codes.Aborted, "", "", 0), false, true, 0, true, true},
		"unimplemented":                {answer(codes.Unimplemented, "", "", 0), false, true, 0, false, true},
		"unauthenticated":              {answer(codes.Unauthenticated, "", "", 0), false, true, 0, false, true},
		"denied, on the way":           {answer(codes.PermissionDenied, "", "", 0), false, true, 0, false, true},
		"denied":                       {answer(codes.PermissionDenied, "SUBJECT_MISMATCH", "no", 0), false, false, 0, false, true},
		"invalid":                      {answer(codes.InvalidArgument, "", "", 0), false, false, 0, false, true},
		"claim lost":                   {answer(codes.FailedPrecondition, "CLAIM_LOST", "no", 0), false, false, 0, false, false},
		"somebody else's precondition": {foreign(), false, true, 0, true, true},
	} {
		delay, again := worthRepeating(c.err)
		if again != c.always || again && delay != c.delay {
			t.Errorf("%s: re-sent %v after %v", name, again, delay)
		}
		delay, again = unlessRefused(c.err)
		if again != c.whenSettling || again && delay != c.delay {
			t.Errorf("%s, settling: re-sent %v after %v", name, again, delay)
		}
		for before, want := range map[bool]bool{false: c.unanswered, true: c.unanswered2} {
			s := sending{unanswered: before}
			if s.note(c.err); s.unanswered != want {
				t.Errorf("%s: after unanswered = %v it is %v", name, before, s.unanswered)
			}
		}
		if got, want := refusedFor(c.err, onced.RefusedClaimLost), name == "claim lost"; got != want {
			t.Errorf("%s: refused for CLAIM_LOST: %v", name, got)
		}
		if got, want := tooLarge(c.err), name == "too large"; got != want {
			t.Errorf("%s: too large: %v", name, got)
		}
	}
	if tooLarge(nil) || refusedFor(nil, onced.RefusedClaimLost) || lostBy(nil) {
		t.Error("no error is no refusal")
	}
}

func TestPausesDoubleToFiveSeconds(t *testing.T) {
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000}
	for n, ms := range want {
		if got := backoff(n, mostPause); got != ms*time.Millisecond {
			t.Errorf("pause %d is %v", n, got)
		}
	}
	if got := backoff(1<<40, mostPause); got != mostPause {
		t.Errorf("pause far on is %v", got)
	}
	if got := backoff(0, 50*time.Millisecond); got != 50*time.Millisecond {
		t.Errorf("a smaller bound gives %v", got)
	}
}

func TestJitterIsFull(t *testing.T) {
	low, high := false, false
	for range 1000 {
		d := jitter(time.Second)
		if d < 0 || d > time.Second {
			t.Fatalf("jitter %v", d)
		}
		low, high = low || d < 100*time.Millisecond, high || d > 900*time.Millisecond
	}
	if !low || !high || jitter(0) != 0 {
		t.Errorf("near nothing %v, near all %v", low, high)
	}
}

// Whatever the lease, three renewals that hang one after another fit into the two
// thirds of it that are left when the first is due.
func TestRenewalsFitIntoTheLease(t *testing.T) {
	for _, lease := range []time.Duration{3 * time.Second, 30 * time.Second, time.Hour, 24 * time.Hour} {
		e := whileHeld(lease)
		if e.try <= 0 || e.try > firstTry || e.longestTry != e.try || 3*(e.try+e.mostPause) > 2*lease/3 {
			t.Errorf("lease %v: %+v", lease, e)
		}
	}
}

// A claim that was answered only when it was re-sent has less of its lease left.
func TestTermOfALateAnswer(t *testing.T) {
	sent := time.Now()
	for _, c := range []struct{ lease, left, renewal time.Duration }{
		{30 * time.Second, 30 * time.Second, 10 * time.Second},
		{30 * time.Second, 6 * time.Second, 2 * time.Second},
		{30 * time.Second, 50 * time.Second, 10 * time.Second}, // after a restart of onced
		{0, 30 * time.Second, 10 * time.Second},
		{30 * time.Second, 0, firstPause}, // never in a loop without a pause
	} {
		op := &oncedv1.Operation{Lease: durationpb.New(c.lease), LeaseRemaining: durationpb.New(c.left)}
		if got := termOf(op, sent); got.end.Sub(sent) != c.left || got.renewal.Sub(sent) != c.renewal {
			t.Errorf("lease %v, left %v: ends after %v, renewed after %v", c.lease, c.left, got.end.Sub(sent), got.renewal.Sub(sent))
		}
	}
}

// Answers to a renewal and to a checkpoint may come in another order.
func TestLeaseClockNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		over := make(chan time.Duration, 1)
		l := startLease(start.Add(10*time.Second), func() { over <- time.Since(start) })
		l.extend(start.Add(30 * time.Second))
		l.extend(start.Add(20 * time.Second))
		if at := <-over; at != 30*time.Second {
			t.Errorf("over at %v", at)
		}
		l = startLease(time.Now().Add(time.Second), func() { t.Error("over after it was stopped") })
		l.stop()
		if !sleep(t.Context(), time.Minute) {
			t.Error("no sleep")
		}
	})
}

func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if sleep(ctx, time.Hour) || time.Since(start) != time.Second {
			t.Errorf("it slept %v", time.Since(start))
		}
		if sleep(ctx, 0) {
			t.Error("it slept although the context had ended")
		}
		if !sleep(t.Context(), time.Second) || time.Since(start) != 2*time.Second {
			t.Errorf("it slept %v", time.Since(start))
		}
	})
}

func TestHeldIsBounded(t *testing.T) {
	for _, c := range []struct{ wait, want time.Duration }{{-time.Second, 0}, {time.Second, time.Second}, {time.Hour, 20 * time.Second}} {
		if got := held(durationpb.New(c.wait)); got != c.want {
			t.Errorf("wait %v: held %v", c.wait, got)
		}
	}
	if held(nil) != 0 {
		t.Error("no wait is held")
	}
}
