package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

type listRequest = oncedv1.ListOperationsRequest

var (
	onlyUnresolved = []oncedv1.State{stateUnresolved}
	onlyUnsettled  = []oncedv1.State{pending, stateUnresolved}
)

func (w *wire) listPage(req *listRequest) (*oncedv1.ListOperationsResponse, error) {
	return oncedv1.NewOperatorServiceClient(w.conn).ListOperations(w.Context(), req, grpc.MaxCallRecvMsgSize(17<<20))
}

// list reads all pages of a listing and returns how often each operation is in
// them, as "namespace key method"; and the pages.
func (w *wire) list(req *listRequest) (map[string]int, []*oncedv1.ListOperationsResponse) {
	w.Helper()
	seen := map[string]int{}
	var pages []*oncedv1.ListOperationsResponse
	req = proto.CloneOf(req)
	for {
		page, err := w.listPage(req)
		if err != nil {
			w.Fatalf("page %d of %v: %v", len(pages), req, err)
		}
		pages = append(pages, page)
		if size := int(req.GetPageSize()); size > 0 && len(page.GetOperations()) > size {
			w.Fatalf("a page of %d of %v", len(page.GetOperations()), req)
		}
		for _, d := range page.GetOperations() {
			r := d.GetOperation().GetRef()
			seen[r.GetNamespace()+" "+r.GetKey()+" "+r.GetMethod()]++
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return seen, pages
		}
		if len(pages) > 10_000 {
			w.Fatalf("%v does not end", req)
		}
	}
}

// wantKeys checks that a listing of namespace n has these keys, once each.
func (w *wire) wantKeys(req *listRequest, keys ...string) {
	w.Helper()
	seen, _ := w.list(req)
	want := map[string]int{}
	for _, k := range keys {
		want["n "+k+" m"] = 1
	}
	for k, n := range seen {
		if want[k] != n {
			w.Errorf("%v has %q %d times", req, k, n)
		}
	}
	for k := range want {
		if seen[k] == 0 {
			w.Errorf("%v has no %q", req, k)
		}
	}
}

// claimed returns an operation as a plain claim at a moment leaves it.
func (w *wire) claimed(namespace, key, method string, claimed time.Time, lease time.Duration) *onced.Record {
	return &onced.Record{
		ID: onced.Identity{Namespace: namespace, Key: key, Method: method}, State: onced.StatePending,
		Attempt: 1, Fence: 1, Generation: w.svc.Generation(), Revision: 1, Lease: lease, LeaseEnd: claimed.Add(lease),
		FirstClaimTime: claimed, ClaimTime: claimed, UpdateTime: claimed,
		Attempts: []onced.Attempt{{Number: 1, Fence: 1, ClaimTime: claimed}},
	}
}

// populate stores operations of three namespaces and two methods in all states, some
// of the unsettled ones at one moment, and returns what is to be listed, by "namespace
// method state".
func (w *wire) populate(n int) map[string][]string {
	at := w.clock.Wall()
	made := map[string][]string{}
	for i := range n {
		namespace, method := []string{"n", "n2", "nn"}[i%3], []string{"m", "send"}[i/3%2]
		r := w.claimed(namespace, fmt.Sprintf("key %04d", i), method, at.Add(time.Duration(i/10)*time.Millisecond), time.Minute)
		r.Holder = strings.Repeat("h", i%50)
		switch i / 6 % 5 {
		case 0:
			r.Lease, r.LeaseEnd = time.Hour, r.ClaimTime.Add(time.Hour)
		case 1: // lapses
		case 2:
			r.State, r.Reason, r.DoubtTime = onced.StateUnresolved, onced.ReasonDeclared, r.ClaimTime
		case 3:
			r.State, r.Result, r.SettleTime = onced.StateCompleted, onced.NewResult("", true, []byte("secret")), r.ClaimTime
		case 4:
			r.State, r.ReleaseTime = onced.StateReleased, r.ClaimTime
		}
		w.put(r)
		state := r.State
		if i/6%5 == 1 {
			state = onced.StateUnresolved
		}
		name := namespace + " " + r.ID.Key + " " + method
		made[namespace+" "+method+" "+state.String()] = append(made[namespace+" "+method+" "+state.String()], name)
	}
	w.clock.Advance(10 * time.Minute)
	return made
}

