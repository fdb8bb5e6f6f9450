package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onced/onced/client"
	oncedv1 "github.com/onced/onced/gen/onced/v1"
)

// The test binary run again with E2E_ROLE is another process of a test: a caller
// that is told what to do by lines on its standard input and answers each with a
// line on its standard output.
var roles = map[string]func(r *role) error{
	"claim": claimRole,
	"do":    doRole,
	"hold":  holdRole,
	"work":  workRole,
}

// role is the process that plays one.
type role struct {
	conn  *grpc.ClientConn
	lines *bufio.Scanner
}

func runRole(name string) int {
	conn, err := grpc.NewClient(os.Getenv("ONCED_SERVER"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		err = roles[name](&role{conn: conn, lines: bufio.NewScanner(os.Stdin)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		return 1
	}
	return 0
}

// claimRole claims the key of each line eight times at once, and answers with
// the number of each outcome.
func claimRole(r *role) error {
	stub := oncedv1.NewIdempotencyServiceClient(r.conn)
	for r.lines.Scan() {
		var (
			mu    sync.Mutex
			count = map[string]int{}
			all   sync.WaitGroup
		)
		for range 8 {
			all.Go(func() {
				resp, err := stub.Claim(context.Background(), claimOf(r.lines.Text()))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					count[err.Error()]++
					return
				}
				count[resp.GetOutcome().String()]++
			})
		}
		all.Wait()
		if err := json.NewEncoder(os.Stdout).Encode(count); err != nil {
			return err
		}
	}
	return r.lines.Err()
}

// doRole runs the act of each line five times at once: it appends to the ledger
// that ONCED_LEDGER names. It answers with the number of executions and replays.
func doRole(r *role) error {
	c := client.New(r.conn)
	for r.lines.Scan() {
		var (
			mu    sync.Mutex
			count = map[string]int{}
			all   sync.WaitGroup
		)
		for range 5 {
			all.Go(func() {
				call := client.Call{Key: r.lines.Text(), Method: "act"}
				out, err := client.Do(context.Background(), c, call, func(context.Context, *client.Claim) (string, error) {
					return "done", appendLine(os.Getenv("ONCED_LEDGER"), r.lines.Text())
				})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					count[err.Error()]++
				case out.Value != "done":
					count["wrong result "+out.Value]++
				case out.Replayed:
					count["replays"]++
				default:
					count["executions"]++
				}
			})
		}
		all.Wait()
		if err := json.NewEncoder(os.Stdout).Encode(count); err != nil {
			return err
		}
	}
	return r.lines.Err()
}

// workRole executes the key of a line under a lease of two seconds: it appends to
// the ledger and answers "running". On "wait" it waits until it is told to stop,
// and says why; any other line is the result. Then it answers what became of that.
func workRole(r *role) error {
	c := client.New(r.conn, client.WithHolder("host-1"))
	for r.lines.Scan() {
		call := client.Call{Key: r.lines.Text(), Method: "act", Lease: 2 * time.Second}
		_, err := client.Do(context.Background(), c, call, func(ctx context.Context, _ *client.Claim) (string, error) {
			err := errors.Join(appendLine(os.Getenv("ONCED_LEDGER"), call.Key), r.answer("running"))
			for err == nil && r.lines.Scan() {
				if r.lines.Text() != "wait" {
					return r.lines.Text(), nil
				}
				<-ctx.Done()
				err = r.answer(wordFor(context.Cause(ctx)))
			}
			return "", errors.Join(err, r.lines.Err())
		})
		if err := r.answer(wordFor(err)); err != nil {
			return err
		}
	}
	return r.lines.Err()
}

// wordFor says in a word how a call ended.
func wordFor(err error) string {
	switch {
	case err == nil:
		return "settled"
	case errors.As(err, new(*client.ClaimLost)):
		return "lost"
	}
	return err.Error()
}

// answer answers a word.
func (r *role) answer(word string) error {
	return json.NewEncoder(os.Stdout).Encode(map[string]int{word: 1})
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// player is another process, as the test sees it.
type player struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startRole(t *testing.T, name string, s *process, env ...string) *player {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "E2E_ROLE="+name, "ONCED_SERVER="+s.GRPC)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(syscall.SIGCONT) // one that was stopped would never end
		_ = cmd.Wait()
	})
	return &player{t: t, cmd: cmd, in: in, out: json.NewDecoder(out)}
}

// tell gives the player a line.
func (p *player) tell(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
}

// answer waits for the player's answer.
func (p *player) answer() (count map[string]int) {
	p.t.Helper()
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.out.Decode(&count); err != nil {
		p.t.Fatal(err)
	}
	return count
}

// says waits for the player's answer and demands a word.
func (p *player) says(word string) {
	p.t.Helper()
	if got := p.answer(); !maps.Equal(got, map[string]int{word: 1}) {
		p.t.Fatalf("the other process answers %v, want %s", got, word)
	}
}

// signal sends a signal to the player.
func (p *player) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}
