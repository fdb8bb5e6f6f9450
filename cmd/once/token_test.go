package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onced/onced"
)

// ticketIn reads a token file, whatever its mode.
func ticketIn(t *testing.T, file string) (k ticket) {
	t.Helper()
	must(t, json.Unmarshal([]byte(readFile(t, file)), &k))
	return k
}

// claims returns the arguments of a claim of the key k with a token file.
func claims(file string, more ...string) []string {
	return append([]string{"claim", "--key", "k", "--method", "m", "--token-file", file, "-o", "json"}, more...)
}

// TestClaimWhoseAnswerWasLost: the same command with the same file has the first
// answer again, as long as the file does not say that there was one.
func TestClaimWhoseAnswerWasLost(t *testing.T) {
	s, file := newServer(t), inDir(t, "token")
	granted := jsonOf(t, s.once(claims(file)...).want(t, exitOK))
	lost := ticketIn(t, file)
	lost.Fence = 0
	must(t, os.WriteFile(file, lost.encode(), ticketMode))
	again := jsonOf(t, s.once(claims(file)...).want(t, exitOK))
	for _, path := range []string{"operation.attempt", "operation.fence", "operation.lease_end"} {
		if at(t, again, path) != at(t, granted, path) {
			t.Errorf("the re-sent claim has another %s: %v, %v", path, at(t, again, path), at(t, granted, path))
		}
	}
}

// TestClaimAfterAKilledRun: a run that was granted its claim may have executed. The
// next one with its token file is not granted the same claim again, and can report
// on it.
func TestClaimAfterAKilledRun(t *testing.T) {
	s, file := newServer(t), inDir(t, "token")
	s.once(claims(file)...).want(t, exitOK)
	first := ticketIn(t, file)
	for range 2 {
		r := s.once(claims(file)...).want(t, exitInProgress)
		if at(t, jsonOf(t, r), "operation.state") != "STATE_PENDING" || !strings.Contains(r.stderr, "may have begun") || !strings.Contains(r.stderr, file) {
			t.Errorf("stdout %s, stderr %s", r.stdout, r.stderr)
		}
		if k := ticketIn(t, file); !bytes.Equal(k.ClaimToken, first.ClaimToken) || k.Fence != first.Fence {
			t.Error("the token of the first run is not in the file any more")
		}
	}
	s.once("complete", "--key", "k", "--method", "m", "--token-file", file, "--text", "done").want(t, exitOK)
	if r := s.once(claims(file)...).want(t, exitReplayed); r.stderr != "" {
		t.Errorf("stderr %s", r.stderr)
	}
}

// TestClaimAfterALapse: it is unresolved also for the run that has its token file,
// until somebody takes over. The file is that of whoever was granted the newest
// claim by it.
func TestClaimAfterALapse(t *testing.T) {
	s, file := newServer(t, func(p *onced.Policy) { p.ReconcileAfter = new(time.Duration) }), inDir(t, "token")
	s.once(claims(file, "--lease", "1s")...).want(t, exitOK)
	first := ticketIn(t, file)
	s.once(claims(file, "--wait", "20s")...).want(t, exitUnresolved)
	s.once(claims(file, "--take-over-attempt", "1")...).want(t, exitTakenOver)
	second := ticketIn(t, file)
	s.once("fail", "--key", "k", "--method", "m", "--token-file", file, "--disposition", "did-not-happen").want(t, exitOK)
	granted := jsonOf(t, s.once(claims(file)...).want(t, exitOK))
	third := ticketIn(t, file)
	if at(t, granted, "operation.attempt") != float64(3) || first.Fence >= second.Fence || second.Fence >= third.Fence ||
		bytes.Equal(first.ClaimToken, second.ClaimToken) || bytes.Equal(second.ClaimToken, third.ClaimToken) {
		t.Errorf("fences %d, %d, %d; answer %v", first.Fence, second.Fence, third.Fence, granted)
	}

	// The answer of the third claim is lost as well: the token was in the file before.
	must(t, os.WriteFile(file, ticket{ClaimToken: second.ClaimToken, Fence: second.Fence, NextToken: third.ClaimToken}.encode(), ticketMode))
	if again := jsonOf(t, s.once(claims(file)...).want(t, exitOK)); at(t, again, "operation.fence") != at(t, granted, "operation.fence") {
		t.Errorf("first %v, again %v", granted, again)
	}
	s.once("complete", "--key", "k", "--method", "m", "--token-file", file, "--text", "done").want(t, exitOK)
}

// TestManyRunsWithOneTokenFile: of forty at once one is granted its claim, with a new
// file as with that of an earlier run.
func TestManyRunsWithOneTokenFile(t *testing.T) {
	s, file := newServer(t), inDir(t, "token")
	for _, round := range []string{"a new file", "a file of an earlier run"} {
		script := `seq 40 | xargs -P 16 -I N sh -c '"$0" claim --key k --method m --token-file "$1" > /dev/null 2>&1; echo $?' "$1" "$2"`
		once := s.command()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", once.Path, file)
		cmd.Env = once.Env
		counts := map[string]int{}
		for status := range strings.FieldsSeq(finish(t, cmd).want(t, 0).stdout) {
			counts[status]++
		}
		if counts["0"] != 1 || counts["5"] != 39 {
			t.Errorf("%s: exit statuses %v, want 1 of 0 and 39 of 5", round, counts)
		}
		s.once("fail", "--key", "k", "--method", "m", "--token-file", file, "--disposition", "not-executed").want(t, exitOK)
	}
}

// TestTokenFileOfOthers: one that others can read or write is refused before
// anything is sent, with what to do about it.
func TestTokenFileOfOthers(t *testing.T) {
	s, file := newServer(t), inDir(t, "token")
	must(t, os.WriteFile(file, ticket{ClaimToken: bytes.Repeat([]byte{7}, 32)}.encode(), ticketMode))
	for _, mode := range []os.FileMode{0o644, 0o640, 0o620, 0o602} {
		must(t, os.Chmod(file, mode))
		for _, r := range []run{
			s.once(claims(file)...),
			s.once("renew", "--key", "k", "--method", "m", "--token-file", file),
		} {
			if r.want(t, exitUsage); !strings.Contains(r.stderr, "`chmod 600 "+file+"`") {
				t.Errorf("mode %v: stderr %s", mode, r.stderr)
			}
		}
	}
	link := inDir(t, "link")
	must(t, os.Symlink("nothing", link))
	s.once(claims(link)...).want(t, exitUsage)
	s.once("lookup", "--key", "k").want(t, exitNotFound)
	must(t, os.Chmod(file, 0o600))
	s.once(claims(file)...).want(t, exitOK)
}

// TestTokenFileThatCannotBe: it is said which file is meant, and nothing is sent.
func TestTokenFileThatCannotBe(t *testing.T) {
	s, nowhere := newServer(t), inDir(t, "none")
	file := filepath.Join(nowhere, "token")
	for _, c := range []struct {
		run  run
		says string
	}{
		{s.once(claims(file)...), "--token-file " + file + ": open " + nowhere + ": no such file"},
		{s.once("renew", "--key", "k", "--method", "m", "--token-file", file), "--token-file " + file + " is not there: name the file"},
	} {
		if c.run.want(t, exitUsage); !strings.Contains(c.run.stderr, c.says) {
			t.Errorf("stderr %s, want %s", c.run.stderr, c.says)
		}
	}
	s.once("lookup", "--key", "k", "--method", "m").want(t, exitNotFound)
}
