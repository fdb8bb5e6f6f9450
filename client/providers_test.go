package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errNoAnswer is what a caller of a provider gets whose answer was lost.
var errNoAnswer = errors.New("the provider gave no answer")

// provider is an outside system, and the way to it. What the systems have in common:
// effects that are counted, requests that are on their way for as long as the test
// says, and answers that get lost. It is safe for concurrent use.
type provider struct {
	mu      sync.Mutex
	calls   int      // whatever was sent, look-ups too
	ledger  []string // the effects, each by what it was made with
	holding bool
	onWire  []func()
	losing  int
}

// do sends a request whose effect happens when it lands.
func (p *provider) do(ctx context.Context, land func()) error {
	p.mu.Lock()
	p.calls++
	if p.holding {
		p.onWire = append(p.onWire, land)
		p.mu.Unlock()
		<-ctx.Done()
		return errors.Join(errNoAnswer, ctx.Err())
	}
	defer p.mu.Unlock()
	land()
	if p.losing > 0 {
		p.losing--
		return errNoAnswer
	}
	return nil
}

// hold keeps what is sent from now on on its way, until land.
func (p *provider) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = true
}

// pass lets what is sent from now on through. What is on its way stays there.
func (p *provider) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = false
}

// land lets arrive what is on its way. Nobody waits for the answers any more.
func (p *provider) land() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, land := range p.onWire {
		land()
	}
	p.onWire = nil
}

// lose loses the next n answers.
func (p *provider) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing = n
}

// effects returns how many there were.
func (p *provider) effects() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ledger)
}

// asked returns how often the provider was called.
func (p *provider) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// mailAPI sends mail. It has no keys of its own; what was sent is found by a header
// that the sender sets.
type mailAPI struct{ provider }

// send is one mail more, each time.
func (m *mailAPI) send(ctx context.Context, reference string) (id string, err error) {
	err = m.do(ctx, func() {
		m.ledger = append(m.ledger, reference)
		id = fmt.Sprintf("mail %d", len(m.ledger))
	})
	return id, err
}

// sent finds the mails with a reference.
func (m *mailAPI) sent(ctx context.Context, reference string) (ids []string, err error) {
	err = m.do(ctx, func() {
		for i, r := range m.ledger {
			if r == reference {
				ids = append(ids, fmt.Sprintf("mail %d", i+1))
			}
		}
	})
	return ids, err
}

// crmAPI keeps tickets, which are looked up by the id of the operation that made
// them. A create shows in look-ups only after the lag.
type crmAPI struct {
	provider
	lag     time.Duration
	created []time.Time
}

// create is one ticket more, each time.
func (c *crmAPI) create(ctx context.Context, operationID string) (ticket string, err error) {
	err = c.do(ctx, func() {
		c.ledger, c.created = append(c.ledger, operationID), append(c.created, time.Now())
		ticket = fmt.Sprintf("ticket %d", len(c.ledger))
	})
	return ticket, err
}

// find finds the tickets of an operation, as far as the look-up knows them yet.
func (c *crmAPI) find(ctx context.Context, operationID string) (tickets []string, err error) {
	err = c.do(ctx, func() {
		for i, id := range c.ledger {
			if id == operationID && time.Since(c.created[i]) >= c.lag {
				tickets = append(tickets, fmt.Sprintf("ticket %d", i+1))
			}
		}
	})
	return tickets, err
}

// paymentAPI charges. It recognises a key that it was sent within the window, and
// answers what it answered then.
type paymentAPI struct {
	provider
	window time.Duration
	known  map[string]charge
}

type charge struct {
	id string
	at time.Time
}

func newPaymentAPI() *paymentAPI {
	return &paymentAPI{window: 24 * time.Hour, known: map[string]charge{}}
}

// charge is one charge for each key, as long as the key is known.
func (a *paymentAPI) charge(ctx context.Context, key string) (id string, err error) {
	err = a.do(ctx, func() {
		first, found := a.known[key]
		if !found || time.Since(first.at) >= a.window {
			a.ledger = append(a.ledger, key)
			first = charge{id: fmt.Sprintf("charge %d", len(a.ledger)), at: time.Now()}
			a.known[key] = first
		}
		id = first.id
	})
	return id, err
}
