package oncegrpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// These reports are about what makes two calls the same one.

// r05 is a tool of two tenants, one of which has executed Pay under the key "1".
func r05(t *testing.T) *rig {
	r := newStaffedRig(t, oncetest.New(t), staff(), WithNamespace(tenantOf), WithSubject(userOf))
	r.handle(func(ctx context.Context, method string, _ *dynamicpb.Message) (proto.Message, error) {
		tenant, err := tenantOf(ctx)
		return response("id", map[string]string{"acme": "SECRET", "globex": "own"}[tenant]+method), err
	})
	r.as("a1", "Pay", "1", request("account", "tickets/1")).wantOutcome(t, OutcomeExecuted)
	return r
}

func TestR05_SameKeyOfAnotherTenant(t *testing.T) {
	for name, req := range map[string]*dynamicpb.Message{"same payload": request("account", "tickets/1"), "another payload": request("account", "x")} {
		t.Run(name, func(t *testing.T) {
			r := r05(t)
			a := r.as("g", "Pay", "1", req)
			a.wantOutcome(t, OutcomeExecuted)
			if text(a.resp, "id") != "ownPay" {
				t.Errorf("globex got %v", a.resp)
			}
			r.wantRuns(2)
		})
	}
}

func TestR05_OtherTenantsCannotLookItUp(t *testing.T) {
	r := r05(t)
	_, err := oncedv1.NewIdempotencyServiceClient(r.onced.Conn()).Lookup(t.Context(), &oncedv1.LookupRequest{
		Ref: &oncedv1.OperationRef{Namespace: "globex", Key: "1", Method: toolsPay},
	})
	if status.Code(err) != codes.NotFound || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
}

func TestR05_TwoMethodsUnderOneKey(t *testing.T) {
	r := r05(t)
	a := r.as("a1", "Idempotent", "1", request("account", "tickets/1"))
	a.wantOutcome(t, OutcomeExecuted)
	if text(a.resp, "id") != "SECRETIdempotent" {
		t.Errorf("got %v", a.resp)
	}
	r.wantRuns(2)
}

// In gRPC, the resource is an argument: another one under the key is refused, and never
// answered with the first one's result.
func TestR05_TwoResourcesUnderOneKey(t *testing.T) {
	r := r05(t)
	a := r.as("a1", "Pay", "1", request("account", "tickets/2"))
	a.wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	wantSecretKept(t, a, "SECRET")
	r.as("a1", "Pay", "2", request("account", "tickets/2")).wantOutcome(t, OutcomeExecuted)
	r.wantRuns(2)
}

func TestR05_AnotherUserOfTheTenant(t *testing.T) {
	r := r05(t)
	a := r.as("b", "Pay", "1", request("account", "tickets/1"))
	a.wantRefused(t, codes.PermissionDenied, "SUBJECT_MISMATCH")
	wantSecretKept(t, a, "SECRET", "alice")
}

func TestR05_ScopeIsNotInTheRequest(t *testing.T) {
	r := r05(t)
	a := r.send("Pay", request("account", "tickets/1"), "authorization", "Bearer g", MetadataKey, "1",
		"onced-namespace", "acme", "namespace", "acme", "x-tenant", "acme", "onced-subject", "alice")
	a.wantOutcome(t, OutcomeExecuted)
	if strings.Contains(a.resp.String(), "SECRET") {
		t.Errorf("got %v", a.resp)
	}
}

func TestR24_NoKeyTwice(t *testing.T) {
	r := newRig(t)
	for _, account := range []string{"a", "b"} {
		r.send("Pay", request("account", account)).wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
	}
	r.wantNothing()
}

// Where calls without a key are let through, each of them is executed and flagged.
func TestR24_NoKeyTwiceWhereItIsOptional(t *testing.T) {
	r := newRig(t)
	r.handle(func(_ context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
		return response("id", text(req, "account")), nil
	})
	for _, account := range []string{"a", "b", "b"} {
		a := r.send("Optional", request("account", account))
		a.wantOutcome(t, OutcomeUnprotected)
		if text(a.resp, "id") != account {
			t.Errorf("the call for %s got the answer for %v", account, a.resp)
		}
	}
	r.wantRuns(3)
	if keys := r.storedKeys(); len(keys) != 0 {
		t.Errorf("stored: %q", keys)
	}
}

