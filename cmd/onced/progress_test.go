package main

import (
	"bytes"
	"testing"
	"time"
)

// TestProgress: a bar on a terminal, which goes away, and lines elsewhere; nothing
// while the work has not taken long.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		want     string
	}{
		{false, "copying: 50 of 200 entries\nreplacing: 200 of 200 entries\n"},
		{true, "\rcopying    [##########                              ]  25%" +
			"\rreplacing  [########################################] 100%\r\x1b[K"},
	} {
		var out bytes.Buffer
		now := time.Unix(0, 0)
		p := &progress{to: &out, terminal: c.terminal, now: func() time.Time { return now }, last: now}
		p.tell("checking", 200, 200)
		p.end()
		if out.Len() > 0 {
			t.Errorf("terminal %t: at once it shows %q", c.terminal, &out)
		}
		now = now.Add(lineEvery)
		p.tell("copying", 50, 200)
		p.tell("copying", 51, 200)
		now = now.Add(lineEvery)
		p.tell("replacing", 200, 200)
		p.end()
		if out.String() != c.want {
			t.Errorf("terminal %t: it shows %q, want %q", c.terminal, &out, c.want)
		}
	}
}
