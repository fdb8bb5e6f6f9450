package e2e

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the console blocks of the documentation with what the commands print now")

const fence = "```"

// Addresses in blocks, which stand for others when they are run.
const (
	documentedServer  = "127.0.0.1:7443" // of onced
	documentedExample = "127.0.0.1:7444" // of the program that an example is
)

// TestDocs runs every fenced console block of the README, of docs/ and of the examples'
// READMEs, and compares what the commands print. The blocks of one file share a folder
// and run in order. A line that begins with "$ " is a command, and goes on in the
// next line where it ends in a backslash; one that ends in " &" is a server that
// runs until the end of the file. What differs from run to run (times, fences,
// digests of random tokens) is compared by its form.
func TestDocs(t *testing.T) {
	for _, path := range documents(t) {
		name, _ := filepath.Rel(root, path)
		t.Run(name, func(t *testing.T) { runDocument(t, path) })
	}
}

// root is that of the repository.
var root = filepath.Join("..", "..")

func documents(t *testing.T) []string {
	t.Helper()
	paths := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	examples, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, examples...)
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// session runs the blocks of one document.
type session struct {
	t         *testing.T
	dir       string
	address   string // of onced
	addresses []standIn
	env       []string
}

// standIn is an address in blocks, and the one that it stands for.
type standIn struct{ documented, real string }

func runDocument(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "$ grpcurl ") {
		requireGrpcurl(t)
	}
	s := newSession(t)
	var out strings.Builder
	lines := strings.SplitAfter(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i])
		if strings.TrimSpace(lines[i]) != fence+"console" {
			continue
		}
		end := i + 1
		for end < len(lines) && strings.TrimSpace(lines[end]) != fence {
			end++
		}
		want, got := strings.Join(lines[i+1:end], ""), s.block(lines[i+1:end])
		switch {
		case got == "":
			t.Errorf("%s:%d: the block has no command", path, i+1)
		case canonical(want) == canonical(got):
			got = want
		case !*update:
			t.Errorf("%s:%d: the block reads\n%s\nand its commands print\n%s\nrun go test ./test/e2e -run TestDocs -update if that is right",
				path, i+2, want, got)
		}
		out.WriteString(got)
		i = end - 1
	}
	if *update && out.String() != string(text) {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func newSession(t *testing.T) *session {
	address := freeAddress(t)
	return &session{
		t: t, dir: t.TempDir(), address: address,
		addresses: []standIn{{documentedServer, address}, {documentedExample, freeAddress(t)}},
		env:       append(os.Environ(), "ONCED_LISTEN="+address, "ONCED_SERVER="+address),
	}
}

// block runs the commands among the lines and returns the block as it reads now.
func (s *session) block(lines []string) string {
	var out strings.Builder
	for len(lines) > 0 {
		n := 1
		if strings.HasPrefix(lines[0], "$ ") {
			for n < len(lines) && strings.HasSuffix(lines[n-1], "\\\n") {
				n++
			}
			text := strings.Join(lines[:n], "")
			out.WriteString(text)
			command := strings.TrimSpace(strings.TrimPrefix(text, "$ "))
			printed := s.run(command)
			for _, a := range s.addresses {
				printed = strings.ReplaceAll(printed, a.real, a.documented)
			}
			out.WriteString(printed)
		}
		lines = lines[n:]
	}
	return out.String()
}

func (s *session) run(command string) string {
	for _, a := range s.addresses {
		command = strings.ReplaceAll(command, a.documented, a.real)
	}
	if background, ok := strings.CutSuffix(command, " &"); ok {
		return s.start(background)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := s.command(exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command))
	b, err := cmd.CombinedOutput()
	out := string(b)
	if ctx.Err() != nil {
		s.t.Errorf("%s: did not end", command)
	}
	if err != nil && !strings.Contains(command, "echo $?") && !strings.Contains(command, "|| ") {
		s.t.Errorf("%s: %v\n%s", command, err, out)
	}
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	return out
}

// start runs a server until the end of the document, waits until onced serves, and every
// address that the command names, and returns nothing: its log is not part of the
// document.
func (s *session) start(command string) string {
	cmd := s.command(exec.Command("bash", "-c", "exec "+command))
	var log lockedBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", command, log.tail(50))
		}
	})
	serves := []string{s.address}
	for _, a := range s.addresses {
		if strings.Contains(command, a.real) {
			serves = append(serves, a.real)
		}
	}
	eventually(s.t, fmt.Sprintf("%s to serve", command), func() bool {
		return !slices.ContainsFunc(serves, func(address string) bool { return !reachable(address) })
	})
	return ""
}

func reachable(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func (s *session) command(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// volatile is what differs between two runs of the same commands. Columns are as
// wide as what stands in them.
var volatile = []struct {
	pattern *regexp.Regexp
	form    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{6,}-[0-9a-f]{12,}-[0-9a-f]+\b`), "ETAG"},
	{regexp.MustCompile(`\b\d{18,20}\b`), "FENCE"},
	{regexp.MustCompile(`\b1[0-9]{9}\b`), "GENERATION"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s)\b`), "DURATION"},
	{regexp.MustCompile(`[A-Za-z0-9+/]{43}=`), "DIGEST"},
	{regexp.MustCompile(`\b\d{5,} bytes\b`), "PAGES"},

	// What once demo says of its processes. Two of its lines are there only if the
	// machine was fast enough.
	{regexp.MustCompile(`(?m)^ +(IN_PROGRESS: the lease|Takeover NOT_YET).*\n`), ""},
	{regexp.MustCompile(`(?m)[Pp]rocess \d+( at [\d.:]+, with a store in .*$)?`), "PROCESS"},
	{regexp.MustCompile(`\d executed, \d replayed`), "COUNTS"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func canonical(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.form)
	}
	return strings.TrimRight(text, "\n")
}
