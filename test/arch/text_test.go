package arch

import (
	"bytes"
	"fmt"
	"io/fs"
	"regexp"
)

// maxLines is the hard stop for a hand-written Go file; 50 to 400 is the aim.
const maxLines = 600

// checkSize finds hand-written Go files that are longer than maxLines.
func checkSize(t *tree) []finding {
	var found []finding
	for _, src := range t.sources {
		if !src.generated && src.lines > maxLines {
			found = append(found, finding{
				path: src.path,
				text: fmt.Sprintf("%d lines, more than %d: split it by responsibility", src.lines, maxLines),
			})
		}
	}
	return found
}

// forbiddenText must stand in no committed text file. The patterns are written
// so that they do not match their own source.
var forbiddenText = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`/wor[k]/`), "a path of one machine: make it relative, or take it from the environment"},
	{regexp.MustCompile(`"resolve[d]"\s*:\s*"http`), "a lock file with download addresses: install with omit-lockfile-registry-resolved"},
}

// checkText looks for forbiddenText in every file that is not binary.
func checkText(t *tree) []finding {
	var found []finding
	for _, name := range t.files {
		content, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			found = append(found, finding{path: name, text: err.Error()})
			continue
		}
		if binary(content) {
			continue
		}
		for _, f := range forbiddenText {
			if at := f.pattern.FindIndex(content); at != nil {
				line := 1 + bytes.Count(content[:at[0]], []byte("\n"))
				found = append(found, finding{path: name, line: line, text: f.why})
			}
		}
	}
	return found
}

// binary tells a binary file as git does: by a zero byte near its beginning.
func binary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0
}
