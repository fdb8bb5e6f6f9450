package client

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

type ticket struct {
	ID   int    `json:"id"`
	Note string `json:"note,omitempty"`
}

// roundTrip checks what a value becomes on the wire, and that it comes back.
func roundTrip[T any](t *testing.T, value T, media string, body []byte, text bool) {
	t.Helper()
	r := encode(reflect.TypeFor[T](), value)
	_, isText := r.stored.GetBody().(*oncedv1.Payload_Text)
	if r.stored.GetContentType() != media || !bytes.Equal(bodyOf(r.stored), body) || isText != text {
		t.Errorf("%T: encoded as %v", value, r.stored)
	}
	if r.omitted.GetContentType() != media || r.omitted.GetSize() != uint64(len(body)) || len(r.omitted.GetSha256()) != 32 {
		t.Errorf("%T: described as %v", value, r.omitted)
	}
	back, err := decode[T](r.stored)
	if m, ok := any(value).(proto.Message); ok {
		if err != nil || !proto.Equal(m, any(back).(proto.Message)) {
			t.Errorf("%T: came back as %v, %v", value, back, err)
		}
	} else if err != nil || !reflect.DeepEqual(back, value) {
		t.Errorf("%T: came back as %#v, %v", value, back, err)
	}
}

func TestCodecByType(t *testing.T) {
	const duration = "application/x-protobuf; messagetype=google.protobuf.Duration"
	roundTrip(t, durationpb.New(5e9), duration, []byte{8, 5}, false)
	roundTrip(t, &durationpb.Duration{}, duration, nil, false)
	roundTrip[proto.Message](t, durationpb.New(5e9), duration, []byte{8, 5}, false)
	roundTrip(t, []byte{0, 255}, "application/octet-stream", []byte{0, 255}, false)
	roundTrip(t, []byte("text"), "application/octet-stream", []byte("text"), false)
	roundTrip(t, "grüße", "text/plain", []byte("grüße"), true)
	roundTrip(t, "\xff\x00", "text/plain", []byte("\xff\x00"), false)
	roundTrip(t, ticket{ID: 7}, "application/json", []byte(`{"id":7}`), true)
	roundTrip(t, &ticket{ID: 7}, "application/json", []byte(`{"id":7}`), true)
	roundTrip(t, []ticket{}, "application/json", []byte(`[]`), true)
	roundTrip(t, false, "application/json", []byte(`false`), true)
	roundTrip[any](t, "s", "application/json", []byte(`"s"`), true)
	roundTrip[any](t, nil, "application/json", []byte(`null`), true)
	type named string
	roundTrip(t, named("s"), "application/json", []byte(`"s"`), true)
	if r := encode(reflect.TypeOf(nil), nil); r.stored.GetText() != "null" {
		t.Errorf("nothing is encoded as %v", r.stored)
	}
}

// A map has one encoding, so that repeated reports are the same.
func TestCodecIsDeterministic(t *testing.T) {
	labels := map[string]string{}
	for i := range 50 {
		labels[fmt.Sprint("label ", i)] = "x"
	}
	m := &oncedv1.ClaimRequest{Labels: labels}
	first := encode(reflect.TypeFor[*oncedv1.ClaimRequest](), m).stored.GetData()
	for range 20 {
		if !bytes.Equal(first, encode(reflect.TypeFor[*oncedv1.ClaimRequest](), m).stored.GetData()) {
			t.Fatal("two encodings of one message")
		}
	}
}

