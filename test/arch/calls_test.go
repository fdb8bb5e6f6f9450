package arch

import (
	"fmt"
	"go/ast"
	"path"
	"strconv"
	"strings"
)

// callRule forbids names in the non-test files of some folders. Any mention
// counts, a call or not: `now := time.Now` reads the clock as well.
type callRule struct {
	dirs  []string // patterns of folders
	names []string // "package/path.Name", "Name*" for a prefix, "Name" for a builtin
	why   string
}

// callRules are the forbidden calls. In these folders time is an argument,
// errors are values, output belongs to the caller and only main ends a process.
var callRules = []callRule{
	{
		dirs:  []string{".", "fingerprint/...", "storage/...", "server/..."},
		names: []string{"time.Now", "time.Sleep", "time.Since", "time.Until"},
		why:   "the clock is a parameter",
	},
	{
		dirs:  []string{".", "fingerprint/..."},
		names: []string{"time.After*", "time.Tick", "time.NewTimer", "time.NewTicker"},
		why:   "pure code waits for nothing",
	},
	{
		dirs:  []string{".", "fingerprint/...", "storage/...", "server/..."},
		names: []string{"panic", "log.Panic*"},
		why:   "return an error: a panic in a backend or a handler takes every caller down",
	},
	{
		dirs:  []string{".", "fingerprint/...", "storage/...", "server/..."},
		names: []string{"fmt.Print*", "print", "println"},
		why:   "standard output belongs to the command; log through the logger that was passed in",
	},
	{
		dirs:  []string{".", "fingerprint/...", "storage/...", "server/..."},
		names: []string{"os.Exit", "log.Fatal*", "syscall.Exit"},
		why:   "only main ends the process",
	},
}

// sleepRule forbids sleeping in tests: a test that sleeps is slow when it
// passes and flaky when the machine is busy.
var sleepRule = callRule{
	names: []string{"time.Sleep"},
	why:   "wait for a signal, poll with a deadline, or use testing/synctest or a fake clock",
}

// checkCalls holds the non-test files against callRules.
func checkCalls(t *tree) []finding {
	var found []finding
	for _, src := range t.sources {
		if src.test || src.nested || src.generated {
			continue
		}
		for _, r := range callRules {
			if matchesAny(r.dirs, src.dir) {
				found = append(found, r.mentions(t, src)...)
			}
		}
	}
	return found
}

// checkTestSleep holds every test file, and every file below test/, against
// sleepRule. Nested modules count too.
func checkTestSleep(t *tree) []finding {
	var found []finding
	for _, src := range t.sources {
		if src.test || matches("test/...", src.dir) {
			found = append(found, sleepRule.mentions(t, src)...)
		}
	}
	return found
}

// mentions finds the rule's names in one file. Renamed imports are followed; an
// import with a dot is a finding, because it would hide the names.
func (r callRule) mentions(t *tree, src source) []finding {
	var found []finding
	local := map[string]string{}
	for _, spec := range src.file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !r.concerns(imported) {
			continue
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			found = append(found, t.at(spec.Pos(), fmt.Sprintf("import %q under its name", imported)))
		}
		local[name] = imported
	}
	ast.Inspect(src.file, func(n ast.Node) bool {
		if name := r.named(n, local); name != "" {
			found = append(found, t.at(n.Pos(), fmt.Sprintf("%s is forbidden here: %s", name, r.why)))
		}
		return true
	})
	return found
}

// named gives the forbidden name that the node mentions, or "". An identifier
// that the parser resolved inside the file is a local name, not the package or
// the builtin.
func (r callRule) named(n ast.Node, local map[string]string) string {
	name := ""
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && local[x.Name] != "" {
			name = local[x.Name] + "." + n.Sel.Name
		}
	case *ast.CallExpr:
		if fun, ok := n.Fun.(*ast.Ident); ok && fun.Obj == nil {
			name = fun.Name
		}
	}
	for _, forbidden := range r.names {
		prefix, open := strings.CutSuffix(forbidden, "*")
		if name == forbidden || open && strings.HasPrefix(name, prefix) {
			return name
		}
	}
	return ""
}

// concerns tells whether the rule names anything of the package.
func (r callRule) concerns(imported string) bool {
	for _, name := range r.names {
		if pkg, _, qualified := strings.Cut(name, "."); qualified && pkg == imported {
			return true
		}
	}
	return false
}
