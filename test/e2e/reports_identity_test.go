package e2e

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// These reports are about what makes two calls the same one.

// fingerprintOf makes the fingerprint of JSON arguments as a script does. With a
// status other than 0 there is none.
func fingerprintOf(t testing.TB, arguments string) (print string, status int) {
	t.Helper()
	cmd := exec.Command(binary("once"), "fingerprint", "--scheme", "cj1", "-")
	cmd.Stdin = strings.NewReader(arguments)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	status = cmd.ProcessState.ExitCode()
	if (status == 0) != (out.Len() > 0) || (status == 0) == (errs.Len() > 0) {
		t.Errorf("once fingerprint ended with status %d, printed %q and said %q", status, &out, &errs)
	}
	return strings.TrimSpace(out.String()), status
}

// printed is the fingerprint of arguments that have one.
func printed(t testing.TB, arguments string) string {
	t.Helper()
	print, status := fingerprintOf(t, arguments)
	if status != 0 {
		t.Fatalf("%s have no fingerprint: status %d", arguments, status)
	}
	return print
}

// On the way between two tries somebody writes the numbers in another way. The
// retry is the same operation: it waits for the first try, and gets its result.
func TestR08_NumbersRespelled(t *testing.T) {
	s := serve(t, newStore(t))
	for first, retry := range map[string]string{
		`{"hours":1.0}`:                    `{"hours":1}`,
		`{"hours":100}`:                    `{"hours":1e2}`,
		`{"hours":0.1}`:                    `{"hours":0.10}`,
		`{"hours":0}`:                      `{"hours":-0}`,
		`{"hours":100000000000000000000}`:  `{"hours":1e20}`,
		`{"hours":12345678901234567890.0}`: ` { "hours" : 12345678901234567890 } `,
		`{"hours":1e999999999}`:            `{"hours":10E+999999998}`,
		`{"a":[{"b":1.50}],"c":"\u0063"}`:  `{"c":"c","a":[{"b":15e-1}]}`,
	} {
		t.Run(first, func(t *testing.T) {
			token := filepath.Join(t.TempDir(), "token")
			name := []string{"--key", first, "--method", "book"}
			mine, respelled := printed(t, first), printed(t, retry)
			claim := func(want int, print string) string {
				t.Helper()
				return s.once(want, append([]string{"claim", "--fingerprint", print}, name...)...)
			}
			s.once(0, append([]string{"claim", "--fingerprint", mine, "--token-file", token}, name...)...)
			claim(5, respelled)
			claim(5, mine)
			s.once(0, append([]string{"complete", "--token-file", token, "--text", "booking 7"}, name...)...)
			for _, print := range []string{respelled, mine} {
				if out := claim(3, print); !strings.Contains(out, "booking 7") {
					t.Errorf("%s is answered\n%s", print, out)
				}
			}
		})
	}
}

// Numbers that a double cannot tell apart are different arguments: under one key the
// second is refused, loudly, and is not told what the first got.
func TestR09_NumbersThatDoublesConfuse(t *testing.T) {
	s := serve(t, newStore(t))
	for first, second := range map[string]string{
		"9007199254740992":               "9007199254740993",
		"999999999999999999":             "1000000000000000000",
		"123456789012345678901234567890": "123456789012345678901234567891",
		"0.1":                            "0.1000000000000000055511151231257827",
		"1e400":                          "1e401",
		"1e-400":                         "0",
		"-1e999999999":                   "1e999999999",
	} {
		t.Run(first, func(t *testing.T) {
			token := filepath.Join(t.TempDir(), "token")
			name := []string{"--key", "pay " + first, "--method", "pay"}
			mine, other := printed(t, `{"account":`+first+`}`), printed(t, `{"account":`+second+`}`)
			refused := func(verb ...string) {
				t.Helper()
				out := s.once(65, append(append(verb, "--fingerprint", other), name...)...)
				if !strings.Contains(out, "FINGERPRINT_MISMATCH") {
					t.Errorf("the other account is answered %q", out)
				}
				if strings.Contains(out, "receipt") || strings.Contains(out, "first-holder") || strings.Contains(out, strings.TrimPrefix(mine, "cj1:")) {
					t.Errorf("the other account is told of the first one: %q", out)
				}
			}
			s.once(0, append([]string{"claim", "--fingerprint", mine, "--holder", "first-holder", "--token-file", token}, name...)...)
			refused("claim", "-o", "json")
			s.once(0, append([]string{"complete", "--token-file", token, "--text", "receipt"}, name...)...)
			refused("claim", "--holder", "second-holder")
			refused("lookup")
			if out := s.once(3, append([]string{"claim", "--fingerprint", mine}, name...)...); !strings.Contains(out, "receipt") {
				t.Errorf("the first account is answered %q", out)
			}
			if !loggedAtError(s, mine, other, "first-holder", "second-holder", "pay "+first) {
				t.Errorf("the log has no error with both fingerprints and both holders:\n%s", s.log)
			}
		})
	}
}