func r24(t *testing.T, keys ...string) {
	for _, key := range keys {
		r := newRig(t)
		for _, method := range []string{"Pay", "Optional", "Field"} {
			for _, account := range []string{"a", "b"} {
				r.send(method, request("account", account), MetadataKey, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
			}
		}
		r.wantNothing()
	}
}

func TestR24_EmptyKey(t *testing.T) { r24(t, "") }

func TestR24_BlankKey(t *testing.T) { r24(t, " ", "   ") }

func TestR24_LiteralsForNoKey(t *testing.T) {
	r24(t, "null", "undefined", "00000000-0000-0000-0000-000000000000")
}

func TestR24_TwoKeys(t *testing.T) {
	r := newRig(t)
	for _, pairs := range [][]string{{MetadataKey, "k1", MetadataKey, "k2"}, {MetadataKey, "k", MetadataKey, "k"}, {MetadataKey, "k1", MetadataKeyBin, "k2"}} {
		r.send("Pay", request(), pairs...).wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
	}
	r.wantNothing()
}

// A field of the key that nobody has filled in is no key, however much of the message
// around it is there.
func TestR24_UnsetKeyField(t *testing.T) {
	r := newRig(t)
	hollow := request("account", "a")
	hollow.Mutable(requestDesc.Fields().ByName("header"))
	for method, req := range map[string]*dynamicpb.Message{"Field": request("account", "a", "request_id", ""), "NestedField": hollow} {
		r.send(method, req).wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
		r.send(method, req, MetadataKey, "").wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
	}
	r.wantNothing()
}

// r52 is a tool that answers with the amount that its handler sees.
func r52(t *testing.T) *rig {
	r := newRig(t)
	r.handle(func(_ context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
		return response("id", string(rune('0'+amountOf(req)))), nil
	})
	return r
}

// bytes calls Pay with a request of exactly these bytes, under the key "k".
func (r *rig) bytes(raw []byte) answer {
	msg := &emptypb.Empty{}
	msg.ProtoReflect().SetUnknown(raw)
	a := answer{resp: dynamicpb.NewMessage(responseDesc)}
	ctx := metadata.AppendToOutgoingContext(r.t.Context(), MetadataKey, "k")
	a.err = r.conn.Invoke(ctx, "/"+toolsPay, msg, a.resp, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

func amount(n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), n)
}

// The operation is what the handler sees: of a field that is there twice, the last one.
func TestR52_FieldTwice(t *testing.T) {
	r := r52(t)
	a := r.bytes(slices.Concat(amount(5), amount(7)))
	a.wantOutcome(t, OutcomeExecuted)
	if text(a.resp, "id") != "7" {
		t.Errorf("the handler saw %v", a.resp)
	}
	r.bytes(amount(7)).wantOutcome(t, OutcomeReplayed)
	r.bytes(slices.Concat(amount(7), amount(7))).wantOutcome(t, OutcomeReplayed)
	r.bytes(amount(5)).wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	r.bytes(slices.Concat(amount(7), amount(5))).wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
}

// Nor does the key of the operation hide: a key field that is there twice is the last one.
func TestR52_KeyFieldTwice(t *testing.T) {
	r := newRig(t)
	field := func(key string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	}
	msg := &emptypb.Empty{}
	msg.ProtoReflect().SetUnknown(slices.Concat(field("k1"), field("k2")))
	if err := r.conn.Invoke(t.Context(), "/"+toolsService+"/Field", msg, dynamicpb.NewMessage(responseDesc)); err != nil {
		t.Fatal(err)
	}
	if keys := r.storedKeys(); !slices.Equal(keys, []string{"k2"}) {
		t.Errorf("stored: %q", keys)
	}
	r.send("Field", request(), MetadataKey, "k2").wantOutcome(t, OutcomeReplayed)
	r.wantRuns(1)
}

// How the same fields were written does not matter.
func TestR52_SameFieldsInAnotherSpelling(t *testing.T) {
	r := r52(t)
	account := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "a")
	long := append(protowire.AppendTag(nil, 3, protowire.VarintType), 0x87, 0x80, 0x00) // 7, in three bytes
	r.bytes(slices.Concat(account, amount(7))).wantOutcome(t, OutcomeExecuted)
	r.bytes(slices.Concat(amount(7), account)).wantOutcome(t, OutcomeReplayed)
	r.bytes(slices.Concat(long, account)).wantOutcome(t, OutcomeReplayed)
}

