package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// requireGrpcurl skips a test where grpcurl is not installed, and fails it where
// everything must be tested.
func requireGrpcurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("grpcurl"); err == nil {
		return
	}
	const how = "grpcurl is not installed: run GOBIN=$PWD/.bin go -C tools/grpcurl install tool, and put .bin on the PATH"
	if os.Getenv("ONCED_REQUIRE_ALL") != "" {
		t.Fatal(how)
	}
	t.Skip("NOT TESTED: " + how)
}

// Whoever has nothing but grpcurl finds the service by reflection, and claims,
// looks up and completes with it; results are readable as text, and refusals come
// with their details.
func TestGrpcurl(t *testing.T) {
	requireGrpcurl(t)
	s := serve(t, newStore(t))
	call := func(rpc, body string) string {
		t.Helper()
		return s.grpcurl(0, "-plaintext", "-d", body, s.GRPC, "onced.v1.IdempotencyService/"+rpc)
	}
	has(t, s.grpcurl(0, "-plaintext", s.GRPC, "list"), "onced.v1.IdempotencyService\n", "grpc.health.v1.Health\n")
	has(t, s.grpcurl(0, "-plaintext", s.GRPC, "list", "onced.v1.IdempotencyService"),
		"Claim", "Complete", "Fail", "Lookup", "Renew", "GetPolicy")
	has(t, s.grpcurl(0, "-plaintext", s.GRPC, "describe", "onced.v1.IdempotencyService.Claim"),
		"rpc Claim ( .onced.v1.ClaimRequest ) returns ( .onced.v1.ClaimResponse )", "IDEMPOTENT")
	has(t, s.grpcurl(0, "-plaintext", s.GRPC, "describe", "onced.v1.ClaimRequest"), "bytes claim_token = 2")

	const ref = `"ref": {"namespace": "default", "key": "k", "method": "act"}`
	token := base64.StdEncoding.EncodeToString([]byte("sixteen bytes and more"))
	claim := fmt.Sprintf(`{%s, "claim_token": %q, "holder": "a shell"}`, ref, token)
	has(t, call("Claim", claim), `"outcome": "OUTCOME_GRANTED"`, `"holder": "a shell"`)
	has(t, call("Lookup", `{`+ref+`}`), `"state": "STATE_PENDING"`)
	complete := fmt.Sprintf(`{%s, "claim_token": %q, "fence": %d, "stored": {"content_type": "application/json", "text": "{\"amount\": 5}"}}`,
		ref, token, s.caller().lookup("k").GetFence())
	has(t, call("Complete", complete), `"state": "STATE_COMPLETED"`)
	has(t, call("Claim", claim), `"outcome": "OUTCOME_REPLAYED"`, `"text": "{\"amount\": 5}"`, `"settledBy": "SETTLED_BY_HOLDER"`)

	for name, refusal := range map[string]struct {
		exit  int
		rpc   string
		body  string
		words []string
	}{
		"a token that is too short": {
			64 + 3, "Claim", `{` + ref + `, "claim_token": "AAAA"}`,
			[]string{"InvalidArgument", "google.rpc.BadRequest", `"field": "claim_token"`, `"claimed": "no"`},
		},
		"another result": {
			64 + 9, "Complete", strings.Replace(complete, `: 5}`, `: 6}`, 1),
			[]string{"FailedPrecondition", "google.rpc.ErrorInfo", `"reason": "ALREADY_SETTLED"`, `"domain": "onced"`},
		},
		"an absent key": {
			64 + 5, "Lookup", `{"ref": {"namespace": "default", "key": "no", "method": "act"}}`,
			[]string{"NotFound", "no operation is recorded"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			has(t, s.grpcurl(refusal.exit, "-plaintext", "-d", refusal.body, s.GRPC, "onced.v1.IdempotencyService/"+refusal.rpc), refusal.words...)
		})
	}
}

// grpcurl runs grpcurl and demands its exit status, which is 64 and the code of a
// refusal.
func (s *process) grpcurl(want int, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("grpcurl", args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		s.t.Errorf("grpcurl %q ended with status %d, want %d:\n%s", args, got, want, out)
	}
	return string(out)
}

// has demands that a text has parts.
func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}
