package onced_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/onced/onced"
)

// TestIdentityEncodingIsInjective: no two identities share an encoding, whatever
// separators their parts hold, and a key's prefix finds that key alone.
func TestIdentityEncodingIsInjective(t *testing.T) {
	parts := []string{"", "a", "b", "ab", "a:b", "a/b", "a|b", "a\x00b", "a%3Ab", "\x01", "\x01a", "order-1", "order-10", strings.Repeat("x", 127), strings.Repeat("x", 128)}
	seen := map[string]onced.Identity{}
	for _, namespace := range parts {
		for _, key := range parts {
			for _, method := range parts {
				id := onced.Identity{Namespace: namespace, Key: key, Method: method}
				encoded := string(id.Encode())
				if other, found := seen[encoded]; found {
					t.Fatalf("%v and %v share an encoding", id, other)
				}
				seen[encoded] = id
			}
		}
	}
	for encoded, id := range seen {
		if !strings.HasPrefix(encoded, string(onced.NamespacePrefix(id.Namespace))) {
			t.Errorf("%v does not begin with the prefix of its namespace", id)
		}
		for _, key := range parts {
			if found := strings.HasPrefix(encoded, string(onced.KeyPrefix(id.Namespace, key))); found != (key == id.Key) {
				t.Errorf("the prefix of key %q: %v of %v", key, found, id)
			}
		}
	}
}

// TestParseIdentity: only what Encode wrote is read.
func TestParseIdentity(t *testing.T) {
	id := onced.Identity{Namespace: "acme", Key: "order-1", Method: "send_email"}
	encoded := id.Encode()
	if got, err := onced.ParseIdentity(encoded); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	refused := map[string][]byte{
		"nothing":         nil,
		"trailing bytes":  append(bytes.Clone(encoded), 0),
		"length too long": {200, 1},
		"length overflow": append(bytes.Repeat([]byte{0xff}, 10), 1),
		"greatest length": binary.AppendUvarint(nil, 1<<64-1),
		"long spelling":   {0x80, 0x00, 0, 0},
	}
	for n := range encoded {
		refused["cut"+string(rune('a'+n))] = encoded[:n]
	}
	for name, b := range refused {
		if got, err := onced.ParseIdentity(b); err == nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}

// TestTwinIDEncodingIsInjective: entries of different acts stay apart.
func TestTwinIDEncodingIsInjective(t *testing.T) {
	seen := map[string]onced.TwinID{}
	parts := []string{"", "a", "ab", "b"}
	for i := range 4 * 4 * 4 * 4 * 4 {
		part := func(n int) string { return parts[i>>(2*n)&3] }
		id := onced.TwinID{Namespace: part(0), Method: part(1), Subject: part(2), Fingerprint: onced.Fingerprint{Scheme: part(3), Digest: part(4)}}
		encoded := string(id.Encode())
		if other, found := seen[encoded]; found {
			t.Fatalf("%+v and %+v share an encoding", id, other)
		}
		seen[encoded] = id
	}
}

// FuzzIdentity: what is encoded is read back, what can be read is an encoding,
// and one identity's encoding is never the beginning of another's.
func FuzzIdentity(f *testing.F) {
	f.Add("acme", "order-1", "send_email", []byte("\x04acme\x07order-1\x0asend_email"))
	f.Add("", "", "", []byte("\x80\x00\x00\x00"))
	f.Add("a", "b:c", "a:b", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, namespace, key, method string, encoded []byte) {
		id := onced.Identity{Namespace: namespace, Key: key, Method: method}
		back, err := onced.ParseIdentity(id.Encode())
		if err != nil || back != id {
			t.Fatalf("%v was read back as %v, %v", id, back, err)
		}
		other, err := onced.ParseIdentity(encoded)
		if err != nil {
			return
		}
		if !bytes.Equal(other.Encode(), encoded) {
			t.Fatalf("%x reads as %v, whose encoding is %x", encoded, other, other.Encode())
		}
		if other != id && (bytes.HasPrefix(encoded, id.Encode()) || bytes.HasPrefix(id.Encode(), encoded)) {
			t.Fatalf("the encodings of %v and %v overlap", id, other)
		}
	})
}