// Every operation that is asked for is on one page, none of another namespace is on
// any, whatever the size of the pages.
func TestListPages(t *testing.T) {
	w := newWire(t)
	made := w.populate(2500)
	for _, namespace := range []string{"n", "nn", "other"} {
		for _, methods := range [][]string{{"m"}, {"m", "send"}} {
			for _, states := range [][]oncedv1.State{nil, onlyUnresolved, onlyUnsettled, {completed, stateUnresolved}} {
				want := map[string]bool{}
				for _, m := range methods {
					for s := range oncedv1.State_name {
						if len(states) == 0 || slices.Contains(states, oncedv1.State(s)) {
							for _, name := range made[namespace+" "+m+" "+onced.State(s).String()] {
								want[name] = true
							}
						}
					}
				}
				for _, size := range []int32{90, 1000} {
					req := &listRequest{Namespace: namespace, States: states, PageSize: size}
					if len(methods) == 1 {
						req.Method = methods[0]
					}
					seen, pages := w.list(req)
					for name, n := range seen {
						if n != 1 || !want[name] {
							t.Fatalf("%v: %q %d times, asked for: %t", req, name, n, want[name])
						}
					}
					if len(seen) != len(want) {
						t.Fatalf("%v lists %d, want %d", req, len(seen), len(want))
					}
					for i, p := range pages {
						if size == 1000 && i > 0 && len(want) < 1000 && len(p.GetOperations()) > 0 {
							t.Errorf("%v: page %d of a listing of %d", req, i, len(want))
						}
						if strings.Contains(p.String(), "secret") {
							t.Fatalf("%v shows a result", req)
						}
					}
				}
			}
		}
	}
}

// Unsettled ones come in the order of time.
func TestListOldestFirst(t *testing.T) {
	w := newWire(t)
	w.populate(500)
	for _, size := range []int32{7, 100} {
		_, pages := w.list(&listRequest{Namespace: "n", States: onlyUnresolved, PageSize: size})
		var last time.Time
		for _, p := range pages {
			for _, d := range p.GetOperations() {
				at := d.GetOperation().GetLeaseEnd().AsTime()
				if d.GetOperation().GetReason() == oncedv1.Reason_REASON_DECLARED {
					at = d.GetOperation().GetClaimTime().AsTime()
				}
				if at.Before(last) {
					t.Fatalf("%v after %v", at, last)
				}
				last = at
			}
		}
	}
}

// Settlements between and beside the pages lose nothing that stays unsettled.
func TestListWhileSettling(t *testing.T) {
	w := newWire(t)
	for i := range 300 {
		w.put(w.claimed("n", fmt.Sprintf("key %03d", i), "m", w.clock.Wall().Add(time.Duration(i)), time.Second))
	}
	w.clock.Advance(time.Hour)
	settle := func(i int) {
		r := w.claimed("n", fmt.Sprintf("key %03d", i), "m", w.clock.Wall(), time.Second)
		r.State, r.SettleTime = onced.StateCompleted, w.clock.Wall()
		err := w.store.Update(context.WithoutCancel(t.Context()), storage.Target{ID: r.ID}, func(onced.View) onced.Plan { return onced.Plan{Put: r} })
		if err != nil {
			t.Error(err)
		}
	}
	for _, states := range [][]oncedv1.State{onlyUnresolved, nil} {
		var settling sync.WaitGroup
		settling.Go(func() {
			for i := 1; i < 300; i += 2 {
				settle(i)
			}
		})
		seen, _ := w.list(&listRequest{Namespace: "n", States: states, PageSize: 5})
		settling.Wait()
		for i := 0; i < 300; i += 2 {
			if n := seen[fmt.Sprintf("n key %03d m", i)]; n != 1 {
				t.Errorf("states %v: key %d, which nobody touched, %d times", states, i, n)
			}
		}
	}
}

