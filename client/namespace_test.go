package client_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// in names an operation of a namespace.
func in(namespace, key string) client.Call {
	return client.Call{Namespace: namespace, Key: key, Method: "m"}
}

// The same key of two tenants is two operations, and neither learns of the other's.
func TestNamespacesAreApart(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, tenant := range []string{"a", "b", ""} {
			_, err := client.LookupOutcome[string](r.Context(), r.Client, in(tenant, "1"))
			if !errors.Is(err, client.ErrNotClaimed) {
				t.Errorf("tenant %q sees another one's: %v", tenant, err)
			}
			out, err := client.Do(r.Context(), r.Client, in(tenant, "1"), func(_ context.Context, cl *client.Claim) (string, error) {
				r.runs.Add(1)
				if cl.Namespace != cmp.Or(tenant, client.DefaultNamespace) {
					t.Errorf("the claim is of namespace %q", cl.Namespace)
				}
				return "secret of " + tenant, nil
			})
			if err != nil || out.Replayed {
				t.Errorf("tenant %q got %+v, %v", tenant, out, err)
			}
		}
		r.ran(3)
		for _, tenant := range []string{"a", "b", ""} {
			out, err := client.Do(r.Context(), r.Client, in(tenant, "1"), r.once("no"))
			if err != nil || !out.Replayed || out.Value != "secret of "+tenant {
				t.Errorf("tenant %q got %+v, %v", tenant, out, err)
			}
			if out, err := client.LookupOutcome[string](r.Context(), r.Client, in(tenant, "1")); err != nil || out.Value != "secret of "+tenant {
				t.Errorf("tenant %q got %+v, %v", tenant, out, err)
			}
		}
		// Empty is the client's own, by whichever name.
		if out, err := client.Do(r.Context(), r.newClient(client.WithNamespace("a")), in("", "1"), r.once("no")); err != nil || out.Value != "secret of a" {
			t.Errorf("got %+v, %v", out, err)
		}
		if out, err := client.Do(r.Context(), r.Client, in(client.DefaultNamespace, "1"), r.once("no")); err != nil || out.Value != "secret of " {
			t.Errorf("got %+v, %v", out, err)
		}
		r.ran(3)
	})
}

// Everything that is sent for an operation names its namespace: renewals, checkpoints,
// reports, what is given back, takeovers and look-ups.
func TestNamespaceOfEverythingThatIsSent(t *testing.T) {
	inBubble(t, func(r *rig) {
		fails := []error{nil, client.NotExecuted(errors.New("busy")), client.Final(errors.New("declined")), errors.New("time-out")}
		for n, fail := range fails {
			_, err := client.Do(r.Context(), r.Client, in("tenant", string(rune('a'+n))), func(ctx context.Context, cl *client.Claim) (string, error) {
				if err := cl.Checkpoint(ctx, "half"); err != nil {
					t.Error(err)
				}
				pass(15 * time.Second)
				return "mine", fail
			})
			if !errors.Is(err, fail) {
				t.Errorf("got %v", err)
			}
		}
		for _, opt := range []client.DoOption{client.SafeToRerun(), client.WithReconcile(answering(client.DidNotHappen()).ask)} {
			if out, err := client.Do(r.Context(), r.Client, in("tenant", "d"), r.failing(errors.New("time-out")), opt); err == nil {
				t.Errorf("got %+v", out)
			}
		}
		gone, cancel := context.WithCancel(r.Context())
		r.faults.times(1, func(ctx context.Context, send func(context.Context) error) error {
			defer cancel()
			return send(ctx)
		}, "Claim")
		_, err := client.Do(gone, r.Client, in("tenant", "e"), r.once("no"))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		r.Close(r.Context())
		seen := map[string]int{}
		for _, s := range r.faults.all() {
			seen[s.rpc]++
			if ref := s.req.(interface{ GetRef() *oncedv1.OperationRef }).GetRef(); ref.GetNamespace() != "tenant" || ref.GetMethod() != "m" {
				t.Errorf("%s names %v", s.rpc, ref)
			}
		}
		for _, rpc := range []string{"Claim", "Renew", "Complete", "Fail"} {
			if seen[rpc] == 0 {
				t.Errorf("no %s was sent: %v", rpc, seen)
			}
		}
	}, atOnce)
}

func TestNamespaceThatIsImpossible(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, bad := range []string{"with space", "ünicode", strings.Repeat("n", 129), "a\x00"} {
			if _, err := client.Do(r.Context(), r.Client, in(bad, "k"), r.once("no")); err == nil || !strings.Contains(err.Error(), "namespace") {
				t.Errorf("%q: got %v", bad, err)
			}
		}
		r.saw("Claim", 0)
		r.ran(0)
	})
}

// A function may run the same key and method in another namespace: that is another
// operation. Its own, by whichever name, would wait for itself.
func TestNamespaceOfNestedCalls(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := client.Do(r.Context(), r.Client, in("a", "k"), func(ctx context.Context, outer *client.Claim) (string, error) {
			if client.ClaimFromContext(ctx) != outer {
				t.Error("the claim in the context is another one")
			}
			out, err := client.Do(ctx, r.Client, in("b", "k"), func(ctx context.Context, inner *client.Claim) (string, error) {
				r.runs.Add(1)
				if client.ClaimFromContext(ctx) != inner || inner.Namespace != "b" {
					t.Error("the claim in the inner context is not the inner one")
				}
				// Both are running now.
				for _, c := range []client.Call{in("a", "k"), in("b", "k")} {
					_, err := client.Do(ctx, r.Client, c, r.once("no"))
					if err == nil {
						t.Error("no error")
						continue
					}
					says(t, err, "would wait for itself")
				}
				return "inner", nil
			})
			if err != nil || out.Value != "inner" {
				t.Errorf("got %+v, %v", out, err)
			}
			return "outer", err
		})
		if err != nil {
			t.Error(err)
		}
		for _, names := range [][2]string{{"", client.DefaultNamespace}, {client.DefaultNamespace, ""}, {"", ""}} {
			_, err = client.Do(r.Context(), r.Client, in(names[0], "own"), func(ctx context.Context, _ *client.Claim) (string, error) {
				_, err := client.Do(ctx, r.Client, in(names[1], "own"), r.once("no"), client.NoWait())
				return "", client.NotExecuted(err)
			})
			says(t, err, "would wait for itself")
		}
		r.ran(1)
		if client.ClaimFromContext(r.Context()) != nil {
			t.Error("there is a claim where nothing runs")
		}
	})
}

// A key of another tenant cannot be told from one that was never used.
func TestNamespaceTellsNothingOfOthers(t *testing.T) {
	inBubble(t, func(r *rig) {
		if _, err := client.Do(r.Context(), r.Client, in("a", "k"), r.once("secret")); err != nil {
			t.Fatal(err)
		}
		_, used := r.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "b", Key: "k", Method: "m"}})
		_, unused := r.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: &oncedv1.OperationRef{Namespace: "c", Key: "k", Method: "m"}})
		if status.Code(used) != codes.NotFound || strings.ReplaceAll(used.Error(), `"b"`, `"c"`) != unused.Error() {
			t.Errorf("got %v, and %v", used, unused)
		}
	})
}
