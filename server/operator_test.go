package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage"
)

const operatorService = "onced.v1.OperatorService"

// Operators are served beside callers: counted, reflected, and with a health of their
// own, which a full disk does not change.
func TestOperatorsServed(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	r.grant("k")
	operator := oncedv1.NewOperatorServiceClient(r.conn)
	page, err := operator.ListOperations(t.Context(), &oncedv1.ListOperationsRequest{Namespace: "n"})
	if err != nil || len(page.GetOperations()) != 1 {
		t.Fatal(page, err)
	}
	_, err = operator.ListOperations(t.Context(), &oncedv1.ListOperationsRequest{Namespace: "n", PageSize: -1})
	r.wantReason(err, codes.InvalidArgument, "INVALID_ARGUMENT", "no")
	r.counted(1, "onced_rpcs_total", operatorService, "ListOperations", "OK")
	r.counted(1, "onced_rpcs_total", operatorService, "ListOperations", "InvalidArgument")
	r.counted(1, "onced_refusals_total", "n", "ListOperations", "INVALID_ARGUMENT")

	r.server.health.setFull(true)
	health, err := healthpb.NewHealthClient(r.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: operatorService})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", health, err)
	}

	stream, err := reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(ask); err != nil {
		t.Fatal(err)
	}
	if answer, err := stream.Recv(); err != nil || !strings.Contains(answer.String(), operatorService) {
		t.Error(answer, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
}

// However many list, few listings are worked on, and claims find room.
func TestListingsAreShedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slog.LevelInfo)
		operator := oncedv1.NewOperatorServiceClient(r.conn)
		list := func() error {
			_, err := operator.ListOperations(t.Context(), &oncedv1.ListOperationsRequest{Namespace: "n"})
			return err
		}
		release := r.store.holdScans()
		var listings sync.WaitGroup
		most := int(r.server.admission.listingLimit)
		for range most {
			listings.Go(func() {
				if err := list(); err != nil {
					t.Errorf("a listing that was let in: %v", err)
				}
			})
		}
		synctest.Wait()
		for range 10 * most {
			r.wantReason(list(), codes.Unavailable, "OVERLOADED", "no")
		}
		r.grant("k")
		release()
		listings.Wait()
		if err := list(); err != nil {
			t.Errorf("after the others have ended: %v", err)
		}
	})
}

// endlessStore has records without end, and a caller that gives up at the third scan.
type endlessStore struct {
	storage.Store
	scans  int
	giveUp context.CancelFunc
}

func (s *endlessStore) ScanIdentity(context.Context, []byte, storage.Cursor, int) (storage.Page, error) {
	if s.scans++; s.scans == 3 {
		s.giveUp()
	}
	return storage.Page{Views: make([]onced.View, 1), Next: storage.Cursor{0}}, nil
}

// TestListingEndsWithItsCall: nothing more is looked for once nobody waits.
func TestListingEndsWithItsCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := &endlessStore{giveUp: cancel}
	l := &listing{listCall: &listCall{pageSize: 1, namespace: "n"}, store: store, at: position{phase: phaseIdentity}}
	if err := l.fill(ctx); !errors.Is(err, context.Canceled) || store.scans != 3 {
		t.Errorf("%v after %d scans", err, store.scans)
	}
}
