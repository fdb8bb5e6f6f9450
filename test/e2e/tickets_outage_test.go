package e2e

import (
	"context"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onced/onced/client/oncegrpc"
	ticketsv1 "github.com/onced/onced/gen/tickets/v1"
)

// ends are the ways in which a server ends.
var ends = map[string]func(*process){"stopped": (*process).stop, "killed": (*process).kill}

// The tool is killed when it has had its effect and nobody knows. The caller's gRPC tries
// again, with the next process: nothing is executed for it, while the dead one may be alive
// and also afterwards. In no case is that told as success.
func TestR41_ToolKilledBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	s, address := serve(t, newStore(t)), freeAddress(t)
	dead := startTool(t, s.GRPC, "--listen", address, "--delay", forever)
	a := dead.agent(retries(`"UNAVAILABLE"`))
	call := later(func() filing { return a.create(t.Context(), "k", grpc.WaitForReady(true)) })
	dead.logged(ticketCreated)
	dead.kill()
	next := startTool(t, s.GRPC, "--listen", address)
	call.wait(t).inProgress(t) // its lease is that of half a minute
	a.create(t.Context(), "k").inProgress(t)
	effected(t, ticketCreated, 1, dead, next)
}

// A holder that is dead is waited for until its lease ends. Then callers are told that the
// outcome is not known, every time.
func TestR32_DeadToolIsNeverSuccess(t *testing.T) {
	t.Parallel()
	s, address := serve(t, newStore(t), "--config", configFile(t, shortLeases)), freeAddress(t)
	dead := startTool(t, s.GRPC, "--listen", address, "--delay", forever)
	call := later(func() filing { return dead.agent().create(t.Context(), "k") })
	dead.logged(ticketCreated)
	dead.kill()
	if f := call.wait(t); status.Code(f.err) != codes.Unavailable {
		t.Errorf("the caller of a tool that dies got %v, want UNAVAILABLE", f.err)
	}
	next := startTool(t, s.GRPC, "--listen", address)
	a := next.agent()
	a.unresolved("k")
	effected(t, ticketCreated, 1, dead, next)
}

// unresolved demands that calls under a key are told that somebody executes, until they
// are told that the outcome is not known, which stays so.
func (a agent) unresolved(key string) {
	a.t.Helper()
	eventually(a.t, "the lease to end", func() bool {
		f := a.create(context.Background(), key)
		if status.Code(f.err) == codes.Aborted {
			f.inProgress(a.t)
			return false
		}
		refused(a.t, f.err, codes.FailedPrecondition, "UNRESOLVED")
		return true
	})
	for range 3 {
		refused(a.t, a.create(context.Background(), key).err, codes.FailedPrecondition, "UNRESOLVED")
	}
}

// A handler is told to stop when it has had its effect, since its claim is lost while
// onced is down, and so it fails. That is no reason to execute again, for gRPC or for the
// next caller.
func TestR02_HandlerFailsAfterItsEffect(t *testing.T) {
	t.Parallel()
	dir, address, config := newStore(t), freeAddress(t), configFile(t, shortLeases)
	s := serve(t, dir, "--listen", address, "--config", config)
	p := startTool(t, address, "--delay", forever)
	a := p.agent(retries(`"CANCELLED", "UNAVAILABLE"`))
	call := later(func() filing { return a.create(t.Context(), "k") })
	p.logged(ticketCreated)
	s.kill()
	if f := call.wait(t); status.Code(f.err) != codes.Canceled || f.outcome() != oncegrpc.OutcomeExecuted {
		t.Errorf("the caller got %v, %q, want the error of the handler that was executed", f.err, f.outcome())
	}
	serve(t, dir, "--listen", address, "--config", config)
	a.unresolved("k")
	effected(t, ticketCreated, 1, p)
}

