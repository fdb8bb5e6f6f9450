package arch

import (
	"strings"
	"testing"
	"testing/fstest"
)

// plant makes a tree of files given as path and content in turn.
func plant(t *testing.T, pairs ...string) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return load(t, fsys)
}

// TestPlanted shows that each rule finds what it forbids and lets pass what only
// looks like it.
func TestPlanted(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule string
		path string
		text string
		want string // part of the only finding; "" for none
	}{
		{"root imports grpc", "imports", "a.go", `package onced; import "google.golang.org/grpc/codes"`, `may not import "google.golang.org/grpc/codes"`},
		{"root imports own", "imports", "a.go", `package onced; import "github.com/onced/onced/storage"`, `may not import`},
		{"root does I/O", "imports", "a.go", `package onced; import "os"`, `may not import "os"`},
		{"root draws lots", "imports", "a.go", `package onced; import "math/rand/v2"`, `may not import`},
		{"root imports time", "imports", "a.go", `package onced; import "time"`, ``},
		{"root under a tag", "imports", "a.go", "//go:build faults\n\npackage onced; import \"os\"", `may not import "os"`},
		{"root test imports rapid", "imports", "a_test.go", `package onced; import "pgregory.net/rapid"`, ``},
		{"fingerprint imports grpc", "imports", "fingerprint/a.go", `package fingerprint; import "google.golang.org/grpc"`, `fingerprint may not import`},
		{"storage imports protobuf", "imports", "storage/a.go", `package storage; import "google.golang.org/protobuf/proto"`, `storage may not import`},
		{"bolt imports memory", "imports", "storage/bolt/a.go", `package bolt; import "github.com/onced/onced/storage/memory"`, `storage/bolt may not import`},
		{"bolt imports the wire", "imports", "storage/bolt/a.go", `package bolt; import "github.com/onced/onced/gen/onced/v1"`, `storage/bolt may not import`},
		{"bolt imports its engine", "imports", "storage/bolt/a.go", `package bolt; import "go.etcd.io/bbolt"`, ``},
		{"server imports a backend", "imports", "server/a.go", `package server; import "github.com/onced/onced/storage/bolt"`, `server may not import`},
		{"server imports the client", "imports", "server/sweep/a.go", `package sweep; import "github.com/onced/onced/client"`, `server/sweep may not import`},
		{"client imports bbolt", "imports", "client/a.go", `package client; import "go.etcd.io/bbolt"`, `client may not import`},
		{"client imports storage", "imports", "client/a.go", `package client; import "github.com/onced/onced/storage"`, `client may not import`},
		{"command imports a test", "imports", "cmd/onced/a.go", `package main; import "github.com/onced/onced/test/e2e"`, `cmd/onced may not import`},
		{"command imports a backend", "imports", "cmd/onced/a.go", `package main; import "github.com/onced/onced/storage/bolt"`, ``},
		{"folder without a row", "imports", "util/a.go", `package util`, `no row of importRules`},

		{"clock called", "calls", "server/a.go", `package server; import "time"; var a = time.Now()`, `time.Now is forbidden`},
		{"clock as a value", "calls", "storage/memory/a.go", `package memory; import "time"; var now = time.Now`, `time.Now is forbidden`},
		{"clock renamed", "calls", "a.go", `package onced; import clock "time"; var a = clock.Since`, `time.Since is forbidden`},
		{"clock by a dot", "calls", "server/a.go", `package server; import . "time"; var a = Now`, `import "time" under its name`},
		{"clock in the client", "calls", "client/a.go", `package client; import "time"; var a = time.Now()`, ``},
		{"clock in a test", "calls", "server/a_test.go", `package server; import "time"; var a = time.Now()`, ``},
		{"clock of another name", "calls", "a.go", `package onced; func f(time struct{ Now int }) int { return time.Now }`, ``},
		{"timer in the root", "calls", "a.go", `package onced; import "time"; var a = time.AfterFunc`, `time.AfterFunc is forbidden`},
		{"timer in the server", "calls", "server/a.go", `package server; import "time"; var a = time.NewTimer`, ``},
		{"panic", "calls", "storage/bolt/a.go", `package bolt; func f() { panic("x") }`, `panic is forbidden`},
		{"recover", "calls", "storage/bolt/a.go", `package bolt; func f() { recover() }`, ``},
		{"print", "calls", "fingerprint/a.go", `package fingerprint; import "fmt"; func f() { fmt.Println() }`, `fmt.Println is forbidden`},
		{"format", "calls", "fingerprint/a.go", `package fingerprint; import "fmt"; var a = fmt.Sprint()`, ``},
		{"exit", "calls", "server/ops/a.go", `package ops; import "os"; func f() { os.Exit(1) }`, `os.Exit is forbidden`},
		{"fatal", "calls", "server/a.go", `package server; import "log"; func f() { log.Fatalf("") }`, `log.Fatalf is forbidden`},

		{"sleep in a test", "test sleep", "client/a_test.go", `package client; import "time"; func f() { time.Sleep(1) }`, `time.Sleep is forbidden`},
		{"sleep in a test helper", "test sleep", "test/e2e/a.go", `package e2e; import "time"; func f() { time.Sleep(1) }`, `time.Sleep is forbidden`},
		{"sleep in a command", "test sleep", "cmd/once/a.go", `package main; import "time"; func f() { time.Sleep(1) }`, ``},

		{"long file", "file size", "a.go", "package onced\n" + strings.Repeat("\n", maxLines), `601 lines`},
		{"file at the limit", "file size", "a.go", "package onced\n" + strings.Repeat("\n", maxLines-1), ``},
		{"long generated file", "file size", "a.go", "// Code generated by x. DO NOT EDIT.\n\npackage onced\n" + strings.Repeat("\n", maxLines), ``},

		{"path of a machine", "text", "docs/a.md", "a\nsee /work" + "/main\n", `docs/a.md:2: a path of one machine`},
		{"lock file", "text", "tools/x/package-lock.json", `"resolved` + `": "https://example.org/x.tgz"`, `download addresses`},
		{"binary file", "text", "a.bin", "\x00/work" + "/", ``},
		{"folder that is not ours", "text", "tools/x/node_modules/a.json", "/work" + "/", ``},

		{"package comment", "docs", "client/a.go", `package client`, `no file of this package has a package comment`},
		{"function", "docs", "client/a.go", "// Package client is x.\npackage client\nfunc F() {}", `exported F has no comment`},
		{"directive is no comment", "docs", "client/a.go", "// Package client is x.\npackage client\n//go:noinline\nfunc F() {}", `exported F has no comment`},
		{"method", "docs", "client/a.go", "// Package client is x.\npackage client\n// T is x.\ntype T[K any] struct{}\nfunc (t *T[K]) M() {}", `exported M has no comment`},
		{"method of an unexported type", "docs", "client/a.go", "// Package client is x.\npackage client\ntype t struct{}\nfunc (t) M() {}", ``},
		{"type in a group", "docs", "client/a.go", "// Package client is x.\npackage client\n// Types.\ntype (\n\tT int\n)", `exported T has no comment`},
		{"interface method", "docs", "storage/a.go", "// Package storage is x.\npackage storage\n// T is x.\ntype T interface { M() }", `exported M has no comment`},
		{"interface method with a comment behind", "docs", "storage/a.go", "// Package storage is x.\npackage storage\n// T is x.\ntype T interface {\n\tM() // does x\n}", ``},
		{"constant", "docs", "client/a.go", "// Package client is x.\npackage client\nconst A = 1", `exported A has no comment`},
		{"constants of a group", "docs", "client/a.go", "// Package client is x.\npackage client\n// Bounds.\nconst (\n\tA = 1\n\tB = 2\n)", ``},
		{"command", "docs", "cmd/once/a.go", "// Command once is x.\npackage main\nfunc F() {}", ``},
		{"generated", "docs", "client/a.go", "// Code generated by x. DO NOT EDIT.\n\npackage client\nfunc F() {}", ``},
	} {
		t.Run(tc.rule+"/"+tc.name, func(t *testing.T) {
			found := rules[tc.rule](plant(t, tc.path, tc.text))
			switch {
			case tc.want == "" && len(found) > 0:
				t.Errorf("found %v, want nothing", found)
			case tc.want != "" && (len(found) != 1 || !strings.Contains(found[0].String(), tc.want)):
				t.Errorf("found %v, want one finding with %q", found, tc.want)
			}
		})
	}
}

