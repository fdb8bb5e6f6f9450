package e2e

import (
	"encoding/base64"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// ended is the exit status of grpcurl for a code.
func ended(code codes.Code) int {
	if code == codes.OK {
		return 0
	}
	return 64 + int(code)
}

// shell calls the methods of the tool through grpcurl, with further headers, and returns
// all that it prints.
func (p *tool) shell(want codes.Code, method, body string, headers ...string) string {
	p.t.Helper()
	args := []string{"-v", "-plaintext", "-d", body}
	for _, h := range headers {
		args = append(args, "-H", h)
	}
	return p.grpcurl(ended(want), append(args, p.GRPC, "tickets.v1.Tickets/"+method)...)
}

// hasNot demands that a text lacks parts.
func hasNot(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%q is in\n%s", part, text)
		}
	}
}

// firstClaim is the line of an answer that says when its operation was first claimed.
var firstClaim = regexp.MustCompile(`onced-first-claim-time: \S+`)

// Whoever has grpcurl calls a guarded method like every other, with a key, and reads in
// the answer whether it was executed or replayed.
func TestTicketsByGrpcurl(t *testing.T) {
	requireGrpcurl(t)
	t.Parallel()
	p := startTool(t, serve(t, newStore(t)).GRPC)
	const once = `{"project": "onced", "title": "once", "trace_id": "1"}`

	first := p.shell(codes.OK, "CreateTicket", once, "idempotency-key: k")
	has(t, first, "onced-outcome: executed", "onced-key: k", `"id": "T-1"`)
	hasNot(t, first, `"replayed": true`)
	again := p.shell(codes.OK, "CreateTicket", strings.Replace(once, `"1"`, `"2"`, 1), "idempotency-key: k")
	has(t, again, "onced-outcome: replayed", "onced-key: k", `"id": "T-1"`, `"replayed": true`)
	if then, now := firstClaim.FindString(first), firstClaim.FindString(again); then == "" || now != then {
		t.Errorf("the replay says %q, the first answer %q", now, then)
	}
	binary := "idempotency-key-bin: " + base64.StdEncoding.EncodeToString([]byte("ключ"))
	has(t, p.shell(codes.OK, "CreateTicket", once, binary), "onced-outcome: executed", "onced-key-bin: ", `"id": "T-2"`)
	has(t, p.shell(codes.OK, "CreateTicket", once, binary), "onced-outcome: replayed", "onced-key-bin: ", `"id": "T-2"`)
	has(t, p.shell(codes.OK, "ListTickets", `{"project": "onced"}`, "idempotency-key: k"), `"id": "T-1"`, `"id": "T-2"`)

	for name, c := range map[string]struct {
		code    codes.Code
		reason  string
		body    string
		headers []string
	}{
		"other arguments":  {codes.FailedPrecondition, "FINGERPRINT_MISMATCH", `{"project": "onced", "title": "twice"}`, []string{"idempotency-key: k"}},
		"no key":           {codes.InvalidArgument, "KEY_REQUIRED", once, nil},
		"two keys":         {codes.InvalidArgument, "KEY_AMBIGUOUS", once, []string{"idempotency-key: a", "idempotency-key: b"}},
		"one key twice":    {codes.InvalidArgument, "KEY_AMBIGUOUS", once, []string{"idempotency-key: a", "idempotency-key: a"}},
		"another in bytes": {codes.InvalidArgument, "KEY_AMBIGUOUS", once, []string{"idempotency-key: a", binary}},
		"the word null":    {codes.InvalidArgument, "KEY_INVALID", once, []string{"idempotency-key: null"}},
		"an empty key":     {codes.InvalidArgument, "KEY_INVALID", once, []string{"idempotency-key: "}},
	} {
		t.Run(name, func(t *testing.T) {
			out := p.shell(c.code, "CreateTicket", c.body, c.headers...)
			has(t, out, `"reason": "`+c.reason+`"`, `"domain": "onced"`, "grpc-retry-pushback-ms: -1")
			hasNot(t, out, "onced-outcome")
		})
	}
	effected(t, ticketCreated, 2, p)
}

