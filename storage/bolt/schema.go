package bolt

import (
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/onced/onced"
	"github.com/onced/onced/storage/bolt/codec"
)

// format is the version of everything in this file and of the codec. A store
// names the format it was written in; a build refuses one that is above its own.
// The first one, 1, was never released, and is not read.
const format = 2

// The buckets.
//
//	meta      "format", "meta", "progress"   see the keys below
//	records   identity                       sealed Record
//	payloads  part, identity, number         sealed piece of a large payload
//	twins     twin identity                  sealed TwinEntry
//	due       kind, time, identity           sealed nothing: the key says it all
//	audit     number                         sealed AuditEntry
//
// Identities are in their own encoding, parts and kinds are one byte, numbers
// are 8 bytes big-endian; a due time is described at dueKey.
var (
	bucketMeta     = []byte("meta")
	bucketRecords  = []byte("records")
	bucketPayloads = []byte("payloads")
	bucketTwins    = []byte("twins")
	bucketDue      = []byte("due")
	bucketAudit    = []byte("audit")

	buckets = [][]byte{bucketMeta, bucketRecords, bucketPayloads, bucketTwins, bucketDue, bucketAudit}
)

// The keys of the meta bucket.
var (
	keyFormat   = []byte("format")   // 4 bytes big-endian; every build can read it
	keyMeta     = []byte("meta")     // sealed Meta
	keyProgress = []byte("progress") // sealed Progress
)

// pieceSize is how many bytes of a large payload stand under one key; the last
// piece has the rest. Four pieces fill a page, so that no write needs more than a
// page of room at one place: a value of several pages would need as many free pages
// in a row, and take its neighbours along whenever one of them is written.
const pieceSize = 896

// payloadFill is how full the pages of payloads are made. Their pieces are written in
// order and never change; with bbolt's usual half only two would stand on a page.
const payloadFill = 1

// pieces returns how many pieces a payload of a size has.
func pieces(size uint64) int { return int((size + pieceSize - 1) / pieceSize) }

// pieceKey is the key of a piece of a payload of a record; its number is 4 bytes
// big-endian.
func pieceKey(p codec.Part, identity []byte, number int) []byte {
	key := make([]byte, 0, 1+len(identity)+4)
	key = append(append(key, byte(p)), identity...)
	return binary.BigEndian.AppendUint32(key, uint32(number))
}

// parsePieceKey takes the key of a piece apart. The identity shares memory with it.
func parsePieceKey(key []byte) (p codec.Part, identity []byte, number int, err error) {
	if len(key) < 1+4 {
		return 0, nil, 0, errors.New("key of a payload: truncated")
	}
	end := len(key) - 4
	return codec.Part(key[0]), key[1:end], int(binary.BigEndian.Uint32(key[end:])), nil
}

// dueHead is the length of what stands before the identity in a due key.
const dueHead = 1 + 8 + 4

// duePrefix is the beginning of all due keys of one kind and moment. Seconds
// count from 1970 with their sign bit turned, so that earlier ones sort first;
// no moment that a [time.Time] can hold overflows.
func duePrefix(kind onced.DueKind, at time.Time) []byte {
	b := make([]byte, 0, dueHead)
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint64(b, uint64(at.Unix())^signBit)
	return binary.BigEndian.AppendUint32(b, uint32(at.Nanosecond()))
}

const signBit = 1 << 63

// dueKey is the key of an index entry: what is due, when, and what it is.
func dueKey(kind onced.DueKind, at time.Time, identity []byte) []byte {
	return append(duePrefix(kind, at), identity...)
}

// parseDueKey takes a due key apart. The identity shares memory with the key.
func parseDueKey(key []byte) (kind onced.DueKind, at time.Time, identity []byte, err error) {
	if len(key) <= dueHead {
		return 0, time.Time{}, nil, errors.New("due key: truncated")
	}
	seconds := int64(binary.BigEndian.Uint64(key[1:]) ^ signBit)
	nanos := binary.BigEndian.Uint32(key[9:])
	return onced.DueKind(key[0]), time.Unix(seconds, int64(nanos)).UTC(), key[dueHead:], nil
}

// auditKey is the key of an audit entry, by its number.
func auditKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// maxIdentity is the longest encoded identity that fits every key made from it,
// far above what the bounds of its parts allow.
const maxIdentity = bbolt.MaxKeySize - dueHead