// TestPlantedModule shows that a module below the root one has import rules of
// its own, while the rules on tests hold there too.
func TestPlantedModule(t *testing.T) {
	nested := plant(
		t,
		"test/etcd/go.mod", "module example.org/x",
		"test/etcd/deep/a_test.go", `package etcd; import "time"; func f() { time.Sleep(1) }`,
		"test/etcd/a.go", `package etcd; import "go.etcd.io/etcd/server/v3"`,
		"tools/x/go.mod", "module example.org/y",
		"tools/x/main.go", `package main`,
	)
	if found := checkImports(nested); len(found) > 0 {
		t.Errorf("imports of nested modules: %v, want none", found)
	}
	if found := checkTestSleep(nested); len(found) != 1 {
		t.Errorf("sleeping tests: %v, want one", found)
	}
}

// TestListing pins the form of an API listing.
func TestListing(t *testing.T) {
	const code = `package client

import "context"

const (
	A State = iota + 1
	B
	c
)

const Max, min = 512, 1

var ErrGone = errors.New("gone")

var Default Options

type State int
type Alias = State

type Options struct {
	Lease, Wait time.Duration
	Hook func(name string) error
	hidden int
	*Embedded
}

type Store interface {
	Update(ctx context.Context, ids ...string) (now int64, err error)
	secret()
}

func Do[T any, K ~string](ctx context.Context, a, b K, fn func(context.Context) (T, error)) (*Outcome[T], error) { return nil, nil }
func hidden() {}

type Outcome[T any] struct{ Value T }

func (o *Outcome[T]) Replayed() bool { return false }
func (o *outcome) Replayed() bool { return false }
`
	const want = `const A State = iota + 1
const B State
const Max = 512
func Do[T any, K ~string](context.Context, K, K, func(context.Context) (T, error)) (*Outcome[T], error)
method (*Outcome[T]) Replayed() bool
type Alias = State
type Options struct
type Options struct, Hook func(name string) error
type Options struct, Lease time.Duration
type Options struct, Wait time.Duration
type Options struct, embeds *Embedded
type Outcome struct, Value T
type Outcome[T any] struct
type State int
type Store interface
type Store interface, Update(context.Context, ...string) (int64, error)
type Store interface, unexported methods
var Default Options
var ErrGone
`
	planted := plant(t, "client/a.go", code, "client/a_test.go", "package client\nfunc Helper() {}")
	if got := listAPI(planted, "client"); got != want {
		t.Errorf("listing differs:\n%s", diff(want, got))
	}
	if got := listAPI(planted, "server"); got != "" {
		t.Errorf("a package that does not exist is listed as %q", got)
	}
}
