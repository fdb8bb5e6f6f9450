package e2e

import (
	"bytes"
	"os"
	"testing"
)

// The server that is shipped has no fault switches: it neither heeds them nor
// has their names in it.
func TestShippedServerHasNoFaults(t *testing.T) {
	f := newSwitches(t)
	f.all()
	s := serveWith(t, binary("onced"), f.env(), newStore(t))
	c := s.caller()
	req := claimOf("served")
	granted := c.granted(req)
	c.complete(completion(req, granted, "done"))
	c.replayed("served", "done", granted)
	s.stop()

	faulty, err := faultBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ONCED_FAULTS", "die-before-commit", "hold-sync", "WithFaults"} {
		if !contains(t, faulty, name) {
			t.Errorf("the server that has switches does not hold %q: this test looks for the wrong thing", name)
		}
		if contains(t, binary("onced"), name) {
			t.Errorf("the shipped server holds %q", name)
		}
	}
}

func contains(t testing.TB, path, text string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}
