package server_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// rawCodec sends bytes as they are, as a client that checks nothing would.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// send calls an RPC with a message in bytes.
func (w *wire) send(rpc string, message []byte) error {
	return w.conn.Invoke(w.Context(), "/onced.v1.IdempotencyService/"+rpc, message, &oncedv1.ClaimResponse{},
		grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
}

// field appends a field of bytes to a message.
func field(message []byte, number protowire.Number, content string) []byte {
	return protowire.AppendString(protowire.AppendTag(message, number, protowire.BytesType), content)
}

// Text that is not UTF-8 is refused like any other invalid field, by name, and
// every interceptor sees it.
func TestInvalidUTF8(t *testing.T) {
	w := newWire(t)
	var mu sync.Mutex
	var seen []error
	w.serve(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, err)
		return resp, err
	}))
	const bad = "\xff\xfe"
	goodRef := string(field(field(field(nil, 1, "n"), 2, "k"), 3, "m"))
	valid := field(field(nil, 1, goodRef), 2, string(token("a")))
	for _, c := range []struct {
		rpc     string
		message []byte
		field   string
	}{
		{"Claim", field(nil, 1, string(field(field(nil, 1, "n"), 2, bad))), "ref.key"},
		{"Claim", field(nil, 1, string(field(nil, 1, bad))), "ref.namespace"},
		{"Claim", field(valid, 3, bad), "fingerprints"},
		{"Claim", field(valid, 4, bad), "subject"},
		{"Claim", field(valid, 10, string(field(nil, 2, bad))), "labels.value"},
		{"Claim", field(nil, 1, "\x0a\xff"), "ref"}, // a length beyond the end
		{"Complete", field(valid, 4, string(field(nil, 2, bad))), "stored.text"},
		{"Lookup", field(valid, 2, bad), "subject"},
		{"GetPolicy", field(nil, 1, bad), "namespace"},
	} {
		wantViolation(t, w.send(c.rpc, c.message), c.field)
	}
	if len(w.records()) > 0 {
		t.Error("something was stored")
	}
	if w.seen.count("refused n Claim INVALID_ARGUMENT") == 0 {
		t.Errorf("not counted: %q", w.seen.events)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 9 || status.Code(seen[0]) != codes.InvalidArgument {
		t.Errorf("the interceptor saw %v", seen)
	}
}

// Fields that this build does not know do no harm, and bytes may be any.
func TestUnknownFields(t *testing.T) {
	w := newWire(t)
	b, err := proto.Marshal(claimOf("k", "a", func(r *oncedv1.ClaimRequest) { r.ClaimToken = []byte(strings.Repeat("\xff", 16)) }))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.send("Claim", field(b, 900, "\xff\xfe")); err != nil {
		t.Error(err)
	}
}

// A message above the transport's limit changes nothing: the operation stays
// PENDING, and a small Complete is taken.
func TestMessageAboveTheLimit(t *testing.T) {
	w := newWire(t)
	h := w.grant("k", "a")
	w.unchanged(func() {
		_, err := h.complete(strings.Repeat("x", 5<<20))
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%v", err)
		}
	})
	w.lookup(pending, "k")
	w.must(completed)(h.complete("small"))
}

// An error of the service is a status when it reaches the first interceptor.
func TestErrorsAreStatusesInside(t *testing.T) {
	w := newWire(t)
	var inner error
	w.serve(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_, inner = handler(ctx, req)
		return nil, inner
	}))
	outer := w.look(&oncedv1.LookupRequest{Ref: ref("k")})
	st, ok := status.FromError(inner)
	if !ok || st.Code() != codes.NotFound || st.Message() != status.Convert(outer).Message() {
		t.Errorf("inside %v, outside %v", inner, outer)
	}
	if errors.Unwrap(inner) != nil || inner.Error() == "" {
		t.Errorf("%#v", inner)
	}
}
