package e2e

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// takeoverAtOnce is a configuration in which nobody waits for what a lost holder
// may have sent.
const takeoverAtOnce = "default:\n  reconcile_after: 0s\n"

// configFile writes a configuration.
func configFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "onced.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A worker stalls until its lease is over and somebody has taken over. When it
// comes back it is told to stop, and its result overwrites nothing.
func TestR17_StalledWorker(t *testing.T) {
	s := serve(t, newStore(t), "--config", configFile(t, takeoverAtOnce))
	c := s.caller()
	ledger := filepath.Join(t.TempDir(), "ledger")
	worker := startRole(t, "work", s, "ONCED_LEDGER="+ledger)
	worker.tell("k")
	worker.says("running")
	worker.signal(syscall.SIGSTOP)
	eventually(t, "the stalled worker's lease to end", func() bool { return c.lookup("k").GetState() == oncedv1.State_STATE_UNRESOLVED })

	second := takeover("k", 1)
	second.Holder = "host-1" // the label of the first: labels prove nothing
	taken := c.answered(second, takenOverOutcome)
	before := c.lookup("k")
	if before.GetFence() <= 0 || before.GetAttempt() != 2 {
		t.Errorf("the takeover is %v, want attempt 2", before)
	}
	worker.signal(syscall.SIGCONT)
	worker.tell("wait")
	worker.says("lost")
	worker.tell("old")
	worker.says("lost")
	if after := c.lookup("k"); !after.GetLeaseEnd().AsTime().Equal(before.GetLeaseEnd().AsTime()) || after.GetFence() != before.GetFence() {
		t.Errorf("the former holder has changed the claim from\n%v\nto\n%v", before, after)
	}
	c.complete(completion(second, taken, "new"))
	if got := c.answered(claimOf("k"), replayedOutcome).GetOperation().GetResult().GetStored().GetText(); got != "new" {
		t.Errorf("the stored result is %q, want the one of who took over", got)
	}
	executed(t, lines(t, ledger), 1)
}

// Whatever a former holder writes is refused. Fences go on rising over a restart,
// and over the end of a key, whose second life does not know the first one's token.
func TestR17_FormerHolder(t *testing.T) {
	inLab(t, func(l *lab) {
		first := leased("k", 2*time.Second)
		granted := l.granted(first)
		l.runs.Add(1)
		pass(2 * time.Second)
		second := takeover("k", 1)
		taken := l.answered(second, takenOverOutcome)
		leaseEnd := taken.GetOperation().GetLeaseEnd().AsTime()
		former := func() {
			t.Helper()
			_, renewed := l.stub.Renew(l.ctx(), renewal(first, granted))
			_, completed := l.stub.Complete(l.ctx(), completion(first, granted, "old"))
			_, failed := l.stub.Fail(l.ctx(), failing(first, granted, notExecuted))
			for _, err := range []error{renewed, completed, failed} {
				refused(t, err, codes.FailedPrecondition, "CLAIM_LOST")
			}
		}
		former()
		if end := l.lookup("k").GetLeaseEnd().AsTime(); !end.Equal(leaseEnd) {
			t.Errorf("the former holder has moved the lease end from %v to %v", leaseEnd, end)
		}
		l.complete(completion(second, taken, "new"))
		former()
		l.replayed("k", "new", granted)

		l.restart()
		next := l.granted(claimOf("next")).GetOperation().GetFence()
		pass(24*time.Hour + 2*time.Minute) // the key is forgotten and swept
		l.absent("k")
		again := l.granted(claimOf("k")).GetOperation()
		former()
		if fences := []uint64{granted.GetOperation().GetFence(), taken.GetOperation().GetFence(), next, again.GetFence()}; !rising(fences) {
			t.Errorf("the fences are %d, want them to rise", fences)
		}
		l.ran(1)
	}, retained(24*time.Hour), func(p *onced.Policy) { now := time.Duration(0); p.ReconcileAfter = &now })
}

func rising(numbers []uint64) bool {
	for i := range len(numbers) - 1 {
		if numbers[i] >= numbers[i+1] {
			return false
		}
	}
	return true
}

