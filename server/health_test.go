package server

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING

	idempotency = "onced.v1.IdempotencyService"
)

// check asks for the health of a service over the wire.
func (r *rig) check(service string) healthpb.HealthCheckResponse_ServingStatus {
	r.Helper()
	resp, err := healthpb.NewHealthClient(r.conn).Check(r.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		r.Fatal(err)
	}
	return resp.GetStatus()
}

// wantHealth checks the answers for the server and for its service, and the
// probes.
func (r *rig) wantHealth(server, service healthpb.HealthCheckResponse_ServingStatus, ready, live error) {
	r.Helper()
	if got := r.check(""); got != server {
		r.Errorf("the server: %v, want %v", got, server)
	}
	if got := r.check(idempotency); got != service {
		r.Errorf("the service: %v, want %v", got, service)
	}
	h := r.server.Health()
	if !errors.Is(h.Ready(), ready) || !errors.Is(h.Live(), live) {
		r.Errorf("ready: %v, live: %v; want %v, %v", h.Ready(), h.Live(), ready, live)
	}
}

// TestNotReady: the library's health server begins with SERVING; ours must not.
func TestNotReady(t *testing.T) {
	h := newHealth(slog.New(slog.DiscardHandler))
	for _, service := range []string{"", idempotency} {
		resp, err := h.grpc.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != notServing {
			t.Errorf("%q before Serve: %v, %v", service, resp, err)
		}
	}
	if !errors.Is(h.Ready(), errNotReady) || h.Live() != nil {
		t.Errorf("ready: %v, live: %v", h.Ready(), h.Live())
	}
}

// TestFullStore: while there is no room for claims, the service says so, and
// reads and the server as a whole go on. When there is room again, that is found
// out without a restart, and without anybody claiming.
func TestFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		r.grant("k")
		r.wantHealth(serving, serving, nil, nil)

		r.store.full.Store(true)
		for range 3 {
			_, err := r.client.Claim(t.Context(), claimRequest("another"))
			r.wantReason(err, codes.ResourceExhausted, "STORAGE_FULL", "no")
		}
		r.wantHealth(serving, notServing, nil, nil)
		if _, err := r.client.Lookup(t.Context(), &oncedv1.LookupRequest{Ref: claimRequest("k").GetRef()}); err != nil {
			t.Errorf("lookup in a full store: %v", err)
		}
		<-time.After(2 * probeInterval)
		synctest.Wait()
		r.wantHealth(serving, notServing, nil, nil)

		r.store.full.Store(false)
		<-time.After(probeInterval)
		synctest.Wait()
		r.wantHealth(serving, serving, nil, nil)
		r.grant("another")
		if log := r.log.String(); strings.Count(log, "the store is full") != 1 || strings.Count(log, "has room again") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestFullStoreIsNoticed: that there is no room is found out before anybody claims,
// and a report that finds room says nothing of claims.
func TestFullStoreIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		fence := r.grant("k")
		r.store.full.Store(true)
		<-time.After(probeInterval)
		synctest.Wait()
		r.wantHealth(serving, notServing, nil, nil)
		r.store.full.Store(false)
		if _, err := r.client.Complete(t.Context(), completeRequest("k", fence, "done")); err != nil {
			t.Fatal(err)
		}
		r.wantHealth(serving, notServing, nil, nil)
		<-time.After(probeInterval)
		synctest.Wait()
		r.wantHealth(serving, serving, nil, nil)
	})
}

// TestFullForAReport: a report that finds no room says nothing of claims.
func TestFullForAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		fence := r.grant("k")
		r.store.full.Store(true)
		_, err := r.client.Complete(t.Context(), completeRequest("k", fence, "done"))
		r.wantReason(err, codes.ResourceExhausted, "STORAGE_FULL", "no")
		r.wantHealth(serving, serving, nil, nil)
		if log := r.log.String(); strings.Contains(log, "the store is full") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestStuckStore: a store that does not answer keeps neither the calls that have a
// deadline, nor the stop of the server, nor the answer that its health gives.
func TestStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		r.store.stuck.Store(true)
		<-time.After(2 * probeInterval)
		synctest.Wait()
		r.wantHealth(serving, serving, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.client.Claim(ctx, claimRequest("k")); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a claim with a deadline: %v", err)
		}
		held := make(chan error, 1)
		go func() {
			_, err := r.client.Claim(t.Context(), claimRequest("k"))
			held <- err
		}()
		synctest.Wait()
		stopping, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.server.Stop(stopping)
		if err := <-held; status.Code(err) != codes.Unavailable {
			t.Errorf("a claim that was cut off: %v", err)
		}
		r.store.stuck.Store(false)
		v, err := r.store.Get(t.Context(), onced.Identity{Namespace: "n", Key: "k", Method: "m"})
		if err != nil || v.Record != nil {
			t.Errorf("a claim that could not be decided is stored: %v, %v", v.Record, err)
		}
	})
}

// TestFailedStore: nothing is ready once the store has failed, and the process
// is to be restarted.
func TestFailedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		r.wantHealth(serving, serving, nil, nil)
		r.store.gate.FailSync()
		_, err := r.client.Claim(t.Context(), claimRequest("k"))
		r.wantReason(err, codes.Unavailable, "NOT_READY", "unknown")
		synctest.Wait()
		r.wantHealth(notServing, notServing, errStoreFailed, errStoreFailed)
	})
}

// TestWatch sees every change.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := healthpb.NewHealthClient(r.conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: idempotency})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []healthpb.HealthCheckResponse_ServingStatus{serving, notServing, serving} {
			if got, err := stream.Recv(); err != nil || got.GetStatus() != want {
				t.Fatalf("%v, %v; want %v", got, err, want)
			}
			r.store.full.Store(want == serving)
			if _, err := r.client.Claim(t.Context(), claimRequest(strconv.Itoa(i))); (err != nil) != (want == serving) {
				t.Fatal(err)
			}
		}
	})
}
