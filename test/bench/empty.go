package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The command is also the empty server: a child process with this variable set.
const (
	roleVariable = "ONCED_BENCH_ROLE"
	roleEmpty    = "empty"
	emptyMethod  = "/bench.Empty/Call"
)

// emptyService has one method that does nothing: what it costs is what gRPC costs.
var emptyService = grpc.ServiceDesc{
	ServiceName: "bench.Empty", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return &emptypb.Empty{}, decode(&emptypb.Empty{})
		},
	}},
}

// serveEmpty serves on any port, which it prints, until standard input ends: with
// the process that started it.
func serveEmpty() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitNotRun
	}
	fmt.Println(l.Addr())
	s := grpc.NewServer()
	s.RegisterService(&emptyService, struct{}{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		s.Stop()
	}()
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitNotRun
	}
	return 0
}

// startEmpty starts the empty server in a child process and connects to it.
func (r *rig) startEmpty(conns int) ([]*grpc.ClientConn, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), roleVariable+"="+roleEmpty)
	child.Stderr = os.Stderr
	stdin, inErr := child.StdinPipe()
	stdout, outErr := child.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func() {
		_ = stdin.Close()
		_ = child.Wait()
	})
	b := make([]byte, 64) // one line, written at once
	n, err := stdout.Read(b)
	if err != nil {
		return nil, fmt.Errorf("the empty server did not start: %w", err)
	}
	return r.connect(strings.TrimSpace(string(b[:n])), conns)
}

// callEmpty calls the method that does nothing.
func callEmpty(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return conn.Invoke(ctx, emptyMethod, &emptypb.Empty{}, &emptypb.Empty{})
}
