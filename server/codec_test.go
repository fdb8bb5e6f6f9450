package server

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// bytesCodec sends bytes as they are.
type bytesCodec struct{ encoding.CodecV2 }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// TestMalformed: a request that cannot be decoded is refused like any other invalid
// one by every RPC of ours. Other services are gRPC's.
func TestMalformed(t *testing.T) {
	r := newRig(t, slog.LevelInfo)
	send := func(method string) (metadata.MD, error) {
		var header metadata.MD
		err := r.conn.Invoke(t.Context(), method, []byte("\x0a\xff"), &emptypb.Empty{},
			grpc.ForceCodecV2(bytesCodec{newCodec()}), grpc.Header(&header))
		return header, err
	}
	methods := r.server.grpc.GetServiceInfo()[idempotency].Methods
	if len(methods) == 0 {
		t.Fatal("no methods")
	}
	for _, m := range methods {
		header, err := send("/" + idempotency + "/" + m.Name)
		st := r.wantReason(err, codes.InvalidArgument, "INVALID_ARGUMENT", "no")
		if !strings.Contains(st.Message(), "cannot be read") {
			t.Errorf("%s: %s", m.Name, st.Message())
		}
		if len(header.Get(generationHeader)) != 1 {
			t.Errorf("%s: no generation in %v", m.Name, header)
		}
		r.counted(1, "onced_rpcs_total", m.Name, "InvalidArgument")
		r.counted(1, "onced_refusals_total", "other", m.Name, "INVALID_ARGUMENT")
	}
	if _, err := send("/grpc.health.v1.Health/Check"); status.Code(err) != codes.Internal {
		t.Errorf("health: %v", err)
	}
	r.wantHealth(serving, serving, nil, nil)
	r.grant("k")
}
