package arch

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the listings in the folder api from the code")

// listed are the packages whose exported API is kept as text, by the name of
// their file in the folder api: what programs outside this module build on. A
// package that does not exist has no file.
var listed = map[string]string{
	"onced.txt":       ".",
	"client.txt":      "client",
	"oncegrpc.txt":    "client/oncegrpc",
	"fingerprint.txt": "fingerprint",
	"oncetest.txt":    "client/oncetest",
	"storage.txt":     "storage",
}

// TestAPI compares the exported API with the committed listings, so that no
// change of it goes unnoticed: a change shows as a diff that a reviewer reads.
func TestAPI(t *testing.T) {
	repo := load(t, repository())
	for name, dir := range listed {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("..", "..", "api", name)
			want, err := os.ReadFile(file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			got := listAPI(repo, dir)
			switch {
			case got == string(want):
			case *update:
				rewrite(t, file, got)
			default:
				t.Errorf("the exported API of %s is not the one in api/%s:\n%s\n"+
					"if that is meant, run: go test ./test/arch -update", dir, name, diff(string(want), got))
			}
		})
	}
}

// rewrite replaces a listing, or removes it when its package has gone.
func rewrite(t *testing.T, file, content string) {
	t.Helper()
	if content == "" {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// diff names the lines that only one of two listings has. Listings are sorted
// and hold no line twice, so sets are enough.
func diff(before, after string) string {
	old, now := lineSet(before), lineSet(after)
	var out strings.Builder
	for line := range strings.Lines(before) {
		if !now[line] {
			out.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(after) {
		if !old[line] {
			out.WriteString("+ " + line)
		}
	}
	return out.String()
}

func lineSet(text string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.Lines(text) {
		set[line] = true
	}
	return set
}
