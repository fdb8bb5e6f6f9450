package client_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	"github.com/onced/onced/client/oncetest"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// childOf is the key that the function of an operation derives for a step.
func (r *rig) childOf(c client.Call, step string) string {
	r.Helper()
	out, err := client.Do(r.Context(), r.Client, c, func(_ context.Context, cl *client.Claim) (string, error) {
		return cl.Child(step)
	})
	if err != nil {
		r.Fatal(err)
	}
	return out.Value
}

// Children of different operations, and of different steps, are different, and are
// those that anybody derives who knows the operation.
func TestClaimChild(t *testing.T) {
	inBubble(t, func(r *rig) {
		parts := []string{"a", "b", "a:b"}
		seen := map[string]string{}
		for _, namespace := range parts {
			for _, key := range parts {
				for _, method := range parts {
					for n, step := range []string{"a", "b", "ab"} {
						name := strings.Join([]string{namespace, key, method, step}, " ")
						got := r.childOf(client.Call{Namespace: namespace, Key: key + strconv.Itoa(n), Method: method}, step)
						if other, ok := seen[got]; ok {
							t.Errorf("%s and %s share %s", name, other, got)
						}
						seen[got] = name
						parent, err := client.PerRequest(namespace, key+strconv.Itoa(n), method)
						if err != nil {
							t.Fatal(err)
						}
						if want, err := client.Child(parent, step); err != nil || got != want {
							t.Errorf("%s: got %s, want %s, %v", name, got, want, err)
						}
					}
				}
			}
		}
	})
}

// The vectors that clients in other languages are tested with have children of
// operations too.
func TestClaimChildIsThatOfTheVectors(t *testing.T) {
	var file keyVectors
	data, err := os.ReadFile("testdata/keys.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, v := range file.Vectors {
		want[v.Name] = v.Key
	}
	inBubble(t, func(r *rig) {
		for _, c := range []client.Call{
			{Key: "order-1", Method: "crm/CreateTicket"},
			{Namespace: "acme", Key: "order-1", Method: "crm/CreateTicket"},
			{Namespace: "acme", Key: "order-1", Method: "crm/CloseTicket"},
		} {
			namespace := c.Namespace
			if namespace == "" {
				namespace = client.DefaultNamespace
			}
			name := "of the operation " + strings.Join([]string{namespace, c.Key, c.Method}, ", ")
			if got := r.childOf(c, "charge"); got != want[name] {
				t.Errorf("%s: got %q, want %q", name, got, want[name])
			}
		}
	})
}

// A second execution, whoever makes it, derives the same child; so does who finds out.
func TestClaimChildStaysTheSame(t *testing.T) {
	inBubble(t, func(r *rig) {
		var children []string
		note := func(cl *client.Claim) {
			key, err := cl.Child("charge")
			if err != nil {
				t.Error(err)
			}
			children = append(children, key)
		}
		fn := func(_ context.Context, cl *client.Claim) (string, error) {
			note(cl)
			return "", client.NotExecuted(nil)
		}
		for range 2 {
			if _, err := client.Do(r.Context(), r.Client, call("k"), fn); err == nil {
				t.Error("no error")
			}
		}
		r.dies("k", nil)
		a := &asker{answer: func(_ context.Context, cl *client.Claim) client.Verdict {
			note(cl)
			return client.Happened("theirs")
		}}
		if _, err := client.Do(r.Context(), r.newClient(), call("k"), fn, client.WithReconcile(a.ask)); err != nil {
			t.Error(err)
		}
		if len(children) != 3 || children[0] != children[1] || children[1] != children[2] {
			t.Errorf("got %v", children)
		}
	})
}

func TestClaimChildWithoutAStep(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, call("k"), func(_ context.Context, cl *client.Claim) (string, error) {
			for _, step := range []string{"", "null", "undefined"} {
				if key, err := cl.Child(step); err == nil || key != "" {
					t.Errorf("step %q: got %q, %v", step, key, err)
				}
			}
			return "mine", nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

var uuidv7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// minted reads the time from a UUID of version 7.
func minted(t *testing.T, key string) time.Time {
	t.Helper()
	ms, err := strconv.ParseInt(key[:8]+key[9:13], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(ms)
}

func TestNewKey(t *testing.T) {
	inBubble(t, func(r *rig) {
		var mu sync.Mutex
		seen := map[string]bool{}
		random := map[string]bool{}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 2500 {
					key := client.NewKey()
					mu.Lock()
					if seen[key] || !uuidv7.MatchString(key) || onced.ValidateKey(key) != nil || !minted(t, key).Equal(time.Now()) {
						t.Errorf("got %q at %v", key, time.Now())
					}
					seen[key], random[key[15:18]], random[key[19:21]], random[key[34:]] = true, true, true, true
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(random) < 3000 { // of 4096, 64 and 256: nearly all come up
			t.Errorf("%d different parts in 10,000 keys", len(random))
		}
		before := client.NewKey()
		pass(1500*time.Millisecond + 700*time.Microsecond)
		after := client.NewKey()
		if minted(t, after).Sub(minted(t, before)) != 1500*time.Millisecond || after < before {
			t.Errorf("%s, then %s after 1.5007s", before, after)
		}
	})
}

// A namespace that requires a key_time, and reads it from keys, takes the minted ones
// and no others.
func TestNewKeyTellsItsTime(t *testing.T) {
	policy := func(p *onced.Policy) { p.KeyTimeRequired, p.KeyTimeFromKey = true, true }
	inBubble(t, func(r *rig) {
		key := client.NewKey()
		pass(time.Hour)
		if out := r.run(key, "mine"); out.Replayed {
			t.Errorf("got %+v", out)
		}
		if _, err := client.Do(r.Context(), r.Client, call("order-1"), r.once("no")); err == nil {
			t.Error("a key without a time was taken")
		}
		r.ran(1)
	}, policy)
	// One that is retried when its operation is forgotten is not executed again.
	s := oncetest.New(t, oncetest.WithPolicy(policy))
	key := client.NewKey()
	fn := func(context.Context, *client.Claim) (string, error) { return "mine", nil }
	if _, err := client.Do(t.Context(), s.Client(), call(key), fn); err != nil {
		t.Fatal(err)
	}
	s.Advance(31 * 24 * time.Hour)
	if _, err := client.LookupOutcome[string](t.Context(), s.Client(), call(key)); as[*client.Unresolved](t, err).Reason != oncedv1.Reason_REASON_HISTORY_LOST {
		t.Errorf("got %v", err)
	}
	_, err := client.Do(t.Context(), s.Client(), call(key), fn)
	if u := as[*client.Unresolved](t, err); u.Reason != oncedv1.Reason_REASON_HISTORY_LOST {
		t.Errorf("got %v", err)
	}
	if n := s.Executions(key); n != 1 {
		t.Errorf("%d executions", n)
	}
}
