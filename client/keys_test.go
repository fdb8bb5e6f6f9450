package client_test

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// The keys of callers that have upgraded must stay the same: these are for good.
func TestKeysAreStable(t *testing.T) {
	args := onced.Fingerprint{Scheme: "raw1", Digest: strings.Repeat("\x01", 32)}
	for want, derive := range map[string]func() (string, error){
		"request-c3afdd31c4d5f1945897a6e1cda9b4d6f5c37a7b3299a65bd437383518a802c1":   func() (string, error) { return client.PerRequest("acme", "req-1", "crm/CreateTicket") },
		"arguments-e386f6a4ac7740a19a21f8535d61f3b2b00887d467f97c786f611a245209a546": func() (string, error) { return client.PerArguments("acme", "req-1", "crm/CreateTicket", args) },
		"child-4a1720d24ee95767e831eebd5337b3a7b2e0095d6aacc6329b492b478e1beed2":     func() (string, error) { return client.Child("order-1", "charge") },
		"content-96b1cadfb95fa2ec1bfd3c5a01bb5e5292508092bdbfbba0033b3c914a481515":   func() (string, error) { return client.Content([]byte(strings.Repeat("\x02", 32))) },
	} {
		if got, err := derive(); got != want || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

// Keys are injective: no two lists of parts share one, and none is shared by two
// helpers.
func TestKeysAreInjective(t *testing.T) {
	args := func(scheme, digest string) onced.Fingerprint {
		return onced.Fingerprint{Scheme: scheme, Digest: digest}
	}
	seen := map[string]string{}
	add := func(name string, key string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s share key %s", name, other, key)
		}
		seen[key] = name
		if err := onced.ValidateKey(key); err != nil || len(key) > 128 || !regexp.MustCompile(`^[a-z]+-[0-9a-f]{64}$`).MatchString(key) {
			t.Errorf("%s: key %q: %v", name, key, err)
		}
	}
	parts := []string{"a", "b", "ab", "a\x01b", "a:b", "ba", "a\x00", "\x01a", strings.Repeat("a", 300)}
	for _, p := range parts {
		key, err := client.Content([]byte(p))
		add(fmt.Sprintf("content %q", p), key, err)
		for _, q := range parts {
			key, err := client.Child(p, q)
			add(fmt.Sprintf("child %q %q", p, q), key, err)
			for _, m := range parts {
				key, err := client.PerRequest(p, q, m)
				add(fmt.Sprintf("request %q %q %q", p, q, m), key, err)
			}
			for _, a := range []onced.Fingerprint{args("a", "bc"), args("ab", "c"), args("b", "c")} {
				key, err := client.PerArguments(p, q, "m", a)
				add(fmt.Sprintf("arguments %q %q %v", p, q, a), key, err)
			}
		}
	}
	if want := 9 + 81 + 729 + 243; len(seen) != want {
		t.Errorf("%d keys, want %d", len(seen), want)
	}
}

func TestKeysOfAbsentPartsAreRefused(t *testing.T) {
	args := onced.Fingerprint{Scheme: "raw1", Digest: strings.Repeat("\x01", 32)}
	for name, derive := range map[string]func() (string, error){
		"no tenant":  func() (string, error) { return client.PerRequest("", "r", "m") },
		"no request": func() (string, error) { return client.PerRequest("t", "", "m") },
		"no method":  func() (string, error) { return client.PerRequest("t", "r", "") },
		"no args":    func() (string, error) { return client.PerArguments("t", "r", "m", onced.Fingerprint{}) },
		"no request, with args": func() (string, error) {
			return client.PerArguments("t", "", "m", args)
		},
		"no parent": func() (string, error) { return client.Child("", "charge") },
		"no step":   func() (string, error) { return client.Child("order-1", "") },
		"no digest": func() (string, error) { return client.Content(nil) },
	} {
		if key, err := derive(); key != "" || err == nil {
			t.Errorf("%s: got %q, %v", name, key, err)
		}
	}
}

// The encoding, written down a second time: for callers in other languages.
func TestKeysAsDocumented(t *testing.T) {
	encoded := "\x0bonced key 1" + "\x05child" + "\x07order-1" + "\x06charge"
	want := fmt.Sprintf("child-%x", sha256.Sum256([]byte(encoded)))
	if got, err := client.Child("order-1", "charge"); got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
