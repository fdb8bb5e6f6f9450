package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress shows how far a long work has come: a bar on a terminal, plain lines
// elsewhere. What is done at once shows nothing.
type progress struct {
	to       io.Writer
	terminal bool
	now      func() time.Time
	last     time.Time // when it has begun, or shown something
	shown    bool
}

const (
	barWidth  = 40
	barEvery  = 200 * time.Millisecond
	lineEvery = 2 * time.Second
)

func newProgress(to io.Writer) *progress {
	p := &progress{to: to, now: time.Now, last: time.Now()}
	if f, ok := to.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// tell is given what is being done, and how much of it has been.
func (p *progress) tell(step string, done, total uint64) {
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	now := p.now()
	if now.Sub(p.last) < every {
		return
	}
	p.last, p.shown = now, true
	part := float64(min(done, total)) / float64(max(total, 1))
	if !p.terminal {
		fmt.Fprintf(p.to, "%s: %d of %d entries\n", step, done, total)
		return
	}
	bar := strings.Repeat("#", int(part*barWidth))
	fmt.Fprintf(p.to, "\r%-10s [%-*s] %3.0f%%", step, barWidth, bar, 100*part)
}

// end removes a bar.
func (p *progress) end() {
	if p.terminal && p.shown {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
