package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

func TestDoMismatch(t *testing.T) {
	print := func(scheme, digit string) []onced.Fingerprint {
		f, err := onced.ParseFingerprint(scheme + ":" + strings.Repeat(digit, 64))
		if err != nil {
			t.Fatal(err)
		}
		return []onced.Fingerprint{f}
	}
	inBubble(t, func(r *rig) {
		first := client.Call{Key: "k", Method: "m", Subject: "ann", Fingerprints: print("raw1", "a")}
		if _, err := client.Do(r.Context(), r.Client, first, r.once("mine")); err != nil {
			t.Fatal(err)
		}
		for want, second := range map[onced.RefusalReason]client.Call{
			onced.RefusedFingerprint:       {Key: "k", Method: "m", Subject: "ann", Fingerprints: print("raw1", "b")},
			onced.RefusedFingerprintScheme: {Key: "k", Method: "m", Subject: "ann", Fingerprints: print("cj1", "a")},
			onced.RefusedSubject:           {Key: "k", Method: "m", Subject: "bob", Fingerprints: print("raw1", "a")},
		} {
			_, err := client.Do(r.Context(), r.Client, second, r.once("mine"))
			if m := as[*client.Mismatch](t, err); m.Reason != want {
				t.Errorf("got %+v, want %s", m, want)
			}
			says(t, err, `"k"`, string(want), "new key for a new intent")
			if code := status.Code(err); code == codes.Unknown || code == codes.OK {
				t.Errorf("the refusal's code is lost: %v", code)
			}
		}
		if out, err := client.Do(r.Context(), r.Client, first, r.once("mine")); err != nil || !out.Replayed {
			t.Errorf("the first call again got %+v, %v", out, err)
		}
		r.ran(1)
	})
}

func TestDoBlockedByTwin(t *testing.T) {
	f, err := onced.ParseFingerprint("raw1:" + strings.Repeat("a", 64))
	if err != nil {
		t.Fatal(err)
	}
	guard := &onced.TwinGuard{Block: onced.BlockUnsettledOrRecent, Window: time.Minute}
	guarded := func(key string, g onced.TwinGuard) client.Call {
		return client.Call{Key: key, Method: "m", Fingerprints: []onced.Fingerprint{f}, TwinGuard: &g}
	}
	inBubble(t, func(r *rig) {
		if _, err := client.Do(r.Context(), r.Client, guarded("k1", *guard), r.once("mine")); err != nil {
			t.Fatal(err)
		}
		_, err := client.Do(r.Context(), r.Client, guarded("k2", *guard), r.once("mine"))
		b := as[*client.BlockedByTwin](t, err)
		if b.Key != "k2" || b.Twin.GetKey() != "k1" || b.Twin.GetState() != oncedv1.State_STATE_COMPLETED {
			t.Errorf("got %+v", b)
		}
		says(t, err, `"k2"`, `"k1"`, "COMPLETED", "confirm that key")
		confirmed := *guard
		confirmed.Confirmed = "k1"
		if _, err := client.Do(r.Context(), r.Client, guarded("k2", confirmed), r.once("mine")); err != nil {
			t.Error(err)
		}
		unsettled := onced.TwinGuard{Block: onced.BlockUnsettled}
		if _, err := client.Do(r.Context(), r.Client, guarded("k3", unsettled), r.once("mine")); err != nil {
			t.Error(err)
		}
		r.ran(3)
	})
}

func TestDoRefusesWhatCannotBeSent(t *testing.T) {
	inBubble(t, func(r *rig) {
		for name, bad := range map[string]client.Call{
			"no key":         {Method: "m"},
			"blank key":      {Key: " ", Method: "m"},
			"null":           {Key: "null", Method: "m"},
			"no method":      {Key: "k"},
			"subject":        {Key: "k", Method: "m", Subject: "a\x00"},
			"labels":         {Key: "k", Method: "m", Labels: map[string]string{"": "x"}},
			"negative lease": {Key: "k", Method: "m", Lease: -time.Second},
		} {
			_, err := client.Do(r.Context(), r.Client, bad, r.once("mine"))
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: got %v", name, err)
			}
		}
		c := r.newClient(client.WithNamespace("no spaces"))
		if _, err := client.Do(r.Context(), c, call("k"), r.once("mine")); status.Code(err) != codes.InvalidArgument {
			t.Errorf("namespace: got %v", err)
		}
		r.saw("Claim", 0)
		ended, cancel := context.WithCancel(r.Context())
		cancel()
		if _, err := client.Do(ended, r.Client, call("k"), r.once("mine")); !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: got %v", err)
		}
		r.saw("Claim", 0)
		r.ran(0)
	})
}

func TestDoPassesTheServersRefusalOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		long := call("k")
		long.Lease = 25 * time.Hour
		_, err := client.Do(r.Context(), r.Client, long, r.once("mine"))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
		says(t, err, "lease", "24h", "nothing was executed")
		r.saw("Claim", 1)
		r.ran(0)
	})
}

func TestDoSendsAllOfTheCall(t *testing.T) {
	inBubble(t, func(r *rig) {
		born := time.Now().Add(time.Second)
		full := client.Call{
			Key: "k", Method: "m", Subject: "ann", Lease: 1500 * time.Millisecond, KeyTime: born,
			Labels: map[string]string{"team": "crm"},
		}
		c := r.newClient(client.WithNamespace("other"), client.WithHolder("desk"))
		if _, err := client.Do(r.Context(), c, full, r.once("mine")); err != nil {
			t.Fatal(err)
		}
		req := r.saw("Claim", 1)[0].req.(*oncedv1.ClaimRequest)
		if req.GetRef().GetNamespace() != "other" || req.GetHolder() != "desk" || req.GetSubject() != "ann" ||
			req.GetLease().AsDuration() != full.Lease || !req.GetKeyTime().AsTime().Equal(born) || req.GetLabels()["team"] != "crm" {
			t.Errorf("sent %v", req)
		}
		if len(req.GetClaimToken()) != 32 || req.GetWait() != nil || req.GetTakeOverAttempt() != 0 {
			t.Errorf("sent %v", req)
		}
	})
}

func TestDoDoesNotRunOnAnOutcomeThatItDoesNotKnow(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.editReplies(func(rpc string, reply any) {
			if rpc == "Claim" {
				reply.(*oncedv1.ClaimResponse).Outcome = 99
			}
		})
		_, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine"))
		if err == nil {
			t.Fatal("no error")
		}
		says(t, err, "99", "nothing was executed", "newer client")
		if left := r.Close(r.Context()); left != nil {
			t.Errorf("left: %v", left)
		}
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.ran(0)
	})
}

func TestDoDoesNotRunWithoutAFence(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.faults.editReplies(func(rpc string, reply any) {
			if rpc == "Claim" {
				reply.(*oncedv1.ClaimResponse).Operation.Fence = 0
			}
		})
		if _, err := client.Do(r.Context(), r.Client, call("k"), r.once("mine")); err == nil {
			t.Fatal("no error")
		}
		r.ran(0)
	})
}
