package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"google.golang.org/grpc"
)

// roleVariable says which server this program is in a child process of its own.
const roleVariable = "ONCED_BENCH_ROLE"

// The roles.
const (
	roleEmpty = "empty"
	roleTool  = "tool"
)

// inRole is the whole program in a role. ok is false in none.
func inRole(args []string) (status int, ok bool) {
	var err error
	switch os.Getenv(roleVariable) {
	case roleEmpty:
		err = serveEmpty()
	case roleTool:
		err = serveTool(args)
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitNotRun, true
	}
	return exitMet, true
}

// serveChild serves on any ports, which it prints on one line, until standard input
// ends: with the process that started it.
func serveChild(servers ...*grpc.Server) error {
	var addresses []string
	ended := make(chan error, len(servers))
	for _, s := range servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		addresses = append(addresses, l.Addr().String())
		go func() { ended <- s.Serve(l) }()
	}
	fmt.Println(strings.Join(addresses, " "))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		for _, s := range servers {
			s.Stop()
		}
	}()
	var err error
	for range servers {
		err = errors.Join(err, <-ended)
	}
	return err
}

// startChild starts this program in a role and returns the addresses that it serves.
func (r *rig) startChild(role string, args ...string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self, args...)
	child.Env = append(os.Environ(), roleVariable+"="+role)
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
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the %s server did not start: %w", role, err)
	}
	return strings.Fields(line), nil
}
