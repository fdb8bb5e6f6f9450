package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// jsonOf reads an answer in JSON: one object on one line.
func jsonOf(t *testing.T, r run) map[string]any {
	t.Helper()
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(r.stdout)); err != nil || compact.String()+"\n" != r.stdout {
		t.Errorf("not one compact line: %q", r.stdout)
	}
	var answer map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatalf("%v in %q", err, r.stdout)
	}
	return answer
}

// at is the value under a path of names.
func at(t *testing.T, answer map[string]any, path string) any {
	t.Helper()
	var value any = answer
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("no %s in %v", path, answer)
		}
		value = object[name]
	}
	return value
}

// TestLifeOfAClaim goes through the verbs in the order in which a script does.
func TestLifeOfAClaim(t *testing.T) {
	s, token := newServer(t), inDir(t, "token")
	name := []string{"--key", "k", "--method", "m", "-o", "json"}
	with := func(verb string, more ...string) []string { return append(append([]string{verb}, name...), more...) }

	granted := jsonOf(t, s.once(with("claim", "--token-file", token, "--holder", "me", "--lease", "90s")...).want(t, exitOK))
	if at(t, granted, "outcome") != "OUTCOME_GRANTED" || at(t, granted, "operation.lease") != "90s" || at(t, granted, "operation.holder") != "me" {
		t.Errorf("claim: %v", granted)
	}
	s.once(with("claim")...).want(t, exitInProgress)
	s.once(with("renew", "--token-file", token, "--lease", "2m")...).want(t, exitOK)
	s.once(with("complete", "--token-file", token, "--text", `{"id": 1}`, "--content-type", "application/json")...).want(t, exitOK)
	s.once(with("complete", "--token-file", token, "--text", "other")...).want(t, exitRefused)

	replayed := jsonOf(t, s.once(with("claim")...).want(t, exitReplayed))
	if at(t, replayed, "operation.result.stored.text") != `{"id": 1}` || at(t, replayed, "operation.first_claim_time") != at(t, granted, "operation.first_claim_time") {
		t.Errorf("replay: %v", replayed)
	}
	found := jsonOf(t, s.once("lookup", "--key", "k", "-o", "json").want(t, exitOK))
	if at(t, found, "operation.state") != "STATE_COMPLETED" || at(t, found, "operation.ref.method") != "m" {
		t.Errorf("lookup: %v", found)
	}
	s.once("lookup", "--key", "other").want(t, exitNotFound)
	s.once("lookup", "--key", "k", "-n", "elsewhere").want(t, exitNotFound)
}

// TestDispositions: each word of fail leads to the exit status of the next claim.
func TestDispositions(t *testing.T) {
	s := newServer(t, func(p *onced.Policy) { p.ReconcileAfter = new(time.Duration) })
	for word, next := range map[string]int{"not-executed": exitOK, "final": exitFailed, "unknown": exitUnresolved} {
		token := inDir(t, "token")
		s.once("claim", "--key", word, "--method", "m", "--token-file", token).want(t, exitOK)
		s.once("fail", "--key", word, "--method", "m", "--token-file", token, "--disposition", word, "--code", "NO_FUNDS", "--message", "no money").want(t, exitOK)
		r := s.once("claim", "--key", word, "--method", "m").want(t, next)
		if word == "final" && (!strings.Contains(r.stdout, "NO_FUNDS") || !strings.Contains(r.stdout, "no money")) {
			t.Errorf("claim of a failed operation: %s", r.stdout)
		}
	}
	token := inDir(t, "token")
	s.once("claim", "--key", "unknown", "--method", "m", "--take-over-attempt", "2").want(t, exitUnresolved)
	s.once("claim", "--key", "unknown", "--method", "m", "--take-over-attempt", "1", "--token-file", token).want(t, exitTakenOver)
	s.once("fail", "--key", "unknown", "--method", "m", "--token-file", token, "--disposition", "did-not-happen").want(t, exitOK)
	s.once("claim", "--key", "unknown", "--method", "m").want(t, exitOK)
	s.once("fail", "--key", "unknown", "--method", "m", "--token-file", token, "--disposition", "unsure").want(t, exitUsage)
}

