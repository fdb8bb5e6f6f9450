package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

type execCommand struct {
	Key        string         `help:"Idempotency key of the operation: the same in every retry." required:"" placeholder:"K"`
	Method     string         `help:"Name of what is run, exec by default." default:"exec" placeholder:"M"`
	Wait       time.Duration  `help:"How long to wait while somebody else runs it; not at all by default." default:"0" placeholder:"D"`
	Lease      *time.Duration `help:"How long onced waits for a sign of life before the outcome counts as unknown; renewed while the command runs." placeholder:"D"`
	Subject    string         `help:"On whose behalf." placeholder:"WHO"`
	Holder     string         `help:"Label that tells people who runs it; by default host and process." placeholder:"LABEL"`
	StatusFile string         `help:"Write what was done into this file, as JSON." placeholder:"F"`
	Argv       words          `arg:"" name:"cmd" help:"The command and its arguments, after --."`
}

func (execCommand) Help() string {
	return `The command runs when the key is new. Every later call with the same key and the same command gets its
output and exit status again, without a run; a status other than 0 is an outcome like any other.

Exit status: the command's own, 128+N when signal N has ended it, 127 or 126 when it could not be
started. When it was not run: 75 somebody else is running it, 76 nobody knows whether it ran,
65 the key was used for another command, 69 onced cannot be reached. 70 instead of 0: its output
could not be passed on.

Example:

    once exec --key deploy-2024-06-01 -- ./deploy.sh --env prod`
}

// noticeAfter is when people are told that an outcome is still on its way.
const noticeAfter = time.Second

// execution is one call of once exec.
type execution struct {
	*execCommand
	s     *session
	c     *client.Client
	relay *relay

	granted oncedv1.Outcome // GRANTED or TAKEN_OVER; unspecified: the command was not to be run
	ran     bool            // the command was started
	status  int             // its exit status
	outputs []*tee          // stdout and stderr of the command, or of the replay
}

// Run runs the command at most once.
func (e *execCommand) Run(s *session) error {
	file, err := newStatusFile(e.StatusFile)
	if err != nil {
		return usage(fmt.Errorf("--status-file: %w", err))
	}
	if e.Wait < 0 || e.Lease != nil && *e.Lease <= 0 {
		return usage(errors.New("--lease must be above 0, and --wait not below"))
	}
	var opts []client.Option
	if e.Holder != "" {
		opts = append(opts, client.WithHolder(e.Holder))
	}
	c, closeConn, err := s.dial(opts...)
	if err != nil {
		return err
	}
	defer closeConn()
	relay, release := newRelay(s.err)
	defer release()

	x := &execution{execCommand: e, s: s, c: c, relay: relay}
	out, err := x.do()
	x.settle()
	ended := x.explain(out, err)
	if err := file.write(x.statusRecord(ended)); err != nil {
		fmt.Fprintln(s.err, "once: --status-file:", err)
	}
	return exitStatus(ended.status)
}

// do claims, and runs the command if it is granted.
func (x *execution) do() (client.Outcome[execResult], error) {
	policy, err := x.policy()
	if err != nil {
		return client.Outcome[execResult]{}, err
	}
	if err := findProgram(x.Argv[0]); err != nil && x.mayRun(policy) {
		return client.Outcome[execResult]{}, err
	}
	limit := min(policy.GetMaxResultBytes(), onced.GreatestResult)
	call := client.Call{
		Key: x.Key, Method: x.Method, Subject: x.Subject,
		Fingerprints: []onced.Fingerprint{x.Argv.fingerprint()},
	}
	if x.Lease != nil {
		call.Lease = *x.Lease
	}
	var opts []client.DoOption
	if x.Wait > 0 {
		x.relay.expect(x.Wait)
	} else {
		x.relay.expect(x.s.answer)
		opts = append(opts, client.NoWait())
	}
	return client.Do(x.relay.claiming, x.c, call, func(ctx context.Context, cl *client.Claim) (execResult, error) {
		return x.run(ctx, cl, limit)
	}, opts...)
}

// mayRun tells whether a claim of the operation would let the command run, as far as
// that is known. Where it would not, what there is to say of the operation does not
// need the program.
func (x *execution) mayRun(p *oncedv1.Policy) bool {
	op := x.lookUp()
	switch op.GetState() {
	case oncedv1.State_STATE_PENDING, oncedv1.State_STATE_COMPLETED, oncedv1.State_STATE_FAILED:
		return false
	case oncedv1.State_STATE_UNRESOLVED:
		return p.GetSafeToRerun()
	}
	return true
}