// loggedAtError tells whether a server has logged one line at error with all of these
// words.
func loggedAtError(s *process, words ...string) bool {
	for line := range strings.Lines(s.log.String()) {
		all := strings.Contains(line, "ERROR")
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// The caller's key comes from the caller, and outlives its process: whatever ended a
// try, the next process asks under the same key, and there is one execution. Nothing
// makes up a key for a caller that has none.
func TestR39_KeyOutlivesTheProcess(t *testing.T) {
	dir, ledger := newStore(t), filepath.Join(t.TempDir(), "ledger")
	s := serve(t, dir)
	try := func(key, command string) []string {
		return []string{"exec", "--key", key, "--method", "charge", "--", "sh", "-c", command, ledger}
	}
	const charge = `echo charged >> "$0"; echo receipt`
	s.kill()
	down := s.onceCommand(try("intent-1", charge)...)
	if err := down.Start(); err != nil {
		t.Fatal(err)
	}
	_ = down.Process.Kill() // the caller dies before it has an answer
	_ = down.Wait()

	s = serveAt(t, dir, s.GRPC)
	s.once(64, try("", charge)...)
	s.once(64, "exec", "--method", "charge", "--", "sh", "-c", charge, ledger)
	if got := s.metric(`onced_claims_total{namespace="other",outcome="GRANTED"}`); got != 0 || lines(t, ledger) != 0 {
		t.Errorf("without a key: %v claims were granted and %d commands run", got, lines(t, ledger))
	}
	for range 3 {
		if out := s.once(0, try("intent-1", charge)...); out != "receipt\n" {
			t.Errorf("a try got %q", out)
		}
	}
	s.once(65, try("intent-1", charge+" for another")...) // a mismatch is definitive: nothing runs under another key
	executed(t, lines(t, ledger), 1)
	s.once(0, try("intent-2", charge)...) // the caller's own decision
	executed(t, lines(t, ledger), 2)
}

// answer is all that a caller gets of a call.
type answer struct {
	resp            *oncedv1.ClaimResponse
	err             error
	header, trailer metadata.MD
}

// answerOf makes a claim and keeps all of the answer.
func (c caller) answerOf(req *oncedv1.ClaimRequest) (a answer) {
	a.resp, a.err = c.stub.Claim(c.ctx(), req, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

// same demands that two answers are the same in everything but the moment at which
// they were made.
func (a answer) same(t *testing.T, what string, b answer) {
	t.Helper()
	was, is := proto.CloneOf(a.resp), proto.CloneOf(b.resp)
	if was != nil && is != nil {
		was.AnswerTime, is.AnswerTime = nil, nil
	}
	if !proto.Equal(was, is) || !proto.Equal(status.Convert(a.err).Proto(), status.Convert(b.err).Proto()) {
		t.Errorf("%s was answered\n%v, %v\nand is now\n%v, %v", what, was, a.err, is, b.err)
	}
	if !reflect.DeepEqual(a.header, b.header) || !reflect.DeepEqual(a.trailer, b.trailer) {
		t.Errorf("%s came with\n%v %v\nand comes with\n%v %v", what, a.header, a.trailer, b.header, b.trailer)
	}
}

// What settles an operation is stored beside what was claimed, and not in its place:
// before a kill and after it the same arguments get the first outcome, in all its
// fields, and others are refused. That replays happen at all can be watched.
func TestR49_ReplayThroughTheRealPath(t *testing.T) {
	dir := newStore(t)
	s := serve(t, dir)
	created := &oncedv1.Payload{ContentType: `application/http; msgtype=response`, Body: &oncedv1.Payload_Data{
		Data: []byte("HTTP/1.1 201 Created\r\nLocation: /tickets/7\r\nContent-Type: application/json\r\n\r\n{\"id\": 7,\x00\xff}"),
	}}
	text := &oncedv1.Payload{ContentType: "application/vnd.acme.ticket+json; charset=utf-8", Body: &oncedv1.Payload_Text{Text: "{\"id\": 7.0, \"n\": \"\u00e9\"}\n"}}
	claims := map[string]*oncedv1.ClaimRequest{}
	for name, settle := range map[string]settling{
		"bytes": storing(created), "text": storing(text), "empty": storing(&oncedv1.Payload{}),
		"omitted": func(c caller, q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse) {
			req := completion(q, a, "")
			req.Result = &oncedv1.CompleteRequest_Omitted{Omitted: &oncedv1.OmittedResult{
				ContentType: "image/png", Size: 1 << 40, Sha256: bytes.Repeat([]byte{7}, 32),
			}}
			c.complete(req)
		},
		"failed": func(c caller, q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse) {
			req := failing(q, a, oncedv1.Disposition_DISPOSITION_FINAL)
			req.Failure = &oncedv1.Failure{Code: "NO_FUNDS", Message: "no money", Details: created}
			c.fail(req)
		},
	} {
		req := claimOf(name)
		req.Fingerprints = []string{printed(t, `{"of":"`+name+`"}`)}
		req.Subject, req.Holder = "alice", "holder-1"
		claims[name] = req
		settle(s.caller(), req, s.caller().granted(req))
	}
	replays := func() float64 { return s.metric(`onced_claims_total{namespace="other",outcome="REPLAYED"}`) }
	if got := replays(); got != 0 {
		t.Fatalf("%v replays before the first one", got)
	}
	before := everyAnswer(t, s.caller(), claims)
	if got := replays(); got != 4 {
		t.Errorf("%v replays are counted, want 4", got)
	}
	if got := before["bytes"].resp.GetOperation().GetResult().GetStored(); !proto.Equal(got, created) {
		t.Errorf("the replay is %v, want %v", got, created)
	}
	if got := before["text"].resp.GetOperation().GetResult().GetStored(); !proto.Equal(got, text) {
		t.Errorf("the replay is %v, want %v", got, text)
	}
	if got := before["failed"].resp.GetOperation().GetFailure(); !proto.Equal(got.GetDetails(), created) || got.GetCode() != "NO_FUNDS" {
		t.Errorf("the stored failure is %v", got)
	}
	s.kill()

	s = serve(t, dir)
	for name, after := range everyAnswer(t, s.caller(), claims) {
		before[name].same(t, name, after)
	}
	if got := replays(); got != 4 {
		t.Errorf("%v replays are counted after the restart, want 4", got)
	}
	s.stop()
	isSound(t, dir)
}

// settling is a report that settles an operation.
type settling func(c caller, q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse)

// storing completes with a result.
func storing(p *oncedv1.Payload) settling {
	return func(c caller, q *oncedv1.ClaimRequest, a *oncedv1.ClaimResponse) {
		req := completion(q, a, "")
		req.Result = &oncedv1.CompleteRequest_Stored{Stored: p}
		c.complete(req)
	}
}

// everyAnswer claims settled operations again, each under a new token: as they were
// claimed first, with other arguments, and with none.
func everyAnswer(t *testing.T, c caller, claims map[string]*oncedv1.ClaimRequest) map[string]answer {
	t.Helper()
	answers, others := map[string]answer{}, printed(t, `{"of":"others"}`)
	for name, first := range claims {
		again := proto.CloneOf(first)
		again.ClaimToken = claimOf(name).GetClaimToken()
		a := c.answerOf(again)
		if outcome := a.resp.GetOutcome(); a.err != nil || outcome != replayedOutcome && outcome != oncedv1.Outcome_OUTCOME_FAILED {
			t.Errorf("%s is answered %v, %v", name, a.resp, a.err)
		}
		answers[name] = a
		for what, prints := range map[string][]string{"other arguments": {others}, "no arguments": nil} {
			other := proto.CloneOf(again)
			other.Fingerprints = prints
			a := c.answerOf(other)
			refused(t, a.err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
			answers[name+" with "+what] = a
		}
	}
	return answers
}

// A document that two parsers read in two ways has no fingerprint, so that nothing
// can be claimed for it, whether the script looks at the status or not. Names in
// other letters are other names.
func TestR52_DocumentsThatParsersReadDifferently(t *testing.T) {
	s := serve(t, newStore(t))
	script := func(arguments, text string) (status int) {
		t.Helper()
		cmd := s.onceCommand()
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", text}
		cmd.Stdin = strings.NewReader(arguments)
		out, err := cmd.CombinedOutput()
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatalf("%v\n%s", err, out)
		}
		return cmd.ProcessState.ExitCode()
	}
	const careful = `p=$(once fingerprint --scheme cj1 -) && once claim --key k --method pay --fingerprint "$p"`
	const careless = `once claim --key k --method pay --fingerprint "$(once fingerprint --scheme cj1 -)"`
	for _, arguments := range []string{
		`{"amount":5,"amount":500}`,
		`{"amount":5,"\u0061mount":500}`,
		`{"a":{"amount":5,"b":[{}],"amount":5}}`,
		`{"a":1} x`,
		`{"a":1}{"a":2}`,
		`{"a":1}` + "\x00",
		"\ufeff" + `{"a":1}`,
		``,
	} {
		for _, text := range []string{careful, careless} {
			if status := script(arguments, text); status != 64 {
				t.Errorf("%q: the script ended with status %d, want 64", arguments, status)
			}
		}
	}
	s.once(66, "lookup", "--key", "k", "--method", "pay")

	for arguments, want := range map[string]int{`{"amount":5}`: 5, `{"amount":5,"Amount":500}`: 65, `{"Amount":5}`: 65} {
		key := "of " + arguments
		s.once(0, "claim", "--key", key, "--method", "pay", "--fingerprint", printed(t, `{"amount":5}`))
		s.once(want, "claim", "--key", key, "--method", "pay", "--fingerprint", printed(t, arguments))
	}
}