func TestCodecRefusesOtherTypes(t *testing.T) {
	stored := func(media, text string) *oncedv1.Payload {
		return &oncedv1.Payload{ContentType: media, Body: &oncedv1.Payload_Text{Text: text}}
	}
	duration := encode(reflect.TypeFor[*durationpb.Duration](), durationpb.New(1)).stored
	for name, err := range map[string]error{
		"another message":      second(decode[*wrapperspb.Int64Value](duration)),
		"a message as JSON":    second(decode[ticket](duration)),
		"JSON as a message":    second(decode[*durationpb.Duration](stored("application/json", "{}"))),
		"JSON as text":         second(decode[string](stored("application/json", `"s"`))),
		"text as bytes":        second(decode[[]byte](stored("text/plain", "s"))),
		"text as JSON":         second(decode[ticket](stored("text/plain", "{}"))),
		"JSON of another type": second(decode[ticket](stored("application/json", `{"id":"seven"}`))),
		"no content type":      second(decode[ticket](stored("", "{}"))),
		"a broken message":     second(decode[*durationpb.Duration](&oncedv1.Payload{ContentType: duration.GetContentType(), Body: &oncedv1.Payload_Data{Data: []byte{8}}})),
		"an unknown message":   second(decode[proto.Message](stored("application/x-protobuf; messagetype=no.Such", ""))),
		"no message at all":    second(decode[proto.Message](stored("", ""))),
		"no message named":     second(decode[proto.Message](stored("application/json", "{}"))),
	} {
		if err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// messageOf is a type that only one message has.
type messageOf interface {
	proto.Message
	GetSeconds() int64
}

func TestCodecOfAnInterface(t *testing.T) {
	r := encode(reflect.TypeFor[messageOf](), durationpb.New(5e9))
	if m, err := decode[messageOf](r.stored); err != nil || m.GetSeconds() != 5 {
		t.Errorf("got %v, %v", m, err)
	}
	other := encode(reflect.TypeFor[proto.Message](), wrapperspb.Int64(1)).stored
	if m, err := decode[messageOf](other); err == nil {
		t.Errorf("got %v", m)
	}
	if r := encode(reflect.TypeFor[proto.Message](), nil); r.stored != nil {
		t.Errorf("no message is encoded as %v", r.stored)
	}
}

func TestCodecOmits(t *testing.T) {
	bad := &wrapperspb.StringValue{Value: "\xff"}
	if r := encode(reflect.TypeFor[*wrapperspb.StringValue](), bad); r.stored != nil || r.omitted.GetSize() != 0 || len(r.omitted.GetSha256()) != 32 {
		t.Errorf("got %v", r)
	}
	exact, over := strings.Repeat("x", 16<<20), strings.Repeat("x", 16<<20+1)
	if r := encode(textType, exact); r.stored == nil {
		t.Error("16 MiB are left out")
	}
	if r := encode(textType, over); r.stored != nil || r.omitted.GetSize() != 16<<20+1 {
		t.Errorf("got %v", r.omitted)
	}
}

func TestVerdicts(t *testing.T) {
	base := errors.New("base")
	v := declarationOf(fmt.Errorf("a: %w", errors.Join(NotExecuted(base), fmt.Errorf("b: %w", NotExecuted(base)))))
	if v == nil || v.disposition != oncedv1.Disposition_DISPOSITION_NOT_EXECUTED || v.failure != nil {
		t.Errorf("got %+v", v)
	}
	v = declarationOf(errors.Join(NotExecuted(base), base, Final(base)))
	if v == nil || v.disposition != oncedv1.Disposition_DISPOSITION_FINAL {
		t.Errorf("an outcome among other errors: got %+v", v)
	}
	for name, err := range map[string]error{
		"nil": nil, "plain": base, "joined": errors.Join(base, base),
		"joined with another effect's error": errors.Join(base, NotExecuted(base)),
		"reported":                           fmt.Errorf("outer: %w", &reported{NotExecuted(base)}),
	} {
		if v := declarationOf(err); v != nil {
			t.Errorf("%s: got %+v", name, v)
		}
	}
	if r := (&reported{NotExecuted(base)}); !errors.Is(r, base) || r.Error() != "base" {
		t.Errorf("got %v", r)
	}
	if err := NotExecuted(nil); err == nil || declarationOf(err) == nil {
		t.Error("NotExecuted(nil) would be a result")
	}
	if f := declarationOf(Final(nil)).failure; f.GetMessage() == "" {
		t.Errorf("got %v", f)
	}
}

func TestFailuresAreBounded(t *testing.T) {
	long := errors.New("\xff" + strings.Repeat("ü", 4096))
	f := declarationOf(FinalWith(long, strings.Repeat("C", 100), make(chan int))).failure
	if len(f.GetCode()) != 64 || len(f.GetMessage()) > 4096 || len(f.GetMessage()) < 4090 || f.GetDetails() != nil {
		t.Errorf("got code %d, message %d, details %v", len(f.GetCode()), len(f.GetMessage()), f.GetDetails())
	}
	if _, err := proto.Marshal(f); err != nil {
		t.Error(err)
	}
}