// A key may come in a field of the request, where the method has one for it.
func TestTicketsKeyInField(t *testing.T) {
	requireGrpcurl(t)
	t.Parallel()
	p := startTool(t, serve(t, newStore(t)).GRPC)
	p.shell(codes.OK, "CreateTicket", `{"project": "onced", "title": "once"}`, "idempotency-key: k")
	const comment, field = `{"ticket_id": "T-1", "text": "seen"}`, `{"ticket_id": "T-1", "text": "seen", "request_id": "c"}`
	has(t, p.shell(codes.OK, "AddComment", field), "onced-outcome: executed", "onced-key: c")
	has(t, p.shell(codes.OK, "AddComment", field), "onced-outcome: replayed", "onced-key: c")
	has(t, p.shell(codes.OK, "AddComment", comment, "idempotency-key: c"), "onced-outcome: replayed", "onced-key: c")
	has(t, p.shell(codes.OK, "AddComment", field, "idempotency-key: c"), "onced-outcome: replayed", "onced-key: c")
	has(t, p.shell(codes.InvalidArgument, "AddComment", field, "idempotency-key: d"), "KEY_AMBIGUOUS")
	has(t, p.shell(codes.InvalidArgument, "AddComment", strings.Replace(field, `"c"`, `"undefined"`, 1)), "KEY_INVALID")
	has(t, p.shell(codes.InvalidArgument, "AddComment", comment), "KEY_REQUIRED")

	// The same key under another method is another operation.
	has(t, p.shell(codes.OK, "CloseTicket", `{"ticket_id": "T-1"}`, "idempotency-key: c"), "onced-outcome: executed", `"closed": true`)
	effected(t, commentAdded, 1, p)
}

// A failure that is the outcome is replayed whole. One by which nothing happened leaves
// the key free for the same call.
func TestTicketsFailures(t *testing.T) {
	requireGrpcurl(t)
	t.Parallel()
	p := startTool(t, serve(t, newStore(t)).GRPC)
	const archive = `{"project": "archive", "title": "once"}`
	first := p.shell(codes.FailedPrecondition, "CreateTicket", archive, "idempotency-key: k")
	again := p.shell(codes.FailedPrecondition, "CreateTicket", archive, "idempotency-key: k")
	has(t, first, "onced-outcome: executed", "type.googleapis.com/google.rpc.ErrorInfo")
	if want := strings.Replace(first, "onced-outcome: executed", "onced-outcome: replayed", 1); sorted(again) != sorted(want) {
		t.Errorf("the replay is\n%s\nand the failure was\n%s", again, first)
	}

	for range 2 {
		out := p.shell(codes.InvalidArgument, "CreateTicket", `{"project": "onced"}`, "idempotency-key: empty")
		has(t, out, "onced-outcome: not-executed")
	}
	corrected := p.shell(codes.FailedPrecondition, "CreateTicket", `{"project": "onced", "title": "once"}`, "idempotency-key: empty")
	has(t, corrected, "FINGERPRINT_MISMATCH")

	const comment = `{"ticket_id": "T-1", "text": "seen", "request_id": "c"}`
	has(t, p.shell(codes.NotFound, "AddComment", comment), "onced-outcome: not-executed")
	p.shell(codes.OK, "CreateTicket", `{"project": "onced", "title": "once"}`, "idempotency-key: other")
	has(t, p.shell(codes.OK, "AddComment", comment), "onced-outcome: executed", `"ticketId": "T-1"`)
	effected(t, ticketCreated, 1, p)
}

// sorted is a text with its lines in order: headers are printed in any.
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// The caller's deadline passes when the tool has had its effect and has not returned. The
// next call gets what came of it.
func TestR04_DeadlineThroughGrpcurl(t *testing.T) {
	requireGrpcurl(t)
	t.Parallel()
	p := startTool(t, serve(t, newStore(t)).GRPC, "--delay", "300ms")
	call := func(key string, more ...string) (output string, exit int) {
		args := append([]string{
			"-v", "-plaintext", "-import-path", "../../examples/tickets/proto", "-import-path", "../../proto", "-proto", "tickets/v1/tickets.proto",
			"-H", "idempotency-key: " + key, "-d", `{"project": "onced", "title": "once"}`,
		}, append(more, p.GRPC, "tickets.v1.Tickets/CreateTicket")...)
		cmd := exec.Command("grpcurl", args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	keys := 0
	eventually(t, "a call that has arrived before its deadline", func() bool {
		key := fmt.Sprint("k", keys)
		keys++
		const noConnection = 1
		if out, exit := call(key, "-max-time", "0.1"); exit != ended(codes.DeadlineExceeded) && exit != noConnection {
			t.Fatalf("a deadline of 100 ms before a handler of 300 ms ends with status %d:\n%s", exit, out)
		}
		var out string
		eventually(t, "the answer", func() bool {
			exit := 0
			if out, exit = call(key); exit != 0 && exit != ended(codes.Aborted) {
				t.Fatalf("the next call ends with status %d:\n%s", exit, out)
			}
			return exit == 0
		})
		return strings.Contains(out, "onced-outcome: replayed")
	})
	effected(t, ticketCreated, keys, p)
}
