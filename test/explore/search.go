package main

import "time"

// outcome is what a walk found.
type outcome struct {
	States      int     `json:"states"`
	Transitions int     `json:"transitions"`
	Depth       int     `json:"depth"`
	Seconds     float64 `json:"seconds"`
	// Complete says that every state within the bounds was visited.
	Complete bool       `json:"complete"`
	Broken   *violation `json:"violation,omitempty"`
}

// violation is a property that does not hold, with a shortest way to break it.
type violation struct {
	Property string   `json:"property"`
	Text     string   `json:"text"`
	Steps    []string `json:"steps"`
}

// origin says how a state was reached first: from which other one, and by which
// of its steps.
type origin struct {
	from uint32
	step uint16
}

// node is a state whose steps have not been taken yet.
type node struct {
	world world
	id    uint32
}

// search is a breadth-first walk. Of a visited state it keeps the digest and its
// origin; the worlds of two levels are all that it holds in full.
type search struct {
	m       *model
	enc     encoder
	seen    map[digest]struct{}
	origins []origin
	level   []node
	next    []node
	out     outcome
}

// explore walks the model until every state is visited, the bound on states is
// reached, or a property is broken. visit, if not nil, is told of every step.
func explore(m *model, visit func(*world, step, *world)) outcome {
	began := time.Now()
	s := &search{m: m, seen: make(map[digest]struct{}, 1<<16)}
	first := m.start()
	s.add(first, origin{})
	for len(s.next) > 0 && s.out.Broken == nil && s.out.States < m.States {
		s.level, s.next = s.next, s.level[:0]
		for i := range s.level {
			s.expand(&s.level[i], visit)
			if s.out.Broken != nil || s.out.States >= m.States {
				break
			}
		}
		s.out.Depth++
	}
	s.out.Complete = len(s.next) == 0 && s.out.Broken == nil
	s.out.Seconds = time.Since(began).Seconds()
	return s.out
}

func (s *search) expand(n *node, visit func(*world, step, *world)) {
	number := uint16(0)
	s.m.steps(&n.world, func(taken step, w *world) {
		s.out.Transitions++
		if visit != nil {
			visit(&n.world, taken, w)
		}
		s.judge(n, number, w)
		number++
	})
}

// judge ends the walk when a step has broken a property that is watched, and
// goes on from where it led otherwise.
func (s *search) judge(n *node, number uint16, w *world) {
	if s.out.Broken != nil {
		return
	}
	for _, f := range w.broken {
		if s.m.Watch == "" || s.m.Watch == f.property {
			path := append(s.path(n.id), number)
			s.out.Broken = &violation{Property: f.property, Text: f.text, Steps: s.m.trace(path)}
			return
		}
	}
	w.broken = nil
	s.add(w, origin{from: n.id, step: number})
}

// add takes a world in unless one with the same future has been visited.
func (s *search) add(w *world, from origin) {
	k := s.enc.key(s.m, w)
	if _, ok := s.seen[k]; ok {
		return
	}
	s.seen[k] = struct{}{}
	s.next = append(s.next, node{world: *w, id: uint32(len(s.origins))})
	s.origins = append(s.origins, from)
	s.out.States++
}

// path is the numbers of the steps from the start to a state.
func (s *search) path(id uint32) []uint16 {
	var numbers []uint16
	for id != 0 {
		o := s.origins[id]
		numbers = append(numbers, o.step)
		id = o.from
	}
	for i, j := 0, len(numbers)-1; i < j; i, j = i+1, j-1 {
		numbers[i], numbers[j] = numbers[j], numbers[i]
	}
	return numbers
}
