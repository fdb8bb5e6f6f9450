package server

import (
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// TestCallLog: nothing of a successful call at the default level, operation and
// outcome of all calls at debug, and never what calls carry.
func TestCallLog(t *testing.T) {
	calls := func(level slog.Level) string {
		r := newRig(t, level)
		fence := r.grant("the-key")
		if _, err := r.client.Complete(r.Context(), completeRequest("the-key", fence, "the result")); err != nil {
			t.Fatal(err)
		}
		if resp, err := r.client.Claim(r.Context(), claimRequest("the-key")); err != nil || resp.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED {
			t.Fatal(resp, err)
		}
		return r.log.String()
	}
	if log := calls(slog.LevelInfo); log != "" {
		t.Errorf("successful calls at info:\n%s", log)
	}
	log := calls(slog.LevelDebug)
	for _, want := range []string{
		"rpc=onced.v1.IdempotencyService/Claim", "outcome=GRANTED", "outcome=REPLAYED", "code=OK",
		"operation.namespace=n", "operation.key=the-key", "operation.method=m",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	for _, never := range []string{"the result", string(tokenOf("the-key")), hex.EncodeToString(tokenOf("the-key"))} {
		if strings.Contains(log, never) {
			t.Errorf("the log shows %q", never)
		}
	}
}

// TestRefusedCallLog: a refusal is logged at info, with its reason, and without
// an identity that could be anything.
func TestRefusedCallLog(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	if _, err := r.client.Complete(r.Context(), completeRequest("lost", 7, "x")); err == nil {
		t.Fatal("completed what nobody claimed")
	}
	long := claimRequest(strings.Repeat("k", 100_000))
	if _, err := r.client.Claim(r.Context(), long); err == nil {
		t.Fatal("claimed under a key of 100,000 bytes")
	}
	log := r.log.String()
	if strings.Count(log, "\n") != 2 || !strings.Contains(log, "reason=CLAIM_LOST operation.namespace=n operation.key=lost") ||
		!strings.Contains(log, "reason=INVALID_ARGUMENT\n") {
		t.Errorf("log:\n%s", log)
	}
}

func TestCallLevel(t *testing.T) {
	for code, want := range map[codes.Code]slog.Level{
		codes.OK: slog.LevelDebug, codes.Unavailable: slog.LevelDebug, codes.FailedPrecondition: slog.LevelInfo,
		codes.ResourceExhausted: slog.LevelDebug, codes.Internal: slog.LevelError, codes.Unknown: slog.LevelError,
	} {
		if got := callLevel(code); got != want {
			t.Errorf("%v: %v, want %v", code, got, want)
		}
	}
}
