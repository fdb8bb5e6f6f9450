package oncegrpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// A key is the same key wherever it stands, and is no argument.
func TestOneKeyInEveryPlace(t *testing.T) {
	type place struct {
		name  string
		pairs []string
		field string
	}
	for method, field := range map[string]string{"Field": "request_id", "NestedField": "header.request_id"} {
		places := []place{
			{"the text header", []string{MetadataKey, "k"}, ""},
			{"the -bin header", []string{MetadataKeyBin, "k"}, ""},
			{"both headers", []string{MetadataKey, "k", MetadataKeyBin, "k"}, ""},
			{"the field", nil, "k"},
			{"the text header and the field", []string{MetadataKey, "k"}, "k"},
			{"all places", []string{MetadataKey, "k", MetadataKeyBin, "k"}, "k"},
			{"upper case of the header's name", []string{"Idempotency-Key", "k"}, ""},
		}
		for _, first := range places {
			t.Run(method+"/"+first.name, func(t *testing.T) {
				r := newRig(t)
				send := func(p place) answer {
					req := request("account", "a", "amount", 5)
					if p.field != "" {
						fill(req, []any{field, p.field})
					}
					return r.send(method, req, p.pairs...)
				}
				send(first).wantOutcome(t, OutcomeExecuted)
				for _, again := range places {
					if a := send(again); a.err != nil || a.outcome() != OutcomeReplayed {
						t.Errorf("again in %s: %q, %v", again.name, a.outcome(), a.err)
					}
				}
				r.wantRuns(1)
				if keys := r.storedKeys(); !slices.Equal(keys, []string{"k"}) {
					t.Errorf("stored: %q", keys)
				}
			})
		}
	}
}

// The message around the key is an argument only for what else it holds.
func TestMessageAroundTheKey(t *testing.T) {
	r := newRig(t)
	bare := request("account", "a")
	empty := request("account", "a")
	empty.Mutable(requestDesc.Fields().ByName("header"))
	unknown := request("account", "a", "header.request_id", "k")
	unknown.Mutable(requestDesc.Fields().ByName("header")).Message().SetUnknown([]byte{0x10, 1}) // field 2 = 1
	r.send("NestedField", bare, MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.send("NestedField", empty, MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	r.send("NestedField", unknown, MetadataKey, "k").wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	if unknown.Mutable(requestDesc.Fields().ByName("header")).Message().Get(requestDesc.Fields().ByName("header").Message().Fields().ByName("request_id")).String() != "k" {
		t.Error("the request was changed")
	}
	r.wantRuns(1)
}

// The handler sees the request as it came, its key included.
func TestHandlersSeeTheKeyField(t *testing.T) {
	r := newRig(t)
	var seen []string
	r.handle(func(_ context.Context, _ string, req *dynamicpb.Message) (proto.Message, error) {
		seen = append(seen, req.String())
		return response("id", "x"), nil
	})
	for method, field := range map[string]string{"Field": "request_id", "NestedField": "header.request_id"} {
		req := request("account", "a", field, "key-"+method)
		r.send(method, req).wantOutcome(t, OutcomeExecuted)
		if got := seen[len(seen)-1]; got != req.String() {
			t.Errorf("%s: the handler saw %s instead of %s", method, got, req)
		}
	}
}

// A field of the key that was not declared to be one is an ordinary argument.
func TestUndeclaredKeyField(t *testing.T) {
	r := newRig(t)
	r.send("Pay", request("request_id", "k")).wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
	r.send("Pay", request("request_id", "k1"), MetadataKey, "k2").wantOutcome(t, OutcomeExecuted)
	r.send("Pay", request("request_id", "k3"), MetadataKey, "k2").wantRefused(t, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	r.wantRuns(1)
}

// A field with presence that was set to nothing is a key, and a bad one; without presence
// nobody can tell.
func TestEmptyFieldWithPresence(t *testing.T) {
	optional := messageDesc("MaybeKeyed", "request_id string")
	optional.Field[0].Proto3Optional = proto.Bool(true)
	optional.Field[0].OneofIndex = proto.Int32(0)
	optional.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("_request_id")}}
	file := register(&descriptorpb.FileDescriptorProto{
		Name: proto.String("oncegrpc/test/v1/maybe.proto"), Package: proto.String("oncegrpc.test.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{optional},
	})
	desc := file.Messages().Get(0)
	m := &method{keyField: []string{"request_id"}}
	if k, err := m.keyOf(nil, dynamicpb.NewMessage(desc)); k.given || err != nil {
		t.Errorf("not set: %+v, %v", k, err)
	}
	set := dynamicpb.NewMessage(desc)
	set.Set(desc.Fields().Get(0), desc.Fields().Get(0).Default())
	_, err := m.keyOf(nil, set)
	wantInfo(t, m.keyRefused(err), codes.InvalidArgument, reasonKeyInvalid)
}

// rawHTTP calls Pay with headers that no gRPC library would send. It returns the
// status that the server answers with; -1 stands for none.
func rawHTTP(t *testing.T, r *rig, headers http.Header) (grpcStatus string, message string) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.listener.DialContext(ctx) }}
	defer transport.CloseIdleConnections()
	body, err := proto.Marshal(request("account", "a"))
	if err != nil {
		t.Fatal(err)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://tool/"+toolsService+"/Pay", bytes.NewReader(append(frame, body...)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = headers
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "-1", err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil && !errors.Is(err, io.EOF) {
		return "-1", err.Error()
	}
	for _, h := range []http.Header{resp.Trailer, resp.Header} {
		if v := h.Get("Grpc-Status"); v != "" {
			return v, h.Get("Grpc-Message")
		}
	}
	return "-1", resp.Status
}

