package onced

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the parts of an identity and of what travels beside it, in bytes.
const (
	MaxNamespace    = 128
	MaxKey          = 512
	MaxMethod       = 256
	MaxSubject      = 256
	MaxHolder       = 256
	MaxLabels       = 16
	MaxLabelName    = 64
	MaxLabelValue   = 256
	MinToken        = 16
	MaxToken        = 64
	MaxFingerprints = 3
	MinFingerprint  = 16
	MaxFingerprint  = 64
	maxSchemeName   = 16
	nilUUID         = "00000000-0000-0000-0000-000000000000"
	maxTwinKeys     = 16 // unsettled keys that a twin entry holds
)

// Identity names one operation. Two operations are the same only when all three
// parts are equal byte for byte; nothing is normalised or folded.
type Identity struct {
	Namespace string // isolation boundary of keys, rights and policy
	Key       string // chosen by the caller, opaque
	Method    string // what is run
}

// String returns the identity for people: quoted parts, never parsed again.
func (id Identity) String() string {
	return fmt.Sprintf("namespace %q key %q method %q", id.Namespace, id.Key, id.Method)
}

// Encode returns the identity as bytes: each part behind its length, so that no
// two identities share an encoding and [KeyPrefix] finds all methods of a key.
func (id Identity) Encode() []byte {
	b := make([]byte, 0, len(id.Namespace)+len(id.Key)+len(id.Method)+3*binary.MaxVarintLen16)
	return appendPart(appendPart(appendPart(b, id.Namespace), id.Key), id.Method)
}

// KeyPrefix returns the bytes with which the encoding of every operation of
// this key begins, and of no other.
func KeyPrefix(namespace, key string) []byte {
	return appendPart(NamespacePrefix(namespace), key)
}

// NamespacePrefix returns the bytes with which the encoding of every operation
// of this namespace begins, and of no other.
func NamespacePrefix(namespace string) []byte {
	return appendPart(nil, namespace)
}

// ParseIdentity reads what [Identity.Encode] wrote. Anything else is an error.
func ParseIdentity(encoded []byte) (Identity, error) {
	var parts [3]string
	b := encoded
	for i := range parts {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return Identity{}, errors.New("identity: truncated encoding")
		}
		parts[i], b = string(b[used:used+int(n)]), b[used+int(n):]
	}
	if len(b) != 0 {
		return Identity{}, errors.New("identity: trailing bytes")
	}
	id := Identity{Namespace: parts[0], Key: parts[1], Method: parts[2]}
	if !bytes.Equal(id.Encode(), encoded) {
		return Identity{}, errors.New("identity: a length is not in its shortest form")
	}
	return id, nil
}

// Validate reports every part that is out of bounds, a sentence each.
func (id Identity) Validate() error {
	return errors.Join(ValidateNamespace(id.Namespace), ValidateKey(id.Key), ValidateMethod(id.Method))
}

// ValidateNamespace reports whether s may name a namespace: 1–128 bytes of
// letters, digits and . _ : / -.
func ValidateNamespace(s string) error {
	if len(s) == 0 || len(s) > MaxNamespace {
		return fmt.Errorf("namespace must have 1 to %d bytes, has %d", MaxNamespace, len(s))
	}
	for i := range len(s) {
		if !namespaceByte(s[i]) {
			return fmt.Errorf("namespace may hold only letters, digits and . _ : / -; byte %d is %q", i, s[i])
		}
	}
	return nil
}

func namespaceByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:/-", c) >= 0
}

// ValidateKey reports whether s may be an idempotency key: valid UTF-8 of 1–512
// bytes without control characters and without leading or trailing white space,
// and none of the spellings that broken callers send for "no key".
func ValidateKey(s string) error {
	if Placeholder(s) {
		return fmt.Errorf("key %q is what broken callers send for no key; send the caller's own key", s)
	}
	return validateText("key", s, 1, MaxKey)
}

// Placeholder reports whether s is one of the spellings that broken callers send for
// a value that they do not have: null, undefined, the nil UUID.
func Placeholder(s string) bool { return s == "null" || s == "undefined" || s == nilUUID }

// ValidateMethod reports whether s may name a method: 1–256 bytes, the same
// characters as a key.
func ValidateMethod(s string) error { return validateText("method", s, 1, MaxMethod) }