// TestTokenFile: it is private, holds the token before and the fence after the
// claim, and what is in it is shown nowhere.
func TestTokenFile(t *testing.T) {
	s, file := newServer(t), inDir(t, "token")
	s.budgets.answer = 300 * time.Millisecond
	stop, addr := s.stop, s.addr
	s.addr = "127.0.0.1:1"
	r := s.once("claim", "--key", "k", "--method", "m", "--token-file", file).want(t, exitUnreachable)
	if !strings.Contains(r.stderr, "see that onced serves where --server or ONCED_SERVER says") {
		t.Errorf("stderr %s", r.stderr)
	}
	s.addr, s.budgets.answer = addr, usualBudgets.answer
	defer stop()

	before := ticketIn(t, file)
	s.once("complete", "--key", "k", "--method", "m", "--token-file", file, "--text", "").want(t, exitUsage)
	r = s.once("claim", "--key", "k", "--method", "m", "--token-file", file).want(t, exitOK)
	after := ticketIn(t, file)
	if !bytes.Equal(before.ClaimToken, after.ClaimToken) || before.Fence != 0 || after.Fence == 0 || r.stderr != "" {
		t.Errorf("fences %d and %d, stderr %q", before.Fence, after.Fence, r.stderr)
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if secret := base64.StdEncoding.EncodeToString(after.ClaimToken); strings.Contains(r.stdout+r.stderr, secret) {
		t.Error("the token was shown")
	}
	// A report under it works once the fence is there.
	s.once("complete", "--key", "k", "--method", "m", "--token-file", file, "--text", "").want(t, exitOK)
	// The claim of another is not this file's.
	s.once("claim", "--key", "k", "--method", "m", "--token-file", inDir(t, "new")).want(t, exitReplayed)
}

// TestTokenOfTheEnvironment: it re-sends a claim; broken ones are refused and not
// shown, and two tokens are one too many.
func TestTokenOfTheEnvironment(t *testing.T) {
	s := newServer(t)
	with := func(token string, more ...string) run {
		cmd := s.command(append([]string{"claim", "--key", "k", "--method", "m"}, more...)...)
		cmd.Env = append(cmd.Env, tokenEnv+"="+token)
		return finish(t, cmd)
	}
	token := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 16))
	for range 2 {
		if r := with(token).want(t, exitOK); r.stderr != "" {
			t.Errorf("stderr %q", r.stderr)
		}
	}
	s.once("claim", "--key", "k", "--method", "m").want(t, exitInProgress)
	with(token, "--token-file", inDir(t, "token")).want(t, exitUsage)
	for _, broken := range []string{"", "not base64, secret", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("secret"), 12))} {
		if r := with(broken).want(t, exitUsage); strings.Contains(r.stderr, "secret") || strings.Contains(r.stderr, "c2VjcmV0") {
			t.Errorf("the token was shown: %s", r.stderr)
		}
	}
}

// TestTokenLost: a claim on which nobody can report comes with a warning.
func TestTokenLost(t *testing.T) {
	r := newServer(t).once("claim", "--key", "k", "--method", "m").want(t, exitOK)
	if !strings.Contains(r.stderr, "can only lapse") {
		t.Errorf("stderr %q", r.stderr)
	}
}

// TestRefusedClaims: each with its exit status and a sentence, and nothing stored.
func TestRefusedClaims(t *testing.T) {
	s := newServer(t)
	hex := strings.Repeat("ab", 32)
	for _, args := range [][]string{
		{"--key", "null", "--method", "m"},
		{"--key", " k", "--method", "m"},
		{"--key", "\xff", "--method", "m"},
		{"--key=", "--method", "m"},
		{"--method", "m"},
		{"--key", "k"},
		{"--key", "k", "--method", "m", "-n", "a b"},
		{"--key", "k", "--method", "m", "--lease", "0"},
		{"--key", "k", "--method", "m", "--lease=-1s"},
		{"--key", "k", "--method", "m", "--lease", "999ms"},
		{"--key", "k", "--method", "m", "--lease", "25h"},
		{"--key", "k", "--method", "m", "--lease", "9999999999h"},
		{"--key", "k", "--method", "m", "--wait=-1s"},
		{"--key", "k", "--method", "m", "--fingerprint", "raw1:"},
		{"--key", "k", "--method", "m", "--fingerprint", "raw1:" + hex, "--fingerprint", "raw1:" + hex},
		{"--key", "k", "--method", "m", "--fingerprint", "raw1:" + hex + ",cj1:" + hex},
		{"--key", "k", "--method", "m", "--key-time", "yesterday"},
		{"--key", "k", "--method", "m", "--key-time", "2999-01-01T00:00:00Z"},
		{"--key", "k", "--method", "m", "--no-such-flag"},
		{"--key", "k", "--method", "m", "positional"},
	} {
		if r := s.once(append([]string{"claim"}, args...)...).want(t, exitUsage); !strings.HasPrefix(r.stderr, "once: ") || r.stdout != "" {
			t.Errorf("%q: stdout %q, stderr %q", args, r.stdout, r.stderr)
		}
	}
	s.once("lookup", "--key", "k").want(t, exitNotFound)
	s.once("claim", "--key", "k", "--method", "m", "--fingerprint", "raw1:"+hex, "--subject", "a").want(t, exitOK)
	r := s.once("claim", "--key", "k", "--method", "m", "--fingerprint", "raw1:"+strings.Repeat("cd", 32), "--subject", "a").want(t, exitRefused)
	if !strings.Contains(r.stderr, "(FINGERPRINT_MISMATCH)") {
		t.Errorf("stderr %q", r.stderr)
	}
	s.once("claim", "--key", "k", "--method", "m", "--fingerprint", "raw1:"+hex, "--subject", "b").want(t, exitDenied)
}