// policy asks for the rules of the namespace, among them how large a result may be.
// It is asked before the claim: a claim that is held by somebody who cannot go on
// helps nobody.
func (x *execution) policy() (*oncedv1.Policy, error) {
	ctx, cancel := context.WithTimeout(x.relay.claiming, x.s.answer)
	defer cancel()
	return x.c.GetPolicy(ctx)
}

// run runs the command under its claim. The error says what is known of its
// effect: that it was not started means none, any other that nobody knows.
func (x *execution) run(ctx context.Context, cl *client.Claim, limit uint64) (execResult, error) {
	x.granted = oncedv1.Outcome_OUTCOME_GRANTED
	if cl.TakenOver {
		x.granted = oncedv1.Outcome_OUTCOME_TAKEN_OVER
	}
	p := newProcess(x.Argv, x.s, limit)
	if err := x.relay.begin(ctx, p); err != nil {
		return execResult{}, client.NotExecuted(err)
	}
	x.ran, x.outputs = true, []*tee{p.stdout, p.stderr}
	result, err := p.wait(ctx)
	x.relay.end()
	x.status = result.ExitStatus
	if err != nil {
		return execResult{}, err
	}
	return result, result.fit(limit)
}

// settle waits until onced has taken the outcome, or it is given up. Without a
// run there is at most a claim to give back, which can lapse as well.
func (x *execution) settle() {
	if !x.ran {
		ctx, cancel := context.WithTimeout(x.relay.patience, x.s.answer)
		defer cancel()
		x.c.Close(ctx)
		return
	}
	soon, cancel := context.WithTimeout(x.relay.patience, noticeAfter)
	defer cancel()
	if len(x.c.Close(soon)) == 0 {
		return
	}
	fmt.Fprintf(x.s.err, "once: the command has ended with status %d, and onced has not taken that yet; trying on for up to %v\n",
		x.status, client.DefaultSettleBudget)
	if len(x.c.Close(x.relay.patience)) > 0 {
		fmt.Fprintln(x.s.err, "once: given up; the operation will count as unresolved and not be run again")
	}
}

// ending is what a call of exec comes to.
type ending struct {
	status   int
	outcome  oncedv1.Outcome
	replayed bool
	err      error
}

// explain tells people what happened, replays if there is something to replay,
// and finds the exit status.
func (x *execution) explain(out client.Outcome[execResult], err error) ending {
	e := ending{outcome: x.granted, replayed: out.Replayed, err: err}
	if err == nil && out.Replayed {
		e.outcome = oncedv1.Outcome_OUTCOME_REPLAYED
		err = out.Value.check()
		e.err = err
	}
	var note string
	switch {
	case x.ran:
		e.status, note = x.status, x.afterRun(err)
	case err == nil:
		e.status = out.Value.ExitStatus
		x.replay(&out.Value)
	default:
		e.status, note = x.notRun(&e, err)
	}
	if note != "" {
		fmt.Fprintln(x.s.err, "once:", oneLine(note))
	}
	if x.undelivered() && e.status == exitOK {
		e.status = exitOther
	}
	return e
}

// undelivered tells whether an output could not be passed on, and says so. A reader
// that has gone away, as head does, did not want it.
func (x *execution) undelivered() (some bool) {
	for i, t := range x.outputs {
		if t.failed == nil || errors.Is(t.failed, syscall.EPIPE) {
			continue
		}
		some = true
		fmt.Fprintf(x.s.err, "once: %s of the command could not be passed on: %v; what is kept of it is replayed by the same call\n",
			[]string{"stdout", "stderr"}[i], t.failed)
	}
	return some
}

// afterRun is what there is to say of a run. A report that was not accepted is in
// the client's log.
func (x *execution) afterRun(err error) string {
	var k *killed
	if errors.As(err, &k) {
		return k.text + "; what it did is not known, so it will not be run again under this key"
	}
	return ""
}