// ValidateSubject reports whether s may name a subject: up to 256 bytes, the
// same characters as a key; empty means absent.
func ValidateSubject(s string) error { return validateText("subject", s, 0, MaxSubject) }

// ValidateHolder reports whether s may label a holder: up to 256 bytes, the
// same characters as a key; empty means absent.
func ValidateHolder(s string) error { return validateText("holder", s, 0, MaxHolder) }

// ValidateLabels reports whether m may label an operation: up to 16 names of
// 1–64 bytes with values of up to 256 bytes, the same characters as a key.
func ValidateLabels(m map[string]string) error {
	if len(m) > MaxLabels {
		return fmt.Errorf("labels must be at most %d, are %d", MaxLabels, len(m))
	}
	for name, value := range m {
		if err := validateText("label name", name, 1, MaxLabelName); err != nil {
			return err
		}
		if err := validateText("label value", value, 0, MaxLabelValue); err != nil {
			return err
		}
	}
	return nil
}

// ValidateToken reports whether b may be a claim token: 16–64 bytes.
func ValidateToken(b []byte) error {
	if len(b) < MinToken || len(b) > MaxToken {
		return fmt.Errorf("claim token must have %d to %d random bytes, has %d", MinToken, MaxToken, len(b))
	}
	return nil
}

func validateText(what, s string, low, high int) error {
	if len(s) < low || len(s) > high {
		return fmt.Errorf("%s must have %d to %d bytes, has %d", what, low, high, len(s))
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s must be valid UTF-8", what)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%s must not hold control characters; there is one at byte %d", what, i)
	}
	if strings.TrimSpace(s) != s {
		return fmt.Errorf("%s must not begin or end with white space", what)
	}
	return nil
}

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// TokenDigest returns the only form in which a claim token is ever stored.
func TokenDigest(token []byte) Digest { return sha256.Sum256(token) }

// Fingerprint identifies the arguments of an operation under a named scheme.
// onced compares fingerprints and never computes or interprets them.
type Fingerprint struct {
	Scheme string // a lower-case letter, then lower-case letters and digits; at most 16 bytes
	Digest string // 16–64 raw bytes
}

// String returns scheme:hex.
func (f Fingerprint) String() string { return f.Scheme + ":" + hex.EncodeToString([]byte(f.Digest)) }

// ParseFingerprint reads scheme:hex with a digest of 16–64 bytes in lower-case
// hexadecimal.
func ParseFingerprint(s string) (Fingerprint, error) {
	scheme, digits, ok := strings.Cut(s, ":")
	if !ok || !validScheme(scheme) {
		return Fingerprint{}, errors.New("fingerprint must be scheme:hex, the scheme a lower-case letter followed by up to 15 lower-case letters or digits")
	}
	digest, err := hex.DecodeString(digits)
	if err != nil || strings.ToLower(digits) != digits {
		return Fingerprint{}, fmt.Errorf("fingerprint %s: the digest must be lower-case hexadecimal", scheme)
	}
	if len(digest) < MinFingerprint || len(digest) > MaxFingerprint {
		return Fingerprint{}, fmt.Errorf("fingerprint %s: the digest must have %d to %d bytes, has %d", scheme, MinFingerprint, MaxFingerprint, len(digest))
	}
	return Fingerprint{Scheme: scheme, Digest: string(digest)}, nil
}

// ParseFingerprints reads up to three fingerprints of distinct schemes.
func ParseFingerprints(list []string) ([]Fingerprint, error) {
	if len(list) > MaxFingerprints {
		return nil, fmt.Errorf("fingerprints must be at most %d, are %d", MaxFingerprints, len(list))
	}
	var parsed []Fingerprint
	for _, s := range list {
		f, err := ParseFingerprint(s)
		if err != nil {
			return nil, err
		}
		for _, g := range parsed {
			if g.Scheme == f.Scheme {
				return nil, fmt.Errorf("fingerprints must have distinct schemes; %s stands twice", f.Scheme)
			}
		}
		parsed = append(parsed, f)
	}
	return parsed, nil
}

func validScheme(s string) bool {
	if s == "" || len(s) > maxSchemeName || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if (s[i] < 'a' || s[i] > 'z') && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
