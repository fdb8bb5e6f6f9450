package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/server"
	"github.com/onced/onced/storage/memory"
)

// serveOn serves until the test ends and returns the address.
func serveOn(t *testing.T, s stoppable) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		s.Stop(ended)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// serveService serves the service over a store in memory, or what answers in its
// place.
func serveService(t *testing.T, standIn oncedv1.IdempotencyServiceServer) string {
	t.Helper()
	policies, err := server.NewPolicies(onced.DefaultPolicy(), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(machineClock{time.Now()})
	s, err := server.New(t.Context(), server.Config{
		Store: store, Policies: policies, Metrics: server.NewMetrics(prometheus.NewRegistry()),
		Logger: slog.New(slog.DiscardHandler), StandIn: standIn,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return serveOn(t, s)
}

func serveEmpty(t *testing.T) string {
	s := bareServer{grpc.NewServer()}
	s.RegisterService(&emptyDesc, nil)
	return serveOn(t, s)
}

// quick is a bench that is over soon.
func quick() Config {
	return Config{Namespace: "default", Callers: 40, Duration: 20 * time.Millisecond, Rounds: 2, ResultBytes: 100}
}

// runQuick runs a bench at a store in memory.
func runQuick(t *testing.T, cfg Config) (r *Report, progress string) {
	t.Helper()
	var lines bytes.Buffer
	r, err := Run(t.Context(), cfg, Servers{
		Store: Process{Address: serveService(t, nil)},
		Null:  serveService(t, newCanned(cfg.ResultBytes, 1, time.Now())), Empty: serveEmpty(t),
	}, &lines)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*float64{
		"pairs": r.PairsPerS, "null": r.NullPairsPerS, "empty": r.EmptyPairsPerS, "empty p99": r.EmptyP99,
	} {
		if v == nil || *v <= 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
	return r, lines.String()
}

func TestPairs(t *testing.T) {
	r, progress := runQuick(t, quick())
	if r.ClaimP50 == nil || r.CompleteP99 == nil || r.NullClaimP50 == nil || r.ReplayP50 != nil {
		t.Errorf("%+v", r)
	}
	if r.RSSAnon != nil || r.BytesPerRecord != nil || r.FdatasyncP50 != nil || r.CommitBatch != nil || r.WriteAmplification != nil {
		t.Errorf("of a server of which only the address is known: %+v", r)
	}
	if n := strings.Count(progress, "\n"); n != 3 || !strings.Contains(progress, "connections 2,") {
		t.Errorf("progress:\n%s", progress)
	}
}

func TestReplaysAlone(t *testing.T) {
	cfg := quick()
	cfg.ReplayShare = 1
	if r, _ := runQuick(t, cfg); r.ReplayP50 == nil || r.ClaimP50 != nil || r.PrefillS != nil {
		t.Errorf("%+v", r)
	}
}

func TestClaimsAlone(t *testing.T) {
	cfg := quick()
	cfg.LeaveUnsettled, cfg.ReplayShare = true, 0.5
	if r, _ := runQuick(t, cfg); r.ReplayP50 == nil || r.ClaimP50 == nil || r.CompleteP50 != nil {
		t.Errorf("%+v", r)
	}
}

func TestRecords(t *testing.T) {
	cfg := quick()
	cfg.Records = 500
	if r, _ := runQuick(t, cfg); r.EmptyStorePairsPerS == nil || r.PrefillRecordsPerS == nil || r.Records != 500 {
		t.Errorf("%+v", r)
	}
}

// TestFill settles as many records as it should, all of which are replayed.
func TestFill(t *testing.T) {
	s, err := newService("the server", serveService(t, nil), quick())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	b := &bench{Config: quick(), service: s, progress: io.Discard}
	if _, err := b.fill(t.Context(), 300); err != nil {
		t.Fatal(err)
	}
	if s.made.Load() != 300 || s.settled.count != 300 {
		t.Errorf("%d were made, %d are settled", s.made.Load(), s.settled.count)
	}
	for n := range uint64(300) {
		a := s.act(n)
		answer, err := a.stub.Claim(t.Context(), a.claimRequest(holderReplay))
		if err != nil || answer.GetOutcome() != oncedv1.Outcome_OUTCOME_REPLAYED {
			t.Fatalf("key %d: %v %v", n, answer, err)
		}
	}
}

// wrong is a server that answers what it should not.
type wrong struct {
	*canned
	spoil func(*oncedv1.ClaimResponse) error
}

// Claim gives a spoilt answer.
func (w wrong) Claim(ctx context.Context, req *oncedv1.ClaimRequest) (*oncedv1.ClaimResponse, error) {
	answer, err := w.canned.Claim(ctx, req)
	return answer, errors.Join(err, w.spoil(answer))
}

// TestWrongAnswers: whatever is not as it should be ends the bench, in words.
func TestWrongAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		share float64
		spoil func(*oncedv1.ClaimResponse) error
		want  string
	}{
		{"outcome", 0, func(a *oncedv1.ClaimResponse) error {
			a.Outcome = oncedv1.Outcome_OUTCOME_IN_PROGRESS
			return nil
		}, "answered the claim of a new key with OUTCOME_IN_PROGRESS, not GRANTED"},
		{"replay", 1, func(a *oncedv1.ClaimResponse) error {
			if a.GetOutcome() == oncedv1.Outcome_OUTCOME_REPLAYED {
				a.Outcome = oncedv1.Outcome_OUTCOME_UNRESOLVED
			}
			return nil
		}, "answered the claim of a settled key with OUTCOME_UNRESOLVED, not REPLAYED"},
		{"bytes", 1, func(a *oncedv1.ClaimResponse) error {
			a.Operation.Result = nil
			return nil
		}, "replayed other bytes"},
		{"refusal", 0, func(*oncedv1.ClaimResponse) error {
			return &onced.Refusal{Reason: onced.RefusedFingerprint, Message: "no"}
		}, "the store's server refused a claim"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := quick()
			cfg.ReplayShare = tt.share
			c := newCanned(cfg.ResultBytes, 1, time.Now())
			_, err := Run(t.Context(), cfg, Servers{
				Store: Process{Address: serveService(t, wrong{c, tt.spoil})}, Null: serveService(t, c), Empty: serveEmpty(t),
			}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// TestInterrupted: the end of the context is the end of the bench.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := errors.New("asked to end")
	cfg := quick()
	cfg.Duration = time.Hour
	c := newCanned(cfg.ResultBytes, 1, time.Now())
	_, err := Run(ctx, cfg, Servers{
		Store: Process{Address: serveService(t, wrong{c, func(*oncedv1.ClaimResponse) error { cancel(asked); return nil }})},
		Null:  serveService(t, c), Empty: serveEmpty(t),
	}, io.Discard)
	if !errors.Is(err, asked) {
		t.Errorf("%v", err)
	}
}

// TestUnreachable keeps the status, by which the command ends.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), quick(), Servers{Store: Process{Address: l.Addr().String()}, Null: "x", Empty: "x"}, io.Discard)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the store's server refused a claim") {
		t.Errorf("%v", err)
	}
}

// TestCanned: canned answers have the fields that real ones have, and are about as
// long, so that all that a call costs beside the store is the same.
func TestCanned(t *testing.T) {
	cfg := quick()
	var answers [2][]proto.Message
	for i, address := range []string{serveService(t, nil), serveService(t, newCanned(cfg.ResultBytes, uint64(time.Now().Unix()), time.Now()))} {
		s, err := newService("the server", address, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		a := s.act(0)
		claimed, err := a.stub.Claim(t.Context(), a.claimRequest(holderFirst))
		if err != nil {
			t.Fatal(err)
		}
		completed, err := a.stub.Complete(t.Context(), &oncedv1.CompleteRequest{
			Ref: a.ref, ClaimToken: a.token, Fence: claimed.GetOperation().GetFence(),
			Result: &oncedv1.CompleteRequest_Stored{Stored: payload(s.result)},
		})
		if err != nil {
			t.Fatal(err)
		}
		replayed, err := a.stub.Claim(t.Context(), a.claimRequest(holderReplay))
		if err != nil {
			t.Fatal(err)
		}
		answers[i] = []proto.Message{claimed, completed, replayed}
	}
	for i, real := range answers[0] {
		null := answers[1][i]
		if want, got := fieldsOf(real.ProtoReflect()), fieldsOf(null.ProtoReflect()); want != got {
			t.Errorf("answer %d has the fields\n%s\nand canned\n%s", i, want, got)
		}
		if want, got := proto.Size(real), proto.Size(null); got < want*9/10 || got > want*11/10 {
			t.Errorf("answer %d has %d bytes, and canned %d", i, want, got)
		}
	}
}

// fieldsOf lists the fields that are set in a message and in those inside it. The
// server may say yours of a claim under the present token, so it is left out; and
// so are the parts of times, which may be zero.
func fieldsOf(m protoreflect.Message) string {
	var names []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) || f.Name() == "yours" || f.Name() == "nanos" || f.Name() == "seconds" {
			continue
		}
		name := string(f.Name())
		if f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap() {
			name += "{" + fieldsOf(m.Get(f).Message()) + "}"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// TestProbe reads what can be known of a server, here of this process.
func TestProbe(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# HELP x y\n"+seriesBatchSum+" 12\n"+seriesBatchCount+" 3\nonced_x{y=\"z\"} 1\n")
	}))
	defer page.Close()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/onced.db", make([]byte, 4097), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProbe(Process{Ops: strings.TrimPrefix(page.URL, "http://"), PID: os.Getpid(), Data: dir})
	r := p.read(t.Context())
	if got := *quotient(r.grouped, r.batches); got != 4 {
		t.Errorf("%v requests a commit", got)
	}
	if *r.used != 4097 {
		t.Errorf("the store has %v bytes", *r.used)
	}
	if _, err := os.Stat("/proc/self/io"); err == nil && (r.rssAnon == nil || *r.rssAnon < 1<<20 || r.written == nil) {
		t.Errorf("of this process: %v %v", r.rssAnon, r.written)
	}
	if n := len(p.fdatasyncs()); n != syncTries {
		t.Errorf("%d syncs were tried", n)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if r := newProbe(Process{}).read(t.Context()); r != (reading{}) {
		t.Errorf("of an unknown server: %+v", r)
	}
}
