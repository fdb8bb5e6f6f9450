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
	TokenFile       string         `help:"Keep the claim token and fence in this file, which is made if absent; an existing one re-sends its claim." placeholder:"F"`
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

The token is read from --token-file or from the variable ONCED_TOKEN (standard base64). Re-sending a
claim is for an answer that was lost; whoever has begun to execute must not claim again.

Example:

    once claim --key order-7 --method send_email --token-file order-7.token`
}

// Run claims.
func (c *claimCommand) Run(s *session) error {
	t, kept, err := claimTicket(c.TokenFile)
	if err != nil {
		return usage(err)
	}
	if !kept {
		fmt.Fprintf(s.err, "once: warning: the claim token is not kept, so nobody can report on this claim and it can only lapse; "+
			"give --token-file or %s\n", tokenEnv)
	}
	var answer *oncedv1.ClaimResponse
	err = s.call(min(max(0, c.Wait), onced.GreatestWait), func(ctx context.Context, cl *client.Client) (err error) {
		answer, err = cl.Claim(ctx, c.request(s, t.ClaimToken))
		return err
	})
	if err != nil {
		return err
	}
	if err := c.keepFence(t, answer); err != nil {
		return fmt.Errorf("the claim was answered, and its fence could not be kept: %w", err)
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

// keepFence puts the fence into the token file if the newest attempt is this
// token's; the fence of another's claim would be of no use.
func (c *claimCommand) keepFence(t ticket, answer *oncedv1.ClaimResponse) error {
	ours := answer.GetYours() ||
		answer.GetOutcome() == oncedv1.Outcome_OUTCOME_GRANTED ||
		answer.GetOutcome() == oncedv1.Outcome_OUTCOME_TAKEN_OVER
	fence := answer.GetOperation().GetFence()
	if c.TokenFile == "" || !ours || fence == t.Fence {
		return nil
	}
	t.Fence = fence
	return t.store(c.TokenFile)
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
