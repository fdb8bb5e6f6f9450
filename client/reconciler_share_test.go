package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onced/onced"
	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// Functions of one method that hang hold up that method alone.
func TestReconcilerMethodsDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		slow, fast := newOutside(), newOutside()
		slow.takes, slow.heeds = 5*time.Hour, true
		for n := range client.DefaultWorkers {
			r.dies(fmt.Sprint("slow ", n), nil)
		}
		r.rival("fast", func(req *oncedv1.ClaimRequest) { req.Ref = r.Ref("fast", "fast") })
		rec := reconciler(r.newClient(), slow)
		rec.Methods["fast"] = client.Reconciliation{Ask: fast.ask}
		pass(time.Minute)
		stop := r.inBackground(rec)
		pass(10 * time.Minute)
		stop()
		if n := len(fast.times("fast")); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	}, atOnce)
}

// What cannot be due yet costs the server no claims, and who shares a backlog is no
// news.
func TestReconcilerIsQuiet(t *testing.T) {
	t.Run("not due", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			o := newOutside()
			r.dies("lapsed", nil)
			_, _ = client.Do(r.Context(), r.Client, call("declared"), r.failing(errNoAnswer))
			rec := reconciler(r.newClient(), o)
			rec.Interval = time.Minute
			before := len(r.claims())
			stop := r.inBackground(rec)
			pass(23 * time.Hour)
			if n := len(r.claims()) - before; n != 0 {
				t.Errorf("%d claims were sent for what is not due", n)
			}
			pass(2 * time.Hour)
			stop()
			o.eachOnce(t, 2)
		}, func(p *onced.Policy) { p.ReconcileAfter = new(24 * time.Hour) })
	})
	t.Run("shared", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			o := newOutside()
			o.takes = time.Second
			o.answer = func(context.Context, *client.Claim) *client.Verdict { return new(client.Verdict) }
			r.backlog(100, o)
			pass(time.Minute)
			for range 2 {
				rec := reconciler(r.newClient(), o)
				rec.Workers, rec.Interval = 2, time.Hour
				defer r.inBackground(rec)()
			}
			pass(10 * time.Minute)
			if w := r.warnings("could not be taken over"); len(w) != 0 {
				t.Errorf("%d warnings, the first: %s", len(w), w[0])
			}
		}, atOnce)
	})
}

// Client and connection are closed while a Reconciler runs on: it ends, and says why.
func TestReconcilerOfAClosedConnection(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.newClient()
		stopped := make(chan error, 1)
		go func() { stopped <- reconciler(c, newOutside()).Run(r.Context()) }()
		pass(time.Minute)
		c.Close(r.Context())
		r.conn.Close()
		says(t, <-stopped, client.ErrClosed.Error())
	}, atOnce)
}