// TestValidateKey holds the fixtures of what callers have been seen to send.
func TestValidateKey(t *testing.T) {
	good := []string{
		"k", "K", "a:b", "c", "a", "b:c", "ключ", "../x", "order-1", "order-10", "\"abc\"", "abc", "NULL", "Undefined", "nil", "0",
		"a b", "é", "e\u0301", "\U0001f600", "\ufeffk", "00000000-0000-0000-0000-000000000001",
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 512), strings.Repeat("é", 256),
	}
	for _, key := range good {
		if err := onced.ValidateKey(key); err != nil {
			t.Errorf("%.40q is refused: %v", key, err)
		}
	}
	bad := []string{
		"", " ", "   ", " k", "k ", "\tk", "k\n", "\u00a0k", "k\u2003", "\u3000", "a\x00b", "a\tb", "a\x7fb", "a\u0085b",
		"\xff\xfe", "a\xc3", "null", "undefined", "00000000-0000-0000-0000-000000000000",
		strings.Repeat("x", 513), strings.Repeat("é", 257), strings.Repeat("x", 32768), strings.Repeat("x", 32769),
	}
	for _, key := range bad {
		err := onced.ValidateKey(key)
		if err == nil {
			t.Errorf("%.40q is let through", key)
			continue
		}
		if !strings.HasPrefix(err.Error(), "key ") {
			t.Errorf("%.40q is refused with %q", key, err)
		}
	}
}

// TestKeysAreOpaque: keys that look alike are different keys.
func TestKeysAreOpaque(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"K", "k", "abc", "\"abc\"", "order-1", "order-10", "é", "e\u0301", "a:b", "a%3Ab"} {
		w.id.Key = key
		w.claim("caller of "+key, onced.OutcomeGranted)
	}
}

// TestValidators: the bounds of everything that travels beside a key.
func TestValidators(t *testing.T) {
	label := func(name, value string) func(string) error {
		return func(string) error { return onced.ValidateLabels(map[string]string{name: value}) }
	}
	labels := func(n int) error {
		m := map[string]string{}
		for i := range n {
			m[strings.Repeat("x", i+1)] = ""
		}
		return onced.ValidateLabels(m)
	}
	tests := []struct {
		what      string
		validate  func(string) error
		good, bad []string
	}{
		{
			"namespace", onced.ValidateNamespace,
			[]string{"a", "Z9", "acme/prod:eu_1.x-y", strings.Repeat("n", 128)},
			[]string{"", " ", "a b", "a\x00", "é", "a\\b", "a%b", strings.Repeat("n", 129)},
		},
		{
			"method", onced.ValidateMethod,
			[]string{"m", "crm.v1.Tickets/CreateTicket", "null", strings.Repeat("m", 256)},
			[]string{"", " m", "m ", "m\n", "\xff", strings.Repeat("m", 257)},
		},
		{
			"subject", onced.ValidateSubject,
			[]string{"", "alice", strings.Repeat("s", 256)},
			[]string{" ", "a\x00", "\xff", strings.Repeat("s", 257)},
		},
		{
			"holder", onced.ValidateHolder,
			[]string{"", "host-1 pid 7", strings.Repeat("h", 256)},
			[]string{" ", "a\r", "\xff", strings.Repeat("h", 257)},
		},
		{
			"token", func(s string) error { return onced.ValidateToken([]byte(s)) },
			[]string{strings.Repeat("t", 16), strings.Repeat("\x00", 64)},
			[]string{"", strings.Repeat("t", 15), strings.Repeat("t", 65)},
		},
	}
	for _, test := range tests {
		for _, s := range test.good {
			if err := test.validate(s); err != nil {
				t.Errorf("%s %.40q is refused: %v", test.what, s, err)
			}
		}
		for _, s := range test.bad {
			if err := test.validate(s); err == nil {
				t.Errorf("%s %.40q is let through", test.what, s)
			} else if !strings.Contains(err.Error(), test.what) {
				t.Errorf("%s %.40q is refused with %q", test.what, s, err)
			}
		}
	}
	for name, validate := range map[string]func(string) error{
		"a name":      label("", "v"),
		"long name":   label(strings.Repeat("n", 65), "v"),
		"long value":  label("n", strings.Repeat("v", 257)),
		"bad value":   label("n", "\x00"),
		"seventeenth": func(string) error { return labels(17) },
	} {
		if validate("") == nil {
			t.Errorf("labels: %s is let through", name)
		}
	}
	for name, err := range map[string]error{
		"none": labels(0), "sixteen": labels(16), "longest": label(strings.Repeat("n", 64), strings.Repeat("v", 256))(""),
	} {
		if err != nil {
			t.Errorf("labels: %s is refused: %v", name, err)
		}
	}
}

