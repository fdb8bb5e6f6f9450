package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// checkNesting finds what holds a transaction of bbolt and begins to write in
// another one, or waits for somebody who does. When the file has to be mapped anew
// for that, the writer waits until all who read have left: for ever, if it is one of
// them. A function holds a transaction when it is given one, as a parameter or in
// its receiver, or begins to read in one itself.
func checkNesting(t *tree) []finding {
	folders := map[string]*boltFolder{}
	for _, src := range t.sources {
		if src.test || src.nested || !strings.HasPrefix(src.dir, "storage/") {
			continue
		}
		if folders[src.dir] == nil {
			folders[src.dir] = &boltFolder{functions: map[string]*ast.FuncDecl{}, fields: map[string]string{}, carriers: map[string]bool{"Tx": true}}
		}
		folders[src.dir].add(src.file)
	}
	var found []finding
	for _, f := range folders {
		found = append(found, f.check(t)...)
	}
	return found
}

// boltFolder is what the rule knows of a package. Types go by their name alone.
type boltFolder struct {
	functions map[string]*ast.FuncDecl // by "name" or "Type.name"
	fields    map[string]string        // the types of the fields of all structs
	carriers  map[string]bool          // types that are or hold a transaction
}

func (f *boltFolder) add(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			name := n.Name.Name
			if n.Recv != nil {
				name = typeName(n.Recv.List[0].Type) + "." + name
			}
			f.functions[name] = n
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					of := typeName(field.Type)
					for _, name := range field.Names {
						f.fields[name.Name] = of
					}
					f.carriers[n.Name.Name] = f.carriers[n.Name.Name] || of == "Tx"
				}
			}
		}
		return true
	})
}

// typeName is the last name of a type, without what it points to or comes from.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// check looks into all that holds a transaction.
func (f *boltFolder) check(t *tree) (found []finding) {
	writers := f.writers()
	for _, decl := range f.functions {
		ast.Inspect(decl, func(n ast.Node) bool {
			var body *ast.BlockStmt
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil && (f.given(n.Recv) || f.given(n.Type.Params) || begins(n.Body, "false", "View")) {
					body = n.Body
				}
			case *ast.FuncLit:
				if f.given(n.Type.Params) || begins(n.Body, "false", "View") {
					body = n.Body
				}
			}
			if body == nil {
				return true
			}
			for _, call := range f.calls(body) {
				if writers[call.to] {
					found = append(found, t.at(call.at.Pos(), fmt.Sprintf(
						"%s begins to write, and this holds a transaction: end it first", call.to)))
				}
			}
			return false
		})
	}
	return found
}

// given reports whether one of some parameters is or holds a transaction.
func (f *boltFolder) given(list *ast.FieldList) bool {
	if list == nil {
		return false
	}
	return slices.ContainsFunc(list.List, func(p *ast.Field) bool { return f.carriers[typeName(p.Type)] })
}

// writers are the functions that begin to write, or that wait for the committer,
// which does so, and all that call them.
func (f *boltFolder) writers() map[string]bool {
	writers := map[string]bool{"queue.do": true}
	for name, decl := range f.functions {
		if decl.Body != nil && begins(decl.Body, "true", "Update", "Batch") {
			writers[name] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for name, decl := range f.functions {
			if writers[name] || decl.Body == nil {
				continue
			}
			writers[name] = slices.ContainsFunc(f.calls(decl.Body), func(c call) bool { return writers[c.to] })
			grown = grown || writers[name]
		}
	}
	return writers
}

// begins reports whether a transaction is begun in a body: by Begin with an
// argument, or by one of some methods of a database.
func begins(body ast.Node, argument string, methods ...string) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := c.Fun.(*ast.SelectorExpr)
		if !ok || typeName(method.X) != "db" {
			return true
		}
		first := ""
		if len(c.Args) > 0 {
			first = typeName(c.Args[0])
		}
		found = found || slices.Contains(methods, method.Sel.Name) || method.Sel.Name == "Begin" && first == argument
		return true
	})
	return found
}

// call is a call of a function of the package.
type call struct {
	to string
	at ast.Node
}

// calls are those in a body that can be told by name: of functions, and of methods
// of a receiver, a parameter or a field.
func (f *boltFolder) calls(body ast.Node) (found []call) {
	ast.Inspect(body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := c.Fun.(type) {
		case *ast.Ident:
			found = append(found, call{fun.Name, c})
		case *ast.SelectorExpr:
			found = append(found, call{f.typeOf(fun.X) + "." + fun.Sel.Name, c})
		}
		return true
	})
	return found
}

// typeOf is the name of the type of a parameter, a receiver or a field.
func (f *boltFolder) typeOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return f.fields[e.Sel.Name]
	case *ast.Ident:
		if e.Obj != nil {
			if p, ok := e.Obj.Decl.(*ast.Field); ok {
				return typeName(p.Type)
			}
		}
	}
	return ""
}

// TestNesting shows that the rule finds what it forbids, however it is reached.
func TestNesting(t *testing.T) {
	const store = `package bolt
		type Store struct { db *bbolt.DB; queue queue }
		type queue struct{}
		func (q *queue) do(func(*batch)) {}
		type batch struct { store *Store; tx *bbolt.Tx }
		func (s *Store) Update() { s.queue.do(nil) }
		func (s *Store) Get() { tx, _ := s.db.Begin(false); tx.Rollback() }
		func (s *Store) write() { tx, _ := s.db.Begin(true); s.Get(); tx.Commit() }
		func again(s *Store) { s.Update() }
		func read(s *Store, fn func(tx *bbolt.Tx)) { s.db.View(fn) }
	`
	for name, c := range map[string]struct {
		code string
		want string // the callee of the only finding; "" for none
	}{
		"as it should be":             {`func (s *Store) Scan() { read(s, func(tx *bbolt.Tx) { tx.Bucket().Get() }); s.Update() }`, ""},
		"a read in a write":           {`func (b *batch) add() { b.store.Get() }`, ""},
		"in a literal":                {`func (s *Store) Scan() { read(s, func(tx *bbolt.Tx) { s.Update() }) }`, "Store.Update"},
		"by a function":               {`func load(s *Store, tx *bbolt.Tx) { again(s) }`, "again"},
		"by a field":                  {`func (b *batch) add() { b.store.write() }`, "Store.write"},
		"by the queue":                {`func (b *batch) add() { b.store.queue.do(nil) }`, "queue.do"},
		"while it reads":              {`func (s *Store) Peek() { tx, _ := s.db.Begin(false); s.Update(); tx.Rollback() }`, "Store.Update"},
		"what only has the same name": {`func load(tx *bbolt.Tx) { tx.Update(); crc32.Update() }`, ""},
		"one after the other":         {`func (s *Store) Peek() { s.Get(); s.Update() }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkNesting(plant(t, "storage/bolt/a.go", store+c.code))
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0].text, c.want+" begins")) {
				t.Errorf("found %v, want %q", found, c.want)
			}
		})
	}
}
