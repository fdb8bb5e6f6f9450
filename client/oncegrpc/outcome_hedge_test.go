package oncegrpc

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced/client/oncetest"
)

// everyCode is what a hedging policy has as nonFatalStatusCodes that goes on after all.
func everyCode() (list []codes.Code) {
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		list = append(list, c)
	}
	return list
}

// hedge sends a call to several tools at once, as a hedging policy of gRPC does, which
// grpc-go has not: the first answer that is OK, that has headers, or whose code is fatal
// is delivered; others only when none is outstanding. It returns all answers too, once
// all have come.
func hedge(ctx context.Context, rigs []*rig, nonFatal []codes.Code, method, key string, req *dynamicpb.Message) (delivered answer, all []answer) {
	answers := make(chan answer)
	for _, r := range rigs {
		go func() { answers <- r.call(ctx, method, key, proto.CloneOf(req)) }()
	}
	committed := false
	for range rigs {
		a := <-answers
		all = append(all, a)
		if !committed {
			delivered = a
			committed = a.err == nil || len(a.header) > 0 || !slices.Contains(nonFatal, status.Code(a.err))
		}
	}
	return delivered, all
}

// threeTools are three processes of one tool.
func threeTools(t *testing.T, s *oncetest.Server, opts ...Option) []*rig {
	t.Helper()
	var rigs []*rig
	for range 3 {
		rigs = append(rigs, newRigOn(t, s, nil, opts...))
	}
	return rigs
}

// runsOf counts the runs of all handlers, and begins anew.
func runsOf(rigs []*rig) (n int64) {
	for _, r := range rigs {
		n += r.ran.Swap(0)
	}
	return n
}

// Hedged copies reach three processes at once. One executes, and its answer is the one
// that is delivered, whatever it is.
func TestR31_WhatHandlersEndWithAndHedging(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		rigs := threeTools(t, s)
		for i, h := range waysToEnd() {
			key := fmt.Sprint("k", i)
			bare := h.slowly(t, rigs)
			got, all := hedge(t.Context(), rigs, everyCode(), h.method, key, request("amount", 1))
			got.wantStatus(t, status.Convert(bare.err))
			if n := runsOf(rigs); n != 1 {
				t.Errorf("%s: handlers ran %d times", h.name, n)
			}
			if h.fate != fateReleased {
				got.wantMarked(t, OutcomeExecuted, key)
			}
			for _, a := range all[:2] { // they came first
				a.wantRefused(t, codes.Aborted, "IN_PROGRESS")
			}
			h.wantEarlier(t, rigs[2], key, bare)
			if t.Failed() {
				t.Fatalf("%s: see above", h.name)
			}
		}
	})
}

// With a guard that waits, the losers have the winner's answer.
func TestR31_WhatHandlersEndWithAndHedgingThatWaits(t *testing.T) {
	inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
		rigs := threeTools(t, s, WithWait(10*time.Second))
		for i, h := range waysToEnd() {
			key := fmt.Sprint("k", i)
			bare := h.slowly(t, rigs)
			got, all := hedge(t.Context(), rigs, everyCode(), h.method, key, request("amount", 1))
			if h.fate != fateGone { // where its copies have different answers, any may be the first
				got.wantStatus(t, status.Convert(bare.err))
			}
			want := int64(1)
			if h.fate == fateReleased {
				want = 3 // a copy that waited executes what was released
			}
			if n := runsOf(rigs); n != want {
				t.Errorf("%s: handlers ran %d times, want %d", h.name, n, want)
			}
			outcomes := map[string]int{}
			for _, a := range all {
				outcomes[a.outcome()]++
			}
			switch h.fate {
			case fateCompleted, fateFinal, fateGone:
				if outcomes[OutcomeExecuted] != 1 || outcomes[OutcomeReplayed] != 2 {
					t.Errorf("%s: the copies say %v", h.name, outcomes)
				}
			case fateUnresolved:
				if outcomes[OutcomeExecuted] != 1 || outcomes[""] != 2 {
					t.Errorf("%s: the copies say %v", h.name, outcomes)
				}
			}
			h.wantEarlier(t, rigs[2], key, bare)
			if t.Failed() {
				t.Fatalf("%s: see above", h.name)
			}
		}
	})
}

// slowly has the handlers of several rigs end so after a while, and returns what is
// answered without a guard.
func (h handled) slowly(t *testing.T, rigs []*rig) answer {
	for _, r := range rigs {
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
			passing(100 * time.Millisecond)
			return h.end()
		})
	}
	bare := rigs[0].call(t.Context(), "Off", "", request("amount", 1))
	runsOf(rigs)
	return bare
}

// wantEarlier fails the test unless the next calls learn what became of a hedged one.
func (h handled) wantEarlier(t *testing.T, r *rig, key string, bare answer) {
	t.Helper()
	r.call(t.Context(), h.method, key, request("amount", 2)).wantMismatch(t)
	if h.fate == fateReleased {
		return
	}
	a := r.call(t.Context(), h.method, key, request("amount", 1))
	switch h.fate {
	case fateUnresolved:
		a.wantUnresolved(t, "DECLARED")
	case fateFinal:
		a.wantStatus(t, status.Convert(bare.err))
	case fateCompleted:
		a.wantResponse(t, bare.resp)
	}
	r.wantRuns(0)
}

// A guard waits as long as it was told to, and not longer.
func TestWaitEnds(t *testing.T) {
	for _, wait := range []time.Duration{0, 2 * time.Second, 40 * time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			inBubbleOf(t, func(t *testing.T, s *oncetest.Server) {
				holder, waiter := newRigOn(t, s, nil), newRigOn(t, s, nil, WithWait(wait))
				begun, done := make(chan struct{}), make(chan struct{})
				holder.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
					close(begun)
					passing(time.Hour)
					return response(), nil
				})
				go func() {
					defer close(done)
					holder.call(t.Context(), "Pay", "k", request())
				}()
				<-begun
				asked := time.Now()
				waiter.call(t.Context(), "Pay", "k", request()).wantRefused(t, codes.Aborted, "IN_PROGRESS")
				if took := time.Since(asked); took < wait || took > wait+time.Second {
					t.Errorf("it waited %v, want %v", took, wait)
				}
				waiter.wantRuns(0)
				<-done
			})
		})
	}
}
