package arch

import (
	"fmt"
	"go/ast"
	"go/token"
)

// undocumented are the folders whose exported names need no comment: generated
// code has its comments in the .proto files, tests and examples export nothing
// that anybody imports.
var undocumented = []string{"gen/...", "test/...", "examples/..."}

// checkDocs finds packages without a package comment and exported names without
// a comment: functions, methods of exported types, types, constants, variables
// and interface methods. For constants and variables the comment of their group
// will do, for interface methods one at the line's end. Struct fields are left
// to their type's comment, as most tools do.
func checkDocs(t *tree) []finding {
	var found []finding
	packages := map[string]bool{}
	first := map[string]source{}
	for _, src := range t.sources {
		if src.test || src.nested || src.generated || matchesAny(undocumented, src.dir) {
			continue
		}
		if _, seen := first[src.dir]; !seen {
			first[src.dir] = src
		}
		packages[src.dir] = packages[src.dir] || has(src.file.Doc)
		if src.file.Name.Name != "main" {
			for _, decl := range src.file.Decls {
				found = append(found, undocumentedNames(t, decl)...)
			}
		}
	}
	for dir, src := range first {
		if !packages[dir] {
			found = append(found, finding{path: src.path, text: "no file of this package has a package comment"})
		}
	}
	return found
}

// has tells whether one of the comments says anything; directives do not count.
func has(comments ...*ast.CommentGroup) bool {
	for _, c := range comments {
		if c.Text() != "" {
			return true
		}
	}
	return false
}

func undocumentedNames(t *tree, decl ast.Decl) []finding {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Name.IsExported() && exportedReceiver(decl) && !has(decl.Doc) {
			return []finding{noComment(t, decl.Name)}
		}
	case *ast.GenDecl:
		var found []finding
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				found = append(found, undocumentedType(t, decl, spec)...)
			case *ast.ValueSpec:
				if !has(spec.Doc, spec.Comment, decl.Doc) {
					found = append(found, noComments(t, spec.Names)...)
				}
			}
		}
		return found
	}
	return nil
}

func undocumentedType(t *tree, decl *ast.GenDecl, spec *ast.TypeSpec) []finding {
	if !spec.Name.IsExported() {
		return nil
	}
	var found []finding
	alone := decl.Lparen == token.NoPos
	if !has(spec.Doc) && (!alone || !has(decl.Doc)) {
		found = append(found, noComment(t, spec.Name))
	}
	if contract, ok := spec.Type.(*ast.InterfaceType); ok {
		for _, method := range contract.Methods.List {
			if !has(method.Doc, method.Comment) {
				found = append(found, noComments(t, method.Names)...)
			}
		}
	}
	return found
}

// exportedReceiver tells whether a function is none's method or an exported
// type's.
func exportedReceiver(decl *ast.FuncDecl) bool {
	return decl.Recv == nil || ast.IsExported(receiverType(decl))
}

// receiverType is the name of the type whose method decl is.
func receiverType(decl *ast.FuncDecl) string {
	expr := decl.Recv.List[0].Type
	for {
		switch x := expr.(type) {
		case *ast.StarExpr:
			expr = x.X
		case *ast.IndexExpr:
			expr = x.X
		case *ast.IndexListExpr:
			expr = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func noComments(t *tree, names []*ast.Ident) []finding {
	var found []finding
	for _, name := range names {
		if name.IsExported() {
			found = append(found, noComment(t, name))
		}
	}
	return found
}

func noComment(t *tree, name *ast.Ident) finding {
	return t.at(name.Pos(), fmt.Sprintf("exported %s has no comment", name.Name))
}
