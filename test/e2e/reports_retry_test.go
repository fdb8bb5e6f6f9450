package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onced/onced/client"
)

// Go's own HTTP transport sends a POST again, without asking, when it has an
// idempotency key and breaks off on a connection that was in use before. Wherever
// it broke off, the tool runs once. What a tool passes on to others is another
// matter, and no part of this.
func TestR42_TransportSendsAgain(t *testing.T) {
	s := serve(t, newStore(t))
	for name, cut := range map[string]struct {
		at       cutAt
		replayed bool
	}{
		"before it is passed on": {cutBefore, false},
		"while it runs":          {cutDuring, true},
		"after the effect":       {cutAfter, true},
	} {
		for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			t.Run(name+" "+header, func(t *testing.T) {
				web := newWebTool(t, s.client(), header)
				web.warm(t, nil)
				web.proxy.next.Store(int32(cut.at))
				answer, replayed, err := web.post(t, "k", nil)
				if err != nil || answer != "done" || replayed != cut.replayed {
					t.Errorf("the caller got %q, replayed %v, %v; want the result, replayed %v", answer, replayed, err, cut.replayed)
				}
				web.saw(t, 2, 1)
			})
		}
	}
}

// A POST that the transport does not send again, for want of such a header or of a
// second copy of its body, ends in an error that says nothing of the effect: the
// caller sends it again himself, under its key.
func TestR42_CallerSendsAgain(t *testing.T) {
	s := serve(t, newStore(t))
	for name, c := range map[string]struct {
		header string
		change func(*http.Request)
	}{
		"another header": {"Operation-Key", nil},
		"body read once": {"Idempotency-Key", func(r *http.Request) { r.GetBody = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			web := newWebTool(t, s.client(), c.header)
			web.warm(t, c.change)
			web.proxy.next.Store(int32(cutAfter))
			if answer, _, err := web.post(t, "k", c.change); err == nil {
				t.Errorf("the connection was cut, and the caller got %q", answer)
			}
			web.saw(t, 1, 1)
			if answer, replayed, err := web.post(t, "k", c.change); err != nil || answer != "done" || !replayed {
				t.Errorf("the caller's own retry got %q, replayed %v, %v; want the replay", answer, replayed, err)
			}
			web.saw(t, 2, 1)
		})
	}
}

// webTool is a tool backend that speaks HTTP, as people build one, behind a proxy,
// with a caller of it.
type webTool struct {
	runs
	header string // that carries the key
	client *client.Client
	proxy  *cuttingProxy
	caller *http.Client
	server *httptest.Server
}

func newWebTool(t *testing.T, c *client.Client, header string) *webTool {
	t.Helper()
	web := &webTool{header: header, client: c}
	web.server = httptest.NewServer(web)
	web.proxy = newCuttingProxy(t, web.server.URL)
	transport := &http.Transport{}
	web.caller = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		web.proxy.close()
		web.server.Close()
	})
	return web
}

// ServeHTTP runs the act of a request under its key.
func (web *webTool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call := client.Call{Key: r.Header.Get(web.header), Method: "act", Fingerprints: arguments(string(body))}
	out, err := client.Do(r.Context(), web.client, call, func(ctx context.Context, _ *client.Claim) (string, error) {
		web.n.Add(1)
		web.proxy.runs(ctx)
		return "done", nil
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if out.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	fmt.Fprint(w, out.Value)
}

// post calls the tool through the proxy.
func (web *webTool) post(t *testing.T, key string, change func(*http.Request)) (answer string, replayed bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, web.proxy.url(), strings.NewReader("arguments of "+key))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(web.header, key+" of "+t.Name())
	if change != nil {
		change(req)
	}
	resp, err := web.caller.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return string(b), resp.Header.Get("Idempotent-Replayed") != "", err
}

// warm makes a first call, whose connection is in use before the next.
func (web *webTool) warm(t *testing.T, change func(*http.Request)) {
	t.Helper()
	if answer, replayed, err := web.post(t, "warm", change); err != nil || answer != "done" || replayed {
		t.Fatalf("the first call got %q, replayed %v, %v", answer, replayed, err)
	}
}

// saw demands how many requests there were on the wire and how many executions,
// those of the first call aside.
func (web *webTool) saw(t *testing.T, requests, executions int32) {
	t.Helper()
	t.Logf("wire requests=%d", web.proxy.requests.Load()-1)
	if got := web.proxy.requests.Load() - 1; got != requests {
		t.Errorf("%d requests on the wire, want %d", got, requests)
	}
	executed(t, int(web.n.Load())-1, int(executions))
}

// cutAt is where a proxy cuts a call off.
type cutAt int32

const (
	cutNever cutAt = iota
	cutBefore
	cutDuring
	cutAfter
)

// cuttingProxy passes requests on, and closes the caller's connection after having
// read the request of the next call that it is to cut off.
type cuttingProxy struct {
	listener net.Listener
	backend  string
	requests atomic.Int32 // that it has read
	next     atomic.Int32 // the cutAt of the next request
	during   atomic.Bool  // a call is to be cut off while it runs
	begun    chan struct{}
	serving  sync.WaitGroup
}

func newCuttingProxy(t *testing.T, backend string) *cuttingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cuttingProxy{listener: l, backend: backend, begun: make(chan struct{})}
	p.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.serve(conn) })
		}
	})
	return p
}

func (p *cuttingProxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *cuttingProxy) close() {
	p.listener.Close()
	p.serving.Wait()
}

// runs is called by the tool when it runs, under the context of its request: if that
// is to be cut off meanwhile, it waits until it is.
func (p *cuttingProxy) runs(ctx context.Context) {
	if p.during.Swap(false) {
		p.begun <- struct{}{}
		<-ctx.Done()
	}
}

// serve answers the requests of one connection.
func (p *cuttingProxy) serve(conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		p.requests.Add(1)
		at := cutAt(p.next.Swap(int32(cutNever)))
		if at == cutBefore {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		if p.during.Store(at == cutDuring); at == cutDuring {
			p.serving.Go(func() {
				select {
				case <-p.begun:
					conn.Close()
					cancel()
				case <-ctx.Done():
				}
			})
		}
		resp, err := p.pass(ctx, req, body)
		if err == nil && at == cutNever {
			err = resp.Write(conn)
		}
		cancel()
		if err != nil || at != cutNever {
			return
		}
	}
}

// pass has the tool answer a request, and returns its whole answer.
func (p *cuttingProxy) pass(ctx context.Context, req *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, req.Method, p.backend, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header, out.Close = req.Header, true
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	resp.Body, resp.ContentLength, resp.Close = io.NopCloser(bytes.NewReader(b)), int64(len(b)), false
	return resp, err
}
