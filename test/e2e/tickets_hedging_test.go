package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client/oncegrpc"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

// requireHedging skips a test where Node and the packages of hedging/ are not installed,
// and fails it where everything must be tested.
func requireHedging(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("hedging/node_modules/@grpc/grpc-js")
	}
	if err == nil {
		return
	}
	const how = "Node or @grpc/grpc-js is not installed: run npm --prefix test/e2e/hedging ci --ignore-scripts"
	if os.Getenv("ONCED_REQUIRE_ALL") != "" {
		t.Fatal(how)
	}
	t.Skip("NOT TESTED: " + how)
}

// fromNode has grpc-js create a ticket with a policy, and returns what its caller gets.
func fromNode(t *testing.T, key, policy string, addresses ...string) filing {
	t.Helper()
	req := aTicket()
	order, err := json.Marshal(map[string]any{
		"tools": addresses, "key": key, "policy": json.RawMessage(policy),
		"request": map[string]string{"project": req.GetProject(), "title": req.GetTitle(), "body": req.GetBody()},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "hedging/hedge.mjs", string(order))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Code              codes.Code
		Message           string
		Headers, Trailers map[string][]string
		Response          struct {
			Ticket   struct{ ID string }
			Replayed bool
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	f := filing{header: got.Headers, trailer: got.Trailers, replayed: got.Response.Replayed, err: status.Error(got.Code, got.Message)}
	if f.err == nil {
		f.ticket = &ticketsv1.Ticket{Id: got.Response.Ticket.ID}
	}
	if details := got.Trailers["grpc-status-details-bin"]; len(details) == 1 {
		whole := new(rpcstatus.Status)
		raw, err := base64.StdEncoding.DecodeString(details[0])
		if err == nil {
			err = proto.Unmarshal(raw, whole)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.err = status.ErrorProto(whole)
	}
	return f
}

// threeTools starts three processes of one tool, whose handlers take a while.
func threeTools(t *testing.T, s *process, flags ...string) (tools []*tool, addresses []string) {
	t.Helper()
	for range 3 {
		p := startTool(t, s.GRPC, append(flags, "--delay", "200ms")...)
		tools, addresses = append(tools, p), append(addresses, p.GRPC)
	}
	return tools, addresses
}

// A caller sends three copies of a call at once, to three processes of a tool. One of
// them executes. Where the others wait, the caller gets that one's answer. Where they do
// not, it may be told that somebody executes: grpc-js ends the call at the pushback of the
// first loser, also where ABORTED is not fatal. It leaves the other copies then, of which
// one is executed or gives its claim back, and the next call gets the ticket.
func TestR41_Hedging(t *testing.T) {
	requireHedging(t)
	t.Parallel()
	for name, c := range map[string]struct {
		policy, wait string
		aborted      bool // the caller may be told that it is in progress
	}{
		"they wait":            {hedged("UNAVAILABLE"), "5s", false},
		"they do not":          {hedged("UNAVAILABLE"), "0s", true},
		"ABORTED is not fatal": {hedged("ABORTED"), "0s", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, newStore(t))
			tools, addresses := threeTools(t, s, "--wait", c.wait)
			f := fromNode(t, "k", c.policy, addresses...)
			t.Logf("the caller got %v, %v, %s; %v claims were told that somebody executes", f.ticket, f.err, f.outcome(),
				s.metric(`onced_claims_total{namespace="other",outcome="IN_PROGRESS"}`))
			switch {
			case f.err == nil:
			case c.aborted:
				f.inProgress(t)
			default:
				t.Errorf("the caller got %v, want the answer of the copy that was executed", f.err)
			}
			again := tools[0].agent().insist("k")
			if again.err != nil || again.ticket.GetId() != "T-1" || f.err == nil && again.outcome() != oncegrpc.OutcomeReplayed {
				t.Errorf("the next call got %v, %v, %s", again.ticket, again.err, again.outcome())
			}
			effected(t, ticketCreated, 1, tools...)
		})
	}
}

// hedged has grpc-js send three copies at once; an answer of this code leaves the others.
func hedged(nonFatal string) string {
	return fmt.Sprintf(`{"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0s", "nonFatalStatusCodes": [%q]}}`, nonFatal)
}

// everyCode has grpc-js try again whatever the error is.
const everyCode = `{"retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]}}`

// A caller has gRPC try again after every error. After lost answers the ticket is there,
// once; a refusal that no other try changes is tried once.
func TestR41_RetriesByAnotherImplementation(t *testing.T) {
	requireHedging(t)
	t.Parallel()
	p := startTool(t, serve(t, newStore(t)).GRPC)
	l := newLossy(t, p.GRPC, func(n int32) bool { return n == 2 || n == 3 }) // the first one is not that of the call
	f := fromNode(t, "k", everyCode, l.Addr().String())
	if l.lost.Load() != 2 || f.is(t, oncegrpc.OutcomeReplayed).GetId() != "T-1" {
		t.Errorf("after %d lost answers the caller got %v", l.lost.Load(), f.ticket)
	}
	other := p.agent().ask(t.Context(), "other", &ticketsv1.CreateTicketRequest{Project: "onced", Title: "another"})
	other.is(t, oncegrpc.OutcomeExecuted)
	before := l.answers.Load()
	refused(t, fromNode(t, "other", everyCode, l.Addr().String()).err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	if tries := l.answers.Load() - before - 1; tries != 1 {
		t.Errorf("what cannot succeed was tried %d times, want once", tries)
	}
	effected(t, ticketCreated, 2, p)
}