// What changes nothing when it is done again is done again for the next caller, when the
// first one may be taken for dead.
func TestTicketsRerun(t *testing.T) {
	t.Parallel()
	s, address := serve(t, newStore(t), "--config", configFile(t, shortLeases)), freeAddress(t)
	opener := startTool(t, s.GRPC, "--listen", address)
	opener.agent().create(t.Context(), "first", grpc.WaitForReady(true)).is(t, oncegrpc.OutcomeExecuted)
	opener.stop()

	// A tool keeps its tickets in memory: each process has a T-1 of its own.
	dead := startTool(t, s.GRPC, "--listen", address, "--delay", forever)
	setUp := later(func() filing { return dead.agent().create(t.Context(), "second") })
	dead.logged(ticketCreated)
	call := later(func() filing { return dead.agent().close(t.Context(), "k", "T-1") })
	dead.logged(ticketClosed)
	dead.kill()
	for _, f := range []*filed{setUp, call} {
		if err := f.wait(t).err; status.Code(err) != codes.Unavailable {
			t.Errorf("the caller of a tool that dies got %v, want UNAVAILABLE", err)
		}
	}

	next := startTool(t, s.GRPC, "--listen", address)
	a := next.agent()
	a.create(t.Context(), "third").is(t, oncegrpc.OutcomeExecuted)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var f filing
	eventually(t, "the operation to be taken over", func() bool {
		f = insist(ctx, func(ctx context.Context) filing { return a.close(ctx, "k", "T-1") })
		if f.err != nil {
			refused(t, f.err, codes.FailedPrecondition, "UNRESOLVED")
		}
		return f.err == nil
	})
	if f.outcome() != oncegrpc.OutcomeExecuted || !f.ticket.GetClosed() {
		t.Errorf("after the takeover the caller got %v, %s", f.ticket, f.outcome())
	}
	if again := a.close(ctx, "k", "T-1"); again.err != nil || again.outcome() != oncegrpc.OutcomeReplayed {
		t.Errorf("the next call got %v, %s, want the replay", again.err, again.outcome())
	}
	effected(t, ticketClosed, 2, dead, next)
	for line := range strings.Lines(next.log.String()) {
		if strings.Contains(line, ticketClosed) && !strings.Contains(line, "attempt=2") {
			t.Errorf("the second execution is logged as %s", line)
		}
	}
}

// The caller leaves when the tool has had its effect. The handler goes on, and the next
// call gets what came of it.
func TestR04_CallerOfAToolLeaves(t *testing.T) {
	t.Parallel()
	p := startTool(t, serve(t, newStore(t)).GRPC, "--delay", "200ms")
	a := p.agent()
	ctx, leave := context.WithCancel(t.Context())
	call := later(func() filing { return a.create(ctx, "k") })
	p.logged(ticketCreated)
	leave()
	if f := call.wait(t); status.Code(f.err) != codes.Canceled {
		t.Errorf("a caller that leaves got %v, want CANCELLED", f.err)
	}
	a.insist("k").is(t, oncegrpc.OutcomeReplayed)
	effected(t, ticketCreated, 1, p)
}

// onced ends while a handler runs, and is back when it has returned. The caller has its
// ticket, and so have those who come later: what was executed is reported late, and never
// as a failure.
func TestR04_OncedDownWhenTheHandlerReturns(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, address := newStore(t), freeAddress(t)
			s := serveAt(t, dir, address)
			p := startTool(t, address, "--delay", "300ms")
			a := p.agent()
			call := later(func() filing { return a.create(t.Context(), "k") })
			p.logged(ticketCreated)
			end(s)
			first := call.wait(t).is(t, oncegrpc.OutcomeExecuted)

			s = serveAt(t, dir, address)
			if again := a.insist("k").is(t, oncegrpc.OutcomeReplayed); !proto.Equal(first, again) {
				t.Errorf("the replay is %v, and the answer was %v", again, first)
			}
			shown := s.once(0, "lookup", "-n", "tickets", "--key", "k", "--method", "tickets.v1.Tickets/CreateTicket", "-o", "json")
			has(t, shown, "STATE_COMPLETED", "SETTLED_BY_HOLDER", `"attempt":1`)
			effected(t, ticketCreated, 1, p)
		})
	}
}

// The tool is stopped while its handlers run: they return, their callers have their
// answers, and what they did is reported before the process ends.
func TestTicketsStop(t *testing.T) {
	t.Parallel()
	s := serve(t, newStore(t))
	p := startTool(t, s.GRPC, "--delay", "300ms")
	a := p.agent()
	call := later(func() filing { return a.create(t.Context(), "k") })
	p.logged(ticketCreated)
	p.stop()
	call.wait(t).is(t, oncegrpc.OutcomeExecuted)
	next := startTool(t, s.GRPC)
	next.agent().create(t.Context(), "k").is(t, oncegrpc.OutcomeReplayed)
	effected(t, ticketCreated, 1, p, next)
}

