package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

type claimCommand struct {
	operation
	Fingerprint     []string       `help:"Digest of the arguments under a scheme; at most 3." sep:"none" placeholder:"SCHEME:HEX"`
	Subject         string         `help:"On whose behalf." placeholder:"WHO"`
	TokenFile       string         `help:"Keep the claim token and fence in this file, which is made if absent. A run that finds it there re-sends the claim only if that was never granted." placeholder:"F"`
	Holder          string         `help:"Label that tells people who holds the claim." placeholder:"LABEL"`
	Lease           *time.Duration `help:"How long the execution may take; the namespace has a default." placeholder:"D"`
	Wait            time.Duration  `help:"How long to wait for an answer other than IN_PROGRESS; at most 20s." default:"0" placeholder:"D"`
	TakeOverAttempt uint32         `help:"Attempt of an unresolved operation to take over, in order to find out what it did." placeholder:"N"`
	KeyTime         time.Time      `help:"When the key was first minted, as 2006-01-02T15:04:05Z." placeholder:"T"`
}

func (claimCommand) Help() string {
	return `Execute only after exit status 0, then report with complete or fail.

Exit status: 0 GRANTED, 3 REPLAYED, 4 FAILED, 5 IN_PROGRESS, 6 UNRESOLVED, 7 TAKEN_OVER,
8 BLOCKED_BY_TWIN; 65 refused, 69 no answer.

The token is kept in --token-file, or read from the variable ONCED_TOKEN (standard base64).

A claim whose answer was lost is sent again by the same command with the same file. Once the file has
the fence of a granted claim, its holder may have begun to execute, and then died: the same command
asks under a new token, is answered as anyone else would be, and keeps the file for complete and fail
unless it is granted a claim of its own. A token in ONCED_TOKEN is sent as it is: use it for one run.

Example:

    once claim --key order-7 --method send_email --token-file order-7.token`
}

// Run claims.
func (c *claimCommand) Run(s *session) error {
	t, err := findTicket(c.TokenFile)
	if err != nil {
		return usage(err)
	}
	defer t.close()
	if !t.kept {
		fmt.Fprintf(s.err, "once: warning: the claim token is not kept, so nobody can report on this claim and it can only lapse; "+
			"give --token-file or %s\n", tokenEnv)
	}
	var answer *oncedv1.ClaimResponse
	err = s.call(min(max(0, c.Wait), onced.GreatestWait), func(ctx context.Context, cl *client.Client) (err error) {
		answer, err = cl.Claim(ctx, c.request(s, t.asked()))
		return err
	})
	if err != nil {
		return err
	}
	if isHeld(answer) {
		if err := t.held(answer.GetOperation().GetFence()); err != nil {
			return fmt.Errorf("the claim was answered, and its fence could not be kept: %w", err)
		}
	} else if t.Fence != 0 && unsettled(answer) {
		fmt.Fprintf(s.err, "once: %s is of an earlier claim that was granted, whose holder may have begun to execute; it is kept, to report on that claim\n", t.file)
	}
	if err := s.print(answer, claimRows(answer)); err != nil {
		return err
	}
	status, known := outcomeStatus[answer.GetOutcome()]
	if !known {
		return fmt.Errorf("this build does not know the outcome %d; do not execute", answer.GetOutcome())
	}
	if status == exitOK {
		return nil
	}
	return exitStatus(status)
}

func (c *claimCommand) request(s *session, token []byte) *oncedv1.ClaimRequest {
	return &oncedv1.ClaimRequest{
		Ref:             c.ref(s),
		ClaimToken:      token,
		Fingerprints:    c.Fingerprint,
		Subject:         c.Subject,
		Holder:          c.Holder,
		Lease:           durationOrUnset(c.Lease),
		Wait:            durationpb.New(c.Wait),
		TakeOverAttempt: c.TakeOverAttempt,
		KeyTime:         timeOrUnset(c.KeyTime),
	}
}

// isHeld tells whether the newest attempt is this claim's; the fence of another's
// would be of no use.
func isHeld(answer *oncedv1.ClaimResponse) bool {
	return answer.GetYours() ||
		answer.GetOutcome() == oncedv1.Outcome_OUTCOME_GRANTED ||
		answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER
}

// unsettled tells whether the answer leaves the outcome of an earlier claim open.
func unsettled(answer *oncedv1.ClaimResponse) bool {
	return answer.GetOutcome() == oncedv1.Outcome_OUTCOME_IN_PROGRESS || answer.GetOutcome() == oncedv1.Outcome_OUTCOME_UNRESOLVED
}

func claimRows(answer *oncedv1.ClaimResponse) rows {
	var r rows
	r.add("outcome", enumName(answer.GetOutcome().String(), "OUTCOME_"))
	if answer.GetYours() {
		r.add("yours", "yes: the newest attempt has this claim token")
	}
	r.addOperation(answer.GetOperation())
	r.add("retry after", span(answer.GetRetryAfter()))
	r.add("takeover refused", enumName(answer.GetTakeoverRefused().String(), "TAKEOVER_REFUSED_"))
	if c := answer.GetCheckpoint(); c != nil {
		r.add("checkpoint", fmt.Sprintf("attempt %d, seq %d: %s", c.GetAttempt(), c.GetSeq(), content(c.GetPayload())))
	}
	if twin := answer.GetTwin(); twin != nil {
		r.add("twin", fmt.Sprintf("key %s, %s since %s", printable(twin.GetKey()),
			enumName(twin.GetState().String(), "STATE_"), moment(twin.GetClaimTime())))
	}
	if answer.GetKeyTimeChanged() {
		r.add("key time", "differs from that of the first claim: two intents may share this key")
	}
	return r
}

// durationOrUnset keeps an absent flag apart from a zero one, which the service
// refuses where zero makes no sense.
func durationOrUnset(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

func timeOrUnset(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
