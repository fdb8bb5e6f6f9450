package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// listAPI lists what a package exports, one sorted line a name, in the manner of
// the Go project's own api folder. It reads syntax alone: a name's type is
// written as in the source, and a variable's or constant's value only when that
// is all that the source says of it. A package that does not exist gives "".
func listAPI(t *tree, dir string) string {
	var lines []string
	for _, src := range t.sources {
		if src.dir != dir || src.test || src.nested {
			continue
		}
		for _, decl := range src.file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				lines = append(lines, listFunc(decl)...)
			case *ast.GenDecl:
				lines = append(lines, listDecl(decl)...)
			}
		}
	}
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func listFunc(decl *ast.FuncDecl) []string {
	if !decl.Name.IsExported() || !exportedReceiver(decl) {
		return nil
	}
	line := "func " + decl.Name.Name + typeParams(decl.Type.TypeParams)
	if decl.Recv != nil {
		line = "method (" + types.ExprString(decl.Recv.List[0].Type) + ") " + decl.Name.Name
	}
	return []string{line + signature(decl.Type)}
}

func listDecl(decl *ast.GenDecl) []string {
	var lines []string
	var implied ast.Expr // the type that a constant inherits from the one above it
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			lines = append(lines, listType(spec)...)
		case *ast.ValueSpec:
			if decl.Tok == token.CONST && (spec.Type != nil || len(spec.Values) > 0) {
				implied = spec.Type
			}
			lines = append(lines, listValues(decl.Tok, spec, implied)...)
		}
	}
	return lines
}

func listValues(tok token.Token, spec *ast.ValueSpec, implied ast.Expr) []string {
	var lines []string
	for i, name := range spec.Names {
		if !name.IsExported() {
			continue
		}
		line := tok.String() + " " + name.Name
		switch {
		case spec.Type != nil:
			line += " " + types.ExprString(spec.Type)
		case implied != nil:
			line += " " + types.ExprString(implied)
		}
		if tok == token.CONST && i < len(spec.Values) {
			line += " = " + types.ExprString(spec.Values[i])
		}
		lines = append(lines, line)
	}
	return lines
}

func listType(spec *ast.TypeSpec) []string {
	if !spec.Name.IsExported() {
		return nil
	}
	head := "type " + spec.Name.Name
	declared := head + typeParams(spec.TypeParams)
	if spec.Assign != token.NoPos {
		declared += " ="
	}
	switch expr := spec.Type.(type) {
	case *ast.StructType:
		return append(listMembers(head+" struct, ", expr.Fields.List), declared+" struct")
	case *ast.InterfaceType:
		return append(listMembers(head+" interface, ", expr.Methods.List), declared+" interface")
	default:
		return []string{declared + " " + types.ExprString(expr)}
	}
}

// listMembers lists exported fields or methods and embedded types. Unexported
// methods show as one line, since they keep others from implementing the type.
func listMembers(prefix string, fields []*ast.Field) []string {
	var lines []string
	for _, field := range fields {
		method, isMethod := field.Type.(*ast.FuncType)
		if len(field.Names) == 0 {
			lines = append(lines, prefix+"embeds "+types.ExprString(field.Type))
		}
		for _, name := range field.Names {
			switch {
			case name.IsExported() && isMethod && strings.Contains(prefix, " interface, "):
				lines = append(lines, prefix+name.Name+signature(method))
			case name.IsExported():
				lines = append(lines, prefix+name.Name+" "+types.ExprString(field.Type))
			case isMethod && strings.Contains(prefix, " interface, "):
				lines = append(lines, prefix+"unexported methods")
			}
		}
	}
	return lines
}

// signature writes parameters and results without the parameters' names, which
// callers cannot see.
func signature(fn *ast.FuncType) string {
	bare := &ast.FuncType{Params: unnamed(fn.Params), Results: unnamed(fn.Results)}
	return strings.TrimPrefix(types.ExprString(bare), "func")
}

func unnamed(list *ast.FieldList) *ast.FieldList {
	if list == nil {
		return nil
	}
	bare := &ast.FieldList{}
	for _, field := range list.List {
		for range max(1, len(field.Names)) {
			bare.List = append(bare.List, &ast.Field{Type: field.Type})
		}
	}
	return bare
}

func typeParams(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var params []string
	for _, field := range list.List {
		for _, name := range field.Names {
			params = append(params, name.Name+" "+types.ExprString(field.Type))
		}
	}
	return "[" + strings.Join(params, ", ") + "]"
}
