package client

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/onced/onced"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The content types of results and of failure details. How a value becomes bytes is
// decided by its static type, so that the caller that reads knows it too: a protobuf
// message, []byte and string travel as they are, everything else as JSON. A result
// of another content type is no value of that static type.
const (
	ContentTypeProto = "application/x-protobuf" // with the message's name as the parameter messagetype
	ContentTypeBytes = "application/octet-stream"
	ContentTypeText  = "text/plain"
	ContentTypeJSON  = "application/json"
)

// messageType is the parameter that names a protobuf message: bytes of one
// message often parse as another.
const messageType = "messagetype"

var (
	protoType = reflect.TypeFor[proto.Message]()
	bytesType = reflect.TypeFor[[]byte]()
	textType  = reflect.TypeFor[string]()
)

// result is an encoded value: bytes that can be stored, or the description of
// what cannot.
type result struct {
	stored  *oncedv1.Payload // nil when the bytes are too many, or cannot be had
	omitted *oncedv1.OmittedResult
}

// wire is the result as an operation shows it.
func (r result) wire() *oncedv1.Result {
	w := &oncedv1.Result{Size: r.omitted.GetSize(), Sha256: r.omitted.GetSha256(), Kind: &oncedv1.Result_Omitted{Omitted: r.omitted}}
	if r.stored != nil {
		w.Kind = &oncedv1.Result_Stored{Stored: r.stored}
	}
	return w
}

// encode encodes a value whose static type is t. It cannot fail: what is executed
// is reported as executed, with bytes or without.
func encode(t reflect.Type, v any) result {
	media, body, err := marshal(t, v)
	if err != nil {
		body = nil
	}
	sum := sha256.Sum256(body)
	r := result{omitted: &oncedv1.OmittedResult{ContentType: media, Size: uint64(len(body)), Sha256: sum[:]}}
	if err != nil || len(body) > onced.GreatestResult {
		return r
	}
	r.stored = &oncedv1.Payload{ContentType: media}
	if text := mediaOf(t) == ContentTypeText || mediaOf(t) == ContentTypeJSON; text && utf8.Valid(body) {
		r.stored.Body = &oncedv1.Payload_Text{Text: string(body)}
	} else {
		r.stored.Body = &oncedv1.Payload_Data{Data: body}
	}
	return r
}

// mediaOf is the media type of values of a static type, without parameters. A nil
// type is that of a nil interface.
func mediaOf(t reflect.Type) string {
	switch {
	case t == nil:
		return ContentTypeJSON
	case t.Implements(protoType):
		return ContentTypeProto
	case t == bytesType:
		return ContentTypeBytes
	case t == textType:
		return ContentTypeText
	default:
		return ContentTypeJSON
	}
}

// marshal encodes a value and names its media type. A marshaller of the value that
// panics is an error: its operation was executed.
func marshal(t reflect.Type, v any) (media string, body []byte, err error) {
	media = mediaOf(t)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("encode the result: panic: %v", p)
		}
	}()
	switch media {
	case ContentTypeProto:
		m, ok := v.(proto.Message)
		if !ok {
			return media, nil, errors.New("encode the result: no message")
		}
		name := string(m.ProtoReflect().Descriptor().FullName())
		media = mime.FormatMediaType(media, map[string]string{messageType: name})
		body, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	case ContentTypeBytes:
		body = v.([]byte)
	case ContentTypeText:
		body = []byte(v.(string))
	default:
		body, err = json.Marshal(v)
	}
	return media, body, err
}

// decode reads a payload into a value of type T. The payload must have been
// encoded from the same type.
func decode[T any](p *oncedv1.Payload) (T, error) {
	var v T
	t := reflect.TypeFor[T]()
	if mediaOf(t) != ContentTypeProto {
		return v, DecodePayload(p, &v)
	}
	m, err := newMessage(t, p)
	if err != nil {
		return v, err
	}
	if err := DecodePayload(p, m); err != nil {
		return v, err
	}
	v, ok := m.(T)
	if !ok {
		return v, fmt.Errorf("a %T was stored, a %v was asked for", m, t)
	}
	return v, nil
}

// DecodePayload reads the payload of a stored result, of a failure's details or of a
// checkpoint into what dst points at: a protobuf message, a *[]byte, a *string, or a
// pointer that JSON can fill. What was encoded from another type is refused.
func DecodePayload(p *oncedv1.Payload, dst any) error {
	media, params, err := mime.ParseMediaType(p.GetContentType())
	if err != nil {
		return fmt.Errorf("content type %q: %w", p.GetContentType(), err)
	}
	body := bodyOf(p)
	want := ContentTypeJSON
	switch dst := dst.(type) {
	case proto.Message:
		name := string(dst.ProtoReflect().Descriptor().FullName())
		if media != ContentTypeProto || params[messageType] != name {
			return fmt.Errorf("content type %q was stored, message %s was asked for", p.GetContentType(), name)
		}
		return proto.Unmarshal(body, dst)
	case *[]byte:
		want = ContentTypeBytes
		if media == want {
			*dst = body
			return nil
		}
	case *string:
		want = ContentTypeText
		if media == want {
			*dst = string(body)
			return nil
		}
	default:
		if media == want {
			return json.Unmarshal(body, dst)
		}
	}
	return fmt.Errorf("content type %q was stored, %s was asked for", p.GetContentType(), want)
}

// newMessage makes the message that a payload is decoded into: one of type t, or,
// where t is an interface, one of the type that the payload names.
func newMessage(t reflect.Type, p *oncedv1.Payload) (proto.Message, error) {
	if t.Kind() != reflect.Interface {
		return reflect.Zero(t).Interface().(proto.Message).ProtoReflect().New().Interface(), nil
	}
	media, params, err := mime.ParseMediaType(p.GetContentType())
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", p.GetContentType(), err)
	}
	if media != ContentTypeProto {
		return nil, fmt.Errorf("content type %q was stored, a protobuf message was asked for", p.GetContentType())
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(params[messageType]))
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", p.GetContentType(), err)
	}
	return mt.New().Interface(), nil
}

// bodyOf is the bytes of a payload, text or data; never nil.
func bodyOf(p *oncedv1.Payload) []byte {
	if text, ok := p.GetBody().(*oncedv1.Payload_Text); ok {
		return []byte(text.Text)
	}
	if data := p.GetData(); data != nil {
		return data
	}
	return []byte{}
}
