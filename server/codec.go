package server

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// codec is gRPC's own for protocol buffers, but for two kinds of messages of ours:
// requests whose content may be malformed, and large replies, which are encoded
// into buffers that give back their room.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	u, ok := v.(*undecoded)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	u.decode(b.ReadOnlyData())
	return nil
}

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*reply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b, err := proto.Marshal(r.message)
	r.message = nil
	if err != nil {
		r.room.giveBack()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&b, r.room)}, nil
}