// TestValidateIdentity says everything that is wrong at once.
func TestValidateIdentity(t *testing.T) {
	if err := (onced.Identity{Namespace: "acme", Key: "k", Method: "m"}).Validate(); err != nil {
		t.Error(err)
	}
	err := onced.Identity{Namespace: "a b", Key: "", Method: ""}.Validate()
	if err == nil {
		t.Fatal("let through")
	}
	for _, part := range []string{"namespace", "key", "method"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name the %s", err, part)
		}
	}
}

// TestParseFingerprint: scheme:hex, and back.
func TestParseFingerprint(t *testing.T) {
	hex := func(bytes int) string { return strings.Repeat("0a", bytes) }
	for _, s := range []string{"cj1:" + hex(32), "raw1:" + hex(16), "x:" + hex(64), "abcdefghij012345:" + hex(16)} {
		f, err := onced.ParseFingerprint(s)
		if err != nil || f.String() != s {
			t.Errorf("%q was read as %v, %v", s, f, err)
		}
	}
	for _, s := range []string{
		"", ":", "raw1", "raw1:", "raw1:" + hex(15), "raw1:" + hex(65), "raw1:" + hex(16) + "0", "raw1:" + strings.Repeat("0A", 16),
		"raw1:" + strings.Repeat("zz", 16), ":" + hex(16), "1raw:" + hex(16), "Raw1:" + hex(16), "ra-w:" + hex(16), "raw1 :" + hex(16),
		"abcdefghij0123456:" + hex(16), "é:" + hex(16), "raw1:" + hex(16) + ":", "raw1: " + hex(16),
	} {
		if f, err := onced.ParseFingerprint(s); err == nil {
			t.Errorf("%q was read as %v", s, f)
		}
	}
}

// TestParseFingerprints: at most three, of distinct schemes, in their order.
func TestParseFingerprints(t *testing.T) {
	hex := strings.Repeat("0a", 16)
	good := []string{"raw1:" + hex, "cj1:" + hex, "pb1:" + hex}
	list, err := onced.ParseFingerprints(good)
	if err != nil || len(list) != 3 || list[0].Scheme != "raw1" || list[2].Scheme != "pb1" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := onced.ParseFingerprints(nil); err != nil || list != nil {
		t.Errorf("none: %v, %v", list, err)
	}
	for name, bad := range map[string][]string{
		"four":        append(good, "x:"+hex),
		"two alike":   {"cj1:" + hex, "cj1:" + strings.Repeat("0b", 16)},
		"one is none": {"cj1:" + hex, "raw1:"},
	} {
		if list, err := onced.ParseFingerprints(bad); err == nil {
			t.Errorf("%s: read as %v", name, list)
		}
	}
}

// TestTokenDigest: tokens are known by their SHA-256 alone.
func TestTokenDigest(t *testing.T) {
	const want = "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad"
	if d := onced.TokenDigest([]byte("abc")); string(d[:]) != want {
		t.Errorf("the digest of abc is %x", d)
	}
}
