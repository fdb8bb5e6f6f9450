package oncegrpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// guardedMethods take keys, each in its own way.
var guardedMethods = []string{"Pay", "Idempotent", "ReadKeyed", "Optional", "Field", "NestedField", "Ignoring", "Identified", "Flagged", "Renamed", "Leased"}

// asciiKeys are keys that cannot be used and that a text header can carry.
var asciiKeys = map[string]string{
	"empty": "", "blank": " ", "blanks": "   ", "null": "null", "undefined": "undefined",
	"the nil UUID": "00000000-0000-0000-0000-000000000000",
	"space before": " k", "space after": "k ", "513 bytes": strings.Repeat("k", 513), "9000 bytes": strings.Repeat("k", 9000),
}

// binaryKeys are keys that cannot be used and that only a -bin header can carry.
var binaryKeys = map[string]string{
	"tab": "a\tb", "NUL": "k\x00y", "line feed at the end": "k\n", "DEL": "k\x7f", "a C1 control": "k\u0085y",
	"not UTF-8": "\xff\xfe", "half a character": "\xd0", "a surrogate": "\xed\xa0\x80", "no-break space before": "\u00a0k",
	"em space after": "k\u2003", "257 characters, 514 bytes": strings.Repeat("é", 257),
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	r := newRig(t)
	for _, method := range guardedMethods {
		for name, key := range asciiKeys {
			t.Run(method+"/"+name, func(t *testing.T) {
				r.send(method, request(), MetadataKey, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
				r.send(method, request(), MetadataKeyBin, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
			})
		}
		for name, key := range binaryKeys {
			t.Run(method+"/"+name, func(t *testing.T) {
				r.send(method, request(), MetadataKeyBin, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
			})
		}
	}
	r.wantNothing()
}

// In a field, a key is as good or bad as in the metadata; only an empty field is none.
func TestKeysInFieldsThatCannotBeUsed(t *testing.T) {
	r := newRig(t)
	for method, field := range map[string]string{"Field": "request_id", "NestedField": "header.request_id"} {
		for name, key := range asciiKeys {
			if key == "" {
				continue
			}
			t.Run(method+"/"+name, func(t *testing.T) {
				r.send(method, request(field, key)).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
				r.send(method, request(field, key), MetadataKeyBin, key).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
			})
		}
		for _, name := range []string{"tab", "NUL", "a C1 control", "no-break space before"} {
			t.Run(method+"/"+name, func(t *testing.T) {
				r.send(method, request(field, binaryKeys[name])).wantRefused(t, codes.InvalidArgument, reasonKeyInvalid)
			})
		}
	}
	r.wantNothing()
}

func TestNoKey(t *testing.T) {
	r := newRig(t)
	for _, method := range guardedMethods {
		if method == "Optional" {
			continue
		}
		a := r.send(method, request("account", "a"))
		a.wantRefused(t, codes.InvalidArgument, reasonKeyRequired)
		if text := status.Convert(a.err).Message(); !strings.Contains(text, MetadataKey) || strings.Contains(text, "field") != strings.HasSuffix(method, "Field") {
			t.Errorf("%s: the caller is told %q", method, text)
		}
	}
	r.wantNothing()
}

func TestKeysOfEveryLength(t *testing.T) {
	r := newRig(t)
	for i, key := range []string{
		"k", strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("k", onced.MaxKey), strings.Repeat("é", onced.MaxKey/2),
		"../x", "a b", "a:b", "~", "ключ", "\U0001f600", "nul", "NULL", "Undefined", "-1", "0",
	} {
		pairs := []string{MetadataKeyBin, key}
		if i%2 == 0 && strings.IndexFunc(key, func(c rune) bool { return c > '~' }) < 0 {
			pairs[0] = MetadataKey
		}
		first, again := r.send("Pay", request("amount", i), pairs...), r.send("Pay", request("amount", i), pairs...)
		first.wantOutcome(t, OutcomeExecuted)
		again.wantOutcome(t, OutcomeReplayed)
		for _, a := range []answer{first, again} {
			name, _ := metadataOf(HeaderKey, HeaderKeyBin, key)
			if got := a.header.Get(name); !slices.Equal(got, []string{key}) || len(a.header.Get(HeaderKey))+len(a.header.Get(HeaderKeyBin)) != 1 {
				t.Errorf("key %.20q: headers %v", key, a.header)
			}
		}
		r.wantRuns(int64(i + 1))
		if !slices.Contains(r.storedKeys(), key) {
			t.Errorf("key %.20q is not stored as it is", key)
		}
	}
}

// Keys are compared byte for byte, and methods are told apart.
func TestKeysThatDiffer(t *testing.T) {
	r := newRig(t)
	keys := []string{"K", "k", "order-1", "order-10", "abc", `"abc"`, "a:b", "a", "é", "e\u0301", "k1,k2", "k1"}
	for _, key := range keys {
		r.send("Pay", request(), MetadataKeyBin, key).wantOutcome(t, OutcomeExecuted)
	}
	r.send("Idempotent", request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.wantRuns(int64(len(keys) + 1))
}

func TestSeveralKeys(t *testing.T) {
	r := newRig(t)
	for name, pairs := range map[string][]string{
		"twice the same":             {MetadataKey, "k", MetadataKey, "k"},
		"two":                        {MetadataKey, "k1", MetadataKey, "k2"},
		"two in -bin":                {MetadataKeyBin, "k1", MetadataKeyBin, "k2"},
		"twice the same in -bin":     {MetadataKeyBin, "k", MetadataKeyBin, "k"},
		"text against -bin":          {MetadataKey, "k1", MetadataKeyBin, "k2"},
		"text against empty -bin":    {MetadataKey, "k", MetadataKeyBin, ""},
		"empty text against -bin":    {MetadataKey, "", MetadataKeyBin, "k"},
		"a key and an empty one":     {MetadataKey, "k", MetadataKey, ""},
		"differing in case":          {MetadataKey, "k", MetadataKeyBin, "K"},
		"two empty":                  {MetadataKey, "", MetadataKey, ""},
		"two that cannot be used":    {MetadataKey, "null", MetadataKeyBin, "undefined"},
		"one of them cannot be used": {MetadataKey, "k", MetadataKeyBin, "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range guardedMethods {
				r.send(method, request(), pairs...).wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
			}
			r.send("Off", request(), pairs...).wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
			r.send("Field", request("request_id", "k"), pairs...).wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
		})
	}
	for method, field := range map[string]string{"Field": "request_id", "NestedField": "header.request_id"} {
		r.send(method, request(field, "k2"), MetadataKey, "k1").wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
		r.send(method, request(field, "k2"), MetadataKeyBin, "k1").wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
		r.send(method, request(field, "k"), MetadataKey, "").wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
		r.send(method, request(field, "k"), MetadataKey, "k", MetadataKeyBin, "k2").wantRefused(t, codes.InvalidArgument, reasonKeyAmbiguous)
	}
	r.wantNothing()
}

// A read-only method needs no key, and one that comes all the same is none of its
// business, whatever it holds.
func TestReadOnlyMethodsIgnoreKeys(t *testing.T) {
	r := newRig(t)
	n := int64(0)
	for _, pairs := range [][]string{
		{},
		{MetadataKey, "k"},
		{MetadataKey, "k"},
		{MetadataKey, ""},
		{MetadataKey, "null"},
		{MetadataKeyBin, "\xff"},
		{MetadataKey, "k1", MetadataKey, "k2"},
		{MetadataKey, "k1", MetadataKeyBin, "k2"},
	} {
		n++
		a := r.send("Read", request(), pairs...)
		a.wantOutcome(t, "")
		if len(a.header.Get(HeaderKey))+len(a.header.Get(HeaderKeyBin)) != 0 {
			t.Errorf("%q: the answer speaks of a key: %v", pairs, a.header)
		}
		r.wantRuns(n)
	}
	if keys := r.storedKeys(); len(keys) != 0 {
		t.Errorf("stored: %q", keys)
	}
}

// A key on a method with side effects that is not guarded is refused: its caller relies
// on it.
func TestUnguardedMethodsRefuseKeys(t *testing.T) {
	r := newRig(t)
	for _, keys := range []map[string]string{asciiKeys, binaryKeys, {"a good one": "k"}} {
		for name, key := range keys {
			t.Run(name, func(t *testing.T) {
				r.send("Off", request(), MetadataKeyBin, key).wantRefused(t, codes.InvalidArgument, reasonKeyNotGuarded)
			})
		}
	}
	r.wantNothing()
	for n := range int64(2) {
		r.send("Off", request()).wantOutcome(t, "")
		r.wantRuns(n + 1)
	}
}

func TestOptionalKeys(t *testing.T) {
	r := newRig(t)
	for n := range int64(2) {
		a := r.send("Optional", request())
		a.wantOutcome(t, OutcomeUnprotected)
		if len(a.header.Get(HeaderOutcome)) != 1 || len(a.header.Get(HeaderKey)) != 0 || len(a.header.Get(HeaderFirstClaimTime)) != 0 {
			t.Errorf("an unprotected answer says %v", a.header)
		}
		r.wantRuns(n + 1)
	}
	if keys := r.storedKeys(); len(keys) != 0 {
		t.Errorf("stored: %q", keys)
	}
	r.send("Optional", request(), MetadataKey, "k").wantOutcome(t, OutcomeExecuted)
	r.send("Optional", request(), MetadataKey, "k").wantOutcome(t, OutcomeReplayed)
	r.wantRuns(3)
}

// Also where an unprotected call fails, its answer says what it was; whether it is tried
// again is as without a guard. What validation refuses did not run.
func TestOptionalKeysOfCallsThatFail(t *testing.T) {
	r := newRig(t, WithValidation(atMostTen))
	wantRejected(t, r.send("Optional", request("amount", 50)))
	for i, outcome := range []error{errors.New("broken"), status.Error(codes.Unavailable, "busy"), client.NotExecuted(errors.New("not now"))} {
		r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) { return nil, outcome })
		a := r.send("Optional", request())
		if status.Code(a.err) != status.Code(outcome) || a.outcome() != OutcomeUnprotected || len(a.header) != 0 {
			t.Errorf("%v: headers %v, trailers %v", a.err, a.header, a.trailer)
		}
		r.wantRuns(int64(i + 1))
	}
}

// Whether a call without a key is tried again is its caller's decision, as ever.
func TestOptionalCallsAreRetriedAsWithoutAGuard(t *testing.T) {
	r := newRig(t)
	r.handle(func(context.Context, string, *dynamicpb.Message) (proto.Message, error) {
		return nil, status.Error(codes.Unavailable, "busy")
	})
	retrying := r.connect(retryEverything)
	for i, method := range []string{"Off", "Read", "Optional"} {
		if a := invoke(t.Context(), retrying, method, request()); status.Code(a.err) != codes.Unavailable {
			t.Errorf("%s: %v", method, a.err)
		}
		r.wantRuns(int64(4 * (i + 1)))
	}
}
