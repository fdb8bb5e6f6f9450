package arch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the root module.
const module = "github.com/onced/onced"

// Third-party trees that a row of importRules may name.
const (
	bbolt      = "go.etcd.io/bbolt/..."
	errdetails = "google.golang.org/genproto/googleapis/rpc/..."
	grpc       = "google.golang.org/grpc/..."
	jsontext   = "github.com/go-json-experiment/json/jsontext"
	middleware = "github.com/grpc-ecosystem/go-grpc-middleware/v2/..."
	prometheus = "github.com/prometheus/client_golang/..."
	protobuf   = "google.golang.org/protobuf/..."
	xsys       = "golang.org/x/sys/..."
)

// importRule says what the files of one folder may import, tests left out.
type importRule struct {
	dir    string   // pattern of the folder, see matches
	own    []string // patterns of this module's folders
	not    []string // exceptions from own
	third  []string // patterns of third-party packages
	notStd []string // patterns of standard packages that are refused
}

// importRules is the architecture. The first row whose dir matches decides; a
// folder without a row is a finding. A new row, or a new third-party tree in
// one, is a decision: CONTRIBUTING.md lists every dependency with its reason.
var importRules = []importRule{
	{
		// The state machine is pure: no I/O, no clock, no randomness.
		dir: ".",
		notStd: []string{
			"context", "crypto/rand", "io/...", "log/...", "math/rand/...", "net/...",
			"os/...", "runtime/...", "sync/...", "syscall/...", "unsafe",
		},
	},
	{dir: "fingerprint/...", own: []string{"."}, third: []string{jsontext, protobuf}},

	{dir: "storage", own: []string{"."}},
	{dir: "storage/storagetest/...", own: []string{".", "storage", "storage/storagetest/..."}},
	{dir: "storage/memory/...", own: []string{".", "storage", "storage/memory/..."}},
	{
		dir:   "storage/bolt/...",
		own:   []string{".", "storage", "storage/bolt/...", "gen/onced/storage/v1"},
		third: []string{bbolt, protobuf, xsys},
	},

	{
		dir:   "server/...",
		own:   []string{".", "storage", "server/...", "gen/onced/v1"},
		third: []string{errdetails, grpc, middleware, prometheus, protobuf},
	},
	{
		// An onced for the tests of those who use the client. Nothing but tests has it.
		dir:   "client/oncetest/...",
		own:   []string{".", "client", "gen/onced/v1", "server", "storage", "storage/memory"},
		third: []string{grpc, prometheus, protobuf},
	},
	{
		dir:   "client/oncegrpc/...",
		own:   []string{".", "fingerprint", "client", "gen/onced/v1"},
		third: []string{errdetails, grpc, middleware, protobuf},
	},
	{
		dir:   "client/...",
		own:   []string{".", "fingerprint", "client/...", "gen/onced/v1"},
		not:   []string{"client/oncetest/..."},
		third: []string{errdetails, grpc, protobuf},
	},

	{dir: "gen/...", own: []string{"gen/..."}, third: []string{grpc, protobuf}},
	{
		dir:   "cmd/...",
		own:   []string{"..."},
		not:   []string{"client/oncetest/...", "examples/...", "storage/storagetest/...", "test/..."},
		third: []string{"..."},
	},
	{dir: "examples/...", own: []string{"..."}, not: []string{"cmd/...", "test/..."}, third: []string{"..."}},
	{dir: "test/...", own: []string{"..."}, third: []string{"..."}},
}

// checkImports holds every non-test file of the root module, whatever its build
// tags, against importRules.
func checkImports(t *tree) []finding {
	var found []finding
	for _, src := range t.sources {
		if src.test || src.nested {
			continue
		}
		i := slices.IndexFunc(importRules, func(r importRule) bool { return matches(r.dir, src.dir) })
		if i < 0 {
			found = append(found, finding{
				path: src.path,
				text: "no row of importRules covers this folder; add one that says what it may import",
			})
			continue
		}
		for _, spec := range src.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil || !importRules[i].allows(imported) {
				found = append(found, t.at(spec.Pos(), fmt.Sprintf(
					"%s may not import %s (see importRules)", src.dir, spec.Path.Value)))
			}
		}
	}
	return found
}

// allows tells whether the rule lets a package through. Standard packages are
// the ones whose first path element has no dot.
func (r importRule) allows(imported string) bool {
	if dir, ours := ownDir(imported); ours {
		return matchesAny(r.own, dir) && !matchesAny(r.not, dir)
	}
	first, _, _ := strings.Cut(imported, "/")
	if strings.Contains(first, ".") {
		return matchesAny(r.third, imported)
	}
	return !matchesAny(r.notStd, imported)
}

// ownDir gives the folder of a package of the root module.
func ownDir(imported string) (dir string, ours bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}