func TestListFilters(t *testing.T) {
	w := newWire(t)
	method := func(m string) func(*oncedv1.ClaimRequest) {
		return func(r *oncedv1.ClaimRequest) { r.Ref.Method = m }
	}
	w.must(completed)(w.grant("done", "a").complete("secret"))
	w.grant("lapsed", "a")
	w.clock.Advance(time.Hour)
	w.must(released)(w.grant("released", "a").fail(notExecuted))
	w.must(stateUnresolved)(w.grant("declared", "a").fail(unknown))
	w.claim(unresolved, "lost", "a", takeOver(1))
	w.grant("live", "a")
	w.grant("live", "a", method("other"))

	list := func(states ...oncedv1.State) *listRequest {
		return &listRequest{Namespace: "n", Method: "m", States: states}
	}
	w.wantKeys(list(), "done", "lapsed", "released", "declared", "lost", "live")
	w.wantKeys(list(stateUnresolved), "lapsed", "declared", "lost")
	w.wantKeys(list(stateUnresolved, stateUnresolved), "lapsed", "declared", "lost")
	w.wantKeys(list(pending), "live")
	w.wantKeys(list(pending, stateUnresolved), "live", "lapsed", "declared", "lost")
	w.wantKeys(list(released, completed), "released", "done")
	w.wantKeys(&listRequest{Namespace: "n", Key: "live", Method: "m", States: onlyUnsettled}, "live")
	w.wantKeys(&listRequest{Namespace: "n", Key: "live", Method: "absent"})
	w.wantKeys(&listRequest{Namespace: "n", Key: "liv"})
	w.wantKeys(&listRequest{Namespace: "n2"})
	if seen, _ := w.list(&listRequest{Namespace: "n", Key: "live"}); len(seen) != 2 {
		t.Errorf("the operations of one key: %v", seen)
	}

	aged := func(age time.Duration, states ...oncedv1.State) *listRequest {
		r := list(states...)
		r.MinAge = durationpb.New(age)
		return r
	}
	w.wantKeys(aged(0), "done", "lapsed", "released", "declared", "lost", "live")
	w.wantKeys(aged(time.Hour), "done", "lapsed")
	w.wantKeys(aged(time.Hour + 1))
	w.clock.Advance(time.Minute)
	w.wantKeys(aged(time.Minute, stateUnresolved), "lapsed", "declared", "lost", "live")
	w.wantKeys(aged(time.Minute+1, stateUnresolved), "lapsed")

	w.clock.Advance(onced.DefaultPolicy().KeyRetention) // what is settled or released has expired
	w.wantKeys(list(), "lapsed", "declared", "lost", "live")
}

// All that operators are to see stands in a listing.
func TestListDetails(t *testing.T) {
	w := newWire(t)
	born := timestamppb.New(start)
	w.grant("k", "a", withSubject("alice"), withFingerprints(fp("cj1", "x"), fp("raw1", "x")), func(r *oncedv1.ClaimRequest) {
		r.Labels, r.KeyTime = map[string]string{"tool": "mail"}, born
	})
	w.clock.Advance(time.Hour)
	taken := w.claim(oncedv1.Outcome_OUTCOME_TAKEN_OVER, "k", "b", takeOver(1), withSubject("alice"), withFingerprints(fp("cj1", "x")))
	second := held{w: w, key: "k", token: "b", fence: taken.GetOperation().GetFence()}
	w.must(stateUnresolved)(second.fail(unknown))
	w.clock.Advance(time.Hour)
	w.claim(oncedv1.Outcome_OUTCOME_TAKEN_OVER, "k", "c", takeOver(2), withSubject("alice"), withFingerprints(fp("cj1", "x")))
	w.refused(precondition, "CLAIM_LOST")(second.complete("secret"))
	v, err := w.store.Get(t.Context(), identity("k"))
	if err != nil {
		t.Fatal(err)
	}
	v.Record.LastResolve = &onced.LastResolve{Resolution: onced.ResolveReleased, Evidence: "seen in the ledger"}
	v.Record.Attempts[0].Facts = []onced.Fact{{}, {Failed: true}, {Digest: onced.Digest{1}}}
	v.Record.Attempts[0].Reports = onced.ReportSet(0).With(onced.DidNotHappen).With(onced.NotExecuted)
	w.put(v.Record)

	_, pages := w.list(&listRequest{Namespace: "n"})
	d := pages[0].GetOperations()[0]
	if d.GetLabels()["tool"] != "mail" || d.GetSubject() != "alice" || !proto.Equal(d.GetKeyTime(), born) ||
		!slices.Equal(d.GetFingerprints(), []string{fp("cj1", "x"), fp("raw1", "x")}) || d.GetEvidence() != "seen in the ledger" ||
		!d.GetDoubt() || !d.GetContradicted() || !d.GetByTakeover() {
		t.Errorf("%v", d)
	}
	op := d.GetOperation()
	if op.GetHolder() != "holder c" || op.GetAttempt() != 3 || op.GetEtag() == "" || op.GetState() != pending || op.GetLeaseRemaining() == nil {
		t.Errorf("%v", op)
	}
	var attempts []string
	for _, a := range d.GetAttempts() {
		attempts = append(attempts, fmt.Sprint(a.GetAttempt(), a.GetHolder(), a.GetReports()))
		if a.GetFence() == 0 || a.GetClaimTime() == nil {
			t.Errorf("%v", a)
		}
	}
	want := []string{
		"1holder a[REPORT_KIND_COMPLETE REPORT_KIND_FINAL REPORT_KIND_NOT_EXECUTED REPORT_KIND_DID_NOT_HAPPEN]",
		"2holder b[REPORT_KIND_UNKNOWN]", "3holder c[]",
	}
	if !slices.Equal(attempts, want) {
		t.Errorf("%q, want %q", attempts, want)
	}
	if text := d.String(); strings.Contains(text, "secret") || strings.Contains(text, string(token("a"))) {
		t.Error("it shows too much")
	}
}
