package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncegrpc"
	"github.com/onced/onced/fingerprint"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// guard measures what a guard adds to the calls of a gRPC service, in units of the two
// calls of onced that it cannot do without. The kinds of calls take turns, call by call:
// then all of them meet the same machine and the same disk, and processes that have slept
// as long. Of many bare calls in a row each finds its server still awake, which no
// guarded one does.
type guard struct {
	Callers int `default:"1" help:"Callers, each with one call at a time."`
	Rounds  int `default:"1000" help:"Calls of each kind that a caller makes."`
	Bytes   int `default:"256" help:"Bytes of a request, and of its answer but for a number."`
}

// guardLimit is how much a guard may add, in units of a claim and a completion.
const guardLimit = 1.3

// guardRun is a running guard.
type guardRun struct {
	guard
	ctx           context.Context
	bare, guarded *grpc.ClientConn
	onced         oncedv1.IdempotencyServiceClient
	holder        string

	calls   int // that were made with a key of their own
	took    guardTimes
	mu      sync.Mutex
	first   map[string]string // answers of the guarded service, by key
	acted   map[string]bool   // which of its answers there were
	strange []string          // calls that were answered as none should be
}

// guardTimes is how long the calls of each kind took.
type guardTimes struct{ bare, guarded, replay, claim, complete, pair times }

