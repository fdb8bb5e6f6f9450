package server

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced"
)

const (
	// greatestReplies bounds the bytes of all large replies that wait for their
	// callers to take them.
	greatestReplies = 256 << 20
	// smallReply is the size up to which replies are always answered, so that
	// decisions and reports go through however many results wait. It is no
	// greater than the pooled buffers into which gRPC encodes such replies: the
	// next ones are of 1 MiB, whatever is put into them.
	smallReply = 32 << 10
)

// replies bounds the bytes of large replies in flight. gRPC takes a reply from
// its handler at once and keeps it, encoded, until the caller has room for it:
// who calls and does not read would otherwise fill the memory, and no bound on
// running calls counts what has been answered already. It is safe for concurrent
// use.
//
// A reply takes its room before it is encoded, and one that shows large payloads
// before these are read. The room is given back by the
// first of: the buffer with the encoded reply is freed, which gRPC does when the
// reply is written, its stream reset, or its sending fails; the reply was sent
// after its stream was reset, whereupon gRPC drops the buffer unfreed; the
// connection ends, with which gRPC drops what was queued on it.
//
// That freeing a buffer means that the bytes are gone holds as long as no
// compressor is registered: gRPC would queue a compressed copy.
type replies struct {
	limit    int64 // bytes
	inFlight atomic.Int64
}

// options returns what a gRPC server needs in which [chain.boundReplies] stands.
func (r *replies) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.StatsHandler(replyStats{r}),
		grpc.ForceServerCodecV2(newCodec()),
	}
}

// take takes room for a reply, or reports that there is none.
func (r *replies) take(size int64) bool {
	for {
		taken := r.inFlight.Load()
		if taken+size > r.limit {
			return false
		}
		if r.inFlight.CompareAndSwap(taken, taken+size) {
			return true
		}
	}
}

// connection has the rooms of the replies that are in flight on a connection.
type connection struct {
	replies *replies

	mu    sync.Mutex
	rooms map[*room]struct{}
}

type connectionKey struct{}

// take takes room for a reply, or returns nil when there is none.
func (c *connection) take(size int64) *room {
	if !c.replies.take(size) {
		return nil
	}
	r := &room{connection: c, size: size}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rooms[r] = struct{}{}
	return r
}

// end gives back all rooms. A handler that runs still may take one afterwards;
// gRPC accepts no reply any more then, and frees it.
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.rooms {
		c.replies.inFlight.Add(-r.size)
	}
	clear(c.rooms)
}

// room is what one reply takes of the bound. It is the pool to which gRPC
// returns the reply's buffer.
type room struct {
	connection *connection
	size       int64 // bytes
}

var _ mem.BufferPool = (*room)(nil)

// giveBack gives the room back, once.
func (r *room) giveBack() {
	c := r.connection
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.rooms[r]; taken {
		delete(c.rooms, r)
		c.replies.inFlight.Add(-r.size)
	}
}

// Get implements [mem.BufferPool]. Buffers are not used again: a room is sized
// for its reply alone.
func (*room) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements [mem.BufferPool].
func (r *room) Put(*[]byte) { r.giveBack() }

// roomTaken is the room that a call has taken for its reply, if any. A call that
// reads large payloads takes it before it reads them, so that what is read and not
// yet sent is bounded as well. It is for the goroutine of the call.
type roomTaken struct {
	connection *connection
	room       *room
}

type roomTakenKey struct{}

// takeRoom takes room for a reply with so many bytes of payloads, in the place of
// room that the call had taken before, or refuses it. Small replies need none, and
// outside of the chain there is no bound.
func takeRoom(ctx context.Context, size int64) error {
	taken, bounded := ctx.Value(roomTakenKey{}).(*roomTaken)
	if !bounded || size <= smallReply {
		return nil
	}
	taken.giveBack()
	if taken.room = taken.connection.take(size); taken.room == nil {
		return refuseReply()
	}
	return nil
}

func (t *roomTaken) giveBack() {
	if t.room != nil {
		t.room.giveBack()
		t.room = nil
	}
}

// reply is a large reply on its way from the chain to the codec.
type reply struct {
	message proto.Message // nil once it is encoded, so that it is not kept twice
	room    *room
}

// boundReplies takes room for a large reply, or refuses it.
func (c *chain) boundReplies(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	taken := &roomTaken{connection: ctx.Value(connectionKey{}).(*connection)}
	answer, err := handler(context.WithValue(ctx, roomTakenKey{}, taken), req)
	message, ok := answer.(proto.Message)
	if err != nil || !ok {
		taken.giveBack()
		return answer, err
	}
	size := proto.Size(message)
	if size <= smallReply {
		taken.giveBack()
		return answer, nil
	}
	if taken.room == nil {
		if taken.room = taken.connection.take(int64(size)); taken.room == nil {
			return nil, c.refuse(ctx, info.FullMethod, req, refuseReply())
		}
	}
	return &reply{message: message, room: taken.room}, nil
}

// refuseReply refuses to send what a call that was carried out is answered with.
func refuseReply() error {
	return fromRefusal(&onced.Refusal{
		Reason: refusedOverloaded,
		Message: "the call was carried out, but its reply found no room among those that wait for their callers to read them: " +
			"re-send it unchanged after the retry delay, and do not execute without an answer",
	}, claimedUnknown)
}

// replyStats learns where gRPC drops replies without freeing them.
type replyStats struct{ replies *replies }

// TagConn implements [stats.Handler].
func (s replyStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{replies: s.replies, rooms: map[*room]struct{}{}})
}

// HandleConn implements [stats.Handler].
func (replyStats) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); ended {
		ctx.Value(connectionKey{}).(*connection).end()
	}
}

// TagRPC implements [stats.Handler].
func (replyStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler]. gRPC tells of a reply after it has queued
// it and before it ends the stream itself, so a stream that has ended by then was
// reset: before the reply was queued, which gRPC then drops, or after that, and
// it frees the reply now.
func (replyStats) HandleRPC(ctx context.Context, s stats.RPCStats) {
	out, ok := s.(*stats.OutPayload)
	if !ok || ctx.Err() == nil {
		return
	}
	if r, ok := out.Payload.(*reply); ok {
		r.room.giveBack()
	}
}