// TestHistoryLost: the key time of a key older than the store.
func TestHistoryLost(t *testing.T) {
	s := newServer(t)
	r := s.once("claim", "--key", "k", "--method", "m", "--key-time", "2001-02-03T04:05:06Z").want(t, exitUnresolved)
	if !strings.Contains(r.stdout, "HISTORY_LOST") {
		t.Errorf("stdout %q", r.stdout)
	}
}

// TestClaimWaits: the answer comes when the holder has reported.
func TestClaimWaits(t *testing.T) {
	s, token := newServer(t), inDir(t, "token")
	s.once("claim", "--key", "k", "--method", "m", "--token-file", token).want(t, exitOK)
	b := s.background("claim", "--key", "k", "--method", "m", "--wait", "20s")
	l := s.background("lookup", "--key", "k", "--wait", "20s")
	eventually(t, "the waiting calls", func() bool { return s.waiters() == 2 })
	s.once("complete", "--key", "k", "--method", "m", "--token-file", token, "--text", "done").want(t, exitOK)
	b.wait().want(t, exitReplayed)
	if r := l.wait().want(t, exitOK); !strings.Contains(r.stdout, "COMPLETED") {
		t.Errorf("lookup: %s", r.stdout)
	}
}

// TestResults: from a file, from the standard input, bytes, too many bytes.
func TestResults(t *testing.T) {
	s, file := newServer(t), inDir(t, "file")
	complete := func(key, stdin string, flags ...string) map[string]any {
		t.Helper()
		token := inDir(t, "token")
		s.once("claim", "--key", key, "--method", "m", "--token-file", token).want(t, exitOK)
		cmd := s.command(append([]string{"complete", "--key", key, "--method", "m", "--token-file", token}, flags...)...)
		cmd.Stdin = strings.NewReader(stdin)
		finish(t, cmd).want(t, exitOK)
		return jsonOf(t, s.once("lookup", "--key", key, "-o", "json").want(t, exitOK))
	}
	must(t, os.WriteFile(file, []byte("from a file"), 0o600))
	if got := at(t, complete("file", "", "--file", file), "operation.result.stored.text"); got != "from a file" {
		t.Errorf("%v", got)
	}
	for key, c := range map[string]struct {
		flags []string
		want  string
	}{
		"text":             {[]string{"--text", "a"}, "text/plain"},
		"bytes":            {[]string{"--file", file}, "application/octet-stream"},
		"text, of a type":  {[]string{"--text", "a", "--content-type", "text/html"}, "text/html"},
		"bytes, of a type": {[]string{"--file", file, "--content-type", "image/png"}, "image/png"},
	} {
		if got := at(t, complete(key, "", c.flags...), "operation.result.stored.content_type"); got != c.want {
			t.Errorf("%s: content type %v, want %s", key, got, c.want)
		}
	}
	if got := at(t, complete("stdin", "a\x00\xff", "--file", "-"), "operation.result.stored.data"); got != "YQD/" {
		t.Errorf("%v", got)
	}
	if got := complete("empty", "", "--file=-"); at(t, got, "operation.result.stored") == nil {
		t.Errorf("%v", got)
	}
	for key, size := range map[string]int{"over the policy": onced.GreatestResult/2 + 1, "over the messages": 2 * onced.GreatestResult} {
		answer := complete(key, strings.Repeat("x", size), "--file", "-", "--content-type", "text/plain")
		if at(t, answer, "operation.result.omitted.content_type") != "text/plain" || len(at(t, answer, "operation.result.sha256").(string)) != 44 {
			t.Errorf("%s: %v", key, answer)
		}
	}
	s.once("complete", "--key", "file", "--method", "m", "--token-file", inDir(t, "none"), "--text", "a").want(t, exitUsage)
	s.once("complete", "--key", "file", "--method", "m", "--token-file", file, "--text", "a").want(t, exitUsage)
	s.once("complete", "--key", "file", "--method", "m", "--token-file", file, "--text", "a", "--file", file).want(t, exitUsage)
	s.once("complete", "--key", "file", "--method", "m", "--token-file", file).want(t, exitUsage)
}

