package main

import (
	"fmt"
	"strings"

	"github.com/onced/onced"
)

// trace takes the steps of a path again and writes them down, each with the
// operation as it is after it.
func (m *model) trace(path []uint16) []string {
	w := m.start()
	lines := make([]string, 0, len(path))
	for _, want := range path {
		var taken step
		var after *world
		number := uint16(0)
		m.steps(w, func(s step, next *world) {
			if number == want {
				taken, after = s, next
			}
			number++
		})
		lines = append(lines, m.describe(taken, after))
		w = after
	}
	return lines
}

func (m *model) describe(s step, w *world) string {
	var b strings.Builder
	if s.run != service {
		fmt.Fprintf(&b, "%s: ", m.name(s.run))
	}
	b.WriteString(s.verb)
	if s.note != "" {
		fmt.Fprintf(&b, " → %s", s.note)
	}
	fmt.Fprintf(&b, "  [tick %d, %s]", w.now, m.show(w))
	return b.String()
}

// show is the operation in a few words, as an operator would see it.
func (m *model) show(w *world) string {
	op, ok, err := onced.Show(m.view(w), m.policy)
	switch {
	case err != nil:
		return noteOf(err)
	case !ok:
		return "absent"
	}
	text := op.State.String()
	if op.Reason != onced.ReasonNone {
		text += "/" + op.Reason.String()
	}
	text += fmt.Sprintf(" attempt %d", op.Attempt)
	if i := w.holder(); i >= 0 {
		text += " of " + m.name(i)
	}
	if op.Doubt {
		text += ", doubt"
	}
	return text
}
