// Package arch holds the rules of the repository that no compiler checks: who
// may import whom, what code that decides may never call, how long a file may
// be, that every exported name is documented, and that the exported API is the
// one listed in the folder api.
//
// Each rule is a function from a file system to findings. The tests run it over
// this repository and over small planted trees, so that a rule which can no
// longer find anything fails as well. The rules parse the files themselves: a
// test that asks `go list` is cached as passed after the rule has been broken,
// while files opened by a test are part of its cache key.
package arch

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
)

// repository is the tree under test: the root of the module.
func repository() fs.FS { return os.DirFS("../..") }

// finding is one breach of a rule: where it is, and a sentence that says what
// is wrong and what to do about it.
type finding struct {
	path string // slash-separated, from the root of the tree
	line int    // 0 when the finding is about the whole file or folder
	text string
}

func (f finding) String() string {
	if f.line == 0 {
		return fmt.Sprintf("%s: %s", f.path, f.text)
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text)
}

// rule is one check over a whole tree.
type rule func(*tree) []finding

// rules names every rule; a subtest of TestRepository runs each.
var rules = map[string]rule{
	"imports":    checkImports,
	"calls":      checkCalls,
	"file size":  checkSize,
	"text":       checkText,
	"docs":       checkDocs,
	"test sleep": checkTestSleep,
	"nesting":    checkNesting,
	"links":      checkLinks,
}

func TestRepository(t *testing.T) {
	repo := load(t, repository())
	for name, check := range rules {
		t.Run(name, func(t *testing.T) {
			for _, f := range check(repo) {
				t.Error(f)
			}
		})
	}
}

// TestRepositoryIsLoaded keeps TestRepository from passing over an empty tree:
// a wrong root would make every rule hold.
func TestRepositoryIsLoaded(t *testing.T) {
	repo := load(t, repository())
	for _, want := range []string{"test/arch/arch_test.go", "test/arch/tree_test.go"} {
		if !slices.ContainsFunc(repo.sources, func(s source) bool { return s.path == want }) {
			t.Errorf("%s is not among the %d Go files that were loaded", want, len(repo.sources))
		}
	}
	for _, want := range []string{"go.mod", ".ci/run", "LICENSE"} {
		if !slices.Contains(repo.files, want) {
			t.Errorf("%s is not among the %d files that were loaded", want, len(repo.files))
		}
	}
}