// Without onced nothing is executed, and the caller is told to try again. When onced is
// there the same key is executed, by the same process of the tool.
func TestR44_OncedDownAtTheCall(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, address := newStore(t), freeAddress(t)
			s := serveAt(t, dir, address)
			p := startTool(t, address)
			a := p.agent()
			a.create(t.Context(), "before").is(t, oncegrpc.OutcomeExecuted)
			end(s)
			refused(t, a.create(t.Context(), "k").err, codes.Unavailable, "ONCED_UNAVAILABLE")
			if list, err := a.tickets.ListTickets(t.Context(), &ticketsv1.ListTicketsRequest{Project: aTicket().GetProject()}); err != nil || len(list.GetTickets()) != 1 {
				t.Errorf("with onced down there are %v, %v, want the ticket from before", list, err)
			}
			serveAt(t, dir, address)
			a.create(t.Context(), "k").is(t, oncegrpc.OutcomeExecuted)
			a.create(t.Context(), "before").is(t, oncegrpc.OutcomeReplayed)
			effected(t, ticketCreated, 2, p)
		})
	}
}

// Answers and failures are replayed as they were when onced and the tool have been
// restarted, and other arguments are still refused.
func TestR49_ReplayAfterRestarts(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, address, archive := newStore(t), freeAddress(t), &ticketsv1.CreateTicketRequest{Project: "archive", Title: "once"}
			s := serveAt(t, dir, address)
			p := startTool(t, address)
			created := p.agent().create(t.Context(), "k")
			created.is(t, oncegrpc.OutcomeExecuted)
			failed := p.agent().ask(t.Context(), "final", archive)
			end(p.process)
			end(s)

			serveAt(t, dir, address)
			next := startTool(t, address)
			a := next.agent()
			again := a.create(t.Context(), "k")
			if !proto.Equal(again.is(t, oncegrpc.OutcomeReplayed), created.ticket) {
				t.Errorf("the replay is %v, and the answer was %v", again.ticket, created.ticket)
			}
			sameTime(t, again, created)
			replay := a.ask(t.Context(), "final", archive)
			if status.Code(failed.err) != codes.FailedPrecondition || !proto.Equal(status.Convert(replay.err).Proto(), status.Convert(failed.err).Proto()) {
				t.Errorf("the replay is %v, and the failure was %v", replay.err, failed.err)
			}
			if failed.outcome() != oncegrpc.OutcomeExecuted || replay.outcome() != oncegrpc.OutcomeReplayed {
				t.Errorf("the failure is %q and its replay %q", failed.outcome(), replay.outcome())
			}
			sameTime(t, replay, failed)
			for _, key := range []string{"k", "final"} {
				other := a.ask(t.Context(), key, &ticketsv1.CreateTicketRequest{Project: "onced", Title: "another"})
				refused(t, other.err, codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
			}
			effected(t, ticketCreated, 1, p, next)
		})
	}
}

// sameTime demands that an answer names the same first claim as an earlier one.
func sameTime(t *testing.T, now, then filing) {
	t.Helper()
	was, is := then.header.Get(oncegrpc.HeaderFirstClaimTime), now.header.Get(oncegrpc.HeaderFirstClaimTime)
	if len(was) != 1 || len(is) != 1 || was[0] != is[0] {
		t.Errorf("the answers say that they were first claimed at %v and %v", was, is)
	}
}

// Ten callers at once, over two processes of the tool: one ticket, which all of them get.
func TestTicketsConcurrentCallers(t *testing.T) {
	t.Parallel()
	s := serve(t, newStore(t))
	tools := []*tool{startTool(t, s.GRPC, "--delay", "50ms"), startTool(t, s.GRPC, "--delay", "50ms")}
	got := make([]filing, 10)
	var all sync.WaitGroup
	for n := range got {
		a := tools[n%len(tools)].agent()
		all.Go(func() { got[n] = a.insist("k") })
	}
	all.Wait()
	count := map[string]int{}
	for _, f := range got {
		if f.err != nil || !proto.Equal(f.ticket, got[0].ticket) {
			t.Errorf("a caller got %v, %v, and another %v", f.ticket, f.err, got[0].ticket)
		}
		count[f.outcome()]++
	}
	if count[oncegrpc.OutcomeExecuted] != 1 || count[oncegrpc.OutcomeReplayed] != len(got)-1 {
		t.Errorf("the answers are %v, want one that is executed", count)
	}
	effected(t, ticketCreated, 1, tools...)
}
