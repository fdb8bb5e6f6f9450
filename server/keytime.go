package server

import (
	"encoding/hex"
	"strings"
	"time"
)

// timeInKey returns the millisecond that is written in a key which is a UUID of
// version 7 (RFC 9562) or a ULID, in either case of letters; zero for any other.
func timeInKey(key string) time.Time {
	if ms, ok := uuidMillis(key); ok {
		return time.UnixMilli(ms).UTC()
	}
	if ms, ok := ulidMillis(key); ok {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// uuidMillis reads the first 48 bits of a UUIDv7 in its text form of 8-4-4-4-12
// digits.
func uuidMillis(s string) (int64, bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return 0, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != 16 || b[6]>>4 != 7 || b[8]>>6 != 0b10 {
		return 0, false
	}
	var ms int64
	for _, c := range b[:6] {
		ms = ms<<8 | int64(c)
	}
	return ms, true
}

// crockford is the alphabet of ULIDs.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ulidMillis reads the first 48 bits of a ULID: ten of its 26 digits.
func ulidMillis(s string) (int64, bool) {
	if len(s) != 26 || s[0] > '7' {
		return 0, false
	}
	var ms int64
	for i, c := range strings.ToUpper(s) {
		digit := strings.IndexRune(crockford, c)
		if digit < 0 {
			return 0, false
		}
		if i < 10 {
			ms = ms<<5 | int64(digit)
		}
	}
	return ms, true
}