// What other libraries and proxies may put on the wire is refused where it is no key, and
// is the same key as elsewhere where it is one.
func TestKeysOnTheWire(t *testing.T) {
	invalid := fmt.Sprint(uint32(codes.InvalidArgument))
	for name, c := range map[string]struct {
		header http.Header
		want   string
	}{
		"one key":                  {http.Header{MetadataKey: {"k"}}, "0"},
		"not ASCII in the text":    {http.Header{MetadataKey: {"ключ"}}, "0"},
		"not UTF-8 in the text":    {http.Header{MetadataKey: {"\xff\xfe"}}, invalid},
		"a tab in the text":        {http.Header{MetadataKey: {"a\tb"}}, invalid},
		"empty":                    {http.Header{MetadataKey: {""}}, invalid},
		"twice":                    {http.Header{MetadataKey: {"k1", "k2"}}, invalid},
		"padded base64":            {http.Header{MetadataKeyBin: {base64.StdEncoding.EncodeToString([]byte("ключ"))}}, "0"},
		"base64 without padding":   {http.Header{MetadataKeyBin: {base64.RawStdEncoding.EncodeToString([]byte("ключ1"))}}, "0"},
		"no base64":                {http.Header{MetadataKeyBin: {"*"}}, ""},
		"two in one -bin":          {http.Header{MetadataKeyBin: {"azE,azI"}}, ""},
		"text and -bin, not ASCII": {http.Header{MetadataKey: {"ключ"}, MetadataKeyBin: {base64.StdEncoding.EncodeToString([]byte("ключ"))}}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			got, message := rawHTTP(t, r, c.header)
			switch {
			case c.want == "" && got == "0":
				t.Error("what is no base64 was executed")
			case c.want != "" && got != c.want:
				t.Errorf("got status %s %q, want %s", got, message, c.want)
			}
			if got != "0" {
				r.wantNothing()
				return
			}
			r.wantRuns(1)
			key := "k"
			if !strings.HasPrefix(name, "one") {
				key = r.storedKeys()[0]
				if !strings.HasPrefix(key, "ключ") {
					t.Errorf("stored under %q", key)
				}
			}
			r.send("Pay", request("account", "a"), MetadataKeyBin, key).wantOutcome(t, OutcomeReplayed)
		})
	}
}

// What a refusal says can be read, whatever the key was.
func TestRefusalsOfKeysAreReadable(t *testing.T) {
	r := newRig(t)
	for _, keys := range []map[string]string{asciiKeys, binaryKeys} {
		for name, key := range keys {
			a := r.send("Pay", request(), MetadataKeyBin, key)
			if text := status.Convert(a.err).Message(); !strings.Contains(text, "key") || len(text) > 300 {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}
