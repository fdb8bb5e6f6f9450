package client_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
)

// keyVectors is testdata/keys.json, which clients in other languages are tested with too.
type keyVectors struct {
	About   string `json:"about"`
	Vectors []struct {
		Name    string   `json:"name"`
		Helper  string   `json:"helper"`
		Parts   []string `json:"parts"`
		Key     string   `json:"key"`
		Refused bool     `json:"refused"`
	} `json:"vectors"`
}

// The keys of callers that have upgraded, or speak another language, must stay the
// same: the vectors are for good.
func TestKeysAreThoseOfTheVectors(t *testing.T) {
	var file keyVectors
	data, err := os.ReadFile("testdata/keys.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	derived, refused := map[string]int{}, map[string]int{}
	for _, v := range file.Vectors {
		if v.Refused == (v.Key != "") {
			t.Errorf("%s, %s: a vector has a key or is refused", v.Helper, v.Name)
		}
		got, err := deriveVector(t, v.Helper, v.Parts)
		if got != v.Key || (err != nil) != v.Refused {
			t.Errorf("%s, %s: got %q, %v, want %q, refused: %t", v.Helper, v.Name, got, err, v.Key, v.Refused)
		}
		if v.Refused {
			refused[v.Helper]++
		} else {
			derived[v.Helper]++
		}
	}
	for _, helper := range []string{"PerRequest", "PerArguments", "Child", "Content"} {
		if derived[helper] == 0 || refused[helper] == 0 {
			t.Errorf("%s: %d vectors are derived and %d refused; each helper needs both", helper, derived[helper], refused[helper])
		}
	}
}

// deriveVector calls the helper of a vector.
func deriveVector(t *testing.T, helper string, parts []string) (string, error) {
	t.Helper()
	n, known := map[string]int{"PerRequest": 3, "PerArguments": 4, "Child": 2, "Content": 1}[helper]
	if !known || n != len(parts) {
		t.Fatalf("%s has no %d parts", helper, len(parts))
	}
	digest := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatalf("%s: digest %q: %v", helper, s, err)
		}
		return b
	}
	switch helper {
	case "PerRequest":
		return client.PerRequest(parts[0], parts[1], parts[2])
	case "PerArguments":
		scheme, sum, _ := strings.Cut(parts[3], ":")
		return client.PerArguments(parts[0], parts[1], parts[2], onced.Fingerprint{Scheme: scheme, Digest: string(digest(sum))})
	case "Child":
		return client.Child(parts[0], parts[1])
	default:
		return client.Content(digest(parts[0]))
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