// takeOver is the command line that takes an attempt over.
func (x *execution) takeOver(attempt uint32) string {
	line := []string{"once", "-n", x.s.commandLine.Namespace, "claim", "--key", x.Key, "--method", x.Method}
	if x.Subject != "" {
		line = append(line, "--subject", x.Subject)
	}
	line = append(line, "--take-over-attempt", strconv.FormatUint(uint64(attempt), 10),
		"--fingerprint", x.Argv.fingerprint().String(), "--token-file", "FILE")
	for i, word := range line {
		line[i] = shellWord(word)
	}
	return strings.Join(line, " ")
}

// shellWord quotes a word for a shell, where it needs that.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) && !strings.ContainsRune("-./:@", r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// notRun is the exit status, and the sentence, of a command that was not run.
func (x *execution) notRun(e *ending, err error) (status int, note string) {
	var (
		start       *notStarted
		signal      caught
		busy        *client.InProgress
		unresolved  *client.Unresolved
		failed      *client.Failed
		unavailable *client.ResultUnavailable
	)
	switch cause := context.Cause(x.relay.claiming); {
	case errors.As(err, &start):
		return start.status, start.Error()
	case errors.As(cause, &signal):
		return exitSignal + int(signal.sig), signal.Error()
	case errors.As(err, &busy):
		e.outcome = oncedv1.Outcome_OUTCOME_IN_PROGRESS
		return exitExecInProgress, busy.Error()
	case errors.As(err, &unresolved):
		e.outcome = oncedv1.Outcome_OUTCOME_UNRESOLVED
		return exitExecUnresolved, fmt.Sprintf("%v; to go on: %s; look whether it happened; then once complete, or once fail --disposition did-not-happen, of the same operation with that file",
			unresolved, x.takeOver(unresolved.Attempt))
	case errors.As(err, &failed):
		e.outcome = oncedv1.Outcome_OUTCOME_FAILED
		return exitOther, failed.Error()
	case errors.As(err, &unavailable):
		e.outcome = oncedv1.Outcome_OUTCOME_REPLAYED
		return exitOther, unavailable.Error()
	case e.replayed:
		return exitOther, fmt.Sprintf("key %q was executed, and not by once exec: %v; the command was not run", x.Key, err)
	case errors.Is(cause, errTooLate):
		return exitUnreachable, "onced cannot be reached, so the command was not run: " + describe(err)
	}
	return statusOf(err), "the command was not run: " + describe(err)
}

// replay gives out what the first run has given out.
func (x *execution) replay(r *execResult) {
	x.outputs = []*tee{newTee(x.s.out, 0), newTee(x.s.err, 0)}
	x.outputs[0].write(r.Stdout.bytes())
	x.outputs[1].write(r.Stderr.bytes())
	x.regret("stdout", &r.Stdout)
	x.regret("stderr", &r.Stderr)
}

// regret says what is missing from a replay.
func (x *execution) regret(name string, o *output) {
	if o.Omitted {
		fmt.Fprintf(x.s.err, "once: %s of the run was too large to be kept and is not replayed: %d bytes, SHA-256 %s\n", name, o.Size, o.SHA256)
	}
}

// statusRecord is the content of the status file.
func (x *execution) statusRecord(e ending) statusRecord {
	r := statusRecord{
		Executed: x.ran, Replayed: e.replayed, ExitCode: e.status,
		Namespace: x.s.commandLine.Namespace, Key: x.Key, Method: x.Method,
	}
	if e.outcome != oncedv1.Outcome_OUTCOME_UNSPECIFIED {
		r.Outcome = e.outcome.String()
	}
	if e.err != nil {
		r.Error = describe(e.err)
		if s, ok := rpcStatus(e.err); ok {
			r.Reason = reasonOf(s)
		}
	}
	if x.StatusFile != "" && e.status != exitUnreachable {
		if op := x.lookUp(); op != nil {
			r.Operation, _ = jsonLine(op) // what cannot be shown is left out
		}
	}
	return r
}

// lookUp shows the operation as it is now; nil if that cannot be had.
func (x *execution) lookUp() *oncedv1.Operation {
	ctx, cancel := context.WithTimeout(x.relay.patience, x.s.answer)
	defer cancel()
	answer, err := x.c.Lookup(ctx, &oncedv1.LookupRequest{
		Ref: x.c.Ref(x.Key, x.Method), Subject: x.Subject, View: oncedv1.LookupView_LOOKUP_VIEW_BASIC,
		Fingerprints: []string{x.Argv.fingerprint().String()},
	})
	if err != nil {
		return nil
	}
	return answer.GetOperation()
}
