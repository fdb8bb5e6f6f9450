//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// relayed are the signals that are taken over. SIGPIPE is among them in order to
// be ignored here and not in the command: a reader of ours that goes away ends
// the write and nothing else.
var relayed = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE}

// errTooLate ends a claim that was not answered in time.
var errTooLate = errors.New("there was no answer in time")

// caught is the error of a claim that ended because we got a signal.
type caught struct{ sig syscall.Signal }

func (c caught) Error() string {
	return "interrupted by " + unix.SignalName(c.sig) + "; the command was not run"
}

// relay decides what a signal means: before the command runs it ends the claim,
// while it runs it is the command's, and afterwards the first says what is left to be
// done, and the second gives that up.
type relay struct {
	out      io.Writer
	claiming context.Context // ends when the command must not be started any more
	patience context.Context // ends when nothing is to be waited for any more

	mu     sync.Mutex
	stop   context.CancelCauseFunc // of claiming
	giveUp context.CancelFunc      // of patience
	child  *process                // while it runs
	began  bool
	told   bool // a signal has come that was not the command's
}

// newRelay takes the process's signals over until release.
func newRelay(out io.Writer) (r *relay, release func()) {
	r = &relay{out: out}
	r.patience, r.giveUp = context.WithCancel(context.Background())
	r.claiming, r.stop = context.WithCancelCause(r.patience)
	signals := make(chan os.Signal, 16)
	for _, sig := range relayed {
		if !signal.Ignored(sig) { // nohup, say, wants it to be ignored in the command too
			signal.Notify(signals, sig)
		}
	}
	go func() {
		for sig := range signals {
			if sig, ok := sig.(syscall.Signal); ok && sig != syscall.SIGPIPE {
				r.handle(sig)
			}
		}
	}()
	return r, func() {
		signal.Stop(signals)
		close(signals)
		r.giveUp()
	}
}

func (r *relay) handle(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.child != nil:
		r.child.forward(sig)
		return
	case r.told:
		r.giveUp()
	case !r.began && r.claiming.Err() == nil:
		r.stop(caught{sig})
	default:
		left := "the claim has yet to be given back"
		if r.began {
			left = "the outcome has yet to be reported"
		}
		fmt.Fprintf(r.out, "once: %s: %s to onced; a second signal gives that up, and the operation will count as unresolved\n", unix.SignalName(sig), left)
	}
	r.told = true
}

// expect gives the claim up unless the command has begun by then.
func (r *relay) expect(d time.Duration) {
	time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.began {
			r.stop(errTooLate)
		}
	})
}

// begin starts the command, unless the claim has ended meanwhile.
func (r *relay) begin(claim context.Context, p *process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if claim.Err() != nil {
		return context.Cause(claim)
	}
	if err := p.start(); err != nil {
		return err
	}
	r.child, r.began = p, true
	return nil
}

// end says that the command has ended.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.child = nil
}
