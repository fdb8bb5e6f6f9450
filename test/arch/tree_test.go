package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
	"testing"
)

// source is one parsed Go file.
type source struct {
	path      string // slash-separated, from the root of the tree
	dir       string // the folder of path; "." for the root
	file      *ast.File
	lines     int
	test      bool // a _test.go file
	generated bool // carries the "Code generated … DO NOT EDIT." line
	nested    bool // belongs to a module of its own, below the root module
}

// tree is everything that the rules look at.
type tree struct {
	fsys    fs.FS
	fset    *token.FileSet
	sources []source // every Go file, build tags or not
	files   []string // every file that could be committed, Go or not
}

// unseen are the folders that hold nothing of the repository: its history and
// what builds and trial runs leave behind. They are ignored by git as well.
var unseen = map[string]bool{".git": true, ".bin": true, "node_modules": true, "onced-data": true}

// load walks the tree and parses its Go files. Folders named testdata are read
// as text only, as the go command does.
func load(t *testing.T, fsys fs.FS) *tree {
	t.Helper()
	loaded := &tree{fsys: fsys, fset: token.NewFileSet()}
	modules := map[string]bool{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && unseen[entry.Name()]:
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		loaded.files = append(loaded.files, name)
		switch {
		case path.Base(name) == "go.mod" && name != "go.mod":
			modules[path.Dir(name)] = true
		case strings.HasSuffix(name, ".go") && !within(name, "testdata"):
			return loaded.parse(name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range loaded.sources {
		loaded.sources[i].nested = below(loaded.sources[i].dir, modules)
	}
	return loaded
}

func (t *tree) parse(name string) error {
	content, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(t.fset, name, content, parser.ParseComments)
	if err != nil {
		return err
	}
	t.sources = append(t.sources, source{
		path:      name,
		dir:       path.Dir(name),
		file:      file,
		lines:     bytes.Count(content, []byte("\n")),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(file),
	})
	return nil
}

// at makes the finding for a position in a parsed file.
func (t *tree) at(pos token.Pos, text string) finding {
	place := t.fset.Position(pos)
	return finding{path: place.Filename, line: place.Line, text: text}
}

// within tells whether one of the folders of the path has the given name.
func within(name, folder string) bool {
	return strings.Contains("/"+path.Dir(name)+"/", "/"+folder+"/")
}

// below tells whether dir is one of the roots or lies under one.
func below(dir string, roots map[string]bool) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if roots[dir] {
			return true
		}
	}
	return false
}

// matches tells whether dir falls under the pattern: a folder, or with the
// ending "/..." the folder and all below it; "..." alone is every folder.
func matches(pattern, dir string) bool {
	stem, all := strings.CutSuffix(pattern, "/...")
	switch {
	case pattern == "...":
		return true
	case all:
		return dir == stem || strings.HasPrefix(dir, stem+"/")
	}
	return dir == pattern
}

// matchesAny tells whether dir falls under one of the patterns.
func matchesAny(patterns []string, dir string) bool {
	for _, pattern := range patterns {
		if matches(pattern, dir) {
			return true
		}
	}
	return false
}
