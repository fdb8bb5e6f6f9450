package e2e

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // the client's; the server is another process
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// goesOn demands that the server serves as if nothing had been.
func (s *process) goesOn() {
	s.t.Helper()
	c := s.caller()
	req := claimOf(fmt.Sprintf("after-%d", rand.Uint64()))
	granted := c.granted(req)
	c.complete(completion(req, granted, "done"))
	if code, body := s.get("/livez"); code != http.StatusOK {
		s.t.Errorf("/livez answers %d %s", code, body)
	}
}

// What is not of the protocol ends its own connection and nothing else, on both
// listeners.
func TestGarbageOnTheWire(t *testing.T) {
	s := serve(t, newStore(t))
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rand.N(256))
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := string([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	for name, bytes := range map[string]string{
		"nothing": "", "a byte": "\x00", "noise": string(noise), "zeros": strings.Repeat("\x00", 64<<10),
		"HTTP/1": "GET / HTTP/1.1\r\nHost: onced\r\n\r\n", "half a request": "POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n",
		"a line without an end": "GET /" + strings.Repeat("a", 1<<20),
		"half a preface":        preface[:10], "a preface and noise": preface + string(noise),
		"a frame of 16 MiB": preface + settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"data on no stream": preface + settings + "\x00\x00\x01\x00\x00\x00\x00\x00\x05x",
		"broken headers":    preface + settings + "\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
		"TLS":               "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
	} {
		for _, address := range []string{s.GRPC, s.Ops} {
			t.Run(name+" to "+map[string]string{s.GRPC: "grpc", s.Ops: "ops"}[address], func(t *testing.T) {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = io.WriteString(c, bytes) // the server may hang up in the midst of it
				_ = c.(*net.TCPConn).CloseWrite()
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the server holds on to the connection")
				}
			})
		}
	}
	if _, err := tls.Dial("tcp", s.GRPC, &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("a listener in the clear answers TLS")
	}
	s.goesOn()
	s.stop()
}

// Connections that come and go leave nothing behind.
func TestManyConnections(t *testing.T) {
	const connections, together = 10_000, 50
	s := serve(t, newStore(t))
	s.goesOn()
	http.DefaultClient.CloseIdleConnections()
	goroutines, files := s.metric("go_goroutines"), s.metric("process_open_fds")
	var all sync.WaitGroup
	for range together {
		all.Go(func() {
			for i := range connections / together {
				c, err := net.Dial("tcp", []string{s.GRPC, s.Ops}[i%2])
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				if i%3 == 0 {
					_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
				}
				c.Close()
			}
		})
	}
	all.Wait()
	eventually(t, "the connections to leave nothing behind", func() bool {
		return s.metric("go_goroutines") < goroutines+together && s.metric("process_open_fds") < files+together
	})
	s.goesOn()
	s.stop()
}

// Requests that gRPC or its codecs cannot make sense of are refused by a code, and
// store nothing.
func TestBrokenRequests(t *testing.T) {
	s := serve(t, newStore(t))
	conn, c := s.conn(), s.caller()
	claim := oncedv1.IdempotencyService_Claim_FullMethodName
	for name, q := range map[string]struct {
		method string
		body   []byte
		want   []codes.Code
	}{
		"noise for a message":     {claim, []byte("\xff\xff\xff\xff"), []codes.Code{codes.Internal, codes.InvalidArgument}},
		"a length beyond its end": {claim, []byte{0x0a, 0x7f, 'x'}, []codes.Code{codes.Internal, codes.InvalidArgument}},
		"an empty message":        {claim, nil, []codes.Code{codes.InvalidArgument}},
		"nesting without end":     {claim, bytes.Repeat([]byte{0x0b}, 1<<20), []codes.Code{codes.Internal, codes.InvalidArgument}},
		"no such method":          {"/onced.v1.IdempotencyService/Steal", nil, []codes.Code{codes.Unimplemented}},
		"no such service":         {"/onced.v1.OtherService/Claim", nil, []codes.Code{codes.Unimplemented}},
		"a path that climbs":      {"/../../etc/passwd", nil, []codes.Code{codes.Unimplemented}},
	} {
		t.Run(name, func(t *testing.T) {
			var out []byte
			err := conn.Invoke(c.ctx(), q.method, q.body, &out, grpc.ForceCodec(rawCodec{}))
			for _, want := range q.want {
				if status.Code(err) == want {
					return
				}
			}
			t.Errorf("answered %v, want one of %v", err, q.want)
		})
	}
	t.Run("a compressed bomb", func(t *testing.T) {
		bomb := claimOf(strings.Repeat("x", 64<<20))
		_, err := c.stub.Claim(c.ctx(), bomb, grpc.UseCompressor("gzip"))
		if code := status.Code(err); code != codes.Unimplemented && code != codes.ResourceExhausted {
			t.Errorf("answered %v", err)
		}
	})
	t.Run("metadata without end", func(t *testing.T) {
		ctx := metadata.AppendToOutgoingContext(c.ctx(), "x-huge", strings.Repeat("x", 1<<20))
		if _, err := c.stub.Claim(ctx, claimOf("huge-metadata")); err == nil {
			t.Error("a megabyte of metadata was taken")
		}
		c.absent("huge-metadata")
	})
	s.goesOn()
	s.stop()
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (rawCodec) Name() string                    { return "proto" }

// HTTP/2 that is not gRPC is told so, and the operators' listener does nothing but
// what it is for.
func TestForeignHTTP(t *testing.T) {
	s := serve(t, newStore(t))
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	for name, q := range map[string]struct {
		transport                 http.RoundTripper
		method, url, content, raw string
		want                      int
	}{
		"JSON to gRPC":        {h2, "POST", "http://" + s.GRPC + "/onced.v1.IdempotencyService/Claim", "application/json", "{}", 415},
		"a form to gRPC":      {h2, "POST", "http://" + s.GRPC + "/onced.v1.IdempotencyService/Claim", "application/x-www-form-urlencoded", "a=b", 415},
		"GET of gRPC":         {h2, "GET", "http://" + s.GRPC + "/", "application/grpc", "", 405},
		"POST of the metrics": {http.DefaultTransport, "POST", "http://" + s.Ops + "/metrics", "text/plain", "x", 405},
		"DELETE of the probe": {http.DefaultTransport, "DELETE", "http://" + s.Ops + "/livez", "", "", 405},
		"another page":        {http.DefaultTransport, "GET", "http://" + s.Ops + "/etc/passwd", "", "", 404},
		"the command line":    {http.DefaultTransport, "GET", "http://" + s.Ops + "/debug/pprof/cmdline", "", "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), q.method, q.url, strings.NewReader(q.raw))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", q.content)
			resp, err := q.transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != q.want {
				t.Errorf("answered %s, want %d", resp.Status, q.want)
			}
		})
	}
	t.Run("a huge header", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Ops+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Huge", strings.Repeat("x", 1<<20))
		if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("answered %s, want 431", resp.Status)
			}
		}
	})
	s.goesOn()
	s.stop()
}
