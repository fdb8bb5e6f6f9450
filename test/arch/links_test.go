package arch

import (
	"fmt"
	"go/ast"
	"go/doc"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Code in a line of a Markdown file, a link by its text and target, a heading, and what
// may name an example.
var (
	codePattern    = regexp.MustCompile("`[^`\\n]*`")
	linkPattern    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ +(.*?)\s*$`)
	exampleName    = regexp.MustCompile(`\bExample[A-Z][A-Za-z0-9_]*\b`)
)

// checkLinks finds links of Markdown files that lead nowhere: to a file or folder that
// is not there, to a heading that the file does not have, and, where a link's text
// names an example, to a file that does not have it or has it without an output, so
// that no test runs it. Addresses of other places are not followed. In a file of
// docs/, an example is named by a link or not at all.
func checkLinks(t *tree) []finding {
	var found []finding
	for _, name := range t.files {
		if path.Ext(name) != ".md" {
			continue
		}
		content, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			found = append(found, finding{path: name, text: err.Error()})
			continue
		}
		text := prose(string(content))
		report := func(at int, what string) {
			found = append(found, finding{path: name, line: 1 + strings.Count(text[:at], "\n"), text: what})
		}
		unlinked := []byte(text)
		for _, m := range linkPattern.FindAllStringSubmatchIndex(text, -1) {
			if what := t.wrongLink(name, text[m[2]:m[3]], text[m[4]:m[5]]); what != "" {
				report(m[0], what)
			}
			blank(unlinked[m[0]:m[1]])
		}
		if within(name, "docs") {
			for _, m := range exampleName.FindAllIndex(unlinked, -1) {
				report(m[0], fmt.Sprintf("%s is named without a link to it", unlinked[m[0]:m[1]]))
			}
		}
	}
	return found
}

// prose gives the text of a Markdown file with blanks for its fenced blocks, and for
// code in a line that looks like a link.
func prose(content string) string {
	text := []byte(content)
	fenced, at := false, 0
	for line := range strings.Lines(content) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fenced = fenced != fence; fenced || fence {
			blank(text[at : at+len(line)])
		}
		at += len(line)
	}
	return codePattern.ReplaceAllStringFunc(string(text), func(code string) string {
		if !strings.Contains(code, "](") {
			return code
		}
		return strings.Repeat(" ", len(code))
	})
}

// blank overwrites a text; its lines stay.
func blank(text []byte) {
	for i := range text {
		if text[i] != '\n' {
			text[i] = ' '
		}
	}
}

// wrongLink says why a link leads nowhere; "" if it does not.
func (t *tree) wrongLink(name, text, target string) string {
	file, heading, _ := strings.Cut(target, "#")
	switch {
	case strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:"):
		return ""
	case file == "":
		file = name
	default:
		file = path.Join(path.Dir(name), file)
	}
	if !t.has(file) {
		return fmt.Sprintf("the link to %s leads to no file", target)
	}
	if heading != "" && path.Ext(file) == ".md" && !slices.Contains(t.headings(file), heading) {
		return fmt.Sprintf("the link to %s leads to no heading", target)
	}
	for _, example := range exampleName.FindAllString(text, -1) {
		if !t.runs(file, example) {
			return fmt.Sprintf("%s has no %s, or one without an output, which no test runs", file, example)
		}
	}
	return ""
}

// has tells whether a file is there, or a folder with a file in it.
func (t *tree) has(name string) bool {
	return slices.ContainsFunc(t.files, func(f string) bool { return f == name || strings.HasPrefix(f, name+"/") })
}

// headings gives the fragments by which the headings of a Markdown file are linked
// to: in small letters, hyphens for blanks, without any other punctuation.
func (t *tree) headings(name string) (fragments []string) {
	content, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return nil
	}
	for _, m := range headingPattern.FindAllStringSubmatch(prose(string(content)), -1) {
		fragments = append(fragments, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return fragments
}

// runs tells whether a test file has an example that go test runs.
func (t *tree) runs(file, example string) bool {
	i := slices.IndexFunc(t.sources, func(s source) bool { return s.path == file && s.test })
	return i >= 0 && slices.ContainsFunc(doc.Examples([]*ast.File{t.sources[i].file}...), func(e *doc.Example) bool {
		return "Example"+e.Name == example && (e.Output != "" || e.EmptyOutput)
	})
}

// TestPlantedLinks shows what checkLinks finds and what it lets pass.
func TestPlantedLinks(t *testing.T) {
	const example = "package client_test\n\nimport \"fmt\"\n\nfunc ExampleDo_lookup() {\n\tfmt.Println(1)\n\t// Output: 1\n}\n\nfunc ExampleChild() {}\n"
	for _, tc := range []struct {
		text string
		want string // part of the only finding; "" for none
	}{
		{"[a](other.md), [b](../client), [c](https://example.org/x), [d](other.md#two-words-its-_x-), [e](#one)\n# One", ``},
		{"[a](gone.md)", `leads to no file`},
		{"[a](../gone/)", `leads to no file`},
		{"[a](other.md#three)", `leads to no heading`},
		{"[a](#gone)", `leads to no heading`},
		{"```\n# Gone\n```\n[a](#gone)", `leads to no heading`},
		{"```\n[a](gone.md) ExampleGone\n```", ``},
		{"[ExampleDo_lookup](../client/example_test.go)", ``},
		{"[`ExampleDo_lookup`](../client/example_test.go)", ``},
		{"[ExampleDo_other](../client/example_test.go)", `has no ExampleDo_other`},
		{"[ExampleDo](../client/example_test.go)", `has no ExampleDo`},
		{"[ExampleChild](../client/example_test.go)", `without an output`},
		{"[ExampleDo_lookup](../client/do.go)", `has no ExampleDo_lookup`},
		{"[ExampleDo_other\nand more](../client/example_test.go)", `docs/a.md:1: client/example_test.go has no ExampleDo_other`},
		{"\nsee ExampleDo_lookup", `docs/a.md:2: ExampleDo_lookup is named without a link`},
		{"`Do[T](ctx)`, `Example`s", ``},
	} {
		found := checkLinks(plant(t,
			"docs/a.md", tc.text,
			"docs/other.md", "## Two words: it's `_x`-\n",
			"client/do.go", "package client\n\nfunc ExampleDo_lookup() {}\n",
			"client/example_test.go", example,
		))
		switch {
		case tc.want == "" && len(found) > 0:
			t.Errorf("%q: found %v, want nothing", tc.text, found)
		case tc.want != "" && (len(found) != 1 || !strings.Contains(found[0].String(), tc.want)):
			t.Errorf("%q: found %v, want one finding with %q", tc.text, found, tc.want)
		}
	}
}

// TestGuideLeaves holds the guide to its promise: every leaf of its decision tree is
// a section, and every such section links to an example that runs.
func TestGuideLeaves(t *testing.T) {
	content, err := fs.ReadFile(repository(), "docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(prose(string(content)), "\n## ")
	for _, leaf := range []string{"A. ", "B. ", "C. ", "D. ", "E. "} {
		i := slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, leaf) })
		if i < 0 {
			t.Errorf("docs/guide.md has no section for the leaf %s", leaf)
			continue
		}
		if !slices.ContainsFunc(linkPattern.FindAllStringSubmatch(sections[i], -1), func(link []string) bool { return exampleName.MatchString(link[1]) }) {
			t.Errorf("docs/guide.md: the section %sdoes not link to an example", leaf)
		}
	}
}