// TestResultsForGoClients: what was completed from the shell is a string, or bytes,
// to them.
func TestResultsForGoClients(t *testing.T) {
	s, file := newServer(t), inDir(t, "file")
	must(t, os.WriteFile(file, []byte("a\x00\xff"), 0o600))
	for key, flag := range map[string]string{"text": "--text=sent", "bytes": "--file=" + file} {
		token := inDir(t, "token")
		s.once("claim", "--key", key, "--method", "m", "--token-file", token).want(t, exitOK)
		s.once("complete", "--key", key, "--method", "m", "--token-file", token, flag).want(t, exitOK)
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	c := client.New(conn)
	text, err := client.Do[string](t.Context(), c, client.Call{Key: "text", Method: "m"}, nil)
	if err != nil || text.Value != "sent" || !text.Replayed {
		t.Errorf("got %+v, %v", text, err)
	}
	bytes, err := client.Do[[]byte](t.Context(), c, client.Call{Key: "bytes", Method: "m"}, nil)
	if err != nil || string(bytes.Value) != "a\x00\xff" {
		t.Errorf("got %+v, %v", bytes, err)
	}
}

// TestBadAddress: what cannot be an address is the command line's fault, and not
// that of a server that is down.
func TestBadAddress(t *testing.T) {
	s := &testServer{t: t, budgets: usualBudgets}
	for _, address := range []string{
		"", "localhost", "7443", "http://localhost:7443", "localhost:", "localhost:0", "localhost:99999", "localhost:no-such-port", "::1:7443", "a b:7443",
	} {
		for _, args := range [][]string{
			{"lookup", "--key", "k"},
			{"exec", "--key", "k", "--", "true"},
		} {
			r := s.once(append([]string{args[0], "--server=" + address}, args[1:]...)...).want(t, exitUsage)
			if !strings.Contains(r.stderr, "must be host:port") {
				t.Errorf("%q: stderr %q", address, r.stderr)
			}
		}
	}
}

// TestPolicy shows what is in force.
func TestPolicy(t *testing.T) {
	s := newServer(t, func(p *onced.Policy) { p.FingerprintRequired = true })
	policy := jsonOf(t, s.once("policy", "-o", "json").want(t, exitOK))
	if at(t, policy, "policy.default_lease") != "30s" || at(t, policy, "policy.fingerprint_required") != true {
		t.Errorf("%v", policy)
	}
	text := s.once("policy").want(t, exitOK).stdout
	for _, line := range []string{
		"result retention 168h", "lease 30s by default, 1s to 24h", "fingerprint required", "takeover by CALLER",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
}

// TestManyClaimsOfOneKey: of eighty processes one is granted.
func TestManyClaimsOfOneKey(t *testing.T) {
	s := newServer(t)
	script := `seq 80 | xargs -P 16 -I N sh -c '"$0" claim --key k --method m > /dev/null 2>&1; echo $?' "$1"`
	once := s.command()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", once.Path)
	cmd.Env = once.Env
	counts := map[string]int{}
	for status := range strings.FieldsSeq(finish(t, cmd).want(t, 0).stdout) {
		counts[status]++
	}
	if counts["0"] != 1 || counts["5"] != 79 || len(counts) != 2 {
		t.Errorf("exit statuses %v, want 1 of 0 and 79 of 5", counts)
	}
}

// TestHelp: every verb has an example, and help and version are no errors.
func TestHelp(t *testing.T) {
	s := &testServer{t: t, budgets: usualBudgets}
	for _, verb := range []string{"claim", "complete", "fail", "lookup", "renew", "policy", "exec", "demo"} {
		if r := s.once(verb, "--help").want(t, exitOK); !strings.Contains(r.stdout, "    once "+verb) {
			t.Errorf("no example in\n%s", r.stdout)
		}
	}
	if r := s.once("--version").want(t, exitOK); r.stdout != "once devel\n" {
		t.Errorf("version %q", r.stdout)
	}
	s.once("--help").want(t, exitOK)
	s.once().want(t, exitUsage)
	s.once("steal").want(t, exitUsage)
}
