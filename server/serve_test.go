package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// TestGracefulStop stops a server on which one call is held and the health is
// watched: neither keeps it until its deadline.
func TestGracefulStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		r.grant("k")
		held := make(chan error, 1)
		go func() {
			_, err := r.waitFor(t.Context(), "k")
			held <- err
		}()
		watch, err := healthpb.NewHealthClient(r.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := watch.Recv(); err != nil || got.GetStatus() != serving {
			t.Fatal(got, err)
		}
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r.server.Stop(ctx)
		if ctx.Err() != nil {
			t.Error("stopped by its deadline")
		}

		r.wantReason(<-held, codes.Unavailable, "STOPPING", "no")
		last, err := serving, error(nil)
		for {
			got, recvErr := watch.Recv()
			if err = recvErr; err != nil {
				break
			}
			last = got.GetStatus()
		}
		if last != notServing || status.Code(err) != codes.Unavailable {
			t.Errorf("the watch ended with %v and %v", last, err)
		}
		if err := <-r.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if !errors.Is(r.server.Health().Ready(), errStopping) {
			t.Errorf("ready: %v", r.server.Health().Ready())
		}
		r.server.Stop(context.Background())
	})
}

// TestStopUnderADeadline: a stream that its client leaves open is cut off.
func TestStopUnderADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		stream, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
		if err := stream.Send(ask); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil || !strings.Contains(answer.String(), idempotency) {
			t.Fatal(answer, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), pingTime)
		defer cancel()
		r.server.Stop(ctx)
		if ctx.Err() == nil {
			t.Error("stopped before the deadline, although a stream was open")
		}
		if _, err := stream.Recv(); err == nil || err == io.EOF {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// TestStopWaitsForHandlers: the store may be closed when Stop has returned, so
// no handler may run any more, not even one that is cut off.
func TestStopWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		release := r.store.gate.HoldSync()
		claimed := make(chan error, 1)
		go func() {
			_, err := r.client.Claim(t.Context(), claimRequest("k"))
			claimed <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		stopped := make(chan struct{})
		go func() {
			r.server.Stop(ctx)
			close(stopped)
		}()
		synctest.Wait()
		if err := <-claimed; status.Code(err) != codes.Unavailable {
			t.Errorf("the call that was cut off: %v", err)
		}
		select {
		case <-stopped:
			t.Error("Stop returned while a handler was in the store")
		default:
		}
		release()
		<-stopped
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestServeAfterStop(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	r.server.Stop(t.Context())
	if err := r.server.Serve(bufconn.Listen(1)); err != nil {
		t.Errorf("Serve after Stop: %v", err)
	}
}

func TestServeFails(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	l := bufconn.Listen(1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Serve(l); err == nil || !strings.Contains(err.Error(), "serve on") {
		t.Errorf("Serve on a closed listener: %v", err)
	}
}

func TestNewWantsEverything(t *testing.T) {
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("New without anything")
	}
}
