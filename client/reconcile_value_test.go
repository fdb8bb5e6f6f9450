package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func TestReconcileCompensated(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := answering(client.Compensated("refunded by re_1" + strings.Repeat("!", 5000)))
		_, err := r.reconciled("k", r.once("mine"), a)
		_, later := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		for _, err := range []error{err, later} {
			f := as[*client.Failed](t, err)
			if f.Code != client.CodeCompensated || !strings.HasPrefix(f.Message, "refunded by re_1!") || len(f.Message) != 4096 || f.Attempt != 2 || f.FirstClaimedAt.IsZero() {
				t.Errorf("got %+v", f)
			}
			says(t, err, "COMPENSATED", "refunded by re_1")
		}
		r.isIn("k", oncedv1.State_STATE_FAILED)
		a.was(t, 1)
		r.ran(0)
	})
}

func TestReconcileWithAValueOfAnotherType(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.dies("k", nil)
		a := answering(client.Happened(wrapperspb.String("ticket 7")))
		_, err := r.reconciled("k", r.once("mine"), a)
		u := as[*client.ResultUnavailable](t, err)
		if u.Payload == nil || u.Err == nil || u.ContentType != u.Payload.GetContentType() || !strings.Contains(u.ContentType, "StringValue") {
			t.Errorf("got %+v", u)
		}
		r.isIn("k", oncedv1.State_STATE_COMPLETED)
		out, err := client.Do(r.Context(), r.Client, call("k"), func(context.Context, *client.Claim) (*wrapperspb.StringValue, error) {
			return nil, errors.New("it runs")
		})
		if err != nil || out.Value.GetValue() != "ticket 7" {
			t.Errorf("got %+v, %v", out, err)
		}
		r.ran(0)
	})
}

func TestReconcileWithAValueThatIsNotStored(t *testing.T) {
	for name, leg := range map[string]struct {
		verdict client.Verdict
		now     bool // this caller gets the value
	}{
		"cannot be encoded":         {client.Happened(func() {}), false},
		"over the policy's limit":   {client.Happened(strings.Repeat("x", 1<<20+1)), true},
		"over what a message takes": {client.Happened(strings.Repeat("x", 16<<20+1)), false},
		"the encoder panics":        {client.Happened(panics{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.dies("k", nil)
				out, err := r.reconciled("k", r.once("mine"), answering(leg.verdict))
				if leg.now && (err != nil || len(out.Value) != 1<<20+1) {
					t.Errorf("got %d bytes, %v", len(out.Value), err)
				}
				if !leg.now {
					if u := as[*client.ResultUnavailable](t, err); u.Payload != nil {
						t.Errorf("got %+v", u)
					}
				}
				if !out.Settled || !out.Replayed {
					t.Errorf("got %+v", out)
				}
				r.isIn("k", oncedv1.State_STATE_COMPLETED)
				_, err = client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
				as[*client.ResultUnavailable](t, err)
				r.ran(0)
			})
		})
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no JSON of this") }