// A claim without a lease has the default one, and says so; a lease that makes no
// sense is refused, as is a configuration that forgets outcomes before leases end.
func TestR21_LeaseUnset(t *testing.T) {
	s := serve(t, newStore(t))
	c, r := s.caller(), &runs{}
	first := claimOf("unset")
	op := c.granted(first).GetOperation()
	r.n.Add(1)
	if op.GetLease().AsDuration() != 30*time.Second || op.GetLeaseEnd().AsTime().Sub(op.GetClaimTime().AsTime()) != 30*time.Second {
		t.Errorf("the lease is %v until %v, want the default of 30 s, echoed", op.GetLease(), op.GetLeaseEnd())
	}
	c.answered(claimOf("unset"), inProgressOutcome)
	for name, lease := range map[string]*durationpb.Duration{
		"zero": durationpb.New(0), "negative": durationpb.New(-time.Second), "999 ms": durationpb.New(999 * time.Millisecond),
		"25 h": durationpb.New(25 * time.Hour), "overflow": {Seconds: 9223372036},
		"overflow of the wire": {Seconds: math.MaxInt64}, "two signs": {Seconds: 1, Nanos: -1},
	} {
		req := claimOf(name)
		req.Lease = lease
		if _, err := c.stub.Claim(c.ctx(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a lease that is %s answered %v, want INVALID_ARGUMENT", name, err)
		}
		c.absent(name)
	}
	out, exit := runOnced(t, "config", "--config", configFile(t, "default:\n  max_lease: 24h\n  result_retention: 1h\n"))
	if exit != 64 || !strings.Contains(out, "result_retention") {
		t.Errorf("a retention below the lease ended with status %d:\n%s", exit, out)
	}
	r.are(t, 1)
}

// A delivery that is refused because somebody runs, or because nobody knows, is
// never rendered as a success: not by the client, not by an exit status.
func TestR32_RefusalIsNoSuccess(t *testing.T) {
	s := serve(t, newStore(t))
	c, r := s.caller(), &runs{}
	ledger := filepath.Join(t.TempDir(), "ledger")
	holder := startRole(t, "work", s, "ONCED_LEDGER="+ledger)
	holder.tell("k")
	holder.says("running")
	call := client.Call{Key: "k", Method: "act"}
	_, err := client.Do(c.ctx(), s.client(), call, r.returning("r"), client.NoWait())
	if busy := new(client.InProgress); !errors.As(err, &busy) || busy.RetryAfter <= 0 {
		t.Errorf("while somebody runs a call ended with %v, want InProgress with the time after which to ask again", err)
	}
	s.once(5, "claim", "--key", "k", "--method", "act")

	holder.signal(syscall.SIGKILL)
	eventually(t, "the dead holder's lease to end", func() bool { return c.lookup("k").GetState() == oncedv1.State_STATE_UNRESOLVED })
	if _, err := client.Do(c.ctx(), s.client(), call, r.returning("r")); !errors.As(err, new(*client.Unresolved)) {
		t.Errorf("after the holder's death a call ended with %v, want Unresolved", err)
	}
	s.once(6, "claim", "--key", "k", "--method", "act")
	for outcome, least := range map[string]float64{"IN_PROGRESS": 2, "UNRESOLVED": 2} {
		if got := s.metric(`onced_claims_total{namespace="other",outcome="` + outcome + `"}`); got < least {
			t.Errorf("%v claims are counted as %s, want %v and more", got, outcome, least)
		}
	}
	executed(t, lines(t, ledger)+int(r.n.Load()), 1)
}

// The same for any program under once exec, whose runner is killed in the midst of
// it.
func TestR32_KilledRunner(t *testing.T) {
	s := serve(t, newStore(t))
	ledger := filepath.Join(t.TempDir(), "ledger")
	args := []string{"exec", "--key", "k", "--lease", "2s", "--", "sh", "-c", "echo charged >> " + ledger + "; read end"}
	runner := s.onceCommand(args...)
	stdin, err := runner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close() // ends the program, which outlives its runner
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program to have its effect", func() bool { return lines(t, ledger) == 1 })
	s.once(75, args...)
	_ = runner.Process.Kill()
	_ = runner.Wait()
	c := s.caller()
	eventually(t, "the dead runner's lease to end", func() bool {
		resp, err := c.stub.Lookup(c.ctx(), &oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "default", Key: "k", Method: "exec"}})
		return err == nil && resp.GetOperation().GetState() == oncedv1.State_STATE_UNRESOLVED
	})
	s.once(76, args...)
	executed(t, lines(t, ledger), 1)
}

// once runs the command against the server and demands its exit status.
func (s *process) once(want int, args ...string) string {
	s.t.Helper()
	cmd := s.onceCommand(args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		s.t.Errorf("once %v ended with status %d, want %d:\n%s", args, got, want, out)
	}
	return string(out)
}

func (s *process) onceCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(binary("once"), args...)
	cmd.Env = append(os.Environ(), "ONCED_SERVER="+s.GRPC)
	return cmd
}
