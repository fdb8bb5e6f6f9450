package client_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
	"github.com/onced/onced/storage/memory"
)

// anotherStore puts an empty store in place of the rig's, made so much later, as if
// the machine's clock was set: another generation.
func (r *rig) anotherStore(later time.Duration) (from, to uint64) {
	from = r.generation()
	r.down()
	r.store = memory.New(shiftedClock{machineClock{time.Now()}, later})
	r.up()
	pass(5 * time.Second) // the connection comes back
	return from, r.generation()
}

func (r *rig) generation() uint64 {
	meta, err := r.store.Meta(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return meta.Generation
}

type shiftedClock struct {
	machineClock
	by time.Duration
}

func (c shiftedClock) Wall() time.Time { return c.machineClock.Wall().Add(c.by) }

func TestGenerationChangeIsNoticed(t *testing.T) {
	for name, later := range map[string]time.Duration{"higher": time.Hour, "lower": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var seen []client.GenerationChange
				c := r.newClient(client.OnGenerationChange(func(g client.GenerationChange) { seen = append(seen, g) }))
				if _, err := client.Do(r.Context(), c, call("k"), r.once("mine")); err != nil || seen != nil {
					t.Errorf("got %v, %v", seen, err)
				}
				from, to := r.anotherStore(later)
				if _, err := c.Lookup(r.Context(), &oncedv1.LookupRequest{Ref: c.Ref("none", "m")}); status.Code(err) != codes.NotFound || len(seen) != 1 {
					t.Errorf("a refusal carries the generation too: told of %v, %v", seen, err)
				}
				for range 2 { // told once
					if _, err := client.Do(r.Context(), c, call("k2"), r.once("mine")); err != nil {
						t.Error(err)
					}
				}
				if want := []client.GenerationChange{{From: from, To: to}}; !slices.Equal(seen, want) {
					t.Errorf("told of %v, want %v", seen, want)
				}
				if log := r.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "another generation") {
					t.Errorf("logged: %s", log)
				}
				r.ran(2)
			})
		})
	}
}

// The very grant that shows the change is given back.
func TestGenerationChangeRefuses(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.newClient(client.RefuseOnGenerationChange())
		if _, err := client.Do(r.Context(), c, call("k"), r.once("mine")); err != nil {
			t.Fatal(err)
		}
		from, to := r.anotherStore(time.Hour)
		for range 2 {
			_, err := client.Do(r.Context(), c, call("k"), r.once("again"))
			if g := as[*client.GenerationChange](t, err); g.From != from || g.To != to {
				t.Errorf("got %+v, want %d to %d", g, from, to)
			}
			says(t, err, "nothing was executed", "make a new client")
		}
		c.Close(r.Context())
		r.isIn("k", oncedv1.State_STATE_RELEASED)
		r.saw("Claim", 2)
		r.ran(1)
		if _, err := client.Do(r.Context(), r.newClient(client.RefuseOnGenerationChange()), call("k"), r.once("accepted")); err != nil {
			t.Error(err)
		}
		r.ran(2)
	})
}

// A settlement is no execution: it goes on under a changed generation.
func TestGenerationChangeDoesNotStopASettlement(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.newClient(client.RefuseOnGenerationChange())
		r.faults.times(2, refusedWith(codes.Unavailable), "Complete")
		r.faults.editHeaders(func(rpc string, header metadata.MD) {
			if rpc == "Renew" {
				header.Set("onced-generation", "7")
			}
		})
		out, err := client.Do(r.Context(), c, call("k"), r.slow(15*time.Second, "mine"))
		if err != nil || !out.Settled {
			t.Errorf("got %+v, %v", out, err)
		}
		_, err = client.Do(r.Context(), c, call("j"), r.once("no"))
		as[*client.GenerationChange](t, err)
		r.ran(1)
	})
}

// Headers that are not onced's say nothing.
func TestGenerationHeadersThatMakeNoSense(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.newClient(client.RefuseOnGenerationChange())
		n := 0
		nonsense := [][]string{nil, {""}, {"x"}, {"0"}, {"-1"}, {"1", "2"}}
		r.faults.editHeaders(func(_ string, header metadata.MD) {
			if n++; n%2 == 0 {
				header["onced-generation"] = nonsense[n/2%len(nonsense)]
			}
		})
		for range 20 {
			if _, err := client.Do(r.Context(), c, call("k"), r.once("mine")); err != nil {
				t.Fatal(err)
			}
		}
	})
}