// measure implements scenario.
func (g *guard) measure(ctx context.Context, r *rig, rep *report) error {
	run := &guardRun{guard: *g, ctx: ctx, first: map[string]string{}, acted: map[string]bool{}}
	dir := r.name("store")
	s, err := run.start(r, dir)
	if err != nil {
		return err
	}
	r.say("%d rounds of 4 kinds of calls, %d callers", g.Rounds, g.Callers)
	for round := 0; round < g.Rounds && ctx.Err() == nil; round++ {
		run.round(round)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	run.tell(rep)
	if err := run.judge(rep); err != nil {
		return err
	}
	return r.soundAfter(s, dir, rep, "the store is sound")
}

// start starts onced and the tool, and connects to both. The connection to onced is
// like the tool's: one for all callers.
func (g *guardRun) start(r *rig, dir string) (*server, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	g.holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	if err := r.newStore(dir); err != nil {
		return nil, err
	}
	s, err := r.serve(g.ctx, dir, setup{})
	if err != nil {
		return nil, err
	}
	stubs, err := r.stubs(s, 1)
	if err != nil {
		return nil, err
	}
	g.onced = stubs.of(0)
	addresses, err := r.startChild(roleTool, s.GRPC)
	if err != nil {
		return nil, err
	}
	for i, conn := range []**grpc.ClientConn{&g.bare, &g.guarded} {
		conns, err := r.connect(addresses[i], 1)
		if err != nil {
			return nil, err
		}
		*conn = conns[0]
	}
	return s, nil
}

// round has every caller make one call of each kind. Another kind is the first in each
// round.
func (g *guardRun) round(n int) {
	kinds := []func(){
		func() { g.all(n, g.callBare) },
		func() { g.all(n, g.callGuarded) },
		func() { g.all(n, g.callOnced) },
		func() {
			if n > 0 {
				g.all(n-1, g.callAgain)
			}
		},
	}
	for k := range kinds {
		kinds[(n+k)%len(kinds)]()
	}
}

// all makes the calls of one kind, with the keys of a round.
func (g *guardRun) all(round int, call func(key string)) {
	each(g.Callers, g.Callers, func(caller int) { call(fmt.Sprintf("key-%08d-%04d", round, caller)) })
}

func (g *guardRun) callBare(key string) {
	took, answer, outcome, err := g.act(g.bare, key)
	if err != nil || outcome != "" || !g.answers(key, answer) {
		g.wrong("a bare call of %s: %q, %v", key, outcome, err)
		return
	}
	g.took.bare.add(took)
}

func (g *guardRun) callGuarded(key string) {
	took, answer, outcome, err := g.act(g.guarded, key)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if err != nil || outcome != oncegrpc.OutcomeExecuted || !g.answers(key, answer) || g.acted[answer] {
		g.strange = append(g.strange, fmt.Sprintf("the first call of %s: %q, %v", key, outcome, err))
		return
	}
	g.took.guarded.add(took)
	g.first[key], g.acted[answer] = answer, true
}

func (g *guardRun) callAgain(key string) {
	took, answer, outcome, err := g.act(g.guarded, key)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil || outcome != oncegrpc.OutcomeReplayed || answer != g.first[key] {
		g.strange = append(g.strange, fmt.Sprintf("the second call of %s: %q, %v", key, outcome, err))
		return
	}
	g.took.replay.add(took)
}

// callOnced makes the two calls that the guard makes for a call, of the same sizes.
func (g *guardRun) callOnced(key string) {
	claimed, completed, err := g.pair("rpc-" + key[len("key-"):])
	if err != nil {
		g.wrong("claim and completion of %s: %v", key, err)
		return
	}
	g.took.claim.add(claimed)
	g.took.complete.add(completed)
	g.took.pair.add(claimed + completed)
}

// act calls the tool, the guarded one under a key.
func (g *guardRun) act(conn *grpc.ClientConn, key string) (took time.Duration, answer, outcome string, err error) {
	ctx, cancel := context.WithTimeout(g.ctx, callTime)
	defer cancel()
	if conn == g.guarded {
		ctx = metadata.AppendToOutgoingContext(ctx, oncegrpc.MetadataKey, key)
	}
	req, resp := wrapperspb.String(g.content(key)), &wrapperspb.StringValue{}
	var header metadata.MD
	sent := time.Now()
	err = conn.Invoke(ctx, "/"+toolAct, req, resp, grpc.Header(&header))
	took = time.Since(sent)
	return took, resp.GetValue(), strings.Join(header.Get(oncegrpc.HeaderOutcome), ","), err
}

// pair claims an operation and completes it, with what the guard would send.
func (g *guardRun) pair(key string) (claimed, completed time.Duration, err error) {
	arguments, err := fingerprint.Message(wrapperspb.String(g.content(key)))
	if err != nil {
		return 0, 0, err
	}
	result, err := proto.Marshal(wrapperspb.String("12345 " + g.content(key)))
	if err != nil {
		return 0, 0, err
	}
	req := &oncedv1.ClaimRequest{
		Ref:        &oncedv1.OperationRef{Namespace: client.DefaultNamespace, Key: key, Method: toolAct},
		ClaimToken: client.NewToken(), Holder: g.holder, Fingerprints: []string{arguments.String()},
	}
	sent := time.Now()
	fence, err := claim(g.ctx, g.onced, req)
	if err != nil {
		return 0, 0, err
	}
	claimed = time.Since(sent)
	report := &oncedv1.CompleteRequest{
		Ref: req.GetRef(), ClaimToken: req.GetClaimToken(), Fence: fence,
		Result: &oncedv1.CompleteRequest_Stored{Stored: &oncedv1.Payload{
			ContentType: client.ContentTypeProto + "; messagetype=" + textName[1:], Body: &oncedv1.Payload_Data{Data: result},
		}},
	}
	sent = time.Now()
	err = complete(g.ctx, g.onced, report)
	return claimed, time.Since(sent), err
}

func (g *guardRun) content(key string) string { return contentOf(key, g.Bytes) }

// answers tells whether an answer is one to the call of a key.
func (g *guardRun) answers(key, answer string) bool {
	return strings.HasSuffix(answer, " "+g.content(key))
}

func (g *guardRun) wrong(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strange = append(g.strange, fmt.Sprintf(format, args...))
}

// tell reports how long the calls took.
func (g *guardRun) tell(rep *report) {
	for name, t := range map[string]*times{
		"bare": &g.took.bare, "guarded": &g.took.guarded, "replay": &g.took.replay,
		"claim": &g.took.claim, "complete": &g.took.complete, "pair": &g.took.pair,
	} {
		rep.figure(name+"_p50_ms", t.ms(0.5))
		rep.figure(name+"_p99_ms", t.ms(0.99))
	}
	added := g.took.guarded.ms(0.5) - g.took.bare.ms(0.5)
	pair := g.took.claim.ms(0.5) + g.took.complete.ms(0.5)
	rep.figure("added_p50_ms", added)
	rep.figure("calls_of_each_kind", g.took.guarded.count())
	rep.atMost("what the guard adds to the p50, in units of the p50 of Claim and that of Complete", added/pair, guardLimit)
}

// judge says whether every key was executed once, and every answer was the right one.
func (g *guardRun) judge(rep *report) error {
	ctx, cancel := context.WithTimeout(g.ctx, callTime)
	defer cancel()
	var acted wrapperspb.Int64Value
	if err := g.guarded.Invoke(ctx, "/"+toolActed, &emptypb.Empty{}, &acted); err != nil {
		return fmt.Errorf("ask the tool how often it acted: %w", err)
	}
	rep.holds("one execution for each key", acted.GetValue() == int64(g.calls) && len(g.acted) == g.calls,
		"%d executions for %d keys, with %d different answers", acted.GetValue(), g.calls, len(g.acted))
	example := ""
	if len(g.strange) > 0 {
		example = ", for example " + g.strange[0]
	}
	rep.holds("every call is answered as it should be", len(g.strange) == 0, "%d were not%s", len(g.strange), example)
	return nil
}