// A field that this release does not know is an argument too: the handler passes it on.
func TestR52_UnknownField(t *testing.T) {
	r := r52(t)
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	r.bytes(slices.Concat(amount(7), unknown)).wantOutcome(t, OutcomeExecuted)
	r.bytes(slices.Concat(unknown, amount(7))).wantOutcome(t, OutcomeReplayed)
	r.bytes(amount(7)).wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	r.bytes(slices.Concat(amount(7), unknown, unknown)).wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
}

// What is no request is not executed, nor stored.
func TestR52_NoMessage(t *testing.T) {
	r := r52(t)
	for name, raw := range map[string][]byte{
		"trailing data":   append(amount(7), 'x'),
		"cut off":         {0x12, 0x05, 'a'},
		"not UTF-8":       {0x12, 0x02, 0xff, 0xfe},
		"field number 0":  {0x00, 0x01},
		"a stray end":     {0x0c},
		"an endless int":  {0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a group at last": append(amount(7), 0x9b, 0x06),
	} {
		if a := r.bytes(raw); a.err == nil || a.outcome() != "" {
			t.Errorf("%s: %v, %q", name, a.err, a.outcome())
		}
	}
	r.wantNothing()
}

func TestR55_KeyThatIsNotASCII(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for _, want := range []string{OutcomeExecuted, OutcomeReplayed} {
		r.do("Pay", request(), WithKey("ключ")).wantOutcome(t, want)
	}
	r.wantCame(MetadataKeyBin+": ключ", MetadataKeyBin+": ключ")
	// A caller without the interceptor, who wrote it into the text header of its own.
	r.with([]string{MetadataKey, "ключ"}, "Pay", request()).wantOutcome(t, OutcomeReplayed)
}

// A key that cannot be sent is refused on the caller's side, with a code that nobody
// takes for a passing fault.
func TestR55_KeysWithControlCharacters(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for _, key := range []string{"a\tb", "k\x00y", "k\n"} {
		a := r.do("Pay", request(), WithKey(key))
		r.wantNotSent(a)
		if !strings.Contains(a.err.Error(), "control") {
			t.Errorf("key %q: it says %v", key, a.err)
		}
		r.wantNotSent(r.with([]string{MetadataKey, key}, "Pay", request()))
		r.send("Pay", request(), MetadataKeyBin, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
		r.wire.keys()
	}
	r.wantNothing()
}

// Outer spaces are refused in every place, since some parsers trim them and some do not.
func TestR55_OuterSpaces(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	for _, key := range []string{" k", "k ", " k ", "\u00a0k"} {
		r.wantNotSent(r.do("Pay", request(), WithKey(key)))
		r.send("Pay", request(), MetadataKeyBin, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
		r.send("Field", request("request_id", key)).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
		if key != "\u00a0k" {
			r.send("Pay", request(), MetadataKey, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
		}
		r.wire.keys()
	}
	r.wantNothing()
}

func TestR55_KeyOf9000Bytes(t *testing.T) {
	r := newCallerRig(t, oncetest.New(t))
	key := strings.Repeat("k", 9000)
	r.wantNotSent(r.do("Pay", request(), WithKey(key)))
	r.send("Pay", request(), MetadataKey, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
	r.wantNothing()
}

func TestR55_OneKeyInEveryPlace(t *testing.T) {
	r := newRig(t)
	r.send("Field", request("request_id", "ключ")).wantOutcome(t, OutcomeExecuted)
	r.send("Field", request(), MetadataKeyBin, "ключ").wantOutcome(t, OutcomeReplayed)
	r.send("Field", request("request_id", "ключ"), MetadataKeyBin, "ключ").wantOutcome(t, OutcomeReplayed)
	r.wantRuns(1)
}
